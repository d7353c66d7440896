"""Put the parts of a report into words, once for all views, and annotate its source lines.

In: a report. Out: names, sentences and annotated source lines.
May import ``knowledge`` and ``report``.
"""

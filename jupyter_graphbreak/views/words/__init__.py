"""Put the parts of a report into words, once for all views, and annotate its source lines.

Input: a report. Output: names, sentences and annotated source lines.
This package may import ``knowledge`` and ``report``.
"""

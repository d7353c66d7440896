"""The wording of reports, shared by all views: places, permissions, what happened on each line.

In: a report. Out: words, and lines with what happened on them.
May import ``knowledge`` and ``report``.
"""

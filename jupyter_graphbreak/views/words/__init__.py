"""What is said about a report, once for every view: places, permissions, what happened on each line.

In: a report. Out: words, and lines with what happened on them.
May import ``report``.
"""

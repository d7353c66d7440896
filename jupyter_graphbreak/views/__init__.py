"""Presentation of reports: words, text and HTML.

In: a report. Out: text or markup; no view needs torch or a recording.
May import ``knowledge`` and ``report``.
"""

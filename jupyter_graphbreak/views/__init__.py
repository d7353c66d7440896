"""Presentation of reports: words, text and HTML.

In: a report. Out: text or markup; no view knows torch or a recording.
May import ``report``.
"""

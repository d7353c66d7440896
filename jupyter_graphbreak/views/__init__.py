"""Turn reports into words, rows, text, HTML, Markdown and SARIF.

In: a report. Out: text or markup; no view needs torch or a recording.
May import ``knowledge`` and ``report``.
"""

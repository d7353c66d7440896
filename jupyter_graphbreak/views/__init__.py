"""Turn reports into words, rows, text, HTML, Markdown and SARIF.

Input: a report. Output: text or markup; no view needs torch or a recording.
This package may import ``knowledge`` and ``report``.
"""

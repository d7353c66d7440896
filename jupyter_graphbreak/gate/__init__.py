"""Compare reports with a baseline of allowed breaks, for continuous integration.

Input: reports and the text of a baseline. Output: a new baseline, or a verdict and its text.
This package may import ``records`` and ``report``.
"""

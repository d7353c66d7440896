"""Compare reports with a baseline of allowed breaks, for continuous integration.

In: reports and the text of a baseline. Out: a new baseline, or a verdict and its text.
May import ``records`` and ``report``.
"""

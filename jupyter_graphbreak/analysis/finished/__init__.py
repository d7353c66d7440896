"""Work out of a finished report what its lists mean together.

In: a report. Out: the same report, saying more.
May import ``report``.
"""

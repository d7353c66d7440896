"""Add what follows from a finished report as a whole.

In: a report. Out: the same report, with further fields filled in.
May import ``report``.
"""

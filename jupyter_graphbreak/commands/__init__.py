"""The commands of ``graphbreak``: logs, notebooks, scripts, and the difference of two runs.

In: what was written on the command line. Out: a report in the format that was asked for, and the exit status.
May import ``api`` and ``results``, what they hand out, ``gate`` and ``views``.
"""

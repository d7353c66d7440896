"""The commands of ``graphbreak``: logs, notebooks, scripts, and the difference of two runs.

In: the command line. Out: a report in the requested format, and the exit status.
May import ``api``, ``results``, ``gate``, ``views``, the data that they return, and what runs a program.
"""

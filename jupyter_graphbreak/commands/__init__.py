"""The commands of ``graphbreak``: logs, notebooks, scripts, and the difference of two runs.

Input: the command line. Output: a report in the requested format, and the exit status.
This package may import ``api``, ``results``, ``gate``, ``views``, the data that they return, and what runs a program.
"""

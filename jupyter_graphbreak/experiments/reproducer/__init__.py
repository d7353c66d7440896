"""Write a standalone script that reproduces a break, a recompile, an error or a wrong result, and shorten it.

Input: the entries of a run, and its report. Output: a :class:`~jupyter_graphbreak.report.reproducer.Reproducer`, whose
script has been run in its own process. This package may import ``trial``, ``recompiles`` and what they may import.
"""

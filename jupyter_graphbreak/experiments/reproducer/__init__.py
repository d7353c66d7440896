"""Write a standalone script that shows a break, a recompile, an error or a wrong result, as small as possible.

In: entries of a run and its report. Out: a :class:`~jupyter_graphbreak.report.reproducer.Reproducer`, whose script has
run in its own process. May import ``trial``, ``recompiles`` and what they import.
"""

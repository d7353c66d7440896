"""Write a standalone script, reduced as far as time allows, that shows a break, a recompile, an error or wrong result.

In: entries of a run and its report. Out: a :class:`~jupyter_graphbreak.report.reproducer.Reproducer`, whose script has
run in its own process. May import ``trial``, ``recompiles`` and what they import.
"""

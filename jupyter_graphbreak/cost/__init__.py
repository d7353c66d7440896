"""Measure what compiling a function costs and yields, and whether its result is right.

In: an entry, which is run on copies, and the report of the run that it was taken from. Out: the report's ``Cost`` and
``Check``. May import ``trial``, ``analysis``, ``recording`` and ``_torch_compat``.
"""

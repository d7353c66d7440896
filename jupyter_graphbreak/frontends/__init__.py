"""Compare what PyTorch's front ends capture of a function with the function itself, by running both.

In: a function and arguments. Out: :class:`~jupyter_graphbreak.report.frontends.Frontends`.
May import ``trial`` and all below it.
"""

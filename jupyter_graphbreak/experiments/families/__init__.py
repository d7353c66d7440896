"""Families of changes that may remove a break: pure functions from source text to proposals, listed in ``table``.

In: a :class:`~jupyter_graphbreak.experiments.families.proposal.Problem`. Out: proposals, most likely first.
It may import ``analysis``, ``knowledge``, ``report`` and ``_torch_compat``'s lists of operations, but no experiment.
"""

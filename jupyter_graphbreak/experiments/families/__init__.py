"""Families of changes that may remove a break: pure functions from source text to proposals, listed in ``table``.

Input: a :class:`~jupyter_graphbreak.experiments.families.proposal.Problem`. Output: proposals, those most likely to
work first. This package may import ``analysis``, ``knowledge``, ``report`` and ``_torch_compat``'s lists of operations,
but no experiment.
"""

"""The families of remedies: pure functions from a break and its source text to proposals, listed in ``table``.

In: a :class:`~jupyter_graphbreak.remedies.proposal.Problem`. Out: proposals, the most likely first, not tried yet.
May import ``remedies.proposal``, ``remedies.drafting``, ``remedies.forms``, ``knowledge`` and ``report``; no torch.
"""

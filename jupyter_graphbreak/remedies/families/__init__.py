"""The families of remedies: pure functions from a break and its source text to proposals.

In: a :class:`~jupyter_graphbreak.remedies.proposal.Problem`. Out: proposals, the most likely first, not tried yet.
May import ``remedies.proposal``, ``remedies.drafting`` and ``report``; no torch.
"""

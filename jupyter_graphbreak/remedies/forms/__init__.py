"""What several families are written with: the place of a break, tests, sides of a branch, functions around others.

In: a :class:`~jupyter_graphbreak.remedies.proposal.Problem` or a draft of its source. Out: texts and splices.
May import ``remedies.proposal``, ``remedies.drafting``, ``knowledge`` and ``report``; no torch.
"""

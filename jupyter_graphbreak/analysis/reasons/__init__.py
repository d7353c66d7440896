"""Say in words why something happened and what to do about it: tables of sentences, and which one applies.

In: what PyTorch's messages say. Out: advice for a break, the reason why a function runs eagerly.
May import ``torch_text``, ``source`` and ``report``.
"""

"""Say in words why something happened and what to do about it: which sentence of ``knowledge`` applies.

In: what PyTorch's messages say. Out: advice for a break, the reason why a function runs eagerly.
May import ``knowledge``, ``torch_text``, ``source`` and ``report``.
"""

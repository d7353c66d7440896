"""Select the sentence of ``knowledge`` that tells why something happened and what to do about it.

In: what PyTorch's messages say. Out: advice for a break, the reason why a function runs eagerly.
May import ``knowledge``, ``torch_text``, ``source`` and ``report``.
"""

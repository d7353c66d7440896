"""Record what PyTorch says and does while code runs in this process, and find what that code leads to.

In: code to run, and what is given to ``torch.compile``. Out: records, in PyTorch's own wire format.
May import ``_torch_compat`` and ``report``; ``records`` and ``additions``, which are inert, import nothing of ours.
"""

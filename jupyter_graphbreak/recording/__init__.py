"""Record what PyTorch does while code runs in this process, and find the functions and modules that the code uses.

In: code to run, and the objects passed to ``torch.compile``. Out: records in PyTorch's own wire format.
May import ``_torch_compat`` and ``report``; ``records`` and ``additions`` are inert and import no other part.
"""

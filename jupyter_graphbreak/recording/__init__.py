"""Record what PyTorch does while code runs in this process, and find the functions and modules that the code uses.

In: a block of code that runs, and objects that it uses. Out: records in PyTorch's own wire format.
May import ``_torch_compat``, ``records``, ``report`` and ``faults``.
"""

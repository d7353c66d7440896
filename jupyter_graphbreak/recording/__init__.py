"""Record what PyTorch does while code runs in this process, and find the functions and modules that the code uses.

Input: a block of code that runs, and objects that it uses. Output: records in PyTorch's own wire format.
This package may import ``_torch_compat``, ``records``, ``report`` and ``faults``.
"""

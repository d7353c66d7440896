"""Hooks on PyTorch's functions, most of which run while it compiles.

Input: an observer. Output: typed additions to the trace; ``entries`` calls functions that it receives instead. The
hooks are removed when the context ends.
This package may import the records and the rest of ``_torch_compat``.
"""

"""What PyTorch said while it compiled, as inert data, and whose a file is.

In: entries of PyTorch's structured trace, and the additions to it. Out: typed records.
Imports nothing of this package.
"""

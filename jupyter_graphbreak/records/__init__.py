"""Records of PyTorch's compilations as inert data, and the owners of files.

In: entries of PyTorch's structured trace, and the additions to it. Out: typed records.
Imports nothing of this package.
"""

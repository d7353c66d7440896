"""Records of PyTorch's compilations as plain data, the source texts that they mention, and the owners of files.

In: entries of PyTorch's structured trace, and our additions to it. Out: typed records.
Imports no other part of the package.
"""

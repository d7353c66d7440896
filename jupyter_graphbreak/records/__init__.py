"""Records of PyTorch's compilations as plain data, the source text that they mention, and the owners of files.

In: records of PyTorch's structured trace, and our additions to it. Out: typed records.
Imports no other part of the package.
"""

"""Records of PyTorch's compilations as plain data, the source text that they mention, and the owners of files.

Input: records of PyTorch's structured trace, and our additions to it. Output: typed records.
This package imports no other part of the package.
"""

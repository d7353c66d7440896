"""The only package that touches PyTorch's internals, which differ from release to release.

Input: calls from the other packages. Output: observations (records). Every context restores its changes when it ends.
This package may import ``records`` and ``faults``. Importing this package patches nothing.
"""

"""The only package that touches PyTorch's internals, which differ from release to release.

In: calls from the other packages. Out: observations (records). Every context restores its changes when it ends.
May import ``records`` and ``faults``. Importing this package patches nothing.
"""

"""The only package that touches PyTorch's internals; each use has a test for what it needs of this torch.

In: calls from ``recording``, ``trial`` and the faces. Out: observations (records), and PyTorch as it was before.
May import the records. Nothing is patched at import, and what is patched is restored when its context ends.
"""

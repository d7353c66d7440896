"""The only package that touches PyTorch's internals; each use checks that this PyTorch has what it needs.

In: calls from the other packages. Out: observations (records). Everything is restored when the contexts end.
May import the records. Importing this package patches nothing.
"""

"""Parse the texts that PyTorch writes: messages about graph breaks, the code of graphs, the reasons of recompiles.

In: payloads of trace entries. Out: typed data.
May import the records and ``knowledge``.
"""

"""Read and write the files in which ``TORCH_TRACE`` keeps structured traces.

In: files. Out: the same records that :mod:`jupyter_graphbreak.recording` takes from a live process.
May import the inert records and additions, and the texts of files.
"""

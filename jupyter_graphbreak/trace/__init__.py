"""Read the files in which ``TORCH_TRACE`` stores structured traces.

In: files. Out: the same records that :mod:`jupyter_graphbreak.recording` receives in a live process.
May import ``records`` only.
"""

"""Read the files to which PyTorch writes structured traces if ``TORCH_TRACE`` is set.

In: files. Out: the same records that :mod:`jupyter_graphbreak.recording` receives in a live process.
May import ``records`` only.
"""

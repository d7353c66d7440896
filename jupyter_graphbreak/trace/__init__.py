"""Read the files to which PyTorch writes structured traces if ``TORCH_TRACE`` is set.

Input: files. Output: the same records that :mod:`jupyter_graphbreak.recording` receives in a live process.
This package may import ``records`` only.
"""

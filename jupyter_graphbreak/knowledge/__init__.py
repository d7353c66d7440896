"""Facts about each cause: titles, advice, manual steps, settings, rewrites and pages. Edit them in ``causes``.

Input: a GB id, PyTorch's name for a cause, or the name of a called function. Output: inert entries of a table.
This package imports nothing from other folders at run time, and from ``report`` only types.
"""

"""The IPython interface: ``%%compile_explain`` and ``%compile_explain``.

Input: a cell or a line, and options. Output: the cell's result, unchanged, and one output that shows the report.
This package may import everything below; only the package's own ``__init__`` imports it, when the extension is loaded.
"""

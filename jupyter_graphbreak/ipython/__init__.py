"""The IPython interface: ``%%compile_explain`` and ``%compile_explain``.

In: a cell or a line, and options. Out: the cell's result, unchanged, and one output that shows the report.
May import everything below; only the package's own ``__init__`` imports it, when the extension is loaded.
"""

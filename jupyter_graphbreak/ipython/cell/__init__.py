"""A cell as IPython runs it: its text, the request for a report, and its rewritten code.

In: the text and the syntax tree of a cell. Out: a tree that begins the observation and then runs the cell.
Imports torch only if the notebook or the cell imports it.
"""

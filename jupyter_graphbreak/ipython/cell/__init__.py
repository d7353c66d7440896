"""A cell as IPython runs it: its text, the request for a report, and its rewritten code.

Input: the text and the syntax tree of a cell. Output: a tree that begins the observation and then runs the cell.
This package imports torch only if the notebook or the cell imports it.
"""

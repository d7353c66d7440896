"""A cell as IPython runs it: its text, what a request asks for, and the code that it becomes.

In: the text and the syntax tree of a cell. Out: another tree, which begins the observation and does what the cell does.
Knows IPython, not torch; may import ``recording`` for data only.
"""

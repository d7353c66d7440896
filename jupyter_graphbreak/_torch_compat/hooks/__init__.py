"""Hooks on PyTorch's functions, most of which run while it compiles, and marks in the code that Dynamo creates.

In: an observer. Out: typed additions to the trace, for the hooks that ``watch`` opens; ``entries`` and ``code_marks``
call functions that they receive. The hooks are removed when the context ends.
May import the records and the rest of ``_torch_compat``.
"""

"""Hooks on functions that Dynamo calls while it compiles, opened by ``watch``, and marks in the code that it creates.

In: an observer. Out: typed additions to the trace. The hooks are removed when the context ends.
May import the records and the rest of ``_torch_compat``.
"""

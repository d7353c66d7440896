"""Hooks on what Dynamo calls while it compiles, opened together by ``watch``; and marks in the code that it makes.

In: an observer. Out: typed additions to the trace; torch's functions as they were when the context ends.
May import the records and the rest of ``_torch_compat``.
"""

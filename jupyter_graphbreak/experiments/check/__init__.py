"""Check that compiled code computes what the function itself computes, and find the operation that does not.

In: an entry. Out: the report's ``Check``.
May import ``trial`` and the clock of ``cost``.
"""

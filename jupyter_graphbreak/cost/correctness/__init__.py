"""Check that what is compiled computes what the function itself does, and find the operation that does not.

In: an entry. Out: the report's ``Check``. May import what ``cost`` may.
"""

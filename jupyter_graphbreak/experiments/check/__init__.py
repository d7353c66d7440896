"""Check that compiled code computes the same results as the eager function, and find the first operation that does not.

Input: an entry. Output: the report's ``Check``.
May import ``trial`` and ``cost``.
"""

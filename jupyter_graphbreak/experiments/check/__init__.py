"""Check that compiled code computes the same results as the eager function, or find the first wrong operation.

Input: an entry. Output: the report's ``Check``.
May import ``trial`` and ``cost``.
"""

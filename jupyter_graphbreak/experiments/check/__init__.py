"""Check that compiled code computes the same results as the eager function, or find the first wrong operation.

Input: an entry. Output: the report's ``Check``.
This package may import ``trial`` and ``cost``.
"""

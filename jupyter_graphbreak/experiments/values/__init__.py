"""Record the values inside compiled code: their ranges, and where NaN and Inf arise, forward and backward.

Input: an entry, and the report of its run. Output: the report's ``EntryValues``.
This package may import ``trial``, ``check`` and ``cost``.
"""

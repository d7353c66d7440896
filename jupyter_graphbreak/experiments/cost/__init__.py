"""Measure what compiling a function costs and what it saves.

Input: an entry and the report of its run. Output: the report's ``Cost``.
May import ``trial``.
"""

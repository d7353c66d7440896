"""Measure what compiling a function costs and what it saves.

In: an entry and the report of its run. Out: the report's ``Cost``.
May import ``trial``.
"""

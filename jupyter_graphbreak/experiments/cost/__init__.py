"""Measure what compiling a function costs and what it saves.

Input: an entry and the report of its run. Output: the report's ``Cost``.
May import ``trial``, and ``analysis`` and ``recording`` for the report of its own run.
"""

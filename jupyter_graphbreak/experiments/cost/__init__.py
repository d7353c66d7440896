"""Measure how much time and memory compiling a function costs and saves.

Input: an entry, and the report of its run. Output: the report's ``Cost``.
This package may import ``trial``, and ``analysis`` and ``recording`` for the report of the run on copies.
"""

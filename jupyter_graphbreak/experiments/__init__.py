"""Rerun a program on copies to find what removes a break, what a call costs, and whether its result is right.

Input: entries (callables with copies of their arguments and the modes of the call). Output: one section of the report
for each experiment. This package may import everything from ``compiling`` downwards. ``trial`` serves the others.
"""

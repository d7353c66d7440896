"""Rerun a program on copies to find what removes a break, what a call costs, and whether its result is right.

In: entries (callables with copies of their arguments and the modes of the call). Out: one section of the report for
each experiment. May import everything from ``compiling`` downwards. ``trial`` serves the others.
"""

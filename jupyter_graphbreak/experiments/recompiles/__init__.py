"""Find changes that prevent recompiles, and test them by repeating the calls of the run on copies.

Input: entries with specs (descriptions without large data) of the arguments and the state of their calls, and the
report of their run. Output: remedies for the report's recompiles. This package may import ``trial`` and, for changes to
sources, ``families`` and ``remedies``.
"""

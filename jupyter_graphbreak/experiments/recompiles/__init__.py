"""Find changes that end recompiles, and test them by repeating, on copies, the calls that were seen.

In: entries with specs (descriptions without large data) of the arguments and the state of their calls, and the report
of their run.
Out: remedies for the report's recompiles.
May import ``trial`` and, for changes of sources, ``families`` and ``remedies``.
"""

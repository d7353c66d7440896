"""Find changes that end recompiles, and prove them by repeating all calls that were seen on copies.

In: entries with the sketches of their calls, and the report of their run. Out: remedies for the report's recompiles.
May import ``trial`` and, for changes of sources, ``remedies``.
"""

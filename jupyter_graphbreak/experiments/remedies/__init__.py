"""Find changes that remove graph breaks, test them by running the changed program on copies, and apply them.

In: entries and the report of their run. Out: remedies, each with a verdict; patches.
Of the other experiments, this package may import only ``trial`` and ``families``.
"""

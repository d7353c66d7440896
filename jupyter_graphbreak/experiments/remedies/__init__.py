"""Find changes that remove graph breaks, test them by running the changed program on copies, and apply them.

Input: entries and the report of their run. Output: remedies with their verdicts, and patches.
Of the other experiments, this package may import only ``trial`` and ``families``.
"""

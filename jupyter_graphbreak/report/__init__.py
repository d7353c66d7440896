"""What we say, as frozen data that goes to JSON and back: a run, the changes between two runs, verdicts on front ends.

In and out: JSON. Its field names are a contract with other programs.
Imports nothing else of ours.
"""

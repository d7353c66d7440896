"""Derive results from finished reports: a job of several processes, the changes between two runs, a redacted report.

In: reports. Out: a job, changes, or reports. Pure functions.
May import ``report``, ``knowledge`` and the names of resume functions in ``recording.records``.
"""

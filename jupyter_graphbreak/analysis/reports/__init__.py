"""What is worked out from reports that are made: a job of several, what changed, one without its reader's code.

In: reports. Out: a job, changes, or reports. Pure functions.
May import ``report``, ``knowledge`` and the names of resume functions in ``recording.records``.
"""

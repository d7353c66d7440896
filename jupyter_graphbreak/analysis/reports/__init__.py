"""What is worked out from reports that are made: those of several processes as a job, one without its reader's code.

In: reports. Out: a job, or reports. Pure functions.
May import ``report`` and the names of resume functions in ``recording.records``.
"""

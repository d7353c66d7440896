"""What is said about remedies, cost, checks and front ends: what came of running a program in other ways.

In: a report. Out: sentences and the lines of a change. May import ``report`` and ``views.words``.
"""

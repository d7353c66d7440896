"""What is said about remedies, cost and checks: what came of running a program in other ways.

In: a report. Out: sentences and the lines of a change. May import ``report`` and ``views.words``.
"""

"""The report as text for a terminal 100 columns wide.

In: a report. Out: text in which nothing can steer the terminal.
May import ``report`` and ``views.words``.
"""

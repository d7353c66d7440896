"""The face for plain Python: functions in, reports that users hold out.

In come functions, blocks of code and files; out come the classes of ``results``. May import all that is below it, and
imports torch only when something is explained.
"""

"""The Python API.

In: functions, blocks of code and files. Out: the classes of ``results``.
May import all layers below it; imports torch only when it explains something.
"""

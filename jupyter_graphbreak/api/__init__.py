"""The Python API.

In: functions, blocks of code and files. Out: the classes of ``results``.
May import all layers below it; its functions import torch when they need it.
"""

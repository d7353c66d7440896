"""The Python API.

Input: functions, blocks of code and files. Output: the classes of ``results``.
This package may import all layers below it; its functions import torch when they need it.
"""

"""Run a function on copies and observe everything it does.

Input: a function and arguments. Output: what a run returned, raised, printed and changed, and how two runs differ.
This package may import ``recording`` and ``_torch_compat``, but no other experiment.
"""

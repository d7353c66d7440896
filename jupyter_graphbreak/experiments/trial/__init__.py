"""Run a function on copies and observe everything that it does.

In: a function and arguments. Out: what a run returned, raised, printed and changed, and how two runs differ.
May import ``recording`` and ``_torch_compat``, and no other experiment.
"""

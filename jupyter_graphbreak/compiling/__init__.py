"""Compile what a program calls, though the program itself does not compile it, and run its statements as Python does.

In: a program whose calls are routed here. Out: the same results, with the calls of modules and of the reader's tensor
functions compiled. May import ``recording``, ``_torch_compat`` and what reads source text.
"""

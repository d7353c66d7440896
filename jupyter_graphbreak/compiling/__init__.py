"""Compile the modules and tensor functions that a program calls without compiling them.

In: a program whose calls are routed here. Out: the same results, with calls to modules and to the user's tensor
functions compiled. May import ``recording``, ``_torch_compat`` and the modules of ``analysis`` that parse source text.
"""

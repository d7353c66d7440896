"""Compile the modules and tensor functions that a program calls without compiling them.

Input: a program whose calls are routed here. Output: the same results, with calls to modules and to the user's tensor
functions compiled. This package may import ``recording``, ``_torch_compat`` and the modules of ``analysis`` that parse
source text.
"""

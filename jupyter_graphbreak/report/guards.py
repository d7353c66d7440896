"""Read the guards of PyTorch."""

from __future__ import annotations

import re

#: How Dynamo names a module of a function that it inlined, such as ``G['__import_models_dot_layers'].scale``.
_IMPORTED = re.compile(r"\b(?:G\[')?__import_(\w+)(?:'\])?\.")
#: How it names a local and a global variable, and the parts of a module.
_VARIABLE = re.compile(r"\b[LG]\['(\w+)'\]")
_PART = re.compile(r"\._(?:modules|buffers|parameters)\['(\w+)'\]")
_ATTRIBUTES = re.compile(r"\.__dict__\['(\w+)'\]")
#: The guard of an empty container.
_EMPTY = re.compile(r"not ([\w.\[\]'\"]+)")


def plain_guard(guard: str) -> str:
    """Return a guard with the names of the code: ``L['self']._modules['a'].k == 1`` becomes ``self.a.k == 1``.

    The guard of an empty container, ``not L['seen']``, becomes ``len(seen) == 0``.
    """
    text = _VARIABLE.sub(r"\1", _IMPORTED.sub(_prefix, guard))
    for pattern in (_PART, _ATTRIBUTES):
        text = pattern.sub(r".\1", text)
    empty = _EMPTY.fullmatch(text)
    return f"len({empty[1]}) == 0" if empty is not None else text


def _prefix(imported: re.Match[str]) -> str:
    return "" if imported[1] == "__main__" else f"{imported[1].replace('_dot_', '.')}."

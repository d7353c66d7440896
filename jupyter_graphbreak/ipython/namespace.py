"""The objects of a notebook to which code refers by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.ipython.cell.mentions import mentioned_names

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

# IPython's history in the namespace: _, __, _3, _i, _i3, _ih, _oh, _dh.
_HISTORY = re.compile(r"_+|_+\d+|_i+|_i\d+|_[iod]h")


def objects_in_code(tree: ast.AST, namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the objects to which code refers, by name."""
    return objects_by_name(mentioned_names(tree), namespace)


def objects_by_name(names: Iterable[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the objects with the given names, except for IPython's history."""
    return {name: namespace[name] for name in sorted(names) if name in namespace and not _HISTORY.fullmatch(name)}

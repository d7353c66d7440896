"""The names that a cell mentions, and whether it compiles anything itself."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def names_read(tree: ast.AST) -> set[str]:
    """Return the names that code mentions, at any depth."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def mentions_compile(tree: ast.AST, namespace: Mapping[str, Any]) -> bool:
    """Return whether code calls a ``compile`` that may be torch's: ``torch.compile``, ``model.compile()``.

    ``re.compile`` and the like are recognized by the object or the import with that name.
    """
    modules = {
        alias.asname or alias.name.partition(".")[0]: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            if any(alias.name == "compile" for alias in node.names):
                return True
        elif isinstance(node, ast.Attribute) and node.attr in {"compile", "optimize"}:
            base = node.value.id if isinstance(node.value, ast.Name) else None
            known = namespace.get(base) if base is not None else None
            home = modules.get(base or "") or (getattr(known, "__name__", None) if hasattr(known, "__spec__") else None)
            if node.attr == "optimize":
                if ast.unparse(node).endswith("_dynamo.optimize"):
                    return True
            elif not isinstance(home, str) or home.partition(".")[0] == "torch":
                return True
    return False

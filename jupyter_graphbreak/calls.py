"""Which calls of a function a cell makes, as far as its text tells."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def last_called(tree: ast.AST, is_function: Callable[[ast.expr], bool]) -> list[ast.Call]:
    """Return the calls, in order, of the function that a cell's own level calls last.

    Calls whose arguments the cell assigns at the same time or later are left out: after the cell they would mean
    something else.

    Parameters
    ----------
    tree : ast.AST
        A module.
    is_function : callable
        Whether an expression stands for a function to look at; the calls around and inside others are searched.
    """
    calls: list[ast.Call] = []
    assigned: set[str] = set()
    for statement in reversed(getattr(tree, "body", [])):
        assigned |= _names(statement, ast.Store)
        value = statement.value if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign) else None
        found = [] if value is None else list(_outermost(value, is_function))
        calls = [each for each in found if not assigned & _names(each, ast.Load)] + calls
    if not calls:
        return []
    last = ast.dump(calls[-1].func)
    return [each for each in calls if ast.dump(each.func) == last]


def _names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def _outermost(node: ast.AST, is_function: Callable[[ast.expr], bool]) -> Iterator[ast.Call]:
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Call) and is_function(node.func):
        yield node
        return
    for each in ast.iter_child_nodes(node):
        yield from _outermost(each, is_function)

"""Find code around the calls of a compiled function that reads a number, and would get a tensor in its place."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from jupyter_graphbreak.experiments.trial.seen_calls import Path

#: Nodes that have their own variables, and do not run together with the code around them.
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Reader(NamedTuple):
    """A line that reads a number."""

    line: int
    path: Path


def find_reader(paths: Collection[Path], tree: ast.Module, line: int) -> Reader | None:
    """Return the first line that reads one of some numbers in the function, the cell or the file around a call.

    Parameters
    ----------
    paths : collection of Path
        The places of the numbers. The value of an argument itself belongs to the call alone.
    tree : ast.Module
        The syntax tree of the source of the call.
    line : int
        The line of the call.
    """
    kept = [path for path in paths if path.steps or path.root.kind != "argument"]
    for node in _expressions_in(_scope_around(tree, line)):
        for path in kept:
            if _reads(node, path):
                return Reader(node.lineno, path)
    return None


def _scope_around(tree: ast.Module, line: int) -> ast.AST:
    """Return the innermost function around a line, or the whole tree."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _SCOPES) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return around[-1] if around else tree


def _expressions_in(scope: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a scope without those of inner functions, in the order of the text."""
    pending = list(ast.iter_child_nodes(scope))[::-1]
    while pending:
        node = pending.pop()
        if isinstance(node, _SCOPES):
            continue
        if isinstance(node, ast.expr):
            yield node
        pending += list(ast.iter_child_nodes(node))[::-1]


def _reads(node: ast.expr, path: Path) -> bool:
    """Return whether an expression reads a place, judging by the name of its last part."""
    step = path.steps[-1] if path.steps else None
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return step is None and name == path.root.name
        case ast.Attribute(attr=name, ctx=ast.Load()):
            return step is not None and step.kind == "attribute" and name == step.key
        case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Load()):
            return step is not None and step.kind == "item" and name == step.key
    return False

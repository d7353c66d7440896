"""Find code outside a compiled function that reads a number, and would get a tensor in its place."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.experiments.families.drafting import FunctionNode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from jupyter_graphbreak.experiments.trial.seen_calls import Path


class Reader(NamedTuple):
    """A line that reads a number."""

    line: int
    path: Path


def find_reader(paths: Collection[Path], tree: ast.Module, own_line: int | None) -> Reader | None:
    """Return the first line outside a function that reads one of some numbers.

    Parameters
    ----------
    paths : collection of Path
        The places of the numbers. The value of an argument itself belongs to the call alone.
    tree : ast.Module
        The syntax tree of a source.
    own_line : int or None
        The first line of the function, or of its decorator; ``None`` if a different source has it.
    """
    kept = [path for path in paths if path.steps or path.root.kind != "argument"]
    nodes = _read_expressions(tree, own_line)
    found = [Reader(node.lineno, path) for node in nodes for path in kept if _reads(node, path)]
    return min(found, key=lambda reader: reader.line, default=None)


def _read_expressions(tree: ast.AST, own_line: int | None) -> Iterator[ast.expr]:
    """Yield the expressions of a tree whose values code uses, without those of a function."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, FunctionNode) and own_line in {node.lineno, *(part.lineno for part in node.decorator_list)}:
            continue
        if isinstance(node, ast.expr):
            yield node
        # A number is not called.
        called = node.func if isinstance(node, ast.Call) else None
        pending += [child for child in ast.iter_child_nodes(node) if child is not called]
        pending += list(ast.iter_child_nodes(called)) if called is not None else []


def _reads(node: ast.expr, path: Path) -> bool:
    """Return whether an expression reads a place, judging by the name of its last part."""
    step = path.steps[-1] if path.steps else None
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return step is None and name == path.root.name
        case ast.Attribute(attr=name, ctx=ast.Load()):
            return step is not None and step.kind == "attribute" and name == step.key
        case ast.Subscript(slice=ast.Constant(value=key), ctx=ast.Load()):
            return step is not None and step.kind == "item" and key == step.key
    return False

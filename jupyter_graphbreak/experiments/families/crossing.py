"""Find the branches that moved code passes, and whose arms may change what the moved code reads."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.arms import EFFECTS
from jupyter_graphbreak.experiments.families.site import names_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyter_graphbreak.experiments.families.drafting import FunctionNode
    from jupyter_graphbreak.experiments.families.proposal import Condition
    from jupyter_graphbreak.experiments.families.site import Site

    _Arm = Sequence[ast.stmt] | ast.expr

#: Methods that change a list, a dict or a set, besides those that are known to have side effects.
_CHANGING = EFFECTS | {
    "clear", "discard", "popitem", "remove", "reverse", "setdefault", "sort", "difference_update",
    "intersection_update", "symmetric_difference_update",
}  # fmt: skip
_BLOCKS = (ast.If, ast.While, ast.IfExp)


def conditions_before(site: Site, function: FunctionNode, moved: Sequence[ast.AST]) -> tuple[Condition, ...]:
    """Return the conditions whose arms may change what code reads that moves to the start of a function.

    At least one trial must run such an arm.
    """
    first = min(map(_position, moved))
    return _conditions(site, function, moved, lambda block: _position(block) < first)


def conditions_after(site: Site, function: FunctionNode, moved: Sequence[ast.AST]) -> tuple[Condition, ...]:
    """Return the conditions whose arms may change what code reads that moves to the end of a function."""
    first = min(map(_position, moved))
    return _conditions(site, function, moved, lambda block: _position(block) > first)


def conditions_outside(site: Site, function: FunctionNode, block: ast.stmt) -> tuple[Condition, ...]:
    """Return the conditions whose arms compute something outside a block whose context moves around the function."""
    inside = set(ast.walk(block))
    found = [
        (node, side)
        for node in ast.walk(function)
        if isinstance(node, _BLOCKS) and node not in inside
        for side, arm in _arms(node)
        if any(isinstance(part, ast.expr) and part not in inside for part in _parts(arm))
    ]
    return _as_conditions(site, found)


def _conditions(
    site: Site, function: FunctionNode, moved: Sequence[ast.AST], is_passed: Callable[[ast.AST], bool]
) -> tuple[Condition, ...]:
    own = {part for node in moved for part in ast.walk(node)}
    names = {name for node in moved for name in names_read(node)}
    # A loop repeats what it contains, which then runs before the moved code and after it.
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While) and own & set(ast.walk(node))]
    repeated = {part for loop in loops for part in ast.walk(loop)}
    found = [
        (node, side)
        for node in ast.walk(function)
        if isinstance(node, _BLOCKS) and node not in own and (is_passed(node) or node in repeated)
        for side, arm in _arms(node)
        if any(part not in own and _may_change(part, names) for part in _parts(arm))
    ]
    return _as_conditions(site, found)


def _as_conditions(site: Site, found: Sequence[tuple[ast.If | ast.While | ast.IfExp, bool]]) -> tuple[Condition, ...]:
    return tuple(site.condition(block.test, sides=(side,)) for block, side in found)


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _arms(block: ast.If | ast.While | ast.IfExp) -> Iterator[tuple[bool, _Arm]]:
    yield True, block.body
    if not isinstance(block, ast.While):
        yield False, block.orelse


def _parts(arm: _Arm) -> Iterator[ast.AST]:
    for node in [arm] if isinstance(arm, ast.expr) else arm:
        yield from ast.walk(node)


def _may_change(node: ast.AST, names: set[str]) -> bool:
    """Return whether code may change an object, whatever its name: another name may refer to the same object."""
    match node:
        case ast.Attribute() | ast.Subscript():
            return not isinstance(node.ctx, ast.Load)
        case ast.AugAssign() | ast.Global() | ast.keyword(arg="out"):
            return True
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _CHANGING or (name.endswith("_") and not name.endswith("__"))
        case ast.Call(func=ast.Name(id=name)):
            return not hasattr(builtins, name) and (not node.args or not names.isdisjoint(names_read(node)))
    return False

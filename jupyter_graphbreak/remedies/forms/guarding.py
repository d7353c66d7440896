"""Keep the gradients of a side finite where it is not taken: divide by one there, and take the root of one."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.source.python_text import parse_expression
from jupyter_graphbreak.remedies.forms.site import dotted

if TYPE_CHECKING:
    from jupyter_graphbreak.remedies.forms.arms import Arm, Value

#: Functions and methods whose gradient is not finite for zero or negative numbers; that for one is.
_STEEP = {"sqrt", "rsqrt", "log", "log2", "log10", "reciprocal"}


def guarded_arm(arm: Arm, condition: str, torch: str, *, is_taken: bool) -> Arm:
    """Return one side of a branch that divides by one, and so on, where the other side is taken.

    Parameters
    ----------
    arm : Arm
        The side.
    condition : str
        The name of the condition.
    torch : str
        The name of the torch package.
    is_taken : bool
        Whether the side is taken where the condition is true.
    """

    def of(text: str) -> str:
        return guarded_text(text, condition, torch, is_taken=is_taken)

    def of_value(value: Value | None) -> Value | None:
        if value is None or isinstance(value, str):
            return value and of(value)
        kind, keys, members = value
        return kind, keys, tuple(member for member in map(of_value, members) if member is not None)

    lines = [f"{name} = {of(text)}" for name, _, text in (line.partition(" = ") for line in arm.lines)]
    values = {target: of(text) for target, text in arm.values.items()}
    return replace(arm, lines=lines, values=values, result=of_value(arm.result))


def guarded_text(text: str, condition: str, torch: str, *, is_taken: bool) -> str:
    """Return an expression that divides by one, and so on, where the other side is taken; others as they are."""
    try:
        tree = parse_expression(text)
    except SyntaxError:
        return text
    guard = _Guard(condition, torch, is_taken=is_taken)
    guarded = guard.visit(tree)
    return ast.unparse(guarded) if guard.found else text


class _Guard(ast.NodeTransformer):
    def __init__(self, condition: str, torch: str, *, is_taken: bool) -> None:
        self._condition = condition
        self._torch = torch
        self._is_taken = is_taken
        self.found = False

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Guard what is divided by, and what a root is taken of by its exponent."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Div) and not isinstance(node.right, ast.Constant):
            node.right = self._guarded(node.right)
        exponent = node.right.value if isinstance(node.right, ast.Constant) else None
        if isinstance(node.op, ast.Pow) and isinstance(exponent, float):
            node.left = self._guarded(node.left)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Guard what a root or a logarithm is taken of."""
        self.generic_visit(node)
        if dotted(node.func).rpartition(".")[2] in _STEEP and isinstance(node.func, ast.Attribute):
            if node.args:
                node.args[0] = self._guarded(node.args[0])
            else:
                node.func.value = self._guarded(node.func.value)
        return node

    def _guarded(self, operand: ast.expr) -> ast.expr:
        self.found = True
        text, one = ast.unparse(operand), "1"
        sides = (text, one) if self._is_taken else (one, text)
        return parse_expression(f"{self._torch}.where({self._condition}, {sides[0]}, {sides[1]})")

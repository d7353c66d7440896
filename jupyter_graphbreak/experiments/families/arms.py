"""Read the sides of a branch as values: the value of each name afterwards, or the result."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.conditions import is_host_test, tensor_condition
from jupyter_graphbreak.experiments.families.drafting import argument, operand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jupyter_graphbreak.experiments.families.drafting import Draft

#: The text of a value; a tuple, list or dict consists of its type, its keys and the values in it.
Value = str | tuple[str, tuple[str, ...], tuple["Value", ...]]
#: The signs of operators in assignments.
SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**", ast.FloorDiv: "//",
    ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
#: Nodes that cannot be computed on both sides, or that have their own scope.
_UNSUPPORTED_NODES = (
    ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp,
)  # fmt: skip
#: Calls with side effects: they must not run on the side that is not taken.
EFFECTS = {
    "print", "append", "extend", "insert", "update", "pop", "add", "write", "open", "input", "setattr", "warn",
    "backward", "step", "zero_grad", "register_buffer", "info", "debug", "warning", "error", "warning_once", "next",
}  # fmt: skip


@dataclass
class Arm:
    """One side of a branch.

    Parameters
    ----------
    lines : list of str
        Statements that compute values for later ones, under new names.
    values : dict
        The assigned values, by the text of the target.
    returns : bool
        Whether the side returns.
    tests : list of ast.expr
        The tests of branches in the side.
    """

    lines: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    result: Value | None = None
    returns: bool = False
    tests: list[ast.expr] = field(default_factory=list)


class _UnsupportedSideError(Exception):
    """The side does something that cannot be done on both sides."""


def is_free_of_effects(node: ast.expr) -> bool:
    """Return whether an expression has no side effects, as far as its syntax shows."""
    for part in ast.walk(node):
        if isinstance(part, _UNSUPPORTED_NODES):
            return False
        if isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] in EFFECTS:
            return False
    return True


def read_arm(draft: Draft, block: Sequence[ast.stmt], suffix: str, torch: str) -> Arm | None:
    """Return the values that a side computes; ``None`` if it cannot be computed regardless of the condition.

    Parameters
    ----------
    block : sequence of ast.stmt
        The side's statements.
    suffix : str
        The suffix of new names in the side.
    torch : str
        The name of the torch package.
    """
    try:
        return _ArmReader(draft, suffix, torch).read(block)
    except _UnsupportedSideError:
        return None


class _ArmReader:
    def __init__(self, draft: Draft, suffix: str, torch: str) -> None:
        self._draft = draft
        self._suffix = suffix
        self._torch = torch
        self._own: set[str] = set()  # names that only this side uses
        self._now: dict[str, str] = {}  # the text of each target's current value
        self._arm = Arm()

    def read(self, block: Sequence[ast.stmt]) -> Arm:
        if block:
            inside = {node for part in block for node in ast.walk(part)}
            everywhere = ast.walk(self._draft.enclosing_function(block[0]) or self._draft.tree)
            outside = {node.id for node in everywhere if isinstance(node, ast.Name) and node not in inside}
            arguments = {node.arg for node in ast.walk(self._draft.tree) if isinstance(node, ast.arg)}
            self._own = {node.id for node in inside if isinstance(node, ast.Name)} - outside - arguments
        for index, statement in enumerate(block):
            after = block[index + 1 :]
            read_later = {ast.unparse(node) for other in after for node in ast.walk(other) if _is_read(node)}
            self._read(statement, read_later, is_last=index == len(block) - 1)
        return self._arm

    def _read(self, statement: ast.stmt, read_later: set[str], *, is_last: bool) -> None:
        if isinstance(statement, ast.Pass):
            return
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._assign(statement.targets[0], statement.value, read_later)
        elif isinstance(statement, ast.Assign) and all(isinstance(node, ast.Name) for node in statement.targets):
            text = self._text(statement.value)
            for node in statement.targets:
                self._set(ast.unparse(node), text, read_later)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._assign(statement.target, statement.value, read_later)
        elif isinstance(statement, ast.AugAssign) and type(statement.op) in SIGNS:
            target = ast.unparse(statement.target)
            before = self._now.get(target, self._draft.text_of(statement.target))
            sign = SIGNS[type(statement.op)]
            self._set(target, f"{operand(before)} {sign} {operand(self._text(statement.value))}", read_later)
        elif isinstance(statement, ast.Return) and is_last:
            self._arm.returns = True
            self._arm.result = self._value(statement.value) if statement.value is not None else "None"
        elif isinstance(statement, ast.If):
            self._branch(statement, read_later, is_last=is_last)
        else:
            raise _UnsupportedSideError

    def _assign(self, target: ast.expr, value: ast.expr, read_later: set[str]) -> None:
        if isinstance(target, ast.Tuple):
            if not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts):
                raise _UnsupportedSideError
            texts = [self._text(node) for node in value.elts]
            for node, text in zip(target.elts, texts, strict=True):
                self._set(ast.unparse(node), text, read_later)
        elif isinstance(target, ast.Name | ast.Attribute | ast.Subscript):
            self._set(ast.unparse(target), self._text(value), read_later)
        else:
            raise _UnsupportedSideError

    def _set(self, target: str, text: str, read_later: set[str]) -> None:
        if target in read_later:
            name = target if target in self._own else target.replace(".", "_") + self._suffix
            if not name.isidentifier():
                raise _UnsupportedSideError
            self._arm.lines.append(f"{name} = {parenthesized(text)}")
            text = name
        self._now[target] = text
        self._arm.values[target] = text

    def _branch(self, branch: ast.If, read_later: set[str], *, is_last: bool) -> None:
        if self._arm.values or is_host_test(branch.test):
            raise _UnsupportedSideError
        condition = tensor_condition(self._draft, branch.test, self._torch)
        taken = read_arm(self._draft, branch.body, f"{self._suffix}_if", self._torch)
        other = read_arm(self._draft, branch.orelse, f"{self._suffix}_else", self._torch)
        if condition is None or taken is None or other is None:
            raise _UnsupportedSideError
        self._arm.lines += [*taken.lines, *other.lines]
        self._arm.tests += [branch.test, *taken.tests, *other.tests]
        if taken.returns and other.returns and is_last:
            merged = select_value(condition, taken.result, other.result, self._where)
            if merged is None:
                raise _UnsupportedSideError
            self._arm.returns, self._arm.result = True, merged
        elif taken.returns or other.returns:
            raise _UnsupportedSideError
        else:
            for target in {**taken.values, **other.values}:
                text = self._where(condition, taken.values.get(target, target), other.values.get(target, target))
                self._set(target, text, read_later)

    def _where(self, condition: str, taken: str, other: str) -> str:
        return f"{self._torch}.where({condition}, {taken}, {other})"

    def _value(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Tuple | ast.List) and not any(isinstance(part, ast.Starred) for part in node.elts):
            return type(node).__name__, (), tuple(map(self._value, node.elts))
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            return "Dict", tuple(ast.unparse(key) for key in node.keys if key), tuple(map(self._value, node.values))
        return self._text(node)

    def _text(self, node: ast.expr) -> str:
        if not is_free_of_effects(node):
            raise _UnsupportedSideError
        reads = {part: ast.unparse(part) for part in ast.walk(node) if _is_read(part)}
        changes = {part: self._now[name] for part, name in reads.items() if name in self._now}
        if node in changes:
            return changes[node]
        return argument(self._draft, node) if not changes else self._draft.rewritten(node, _in_place(changes))


def _in_place(changes: Mapping[ast.AST, str]) -> dict[ast.AST, str]:
    return {node: operand(text) for node, text in changes.items()}


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load)


def parenthesized(text: str) -> str:
    """Return an expression's text for the right side of an assignment, in parentheses if necessary."""
    return f"({text})" if "\n" in text else text


def select_value(
    condition: str, taken: Value | None, other: Value | None, choose: Callable[[str, str, str], str]
) -> Value | None:
    """Return a value selected by a condition, member by member; ``None`` if the members do not correspond."""
    if isinstance(taken, str) and isinstance(other, str):
        return taken if taken == other else choose(condition, taken, other)
    if taken is None or other is None or isinstance(taken, str) or isinstance(other, str) or taken[:2] != other[:2]:
        return None
    members = [select_value(condition, a, b, choose) for a, b in zip(taken[2], other[2], strict=False)]
    if len(taken[2]) != len(other[2]) or any(member is None for member in members):
        return None
    return taken[0], taken[1], tuple(member for member in members if member is not None)


def render_value(value: Value) -> str:
    """Return the text of a value."""
    if isinstance(value, str):
        return value
    kind, keys, members = value
    texts = [render_value(member) for member in members]
    if kind == "Dict":
        return "{" + ", ".join(f"{key}: {text}" for key, text in zip(keys, texts, strict=True)) + "}"
    if kind == "List":
        return f"[{', '.join(texts)}]"
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"

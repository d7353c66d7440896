"""Move statements after the call: the graph returns the values, and an outer function uses them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.python_text import parse_expression
from jupyter_graphbreak.experiments.families.conditions import on_host
from jupyter_graphbreak.experiments.families.drafting import Draft, FunctionNode, Splice, fresh_name
from jupyter_graphbreak.experiments.families.protection import may_raise
from jupyter_graphbreak.experiments.families.site import (
    arguments_of,
    dotted,
    names_bound,
    names_read,
    parameters_of,
    site_at,
    step_of,
)
from jupyter_graphbreak.experiments.families.wrapping import wrap_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.experiments.families.site import Site

_CONVERSIONS = {"str", "repr", "round", "format"}
_METHODS_ON_HOST = {"numpy", "detach", "format"}


@dataclass
class DeferredStatement:
    """A statement that runs after the call.

    Parameters
    ----------
    names, values : list of str
        The names of the values after the call, and their expressions in the graph, in the same order.
    after : list of str
        The lines of the statement after the call.
    """

    statement: ast.stmt
    names: list[str]
    values: list[str]
    after: list[str]


def tests_that_broke(problem: Problem, site: Site) -> set[ast.stmt]:
    """Return the statements whose tests break a graph."""
    found: set[ast.stmt] = set()
    for break_ in problem.report.breaks:
        place = site_at(problem, break_.location)
        if place is None or place.draft is not site.draft:
            continue
        branch = place.statement
        if isinstance(branch, ast.If | ast.Assert) and (
            place.node is branch or any(node is place.node for node in ast.walk(branch.test))
        ):
            found.add(branch)
    return found


def defer(
    draft: Draft, function: FunctionNode, statement: ast.stmt, *, cloned: bool = False
) -> DeferredStatement | None:
    """Return a statement in the form in which it can run after the call; ``None`` if it cannot.

    Parameters
    ----------
    function : ast.FunctionDef
        The compiled function.
    statement : ast.stmt
        A call, a ``raise``, an ``assert``, or an ``if`` around such statements.
    cloned : bool
        Whether to return copies of values that later statements may change.
    """
    bound = _local_names(function)
    parts = _parts(statement, bound, parameters_of(function))
    if parts is None or (raises(statement) and is_in_try_or_with(draft, statement)):
        return None
    # Code that the test protects is computed after the test, from the names in it.
    protected = isinstance(statement, ast.If)
    leaves = [
        leaf for number, part in enumerate(parts) for leaf in _leaves(part, bound, protected=protected and number > 0)
    ]
    names: list[str] = []
    for leaf in leaves:
        if isinstance(leaf, ast.Name):
            names.append(leaf.id)
        else:
            wish = leaf.attr if isinstance(leaf, ast.Attribute) and leaf.attr.isidentifier() else "value"
            name = fresh_name(draft, wish)
            names.append(next(n for n in (name, *(f"{name}_{k}" for k in range(2, 99))) if n not in names))
    values = {}
    changes: dict[ast.AST, str] = {}
    for leaf, name in zip(leaves, names, strict=True):
        text = draft.text_of(leaf)
        if not _is_text_of(leaf, text):
            text = ast.unparse(leaf)
        changed = _may_change_in_place(function, leaf) or (cloned and _is_augmented(function, leaf))
        values[name] = f"{text}.clone()" if changed else text
        changes[leaf] = name
    return DeferredStatement(
        statement, list(values), list(values.values()), _lines_after_call(draft, statement, changes)
    )


def raises(statement: ast.stmt) -> bool:
    """Return whether a statement may end the call."""
    return any(isinstance(node, ast.Raise | ast.Assert) for node in ast.walk(statement))


def is_in_try_or_with(draft: Draft, statement: ast.stmt) -> bool:
    """Return whether an enclosing statement may handle what a statement raises, which then cannot be deferred."""
    for node in draft.ancestors(statement):
        if isinstance(node, FunctionNode):
            return False
        if isinstance(node, ast.Try | ast.TryStar | ast.With):
            return True
    return False


def _lines_after_call(draft: Draft, statement: ast.stmt, changes: dict[ast.AST, str]) -> list[str]:
    if not isinstance(statement, ast.If):
        return [draft.rewritten(statement, changes)]
    unit = step_of(draft, statement)
    block = [f"{unit}{line}" for node in statement.body for line in _lines_after_call(draft, node, changes)]
    return [f"if {draft.rewritten(statement.test, changes)}:", *block]


def _parts(statement: ast.stmt, bound: set[str], arguments: set[str]) -> list[ast.expr] | None:
    """Return the expressions whose values a statement needs; ``None`` if it cannot run after the call."""
    if isinstance(statement, ast.If):
        inner = [_parts(node, bound, arguments) for node in statement.body]
        if statement.orelse or any(node is None for node in inner):
            return None
        return [statement.test, *(part for parts in inner for part in parts or [])]
    if isinstance(statement, ast.Assert):
        return [statement.test, *([statement.msg] if statement.msg is not None else [])]
    call: ast.expr | None = None
    if isinstance(statement, ast.Expr | ast.Raise):
        call = statement.value if isinstance(statement, ast.Expr) else statement.exc
    if isinstance(call, ast.Name) and call.id not in bound:
        return []
    if not isinstance(call, ast.Call) or _root(call.func) in bound - arguments or not _root(call.func):
        return None
    if any(isinstance(node, ast.Call) and names_read(node) & bound for node in ast.walk(call.func)):
        return None  # the function computes the object whose method is called
    return arguments_of(call)


def _leaves(node: ast.expr, bound: set[str], *, protected: bool = False) -> list[ast.expr]:
    """Return the parts of an expression that the graph must compute, up to the conversions that move them to the host.

    Parameters
    ----------
    protected : bool
        Whether a condition protects the expression: if it may raise, the graph returns only the names in it.
    """
    inner = on_host(node)
    if inner is not None:
        return _leaves(inner, bound, protected=protected)
    if not any(isinstance(child, ast.Name) and child.id in bound for child in ast.walk(node)):
        return []
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        own = isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS_ON_HOST
        parts = arguments_of(node)
        if own and isinstance(node.func, ast.Attribute):
            parts.insert(0, node.func.value)
        if own or name in _CONVERSIONS:
            return [leaf for part in parts for leaf in _leaves(part, bound, protected=protected)]
        return _names_in(node, bound) if protected and may_raise(node) is not None else [node]
    members = _members(node)
    if members is None:
        return _names_in(node, bound) if protected and may_raise(node) is not None else [node]
    return [
        leaf
        for number, child in enumerate(members)
        for leaf in _leaves(child, bound, protected=protected or (isinstance(node, ast.BoolOp) and number > 0))
    ]


def _names_in(node: ast.expr, bound: set[str]) -> list[ast.expr]:
    """Return the function's local names in an expression."""
    return [part for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in bound]


def _members(node: ast.expr) -> Sequence[ast.expr] | None:
    if isinstance(node, ast.JoinedStr):
        return [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    if isinstance(node, ast.Tuple | ast.List):
        return node.elts
    if isinstance(node, ast.Starred):
        return [node.value]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    parts: list[ast.expr] | None = None
    if isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp):
        parts = [node.operand]
    elif isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    is_text = isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant | ast.JoinedStr)
    brings = any(isinstance(part, ast.expr) and on_host(part) is not None for part in ast.walk(node))
    return parts if parts is not None and (is_text or brings) else None


def _local_names(function: FunctionNode) -> set[str]:
    """Return the local names of a function."""
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return parameters_of(function) | names_bound(function) | imported


def _is_text_of(leaf: ast.expr, text: str) -> bool:
    """Return whether a text is that of an expression: Python 3.11 has wrong columns in f-strings."""
    try:
        return ast.dump(parse_expression(text)) == ast.dump(leaf)
    except SyntaxError:
        return False


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _may_change_in_place(function: FunctionNode, leaf: ast.expr) -> bool:
    """Return whether the function may change a tensor in place."""
    root = _root(leaf)
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if re.fullmatch(r"[a-z]\w*[a-z0-9]_", node.func.attr) and root and _root(node.func.value) == root:
                return True
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and root and _root(node) == root:
            return True
    return False


def _increments_counter(step: ast.AugAssign) -> bool:
    """Return whether a statement increments a counter of an object, which is not a tensor."""
    is_integer = isinstance(step.value, ast.Constant) and isinstance(step.value.value, int)
    return is_integer and isinstance(step.target, ast.Attribute)


def _is_augmented(function: FunctionNode, leaf: ast.expr) -> bool:
    steps = [node for node in ast.walk(function) if isinstance(node, ast.AugAssign)]
    changed = {ast.unparse(node.target) for node in steps if not _increments_counter(node)}
    return ast.unparse(leaf) in changed


def run_after_call(
    site: Site, function: FunctionNode, statements: Sequence[DeferredStatement]
) -> dict[str, str] | None:
    """Return new texts that run statements after the call of the compiled function, in their original order."""
    draft = site.draft
    later, result = fresh_name(draft, "later"), fresh_name(draft, "result")
    splices: list[Splice | None] = []
    for number, node in enumerate(statements):
        members = [*([str(number)] if len(statements) > 1 else []), *node.values]
        values_text = ", ".join(members) + ("," if len(members) == 1 else "")
        splices.append(draft.statement_replacement(node.statement, [f"{later}.append(({values_text}))"]))

    def body(call: str) -> list[str]:
        return [
            f"{later} = []",
            f"{result} = {call}",
            *_deferred_lines(draft, function, statements, later),
            f"return {result}",
        ]

    return wrap_function(site, function, later, body, splices)


def _deferred_lines(
    draft: Draft, function: FunctionNode, statements: Sequence[DeferredStatement], later: str
) -> list[str]:
    unit = step_of(draft, function)
    if len(statements) == 1:
        (only,) = statements
        return [f"for {_unpacked(only.names)} in {later}:", *(f"{unit}{line}" for line in only.after)]
    which, values = fresh_name(draft, "which"), fresh_name(draft, "values")
    lines = [f"for {which}, *{values} in {later}:"]
    for number, node in enumerate(statements):
        lines.append(f"{unit}{'elif' if number else 'if'} {which} == {number}:")
        assigned = [f"{_unpacked(node.names)} = {values}"] if node.names else []
        lines += [f"{unit * 2}{line}" for line in (*assigned, *node.after)]
    return lines


def _unpacked(names: Sequence[str]) -> str:
    return "_" if not names else f"({names[0]},)" if len(names) == 1 else ", ".join(names)

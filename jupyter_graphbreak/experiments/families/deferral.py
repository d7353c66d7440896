"""Move statements after the compiled call: the graph returns their values, and an outer function runs them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.python_text import parse_expression
from jupyter_graphbreak.experiments.families.conditions import tensor_moved_to_host
from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode, ParsedSource, Splice, fresh_name
from jupyter_graphbreak.experiments.families.protection import first_part_that_may_raise
from jupyter_graphbreak.experiments.families.site import (
    arguments_of,
    called_name,
    dotted_name,
    indentation_step,
    name_bound_by,
    names_bound,
    names_read,
    parameters_of,
    site_at,
)
from jupyter_graphbreak.experiments.families.wrapping import CALL, wrap_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.experiments.families.site import Site

_CONVERSIONS = {"str", "repr", "round", "format"}
_METHODS_ON_HOST = {"numpy", "detach", "format"}
#: Attributes of tensors that no later statement changes.
_CONSTANT_ATTRIBUTES = {"device", "dtype", "is_leaf", "layout", "ndim", "requires_grad", "shape"}
#: Functions and methods whose results no later statement changes.
_FUNCTIONS_WITH_CONSTANT_RESULTS = {"dim", "len", "numel", "size", "stride"}


@dataclass(frozen=True)
class DeferredStatement:
    """A statement that runs after the call.

    ``values`` are the expressions that the graph computes, and ``names`` the names of their values after the call.
    """

    statement: ast.stmt
    names: list[str]
    values: list[str]
    lines_after_call: list[str]


def statements_with_breaking_tests(problem: Problem, site: Site) -> set[ast.stmt]:
    """Return the ``if`` and ``assert`` statements in a site's source whose tests break a graph."""
    statements: set[ast.stmt] = set()
    for break_ in problem.report.breaks:
        break_site = site_at(problem, break_.location)
        if break_site is None or break_site.source is not site.source:
            continue
        statement = break_site.statement
        if isinstance(statement, ast.If | ast.Assert) and (
            break_site.node is statement or any(node is break_site.node for node in ast.walk(statement.test))
        ):
            statements.add(statement)
    return statements


def defer(
    source: ParsedSource, function: FunctionNode, statement: ast.stmt, *, clone_changed_values: bool = False
) -> DeferredStatement | None:
    """Return the form in which a statement can run after the compiled call; ``None`` if it cannot.

    The statement is a call, ``raise``, ``assert`` or ``if``. The graph returns copies of the tensors that the function
    may change in place by methods or item assignments and, with ``clone_changed_values``, by augmented assignments.
    """
    local_names = _local_names(function)
    parts = _needed_expressions(statement, local_names, parameters_of(function))
    if parts is None or (_may_end_call(statement) and is_in_try_or_with(source, statement)):
        return None
    # Code that the statement's test protects is computed after the test, from the names that the code reads.
    is_protected = isinstance(statement, ast.If)
    leaves = [
        leaf
        for number, part in enumerate(parts)
        for leaf in _parts_for_graph(part, local_names, is_protected=is_protected and number > 0)
    ]
    names: list[str] = []
    for leaf in leaves:
        if isinstance(leaf, ast.Name):
            names.append(leaf.id)
        else:
            names.append(fresh_name(source, leaf.attr if isinstance(leaf, ast.Attribute) else "value", names))
    values = {}
    changes: dict[ast.AST, str] = {}
    for leaf, name in zip(leaves, names, strict=True):
        text = source.text_of(leaf)
        if not _is_source_of(leaf, text):
            text = ast.unparse(leaf)
        needs_copy = not is_constant(leaf) and (
            _may_change_in_place(function, leaf) or (clone_changed_values and _may_change_by_assignment(function, leaf))
        )
        values[name] = f"{text}.clone()" if needs_copy else text
        changes[leaf] = name
    return DeferredStatement(
        statement, list(values), list(values.values()), _lines_after_call(source, statement, changes)
    )


def _may_end_call(statement: ast.stmt) -> bool:
    """Return whether a statement contains a ``raise`` or ``assert`` and so may end the call."""
    return any(isinstance(node, ast.Raise | ast.Assert) for node in ast.walk(statement))


def is_in_try_or_with(source: ParsedSource, statement: ast.stmt) -> bool:
    """Return whether a ``try`` or ``with`` of the same function, which may handle errors, encloses a statement."""
    for node in source.ancestors(statement):
        if isinstance(node, FunctionNode):
            return False
        if isinstance(node, ast.Try | ast.TryStar | ast.With):
            return True
    return False


def _lines_after_call(source: ParsedSource, statement: ast.stmt, changes: dict[ast.AST, str]) -> list[str]:
    if not isinstance(statement, ast.If):
        return [source.text_with_changes(statement, changes)]
    indentation = indentation_step(source, statement)
    block = [f"{indentation}{line}" for node in statement.body for line in _lines_after_call(source, node, changes)]
    return [f"if {source.text_with_changes(statement.test, changes)}:", *block]


def _needed_expressions(statement: ast.stmt, local_names: set[str], parameters: set[str]) -> list[ast.expr] | None:
    """Return the expressions whose values a statement needs; ``None`` if the statement cannot run after the call."""
    if isinstance(statement, ast.If):
        needed_parts = [_needed_expressions(node, local_names, parameters) for node in statement.body]
        if statement.orelse or any(node is None for node in needed_parts):
            return None
        return [statement.test, *(part for parts in needed_parts for part in parts or [])]
    if isinstance(statement, ast.Assert):
        return [statement.test, *([statement.msg] if statement.msg is not None else [])]
    call: ast.expr | None = None
    if isinstance(statement, ast.Expr | ast.Raise):
        call = statement.value if isinstance(statement, ast.Expr) else statement.exc
    if isinstance(call, ast.Name) and call.id not in local_names:
        return []
    if not isinstance(call, ast.Call) or _root_name(call.func) in local_names - parameters or not _root_name(call.func):
        return None
    if any(isinstance(node, ast.Call) and names_read(node) & local_names for node in ast.walk(call.func)):
        return None  # the compiled function computes the object whose method is called
    return arguments_of(call)


def _parts_for_graph(node: ast.expr, local_names: set[str], *, is_protected: bool) -> list[ast.expr]:
    """Return the parts of an expression that the graph must compute, without conversions that move them to the host.

    If the expression may raise and a condition protects it, the graph returns only the names in it.
    """
    inner = tensor_moved_to_host(node)
    if inner is not None:
        return _parts_for_graph(inner, local_names, is_protected=is_protected)
    if not any(isinstance(child, ast.Name) and child.id in local_names for child in ast.walk(node)):
        return []
    members = _operands_on_host(node)
    if members is None:
        if not is_protected or first_part_that_may_raise(node) is None:
            return [node]
        return [part for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in local_names]
    return [
        leaf
        for number, child in enumerate(members)
        for leaf in _parts_for_graph(
            child, local_names, is_protected=is_protected or (isinstance(node, ast.BoolOp) and number > 0)
        )
    ]


def _operands_on_host(node: ast.expr) -> Sequence[ast.expr] | None:
    """Return the parts from which Python computes an expression after the call; ``None`` if the graph computes it."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS_ON_HOST:
            return [node.func.value, *arguments_of(node)]
        return arguments_of(node) if dotted_name(node.func) in _CONVERSIONS else None
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
    is_string = isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant | ast.JoinedStr)
    moves_tensor = any(isinstance(part, ast.expr) and tensor_moved_to_host(part) is not None for part in ast.walk(node))
    return parts if parts is not None and (is_string or moves_tensor) else None


def _local_names(function: FunctionNode) -> set[str]:
    """Return a function's parameters and the names that it binds or imports."""
    imports = (node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))
    imported_names = {name_bound_by(alias) for node in imports for alias in node.names}
    return parameters_of(function) | names_bound(function) | imported_names


def _is_source_of(leaf: ast.expr, text: str) -> bool:
    """Return whether a string is the source of an expression. In Python 3.11, columns in f-strings are wrong."""
    try:
        return ast.dump(parse_expression(text)) == ast.dump(leaf)
    except SyntaxError:
        return False


def _root_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_constant(node: ast.expr) -> bool:
    """Return whether an expression is a size, a type or a similar value that no later statement changes."""
    if isinstance(node, ast.Subscript):
        return is_constant(node.value)
    if isinstance(node, ast.Call):
        return called_name(node) in _FUNCTIONS_WITH_CONSTANT_RESULTS
    return isinstance(node, ast.Attribute) and node.attr in _CONSTANT_ATTRIBUTES


def _may_change_in_place(function: FunctionNode, leaf: ast.expr) -> bool:
    """Return whether a method such as ``add_`` or an item assignment may change a tensor in place."""
    root = _root_name(leaf)
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if re.fullmatch(r"[a-z]\w*[a-z0-9]_", node.func.attr) and root and _root_name(node.func.value) == root:
                return True
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and root and _root_name(node) == root:
            return True
    return False


def _may_change_by_assignment(function: FunctionNode, leaf: ast.expr) -> bool:
    """Return whether an augmented assignment may change a tensor. ``self.n += 1`` is assumed to change a number."""
    text = ast.unparse(leaf)
    for node in ast.walk(function):
        if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == text:
            is_integer = isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
            if not (is_integer and isinstance(node.target, ast.Attribute)):
                return True
    return False


def move_after_call(
    site: Site, function: FunctionNode, statements: Sequence[DeferredStatement]
) -> dict[str, str] | None:
    """Return texts, by source id, that run statements after the call, in order; ``None`` if it cannot be wrapped."""
    source = site.source
    list_name, result_name = fresh_name(source, "later"), fresh_name(source, "result")
    splices: list[Splice | None] = []
    for number, node in enumerate(statements):
        members = [*([str(number)] if len(statements) > 1 else []), *node.values]
        values_text = ", ".join(members) + ("," if len(members) == 1 else "")
        splices.append(source.statement_replacement(node.statement, [f"{list_name}.append(({values_text}))"]))

    deferred_lines = _deferred_lines(source, function, statements, list_name)
    lines = [f"{list_name} = []", f"{result_name} = {CALL}", *deferred_lines, f"return {result_name}"]
    return wrap_function(site, function, list_name, lines, splices)


def _deferred_lines(
    source: ParsedSource, function: FunctionNode, statements: Sequence[DeferredStatement], list_name: str
) -> list[str]:
    indentation = indentation_step(source, function)
    if len(statements) == 1:
        (statement,) = statements
        return [
            f"for {_unpacking_target(statement.names)} in {list_name}:",
            *(f"{indentation}{line}" for line in statement.lines_after_call),
        ]
    index_name, values_name = fresh_name(source, "which"), fresh_name(source, "values")
    lines = [f"for {index_name}, *{values_name} in {list_name}:"]
    for number, node in enumerate(statements):
        lines.append(f"{indentation}{'elif' if number else 'if'} {index_name} == {number}:")
        unpacking = [f"{_unpacking_target(node.names)} = {values_name}"] if node.names else []
        lines += [f"{indentation * 2}{line}" for line in (*unpacking, *node.lines_after_call)]
    return lines


def _unpacking_target(names: Sequence[str]) -> str:
    return "_" if not names else f"({names[0]},)" if len(names) == 1 else ", ".join(names)

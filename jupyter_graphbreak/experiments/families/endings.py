"""Run the end of a compiled function after the call, if it only converts the results of the graph for Python."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.experiments.families.conditions import tensor_moved_to_host
from jupyter_graphbreak.experiments.families.deferral import is_constant
from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode, Splice, fresh_name
from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.experiments.families.site import (
    dotted_name,
    names_bound,
    names_read,
    parameters_of,
    site_of,
)
from jupyter_graphbreak.experiments.families.wrapping import CALL, entry_function, outermost_frames, wrap_function
from jupyter_graphbreak.report.remedies import ENDING_FAMILY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource
    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.experiments.families.site import Site

#: Code before the end that rules out the change: it may return, or bind names in ways that are not followed here.
_UNSUPPORTED_NODES = (FunctionNode, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Match, ast.Return)
#: Names whose methods usually compute tensors.
_OWNERS_OF_OPERATIONS = {"torch", "nn", "F", "self"}


class _Ending(NamedTuple):
    """The end of a function, which runs after the call, and the ``head`` before it.

    ``values`` are the expressions in the first of the ``statements`` that the graph computes.
    """

    head: list[ast.stmt]
    statements: list[ast.stmt]
    values: list[ast.expr]


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield a change that runs the end of the compiled function after the call."""
    site = site_of(problem)
    function = entry_function(problem, site) if site is not None else None
    if site is None or function is None or _calls_compiled_functions(problem):
        return
    ending = _ending_of(problem, site, function)
    texts = _run_after_call(site, function, ending) if ending is not None else None
    if texts is not None:
        owner = next(site.source.ancestors(function))
        name = f"{owner.name}.{function.name}" if isinstance(owner, ast.ClassDef) else function.name
        yield Proposal(ENDING_FAMILY, f"Run the end of {name} after the call", texts, compiles_inner_function=True)


def _calls_compiled_functions(problem: Problem) -> bool:
    """Return whether functions that eager code called were compiled separately, because the end may call them."""
    outermost_ids = {frame.id for frame in outermost_frames(problem.report)}
    return any(
        frame.role == "call" and frame.id not in outermost_ids and frame.outcome == "compiled"
        for frame in problem.report.frames
    )


def _ending_of(problem: Problem, site: Site, function: FunctionNode) -> _Ending | None:
    """Return the largest end of a function that no graph computes; ``None`` if the break is not in it.

    If a break in a loop kept the whole function uncompiled, the end starts with the loop.
    """
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    nodes = {site.node, *site.source.ancestors(site.node)}
    position = next((number for number, statement in enumerate(body) if statement in nodes), None)
    if position is None:
        return None
    all_lines = [
        line.line
        for graph in problem.report.graphs
        for line in graph.lines
        if line.source == site.source_id and line.ops
    ]
    compiled_lines = [
        [line for line in all_lines if statement.lineno <= line <= (statement.end_lineno or statement.lineno)]
        for statement in body
    ]
    last = max((number for number, lines in enumerate(compiled_lines) if lines), default=None)
    if last is None:
        is_uncompiled = problem.break_.outcome == "skipped" and not _calls_code_to_compile(body[position:])
        return _Ending(body[:position], body[position:], []) if is_uncompiled and position else None
    if position > last:
        return _Ending(body[: last + 1], body[last + 1 :], [])
    header = _header_of(body[last])
    if position < last or not last or header is None:
        return None
    if any(line > (header.end_lineno or header.lineno) for line in compiled_lines[last]):
        return None
    values = list(_values_for_graph(header, parameters_of(function) | names_bound(function)))
    return _Ending(body[:last], body[last:], values)


def _calls_code_to_compile(statements: Sequence[ast.stmt]) -> bool:
    """Return whether statements call anything but builtins and methods of local values, or multiply matrices."""
    for node in (part for statement in statements for part in ast.walk(statement)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        if isinstance(node, ast.Call):
            name = dotted_name(node.func)
            root, _, method = name.partition(".")
            if root in _OWNERS_OF_OPERATIONS if method else not hasattr(builtins, name):
                return True
    return False


def _header_of(statement: ast.stmt) -> ast.expr | None:
    """Return the expression that a statement evaluates first and once; ``None`` if there is none."""
    match statement:
        case ast.For():
            return statement.iter
        case ast.If():
            return statement.test
        case ast.Return() | ast.Expr() | ast.Assign() | ast.AnnAssign():
            return statement.value
        case _:
            return None


def _values_for_graph(node: ast.expr, local_names: set[str]) -> Iterator[ast.expr]:
    """Yield the parts of an expression that the graph computes: all that moves no tensor to the host."""
    if not any(_moves_tensor(part) for part in ast.walk(node) if isinstance(part, ast.expr)):
        is_computed = not isinstance(node, ast.Name | ast.Attribute) and not is_constant(node)
        if is_computed and not names_read(node).isdisjoint(local_names):
            yield node
        return
    for child in _parts_evaluated_once(node):
        yield from _values_for_graph(child, local_names)


def _parts_evaluated_once(node: ast.expr) -> list[ast.expr]:
    """Return the parts of an expression that Python evaluates exactly once, whatever their values."""
    match node:
        case ast.Lambda():
            return []
        case ast.IfExp():
            return [node.test]
        case ast.BoolOp():
            return node.values[:1]
        case ast.Compare():
            return [node.left, node.comparators[0]]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return [node.generators[0].iter]
        case ast.Call(ast.Attribute(owner), arguments, keywords):
            return [owner, *arguments, *(keyword.value for keyword in keywords)]
        case _:
            children = (
                child.value if isinstance(child, ast.keyword) else child for child in ast.iter_child_nodes(node)
            )
            return [child for child in children if isinstance(child, ast.expr)]


def _moves_tensor(node: ast.expr) -> bool:
    """Return whether an expression moves a tensor to the host or turns it into an array."""
    is_array = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numpy"
    return is_array or tensor_moved_to_host(node) is not None


def _run_after_call(site: Site, function: FunctionNode, ending: _Ending) -> dict[str, str] | None:
    """Return source texts in which a function's end runs after the compiled call, which returns what the end needs."""
    source, (first, *_), last = site.source, ending.statements, ending.statements[-1]
    if not source.has_own_lines(first) or not source.has_own_lines(last) or not _can_split(function, ending):
        return None
    names = _names_needed(ending)
    if names is None:
        return None
    changes: dict[ast.AST, str] = {}
    for value in ending.values:
        changes[value] = fresh_name(source, "value", changes.values())
    results = [*names, *map(source.text_of, ending.values)]
    if not results or any("\n" in result for result in results):
        return None
    return_line = f"{source.indent_of(first)}return {', '.join(results)}"
    splice = Splice(source.line_start(first.lineno), source.line_end(last.end_lineno or last.lineno), return_line)
    lines = _lines_of(source, ending.statements, changes)
    targets = ", ".join([*names, *changes.values()])
    return wrap_function(site, function, None, [f"{targets} = {CALL}", *lines], [splice])


def _can_split(function: FunctionNode, ending: _Ending) -> bool:
    """Return whether all names in the function can be followed, and no string at its end has several lines."""
    if any(isinstance(part, _UNSUPPORTED_NODES) for statement in ending.head for part in ast.walk(statement)):
        return False
    parts = [part for statement in ending.statements for part in ast.walk(statement)]
    return not any(isinstance(part, ast.Global) for part in ast.walk(function)) and not any(
        isinstance(part, ast.JoinedStr | ast.Constant) and part.end_lineno != part.lineno for part in parts
    )


def _names_needed(ending: _Ending) -> list[str] | None:
    """Return the names that the end reads and the code before it binds; ``None`` if one may be unbound."""
    values = {part for value in ending.values for part in ast.walk(value)}
    parts = [part for statement in ending.statements for part in ast.walk(statement)]
    changed_names = {part.target for part in parts if isinstance(part, ast.AugAssign)}
    names_in_ending = dict.fromkeys(
        part.id
        for part in parts
        if isinstance(part, ast.Name)
        and (part in changed_names or not isinstance(part.ctx, ast.Store))
        and part not in values
    )
    names_in_head = {name for statement in ending.head for name in names_bound(statement)}
    names = [name for name in names_in_ending if name in names_in_head]
    return names if _names_surely_bound(ending.head).issuperset(names) else None


def _names_surely_bound(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names that statements bind in any case, without the variables of comprehensions."""
    names: set[str] = set()
    for statement in statements:
        match statement:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                names |= {name for target in targets for name in names_bound(target)}
            case ast.With():
                names |= _names_surely_bound(statement.body)
            case ast.If():
                names |= _names_surely_bound(statement.body) & _names_surely_bound(statement.orelse)
            case _:
                pass
    return names


def _lines_of(source: ParsedSource, statements: Sequence[ast.stmt], changes: dict[ast.AST, str]) -> list[str]:
    """Return the lines of statements, without their indentation, and with changed expressions in the first one."""
    first, last = statements[0], statements[-1]
    rest = source.text[source.end_of(first) : source.line_end(last.end_lineno or last.lineno)]
    text = (source.text_with_changes(first, changes) if changes else source.text_of(first)) + rest
    indent = source.indent_of(first) or ""
    return [line.removeprefix(indent) for line in text.split("\n") if line.strip()]

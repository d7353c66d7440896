"""Move independent code out of a compiled function, before or around its call, or drop a harmless context."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.crossing import conditions_before, conditions_on_result, conditions_outside
from jupyter_graphbreak.experiments.families.parsed_source import fresh_name
from jupyter_graphbreak.experiments.families.protection import is_protected
from jupyter_graphbreak.experiments.families.site import (
    called_name,
    dotted_name,
    names_bound,
    names_read,
    parameters_of,
    site_of,
)
from jupyter_graphbreak.experiments.families.wrapping import RETURN, entry_function, propose_wrapping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode, Splice
    from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal
    from jupyter_graphbreak.experiments.families.site import Site

FAMILY = "hoisting"
#: Functions whose effect depends on when they run: the user must decide whether to move them.
TIME_DEPENDENT_FUNCTIONS = {
    "time", "perf_counter", "perf_counter_ns", "monotonic", "time_ns", "process_time", "sleep", "synchronize", "now",
}  # fmt: skip
#: Statements after which the rest of a function may not run.
_EXITS = (ast.Return, ast.Raise, ast.Assert, ast.Yield, ast.YieldFrom)
#: Functions of :mod:`random` and ``numpy.random`` that create a generator, or get or set its state.
_NON_DRAWING_CALLS = {"Generator", "Random", "RandomState", "default_rng", "get_state", "seed", "set_state", "setstate"}
#: Context managers that usually change no value.
_HARMLESS_CONTEXTS = {"record_function", "flags", "nvtx", "range", "profile", "catch_warnings"}


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield changes that move a call, random draws or a context out of the compiled function, or drop a context."""
    site = site_of(problem)
    function = site.function if site is not None else None
    if site is None or function is None:
        return
    block = site.source.enclosing_node(site.node, ast.With)
    if block is not None and block is not site.node and not any(site.node in ast.walk(item) for item in block.items):
        block = None
    entry = entry_function(problem, site)
    if entry is not None and block is not None:
        yield from _propose_outer_context(site, entry, block)
    if block is not None:
        yield from _propose_without_block(site, block)
    if entry is not None:
        proposals = list(_propose_before_call(site, entry))
        yield from proposals
        if not proposals:
            yield from _propose_draws_before_call(site, entry)


def _propose_draws_before_call(site: Site, function: FunctionNode) -> Iterator[Proposal]:
    """Propose to draw Python's or NumPy's random numbers before the call, if the code at the break involves one."""
    given_names: list[str] = []
    lines: list[str] = []
    splices: list[Splice | None] = []
    draws: list[ast.expr] = []
    known_names = parameters_of(function)  # their values before the call are those at the draw
    unknown_names = names_bound(function) - known_names
    for statement in function.body:
        for draw in _draws_of(statement):
            read_names = names_read(draw)
            if read_names & unknown_names or is_protected(site.source, draw):
                continue
            name, splice = _name_for(site, function, statement, draw, fresh_name(site.source, "drawn", given_names))
            given_names.append(name)
            lines.append(f"{name} = {site.source.text_of(draw)}")
            splices.append(splice)
            draws.append(draw)
        unknown_names |= names_bound(statement) - set(given_names)
        if any(isinstance(part, _EXITS) for part in ast.walk(statement)):
            break
    names_at_break = names_read(site.node) & set(given_names)
    is_at_draw = any(site.node in ast.walk(draw) or draw in ast.walk(site.node) for draw in draws)
    if not names_at_break and not is_at_draw:
        return
    title, conditions = "Draw the random numbers before the call", conditions_before(site, function, draws)
    yield from propose_wrapping(
        FAMILY, title, site, function, ", ".join(given_names), [*lines, RETURN], splices, conditions
    )


def _name_for(
    site: Site, function: FunctionNode, statement: ast.stmt, value: ast.expr, new_name: str
) -> tuple[str, Splice]:
    """Return the name that a value gets before the call, and the splice that makes the function use the name."""
    match statement:
        case ast.Assign(targets=[ast.Name(target)]) if statement.value is value and target not in parameters_of(
            function
        ):
            return target, site.source.deletion(statement)
    return new_name, site.source.replacement(value, new_name)


def _draws_of(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions that draw a random number with Python or NumPy whenever a statement runs.

    A condition that contains such a draw, such as ``random.random() < p``, is yielded as a whole.
    """
    if isinstance(statement, ast.If):
        if any(map(_is_draw, ast.walk(statement.test))):
            yield statement.test
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return) and statement.value is not None:
        optional_parts = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        if not any(isinstance(part, optional_parts) for part in ast.walk(statement.value)):
            yield from (part for part in ast.walk(statement.value) if isinstance(part, ast.Call) and _is_draw(part))


def _is_draw(node: ast.AST) -> bool:
    name = dotted_name(node.func) if isinstance(node, ast.Call) else ""
    return name.startswith(("random.", "np.random.", "numpy.random.")) and called_name(node) not in _NON_DRAWING_CALLS


def _propose_before_call(site: Site, function: FunctionNode) -> Iterator[Proposal]:
    call = site.source.enclosing_node(site.node, ast.Call)
    uses_result = isinstance(site.statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return)
    if call is None or site.statement not in function.body or not uses_result:
        return
    earlier_statements = function.body[: function.body.index(site.statement)]
    if is_protected(site.source, call) or any(
        isinstance(node_before, _EXITS) for part in earlier_statements for node_before in ast.walk(part)
    ):
        return
    if called_name(call) in TIME_DEPENDENT_FUNCTIONS or "()" in dotted_name(call.func):
        return
    local_names = names_bound(function) | parameters_of(function)
    if names_read(call) & local_names or any(isinstance(part, ast.Lambda | ast.Await) for part in ast.walk(call)):
        return
    name, splice = _name_for(site, function, site.statement, call, fresh_name(site.source, "given"))
    lines = [f"{name} = {site.source.text_of(call)}", RETURN]
    title = f"Run `{dotted_name(call.func)}()` before the call"
    conditions = (*conditions_before(site, function, [call]), *conditions_on_result(site, function, call))
    yield from propose_wrapping(FAMILY, title, site, function, name, lines, [splice], conditions)


def _body_lines(site: Site, block: ast.With) -> list[str] | None:
    source = site.source
    simple_statements = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Pass)
    if any(item.optional_vars is not None for item in block.items) or not all(
        isinstance(statement, simple_statements) for statement in block.body
    ):
        return None
    return [source.text_of(node) for node in block.body]


def _propose_without_block(site: Site, block: ast.With) -> Iterator[Proposal]:
    contexts = [item.context_expr for item in block.items]
    names = {called_name(node) for node in contexts}
    lines = _body_lines(site, block)
    if lines is not None and names <= _HARMLESS_CONTEXTS:
        splice = site.source.statement_replacement(block, lines)
        yield from site.propose_edit(FAMILY, "Drop the with block, if it changes no value on your device", [splice])


def _propose_outer_context(site: Site, function: FunctionNode, block: ast.With) -> Iterator[Proposal]:
    lines = _body_lines(site, block)
    local_names = names_bound(function)
    items = [site.source.text_of(item.context_expr) for item in block.items]
    if lines is None or any(names_read(item) & local_names for item in block.items):
        return
    title, outer_lines = "Enter the context around the call", [f"with {', '.join(items)}:", f"    {RETURN}"]
    splices, conditions = [site.source.statement_replacement(block, lines)], conditions_outside(site, function, block)
    yield from propose_wrapping(FAMILY, title, site, function, None, outer_lines, splices, conditions)

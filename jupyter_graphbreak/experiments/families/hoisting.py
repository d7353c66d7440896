"""What needs nothing of the compiled function: before its call, or around it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.drafting import fresh_name
from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.experiments.families.protection import is_protected
from jupyter_graphbreak.experiments.families.site import dotted, names_read, site_of
from jupyter_graphbreak.experiments.families.wrapping import entry_function, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyter_graphbreak.experiments.families.drafting import FunctionNode, Splice
    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.experiments.families.site import Site

FAMILY = "hoisting"
_BEFORE = "Do it before the call"
#: Of these the moment matters, or that they are entered at all: a person's decision.
_TIMED = {
    "time",
    "perf_counter",
    "perf_counter_ns",
    "monotonic",
    "time_ns",
    "process_time",
    "sleep",
    "synchronize",
    "now",
}
#: Contexts that change no value.
_IDLE = {"record_function", "flags", "nvtx", "range", "profile", "catch_warnings"}


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield ways to have a call or a context outside of the compiled function."""
    site = site_of(problem)
    function = site.function if site is not None else None
    if site is None or function is None:
        return
    block = site.draft.around(site.node, ast.With)
    if block is not None and block is not site.node and not any(site.node in ast.walk(item) for item in block.items):
        block = None
    entry = entry_function(problem, site)
    if entry is not None and block is not None:
        yield from _entered_outside(site, entry, block)
    if block is not None:
        yield from _without(site, block)
    if entry is not None:
        yield from _before(site, entry)


def _before(site: Site, function: FunctionNode) -> Iterator[Proposal]:
    call = site.draft.around(site.node, ast.Call)
    assigned = isinstance(site.statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return)
    if call is None or site.statement not in function.body or not assigned:
        return
    before = function.body[: function.body.index(site.statement)]
    ends = (ast.Return, ast.Raise, ast.Assert, ast.Yield, ast.YieldFrom)
    if is_protected(site.draft, call) or any(isinstance(n, ends) for each in before for n in ast.walk(each)):
        return
    if dotted(call.func).rpartition(".")[2] in _TIMED or "()" in dotted(call.func):
        return
    own = {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    own |= {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    if names_read(call) & own or any(isinstance(each, ast.Lambda | ast.Await) for each in ast.walk(call)):
        return
    name, splice = fresh_name(site.draft, "given"), None
    if isinstance(site.statement, ast.Assign) and site.statement.value is call and len(site.statement.targets) == 1:
        target = site.statement.targets[0]
        arguments = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
        if isinstance(target, ast.Name) and target.id not in arguments:
            name, splice = target.id, site.draft.deleting(site.statement)
    text = site.draft.text_of(call)
    splices = [splice or site.draft.replacing(call, name)]
    lines = [f"{name} = {text}"]
    yield from _around(
        site, function, name, lambda inner: [*lines, f"return {inner}"], splices, "Do it before the call"
    )


def _around(
    site: Site,
    function: FunctionNode,
    parameter: str | None,
    body: Callable[[str], list[str]],
    splices: Sequence[Splice | None],
    title: str,
) -> Iterator[Proposal]:
    texts = wrapped(site, function, parameter, body, splices)
    if texts is not None:
        yield Proposal(FAMILY, title, texts, compiles_itself=True)


def _block_without_its_head(site: Site, block: ast.With) -> list[str] | None:
    draft = site.draft
    simple = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Pass)
    if any(item.optional_vars is not None for item in block.items) or not all(
        isinstance(s, simple) for s in block.body
    ):
        return None
    return [draft.text_of(each) for each in block.body]


def _without(site: Site, block: ast.With) -> Iterator[Proposal]:
    contexts = [item.context_expr for item in block.items]
    names = {dotted(each.func).rpartition(".")[2] if isinstance(each, ast.Call) else "" for each in contexts}
    lines = _block_without_its_head(site, block)
    if lines is not None and names <= _IDLE:
        splice = site.draft.replacing_statement(block, lines)
        yield from site.edit(FAMILY, "Leave the with block out, if it changes no value on your device", [splice])


def _entered_outside(site: Site, function: FunctionNode, block: ast.With) -> Iterator[Proposal]:
    lines = _block_without_its_head(site, block)
    own = {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    items = [site.draft.text_of(item.context_expr) for item in block.items]
    if lines is None or any(names_read(item) & own for item in block.items):
        return
    yield from _around(
        site, function, None, lambda inner: [f"with {', '.join(items)}:", f"    return {inner}"],
        [site.draft.replacing_statement(block, lines)], "Enter the context around the call",
    )  # fmt: skip

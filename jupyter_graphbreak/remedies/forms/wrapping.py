"""Put a function around a compiled one: what cannot be in a graph is done before or after its call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.remedies.drafting import FunctionNode, Splice, fresh_name
from jupyter_graphbreak.remedies.forms.site import dotted, step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jupyter_graphbreak.remedies.drafting import Draft
    from jupyter_graphbreak.remedies.forms.site import Site
    from jupyter_graphbreak.remedies.proposal import Problem


def entry_function(problem: Problem, site: Site) -> FunctionNode | None:
    """Return the function around a break, if it is what was compiled and calls can be put around it."""
    function = site.function
    if function is None or isinstance(function, ast.AsyncFunctionDef):
        return None
    if any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Nonlocal) for node in ast.walk(function)):
        return None
    first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
    for frame in problem.report.frames:
        at = frame.location
        if frame.role != "entry" or at is None or at.source != site.source:
            continue
        if frame.function.rpartition(".")[2] == function.name and first <= at.line <= function.lineno:
            return function
    return None


def wrapped(
    site: Site, function: FunctionNode, torch: str, parameter: str | None, body: Callable[[str], list[str]]
) -> list[Splice | None] | None:
    """Return what puts an outer function around a compiled one, which goes on as ``_<name>_compiled``.

    What compiled the function compiles the inner one instead.

    Parameters
    ----------
    site : Site
        The break.
    function : ast.FunctionDef
        The compiled function.
    torch : str
        The name of the torch package.
    parameter : str or None
        What the inner function takes besides, as its first argument.
    body : callable
        What the outer function does, given the call of the inner one.
    """
    draft = site.draft
    begin = draft.start_of(function)
    opened = draft.text.find("(", begin)
    head = draft.text[begin:opened]
    if function not in draft.tree.body or "\n" in head or "[" in head:
        return None
    inner = fresh_name(draft, f"_{function.name}_compiled")
    sites = _compile_sites(draft, function, torch)
    splices: list[Splice | None] = [draft.replacing(call, function.name) for call in sites]
    if not any(_is_compile(each, torch) for each in function.decorator_list):
        first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
        at = draft.line_start(first)
        splices.append(Splice(at, at, f"@{torch}.compile{_options(draft, sites)}\n"))
    more = ", " if parameter and ast.unparse(function.args) else ""
    splices.append(Splice(begin, opened + 1, f"def {inner}({parameter or ''}{more}"))
    passed = ", ".join([*([parameter] if parameter else []), *_passed_on(function.args)])
    unit = step_of(draft, function)
    lines = [f"{unit}{line}" for line in body(f"{inner}({passed})")]
    outer = "\n".join([f"def {function.name}{draft.text[opened : _signature_end(draft, function)]}", *lines])
    end = draft.line_end(function.end_lineno or function.lineno)
    return [*splices, Splice(end, end, f"\n\n\n{outer}")]


def _is_compile(decorator: ast.expr, torch: str) -> bool:
    return dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) == f"{torch}.compile"


def _compile_sites(draft: Draft, function: FunctionNode, torch: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(draft.tree)
        if isinstance(node, ast.Call)
        and dotted(node.func) == f"{torch}.compile"
        and node.args
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id == function.name
    ]


def _options(draft: Draft, sites: Sequence[ast.Call]) -> str:
    if not sites or not sites[0].keywords:
        return ""
    texts = (draft.text_of(each.value) for each in sites[0].keywords)
    return f"({', '.join(f'{each.arg}={text}' for each, text in zip(sites[0].keywords, texts, strict=True))})"


def _signature_end(draft: Draft, function: FunctionNode) -> int:
    """Return where the colon ends that ends a function's head."""
    opened = draft.text.index("(", draft.start_of(function)) + 1
    if function.returns is not None:
        return draft.text.index(":", draft.end_of(function.returns)) + 1
    parts = [each for each in ast.walk(function.args) if isinstance(each, ast.expr | ast.arg)]
    ends = [opened, *(draft.end_of(each) for each in parts)]
    return draft.text.index(":", draft.text.index(")", max(ends))) + 1


def _passed_on(arguments: ast.arguments) -> list[str]:
    given = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    given += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    given += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    return given + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])

"""Rewrite a notebook cell so that IPython runs it as usual, but observed: the core of ``%%compile_explain``.

An ordinary cell magic receives the cell's text and must run it itself; line numbers, ``await``, the displayed last
value and tracebacks then differ from a normal run. So this magic does not run the cell. Its line is replaced with a
string on one line, and IPython runs the rest like any cell. After IPython has parsed the cell, the string becomes a
call that begins the observation, and IPython's event at the end of the cell ends it.

A front end can request the same for a cell without the magic's line, in the metadata of its message: ``{"graphbreak":
{"explain": "<options>"}}``. The call then occupies no line, so all line numbers stay the same.
"""

from __future__ import annotations

import ast
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from IPython.core.inputtransformer2 import cell_magic

from jupyter_graphbreak import faults
from jupyter_graphbreak.compiling.routes import route_calls
from jupyter_graphbreak.ipython.cell.bindings import top_level_nodes
from jupyter_graphbreak.ipython.cell.function import (
    can_compile_without_warning,
    count_leading_statements,
    function_statements,
    split_cell,
)
from jupyter_graphbreak.ipython.cell.top_level import only_computes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAGIC = "%%compile_explain"
_MAGIC_LINE = re.compile(rf"{MAGIC}(?![\w?])(?P<options>.*)$")
#: The module with the functions that the rewritten cell calls.
_CALLED_MODULE = "jupyter_graphbreak.ipython.magic"

#: The types of nodes that have a position in the source.
_NODES_WITH_POSITION = (ast.stmt, ast.expr, ast.excepthandler, ast.arg, ast.keyword, ast.alias, ast.pattern)

#: The way to run a cell. ``unchanged``: the cell compiles something itself; ``calls``: its calls are compiled;
#: ``function``: it only computes with tensors and is compiled as one function; ``nothing``: there is nothing to
#: compile.
Plan = Literal["unchanged", "calls", "function", "nothing"]


def replace_magic_line(lines: list[str]) -> list[str]:
    """Replace the magic's line with a string of the same text; an input transformer of IPython.

    The code below keeps the line numbers of the editor. Another cell magic below is replaced with the call that
    IPython would create for it.
    """
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    match = _MAGIC_LINE.match(lines[first].rstrip("\n")) if first is not None else None
    if first is None or match is None:
        return lines
    body = lines[first + 1 :]
    start = next((index for index, line in enumerate(body) if line.strip()), None)
    indent = ""
    if start is not None:
        # IPython removes the first line's indentation from the whole cell.
        indent = body[start][: len(body[start]) - len(body[start].lstrip())]
        if body[start].startswith("%%"):
            body = [*body[:start], *cell_magic(body[start:])]
    return [f"{indent}{MAGIC + match['options']!r}\n", *["\n"] * first, *body]


def without_magic_line(lines: list[str]) -> list[str]:
    """Return a cell with a comment in place of the magic's line, if :func:`replace_magic_line` fails.

    Above an indented cell or another cell magic, the line is empty instead, because IPython removes empty lines.
    """
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    if not lines[first : first + 1] or not lines[first].startswith(MAGIC):
        return lines
    following_line = next((line for line in lines[first + 1 :] if line.strip()), "")
    comment = "\n" if following_line.startswith((" ", "\t", "%%")) else f"# {lines[first]}"
    return [*lines[:first], comment, *lines[first + 1 :]]


def is_magic_line(line: str) -> bool:
    """Return whether a line is the magic's line."""
    return _MAGIC_LINE.match(line) is not None


class ExplainRequest(msgspec.Struct, frozen=True):
    """A front end's request for a report, with the options as in the magic's line.

    With ``only_torch``, a report is shown only if the cell uses PyTorch. ``edited`` contains the whole texts, before
    and after, of cells that were edited but not run; they are tried as remedies.
    """

    explain: str
    only_torch: bool = False
    edited: tuple[tuple[str, str], ...] = ()


def read_explain_request(request: Mapping[str, Any] | None) -> ExplainRequest | None:
    """Return the request for a report in an ``execute_request``; ``None`` if it contains no valid one."""
    metadata = (request or {}).get("metadata")
    try:
        return msgspec.convert(metadata["graphbreak"], ExplainRequest) if isinstance(metadata, dict) else None
    except (KeyError, msgspec.ValidationError):
        return None


class CellRewriter:
    """Replaces the magic's string with the call that begins the observation; an AST transformer of IPython.

    In a cell that compiles nothing itself, calls are rewritten so that the called functions are compiled; a cell that
    only computes with tensors becomes the body of one function. Errors are not raised, because IPython would remove the
    transformer for the rest of the session. ``on_visit`` is called before each cell is read. ``pop_request`` returns
    the front end's request for the cell that is about to run, and forgets it.
    """

    def __init__(
        self,
        uses_compile: Callable[[ast.Module], bool],
        magic_runs_code: Callable[[str], bool] = lambda _: False,
        pop_request: Callable[[], ExplainRequest | None] = lambda: None,
        namespace: Mapping[str, Any] = MappingProxyType({}),
        on_visit: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_visit = on_visit
        self._uses_compile = uses_compile
        self._magic_runs_code = magic_runs_code
        self._pop_request = pop_request
        self._namespace = namespace
        #: Rewrites a cell that starts with the string or has a request, and returns other cells unchanged.
        self.visit: Callable[[ast.AST], ast.AST] = faults.with_fallback(
            "reading the cell", self._rewrite_safely, without_magic_string
        )

    def _rewrite_safely(self, node: ast.AST) -> ast.AST:
        # A cell magic, such as %%time, may pass the rest of the cell, which contains our magic, to the transformers.
        if not isinstance(node, ast.Module) or not _find_cell_magic(node.body)[0]:
            self._on_visit()
        return fill_in_positions(self._rewrite_if_requested(node)) if isinstance(node, ast.Module) else node

    def _rewrite_if_requested(self, node: ast.Module) -> ast.Module:
        request = self._pop_request()
        options = magic_options(node)
        if options is not None:
            # The request adds options; the magic's own options are read last and take precedence.
            all_options = f"{request.explain} {options}".strip() if request is not None else options
            edited_cells = request.edited if request is not None else ()
            return self._rewrite(node, node.body[0], node.body[1:], ExplainRequest(all_options, edited=edited_cells))
        if request is not None:
            start = node.body[0] if node.body else ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
            return self._rewrite(node, start, node.body, request)
        return node

    def _rewrite(self, node: ast.Module, anchor: ast.stmt, body: list[ast.stmt], request: ExplainRequest) -> ast.Module:
        plan: Plan = "calls"
        before_observation: list[ast.stmt] = []
        cell_magic, observed_statements = "", body
        with faults.suppress_faults("planning how to run the cell"):
            plan, cell_magic, before_observation, observed_statements = self._make_plan(body, anchor)
        if plan == "nothing" and request.only_torch:
            return node
        values = (request.explain, plan, cell_magic, request.only_torch)
        arguments: list[ast.expr] = [ast.Constant(value) for value in values]
        if request.edited:
            pairs: list[ast.expr] = [
                ast.Tuple([ast.Constant(text) for text in pair], ast.Load()) for pair in request.edited
            ]
            arguments.append(ast.Tuple(pairs, ast.Load()))
        begin = internal_call("begin", arguments, anchor)
        return ast.Module([*before_observation, begin, *observed_statements], node.type_ignores)

    def _make_plan(self, body: list[ast.stmt], anchor: ast.stmt) -> tuple[Plan, str, list[ast.stmt], list[ast.stmt]]:
        """Return the plan for a cell, the magic that runs it, and the statements before and in the observation."""
        first = count_leading_statements(body)
        magic, text = _find_cell_magic(body)
        if self._uses_compile(ast.Module(body, [])) or ".compile(" in text:
            return "unchanged", magic, body[:first], body[first:]
        if magic:
            return "calls", magic, body[:first], body[first:]
        leading_statements, remaining_statements = split_cell(body, self._magic_runs_code)
        if not remaining_statements:
            return "nothing", "", body[:first], body[first:]
        if only_computes(leading_statements, remaining_statements, self._namespace):
            statements = function_statements(remaining_statements, anchor, internal_call)
            if can_compile_without_warning([*remaining_statements, statements[0]]):
                return "function", "", body[:first], [*leading_statements[first:], *statements]
        route_calls(body[first:])
        return "calls", "", body[:first], body[first:]


def without_magic_string(node: ast.AST) -> ast.AST:
    """Return a cell without the magic's string, which would otherwise be the docstring of the cell."""
    match node:
        case ast.Module([ast.Expr(ast.Constant(str(text))) as first, *rest]) if text.startswith(MAGIC):
            return ast.Module([ast.copy_location(ast.Pass(), first), *rest], node.type_ignores)
    return node


def fill_in_positions(node: ast.Module) -> ast.Module:
    """Copy the source position of the nearest enclosing node to every node that has none."""
    pending: list[tuple[ast.AST, ast.AST | None]] = [(node, None)]
    while pending:
        child, enclosing = pending.pop()
        if enclosing is not None and isinstance(child, _NODES_WITH_POSITION) and not hasattr(child, "lineno"):
            ast.copy_location(child, enclosing)
        node_with_position = child if hasattr(child, "lineno") else enclosing
        pending += [(grandchild, node_with_position) for grandchild in ast.iter_child_nodes(child)]
    return node


def magic_options(node: ast.Module) -> str | None:
    """Return the options of the magic if the cell starts with the magic's string, otherwise ``None``."""
    match node.body[:1]:
        case [ast.Expr(ast.Constant(str(text)))] if (match := _MAGIC_LINE.match(text)) is not None:
            return match["options"].strip()
    return None


def _find_cell_magic(body: list[ast.stmt]) -> tuple[str, str]:
    """Return the cell magic that runs the rest of the cell, and that rest; empty if there is none."""
    for node in top_level_nodes(body):
        match node:
            case ast.Call(ast.Attribute(_, "run_cell_magic"), [ast.Constant(str(name)), *_, ast.Constant(str(text))]):
                return f"%%{name}", text
    return "", ""


def internal_call(name: str, arguments: list[ast.expr], anchor: ast.stmt) -> ast.Expr:
    """Create a call to a function in the magic's module that needs no name in the user's namespace."""
    function: ast.expr = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant(_CALLED_MODULE)], [])
    for part in [*_CALLED_MODULE.split(".")[1:], *name.split(".")]:
        function = ast.Attribute(function, part, ast.Load())
    call = ast.Expr(ast.Call(function, arguments, []))
    for node in ast.walk(call):
        ast.copy_location(node, anchor)
    return call

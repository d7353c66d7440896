"""Run a notebook cell exactly as IPython would, with an eye on it: the IPython side of ``%%compile_explain``.

A cell magic of the usual kind is handed the cell's text and must run it itself; line numbers, ``await``, the displayed
last value and tracebacks then differ from an ordinary run. So this magic does not run the cell. Its line is replaced
by a string of the same one line, and IPython runs the rest as it runs any cell; when IPython has parsed the cell, the
string becomes a call that begins the observation, and IPython's own event at the end of the cell ends it.

A front end can ask for the same in the metadata of its request, for a cell that has no such line: ``{"graphbreak":
{"explain": "<options>"}}``. The call then gets no line of its own, and all lines stay those of the cell.

Knows IPython, not torch.
"""

from __future__ import annotations

import ast
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from IPython.core.inputtransformer2 import cell_magic

from jupyter_graphbreak import faults
from jupyter_graphbreak.compiling.routes import route_calls
from jupyter_graphbreak.ipython.cell.bindings import own_nodes
from jupyter_graphbreak.ipython.cell.function import as_function, is_valid, leading_statements, split
from jupyter_graphbreak.ipython.cell.requests import Asked
from jupyter_graphbreak.ipython.cell.top_level import computes_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAGIC = "%%compile_explain"
_MAGIC_LINE = re.compile(rf"{MAGIC}(?![\w?])(?P<options>.*)$")
#: Where the functions are that the rewritten cell calls.
_HOME = "jupyter_graphbreak.ipython.magic"

#: The nodes that have a place in the source.
_PLACED = (ast.stmt, ast.expr, ast.excepthandler, ast.arg, ast.keyword, ast.alias, ast.pattern)

#: What is done with the cell: it compiles something itself; what it calls is compiled; it only computes with tensors
#: and is compiled as one function; it has nothing to compile.
Plan = Literal["as it stands", "calls", "function", "nothing"]


def replace_magic_line(lines: list[str]) -> list[str]:
    """Replace the magic's line by a string that says the same; an input transformer of IPython.

    The number of lines stays as it is, so that code keeps the line numbers that the editor shows. A further cell magic
    below it is turned into the call that IPython would make of it.
    """
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    match = _MAGIC_LINE.match(lines[first].rstrip("\n")) if first is not None else None
    if first is None or match is None:
        return lines
    body = lines[first + 1 :]
    start = next((index for index, line in enumerate(body) if line.strip()), None)
    indent = ""
    if start is not None:
        # IPython takes the first line's indentation off the whole cell.
        indent = body[start][: len(body[start]) - len(body[start].lstrip())]
        if body[start].startswith("%%"):
            body = [*body[:start], *cell_magic(body[start:])]
    return [f"{indent}{MAGIC + match['options']!r}\n", *["\n"] * first, *body]


def without_magic_line(lines: list[str]) -> list[str]:
    """Return a cell without the magic, for when :func:`replace_magic_line` fails: with a comment in place of its line.

    Above an indented cell or a further cell magic the line is empty: IPython takes it away.
    """
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    if not lines[first : first + 1] or not lines[first].startswith(MAGIC):
        return lines
    following = next((line for line in lines[first + 1 :] if line.strip()), "")
    comment = "\n" if following.startswith((" ", "\t", "%%")) else f"# {lines[first]}"
    return [*lines[:first], comment, *lines[first + 1 :]]


def is_magic_line(line: str) -> bool:
    """Whether a line is that of the magic, with its options."""
    return _MAGIC_LINE.match(line) is not None


class BeginObservation:
    """Turn the string that stands for the magic into the call that begins it; an AST transformer of IPython.

    In a cell that compiles nothing itself, calls are routed so that what it calls is compiled; a cell that only
    computes with tensors becomes the body of one function. Nothing is raised here: IPython would take the transformer
    away for the rest of the session.

    Parameters
    ----------
    uses_compile : callable
        Whether a cell compiles something itself.
    code_magic : callable
        Whether a line magic runs code of its own.
    take_asked : callable
        What the front end asks for of the cell that is about to run, once.
    namespace : mapping
        The notebook's names.
    on_visit : callable
        Called before a cell is read.
    """

    def __init__(
        self,
        uses_compile: Callable[[ast.Module], bool],
        code_magic: Callable[[str], bool] = lambda _: False,
        take_asked: Callable[[], Asked | None] = lambda: None,
        namespace: Mapping[str, Any] = MappingProxyType({}),
        on_visit: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_visit = on_visit
        self._uses_compile = uses_compile
        self._code_magic = code_magic
        self._take_asked = take_asked
        self._namespace = namespace
        #: Rewrites a cell that starts with the string or that is asked for, and leaves any other alone.
        self.visit: Callable[[ast.AST], ast.AST] = faults.with_fallback(
            "reading the cell", self._visited, without_marker
        )

    def _visited(self, node: ast.AST) -> ast.AST:
        self._on_visit()
        return located(self._begun(node)) if isinstance(node, ast.Module) else node

    def _begun(self, node: ast.Module) -> ast.Module:
        asked = self._take_asked()
        options = marked(node)
        if options is not None:
            # What the front end asks for comes on top: the magic's own options are read last and win.
            both = f"{asked.explain} {options}".strip() if asked is not None else options
            edited = asked.edited if asked is not None else ()
            return self._rewritten(node, node.body[0], node.body[1:], Asked(both, edited=edited))
        if asked is not None:
            start = node.body[0] if node.body else ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
            return self._rewritten(node, start, node.body, asked)
        return node

    def _rewritten(self, node: ast.Module, at: ast.stmt, body: list[ast.stmt], asked: Asked) -> ast.Module:
        plan: Plan = "calls"
        lead: list[ast.stmt] = []
        reason, rest = "", body
        with faults.suppress_faults("planning how to run the cell"):
            plan, reason, lead, rest = self._planned(body, at)
        if plan == "nothing" and asked.only_torch:
            return node
        told = (asked.explain, plan, reason, asked.only_torch)
        given: list[ast.expr] = [ast.Constant(value) for value in told]
        if asked.edited:
            pairs: list[ast.expr] = [
                ast.Tuple([ast.Constant(text) for text in pair], ast.Load()) for pair in asked.edited
            ]
            given.append(ast.Tuple(pairs, ast.Load()))
        begin = call_of_ours("begin", given, at)
        return ast.Module([*lead, begin, *rest], node.type_ignores)

    def _planned(self, body: list[ast.stmt], at: ast.stmt) -> tuple[Plan, str, list[ast.stmt], list[ast.stmt]]:
        """Return what is done with a cell and why, what comes before the observation, and what is observed."""
        first = leading_statements(body)
        magic, text = _cell_magic(body)
        if self._uses_compile(ast.Module(body, [])) or ".compile(" in text:
            return "as it stands", magic, body[:first], body[first:]
        if magic:
            return "calls", magic, body[:first], body[first:]
        lead, rest = split(body, self._code_magic)
        if not rest:
            return "nothing", "", body[:first], body[first:]
        if computes_alone(lead, rest, self._namespace):
            made = as_function(rest, at, call_of_ours)
            if is_valid([*rest, made[0]]):
                return "function", "", body[:first], [*lead[first:], *made]
        route_calls(body[first:])
        return "calls", "", body[:first], body[first:]


def without_marker(node: ast.AST) -> ast.AST:
    """Return a cell without the string that stands for the magic: if reading it fails, it would be a docstring."""
    match node:
        case ast.Module([ast.Expr(ast.Constant(str(text))) as first, *rest]) if text.startswith(MAGIC):
            return ast.Module([ast.copy_location(ast.Pass(), first), *rest], node.type_ignores)
    return node


def located(node: ast.Module) -> ast.Module:
    """Give the nodes of a cell that have no place that of the node around them, however deep they are."""
    pending: list[tuple[ast.AST, ast.AST | None]] = [(node, None)]
    while pending:
        child, around = pending.pop()
        if around is not None and isinstance(child, _PLACED) and not hasattr(child, "lineno"):
            ast.copy_location(child, around)
        placed = child if hasattr(child, "lineno") else around
        pending += [(inner, placed) for inner in ast.iter_child_nodes(child)]
    return node


def marked(node: ast.Module) -> str | None:
    """Return the options of the magic if the cell starts with the string that stands for it."""
    match node.body[:1]:
        case [ast.Expr(ast.Constant(str(text)))] if (found := _MAGIC_LINE.match(text)) is not None:
            return found["options"].strip()
    return None


def _cell_magic(body: list[ast.stmt]) -> tuple[str, str]:
    """Return the further cell magic that runs the rest of the cell, and that rest; empty where there is none."""
    for node in own_nodes(body):
        match node:
            case ast.Call(ast.Attribute(_, "run_cell_magic"), [ast.Constant(str(name)), *_, ast.Constant(str(text))]):
                return f"%%{name}", text
    return "", ""


def call_of_ours(name: str, arguments: list[ast.expr], at: ast.stmt) -> ast.Expr:
    """Make a call of a function of the magic's module that needs no name in the user's namespace."""
    home: ast.expr = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant(_HOME)], [])
    for part in [*_HOME.split(".")[1:], *name.split(".")]:
        home = ast.Attribute(home, part, ast.Load())
    made = ast.Expr(ast.Call(home, arguments, []))
    for node in ast.walk(made):
        ast.copy_location(node, at)
    return made

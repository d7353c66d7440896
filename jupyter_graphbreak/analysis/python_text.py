"""Parse the text of a cell, or of a function without the rest of its file, as Python; find the names that it binds."""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyter_graphbreak.report.location import Segment

_COMMAND = re.compile(r"^(?P<indent>\s*)(?:[%!?].*|[^#\s]+\?)$")
_ASSIGNED_COMMAND = re.compile(r"^(?P<target>\s*[\w.,\[\] ]+=\s*)[%!].*$")


def parse_python(text: str) -> ast.Module | None:
    """Return the syntax tree of source text with its original line and column numbers; ``None`` if it is not Python.

    The magics and shell commands of a notebook are parsed as ``pass``. The text may be indented, like a method without
    its class.
    """
    first, _, remaining_lines = text.partition("\n")
    if first.startswith("%%"):
        # IPython dedents the lines below such a line. A percent sign in them is part of a string or an expression.
        tree = _try_parse(remaining_lines) if _is_indented(remaining_lines) else None
        tree = ast.increment_lineno(tree, 1) if tree is not None else _try_parse(f"pass\n{remaining_lines}")
        if tree is not None:
            return tree
    return _try_parse(text) or _try_parse("\n".join(map(_replace_command, text.split("\n"))))


def trees_of(segments: Iterable[Segment]) -> Iterator[ast.Module]:
    """Yield the syntax trees of segments with the line numbers of their source; text that is not Python is left out."""
    for segment in segments:
        tree = parse_python(segment.text)
        if tree is not None:
            yield ast.increment_lineno(tree, segment.first_line - 1)


def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression, which may span several lines."""
    with hide_python_warnings():
        return ast.parse(f"({text}\n)", mode="eval").body


@contextlib.contextmanager
def hide_python_warnings() -> Iterator[None]:
    """Hide the warnings that Python issues while it parses code, because Python showed them when the user ran it.

    No warning filter is set, because each change of the filters makes Python forget which warnings it has shown.
    """
    original = warnings._showwarnmsg  # type: ignore[attr-defined]  # noqa: SLF001 - the compiler calls this function
    warnings._showwarnmsg = lambda _: None  # type: ignore[attr-defined]  # noqa: SLF001
    try:
        yield
    finally:
        warnings._showwarnmsg = original  # type: ignore[attr-defined]  # noqa: SLF001


def names_bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node itself, without its child nodes, binds or deletes in its scope."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.MatchMapping(rest=str(name)):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]


def _replace_command(line: str) -> str:
    if (command := _COMMAND.match(line)) is not None:
        return f"{command['indent']}pass"
    if (command := _ASSIGNED_COMMAND.match(line)) is not None:
        return f"{command['target']}None"
    return line


def _is_indented(text: str) -> bool:
    return next((line for line in text.split("\n") if line.strip()), "")[:1].isspace()


def _try_parse(text: str) -> ast.Module | None:
    is_indented = _is_indented(text)
    try:
        with hide_python_warnings():
            tree = ast.parse(f"if 1:\n{text}" if is_indented else text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if is_indented and isinstance(tree.body[0], ast.If):
        return ast.increment_lineno(ast.Module(tree.body[0].body, []), -1)
    return tree

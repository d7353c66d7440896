"""Read the text of a cell, or of a function that was cut out of its file, as Python."""

from __future__ import annotations

import ast
import re

_COMMAND = re.compile(r"^(?P<indent>\s*)(?:[%!?].*|[^#\s]+\?)$")
_ASSIGNED_COMMAND = re.compile(r"^(?P<target>\s*[\w.,\[\] ]+=\s*)[%!].*$")


def parse_python(text: str) -> ast.Module | None:
    """Return the syntax tree of a text whose lines and columns are those of the text; ``None`` if it is not Python.

    Magics and shell commands of a notebook count as ``pass``. Indented text, such as a method without its class, is
    read as it stands.
    """
    first, _, rest = text.partition("\n")
    if first.startswith("%%"):
        # What begins with a percent sign further down is a string or an expression; and IPython dedents what is below.
        tree = _parsed(rest) if _is_indented(rest) else None
        tree = ast.increment_lineno(tree, 1) if tree is not None else _parsed(f"pass\n{rest}")
        if tree is not None:
            return tree
    return _parsed(text) or _parsed("\n".join(map(_without_command, text.split("\n"))))


def _without_command(line: str) -> str:
    if (command := _COMMAND.match(line)) is not None:
        return f"{command['indent']}pass"
    if (command := _ASSIGNED_COMMAND.match(line)) is not None:
        return f"{command['target']}None"
    return line


def _is_indented(text: str) -> bool:
    return next((line for line in text.split("\n") if line.strip()), "")[:1].isspace()


def _parsed(text: str) -> ast.Module | None:
    is_indented = _is_indented(text)
    try:
        tree = ast.parse(f"if 1:\n{text}" if is_indented else text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if is_indented and isinstance(tree.body[0], ast.If):
        return ast.increment_lineno(ast.Module(tree.body[0].body, []), -1)
    return tree

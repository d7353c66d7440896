"""Find the first and the last line of a function, and the heads of statements that Python reaches again."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Python's names for the code of functions without a name.
_UNNAMED_FUNCTIONS: dict[str, type[ast.expr]] = {
    "<lambda>": ast.Lambda,
    "<genexpr>": ast.GeneratorExp,
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
}


def end_in_tree(tree: ast.AST, line: int, name: str) -> int | None:
    """Return the last line of the innermost function with a given name around a line, ``None`` if there is none.

    Parameters
    ----------
    tree : ast.AST
        The source, with the same line numbers as ``line``.
    line : int
        Any line of the function or of its decorators.
    name : str
        The name in the code object, e.g. ``forward`` or ``<lambda>``.
    """
    functions = ((first_line(node), _last_line(node)) for node in ast.walk(tree) if _has_name(node, name))
    enclosing = [(first, last) for first, last in functions if first <= line <= last]
    return min(enclosing, key=lambda lines: lines[1] - lines[0])[1] if enclosing else None


def is_in_head(tree: ast.AST, line: int) -> bool:
    """Return whether a line is in the head of a ``with`` or ``while``, which Python reaches again after the body."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith | ast.While) and node.lineno <= line < node.body[0].lineno:
            return True
    return False


def end_by_indentation(lines: Sequence[str], index: int) -> int:
    """Return the index of the last line of the function that begins at ``lines[index]``, by indentation alone.

    The text need not be valid Python, because lines may be missing. If no function begins there, return ``index``.
    """
    first = lines[index].lstrip()
    if not first.startswith(("@", "def ", "async def ")):
        return index
    indentation = _indentation(lines[index])
    last, is_defined = index, False
    for number, line in enumerate(lines[index:], start=index):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if _indentation(line) <= indentation and not text.startswith(")"):
            if is_defined:
                break
            is_defined = not text.startswith("@")
        last = number
    return last


def _has_name(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == name
    kind = _UNNAMED_FUNCTIONS.get(name)
    return kind is not None and isinstance(node, kind)


def first_line(node: ast.AST) -> int:
    """Return the first line of a statement, which may be that of a decorator."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([getattr(node, "lineno", 0), *(decorator.lineno for decorator in decorators)])


def _last_line(node: ast.AST) -> int:
    last: int = getattr(node, "end_lineno", None) or first_line(node)
    return last


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())

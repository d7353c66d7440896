"""Find where a function ends, and the lines to which it comes back, in the text around it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What Python calls the code of functions that have no name of their own.
_NAMELESS: dict[str, type[ast.expr]] = {
    "<lambda>": ast.Lambda,
    "<genexpr>": ast.GeneratorExp,
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
}


def end_in_tree(tree: ast.AST, line: int, name: str) -> int | None:
    """Return the last line of the innermost function of a name around a line, ``None`` where there is none.

    Parameters
    ----------
    tree : ast.AST
        Its lines are counted as ``line`` is.
    line : int
        Any line of the function; its decorators count.
    name : str
        As a code object has it, e.g. ``forward`` or ``<lambda>``.
    """
    functions = ((_first_line(node), _last_line(node)) for node in ast.walk(tree) if _is_called(node, name))
    around = [(first, last) for first, last in functions if first <= line <= last]
    return min(around, key=lambda lines: lines[1] - lines[0])[1] if around else None


def is_in_head(tree: ast.AST, line: int) -> bool:
    """Whether a line is in the head of a ``with`` or ``while`` statement, which is reached again after its body."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith | ast.While) and node.lineno <= line < node.body[0].lineno:
            return True
    return False


def end_by_indentation(lines: Sequence[str], index: int) -> int:
    """Return the index of the last line of the function that begins at ``lines[index]``, by indentation alone.

    For text that need not be Python, since lines of it are left out. Where no function begins there, it is the line
    itself.
    """
    first = lines[index].lstrip()
    if not first.startswith(("@", "def ", "async def ")):
        return index
    around = _indentation(lines[index])
    last, is_defined = index, False
    for number, line in enumerate(lines[index:], start=index):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if _indentation(line) <= around and not text.startswith(")"):
            if is_defined:
                break
            is_defined = not text.startswith("@")
        last = number
    return last


def _is_called(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == name
    kind = _NAMELESS.get(name)
    return kind is not None and isinstance(node, kind)


def _first_line(node: ast.AST) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([getattr(node, "lineno", 0), *(decorator.lineno for decorator in decorators)])


def _last_line(node: ast.AST) -> int:
    last: int = getattr(node, "end_lineno", None) or _first_line(node)
    return last


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())

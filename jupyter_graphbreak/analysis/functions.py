"""Find the first and the last line of a function, and whether a line is in the head of a statement."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.analysis.python_text import parse_python

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak.report.location import HeadKind

#: Python's names for the code of functions without a name.
_UNNAMED_FUNCTIONS: dict[str, type[ast.expr]] = {
    "<lambda>": ast.Lambda,
    "<genexpr>": ast.GeneratorExp,
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
}


def last_line_in_tree(tree: ast.AST, line: int, name: str) -> int | None:
    """Return the last line of the innermost function with the given name around a line; ``None`` if there is none."""
    functions = ((first_line(node), _last_line(node)) for node in ast.walk(tree) if _has_name(node, name))
    enclosing_functions = [(first, last) for first, last in functions if first <= line <= last]
    return min(enclosing_functions, key=lambda lines: lines[1] - lines[0])[1] if enclosing_functions else None


def is_in_head(tree: ast.AST, line: int) -> bool:
    """Return whether a line is in the head of a ``with`` or ``while``, which Python reaches again after the body."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith | ast.While) and node.lineno <= line < node.body[0].lineno:
            return True
    return False


def head_kind(tree: ast.AST, line: int) -> HeadKind | None:
    """Return ``"loop"`` if a line is in a loop's head, ``"condition"`` if only in a condition's, else ``None``."""
    kinds = {_kind_of_head(node, line) for node in ast.walk(tree)}
    return "loop" if "loop" in kinds else "condition" if "condition" in kinds else None


def head_kind_of_line(code: str) -> HeadKind | None:
    """Return the result of :func:`head_kind` for one line, which may be incomplete; ``None`` if it cannot be parsed."""
    code = code.strip().removeprefix("el")
    tree = parse_python(f"{code} pass" if code.endswith(":") else code)
    return head_kind(tree, 1) if tree is not None else None


def _kind_of_head(node: ast.AST, line: int) -> HeadKind | None:
    match node:
        case ast.For(iter=iterable, body=body) | ast.AsyncFor(iter=iterable, body=body):
            return "loop" if _is_break_in_iterable(iterable, body, line, node.lineno) else None
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            elements = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.comprehension)]
            is_loop = any(_is_break_in_iterable(part.iter, [*elements, *part.ifs], line) for part in node.generators)
            return "loop" if is_loop else None
        case ast.While(test=test) if _spans_line(test, line, node.lineno):
            return "loop"
        case ast.If(test=test) | ast.Assert(test=test) if _spans_line(test, line, node.lineno):
            return None if _is_lookup(test) else "condition"
        case ast.IfExp(test=test) if _spans_line(test, line):
            return None if _is_lookup(test) else "condition"
    return None


def _is_lookup(test: ast.expr) -> bool:
    """Return whether a test, such as ``key not in self.cache``, looks up a key, which becomes a constant."""
    match test:
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Name() | ast.Attribute()]):
            return True
    return False


def _is_break_in_iterable(iterable: ast.expr, body: Sequence[ast.AST], line: int, first: int | None = None) -> bool:
    """Return whether the iterable of a loop is on a line and is the likely cause of a break there."""
    if not _spans_line(iterable, line, first):
        return False
    return _has_call(iterable) or not any(_spans_line(node, line) and _has_call(node) for node in body)


def _spans_line(node: Any, line: int, first: int | None = None) -> bool:
    """Return whether a line is between the first line of a node (or a given earlier line) and its last line."""
    return bool((node.lineno if first is None else first) <= line <= node.end_lineno)


def _has_call(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Call) for inner in ast.walk(node))


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
    """Return the first line of a statement: that of its first decorator, if it has one."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([getattr(node, "lineno", 0), *(decorator.lineno for decorator in decorators)])


def _last_line(node: ast.AST) -> int:
    last: int = getattr(node, "end_lineno", None) or first_line(node)
    return last


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())

"""Find the expression at a range of source positions.

Python and torch give a place as a line, a first and a last column in UTF-8 bytes and, usually, a last line. An inlined
frame has no last line, and the range of a jump is that of the whole statement around its test.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class ExpressionRange(NamedTuple):
    """The first line and column and the last line and column (exclusive) of an expression, columns in UTF-8 bytes."""

    line: int
    column: int
    end_line: int
    end_column: int


def find_expression(
    tree: ast.AST, line: int, column: int, end_column: int, end_line: int | None
) -> ExpressionRange | None:
    """Return the range of the expression with the given start and end, ``None`` if there is none.

    Parameters
    ----------
    tree : ast.AST
        The source around the expression, with the line and column numbers of the other arguments.
    line, column, end_column : int
        The start of the expression, and the column where it ends.
    end_line : int or None
        The line where the expression ends. If it is ``None``, the smallest expression is taken.
    """
    ranges = {
        ExpressionRange(line, column, node.end_lineno or line, end_column): node
        for node in reversed(list(_nodes_at(tree, line, column)))
        if node.end_col_offset == end_column and end_line in (None, node.end_lineno)
    }
    if not ranges:
        return None
    smallest = min(ranges, key=lambda place: place.end_line)
    return _test_of(ranges[smallest]) or smallest


def whole_test(tree: ast.AST, operand: ExpressionRange) -> ExpressionRange | None:
    """Return the range of the ``and``/``or`` test that begins with the given operand, ``None`` if there is none.

    Python 3.11 gives every jump of ``a and b`` the place of ``a``, so it is unknown which of the two was evaluated.
    """
    for test in _long_tests(tree):
        first: ast.expr = test
        while isinstance(first, ast.BoolOp):
            first = first.values[0]
        if operand == _range_of(first):
            return _range_of(test)
    return None


def is_in_long_test(tree: ast.AST, line: int) -> bool:
    """Return whether a line contains a part of an ``and``/``or`` test."""
    return any(test.lineno <= line <= (test.end_lineno or test.lineno) for test in _long_tests(tree))


def _long_tests(tree: ast.AST) -> Iterator[ast.BoolOp]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp) and isinstance(node.test, ast.BoolOp):
            yield node.test


def _range_of(node: ast.expr) -> ExpressionRange | None:
    if node.end_lineno is None or node.end_col_offset is None:
        return None
    return ExpressionRange(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)


def _nodes_at(tree: ast.AST, line: int, column: int) -> Iterator[ast.stmt | ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr) and (node.lineno, node.col_offset) == (line, column):
            yield node


def _test_of(node: ast.AST) -> ExpressionRange | None:
    """Return the range of the condition of an ``if``, ``while`` or ``assert``.

    If the condition begins on a later line, the range begins with the statement, so that a place keeps its line.
    """
    if not isinstance(node, ast.If | ast.While | ast.Assert):
        return None
    test = node.test
    if test.end_lineno is None or test.end_col_offset is None:
        return None
    first = test if test.lineno == node.lineno else node
    return ExpressionRange(first.lineno, first.col_offset, test.end_lineno, test.end_col_offset)

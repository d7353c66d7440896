"""Edit source text with the help of its syntax tree, and leave all other characters unchanged."""

from __future__ import annotations

import ast
import copy
import io
import tokenize
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from jupyter_graphbreak.analysis.python_text import parse_expression, parse_python

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_Node = TypeVar("_Node", bound=ast.AST)
#: Expressions that need no parentheses as operands.
_OPERAND_NODES = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


class Splice(NamedTuple):
    """A range in a source text, as character offsets, and its replacement."""

    start: int
    end: int
    new_text: str


class ParsedSource:
    """A source text, magics included, with its syntax tree.

    It creates splices and applies them. New code must not assign the ``taken_names``.
    """

    def __init__(self, text: str, tree: ast.Module, taken_names: frozenset[str] = frozenset()) -> None:
        self.text = text
        self.tree = tree
        self.taken_names = taken_names
        self._lines = text.split("\n")
        self._line_starts = [0]
        for line in self._lines:
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    @classmethod
    def parse(cls, text: str, taken_names: frozenset[str] = frozenset()) -> ParsedSource | None:
        """Parse source text; return ``None`` if it is not Python, or if its lines may be counted differently."""
        if any(mark in text.replace("\r\n", "\n") for mark in "\r\f"):
            return None
        tree = parse_python(text)
        return cls(text, tree, taken_names) if tree is not None else None

    def start_of(self, node: ast.expr | ast.stmt | ast.arg | ast.pattern) -> int:
        """Return the character offset at which a node starts."""
        return self._offset(node.lineno, node.col_offset)

    def end_of(self, node: ast.expr | ast.stmt | ast.arg | ast.pattern) -> int:
        """Return the character offset at which a node ends."""
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)

    def _offset(self, line: int, column: int) -> int:
        text = self._lines[line - 1]
        text_before = text[:column] if text.isascii() else text.encode()[:column].decode(errors="ignore")
        return self._line_starts[line - 1] + len(text_before)

    def line_start(self, line: int) -> int:
        """Return the character offset at which a line starts."""
        return self._line_starts[line - 1]

    def line_end(self, line: int) -> int:
        """Return the character offset at which a line ends."""
        return self._line_starts[line - 1] + len(self._lines[line - 1])

    def text_of(self, node: ast.expr | ast.stmt) -> str:
        """Return the source text of a node."""
        return self.text[self.start_of(node) : self.end_of(node)]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that contain a node, nearest first."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def enclosing_node(self, node: ast.AST, node_type: type[_Node]) -> _Node | None:
        """Return a node if it has the given type, or else its nearest ancestor of that type, if there is one."""
        return next((part for part in (node, *self.ancestors(node)) if isinstance(part, node_type)), None)

    def enclosing_function(self, node: ast.AST) -> FunctionNode | None:
        """Return the function that contains a node; ``None`` at the top level and in a lambda."""
        for part in self.ancestors(node):
            if isinstance(part, FunctionNode):
                return part
            if isinstance(part, ast.Lambda):
                return None
        return None

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the list of statements that contains a statement."""
        parent = self._parents[statement]
        blocks: list[list[ast.stmt]] = [getattr(parent, name, []) for name in ("body", "orelse", "finalbody")]
        return next(block for block in blocks if statement in block)

    def is_elif(self, statement: ast.stmt) -> bool:
        """Return whether an ``if`` is written as an ``elif``."""
        return isinstance(statement, ast.If) and self.text_of(statement).startswith("elif")

    def find_node(
        self, line: int, column: int | None, end_line: int, end_column: int | None
    ) -> ast.expr | ast.stmt | None:
        """Return the innermost node with the given range; without columns, the statement that begins on the line.

        Columns count characters. PyTorch reports, for example, an ``if`` only up to its test, a range that no node has.
        The result is then the outermost node that begins inside the range and ends with it, or else the smallest node
        around the range, or ``None`` if there is none.
        """
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.expr | ast.stmt)]
        if column is None or end_column is None or not 1 <= line <= end_line <= len(self._lines):
            return next((node for node in nodes if isinstance(node, ast.stmt) and node.lineno == line), None)
        given_range = (self._line_starts[line - 1] + column, self._line_starts[end_line - 1] + end_column)
        nodes = [node for node in nodes if node.lineno <= end_line and line <= (node.end_lineno or node.lineno)]
        exact_nodes = [node for node in nodes if (self.start_of(node), self.end_of(node)) == given_range]
        if exact_nodes:
            return exact_nodes[-1]
        nodes_at_end = [
            node for node in nodes if self.end_of(node) == given_range[1] and self.start_of(node) >= given_range[0]
        ]
        if nodes_at_end:
            return nodes_at_end[0]
        nodes_around = [
            node for node in nodes if self.start_of(node) <= given_range[0] and given_range[1] <= self.end_of(node)
        ]
        return min(nodes_around, key=lambda node: self.end_of(node) - self.start_of(node), default=None)

    def indent_of(self, statement: ast.stmt) -> str | None:
        """Return the indentation of a statement; ``None`` if other code precedes it on its line."""
        start = self.start_of(statement)
        text_before = self.text[self._line_starts[statement.lineno - 1] : start]
        return text_before if not text_before.strip() else None

    def has_own_lines(self, statement: ast.stmt) -> bool:
        """Return whether a statement shares its lines with no other code."""
        end_of_line = self.line_end(statement.end_lineno or statement.lineno)
        text_after = self.text[self.end_of(statement) : end_of_line].strip()
        return self.indent_of(statement) is not None and (not text_after or text_after.startswith("#"))

    def comments_in(self, statement: ast.stmt) -> list[str]:
        """Return the comments inside a statement, except one on its last line."""
        lines = self._lines[statement.lineno - 1 : statement.end_lineno]
        comments = []
        try:
            for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
                is_inside = token.start[0] < len(lines)  # no splice removes a comment after the last line
                if token.type == tokenize.COMMENT and is_inside:
                    comments.append(token.string)
        except (tokenize.TokenError, SyntaxError):
            return []
        return comments

    def replacement(self, node: ast.expr | ast.stmt, new_text: str) -> Splice:
        """Return the splice that replaces a node."""
        return Splice(self.start_of(node), self.end_of(node), new_text)

    def statement_replacement(self, statement: ast.stmt, lines: Sequence[str]) -> Splice | None:
        """Return the splice that replaces a statement with lines; ``None`` if that is impossible.

        The statement's comments come first. The lines are indented as the statement is. The replacement of an ``elif``
        becomes the block of an ``else``. A statement that shares its line with other code is replaced within this line,
        unless it is an ``if`` or has several lines.
        """
        if not self.has_own_lines(statement):
            new_line = "; ".join(lines)
            is_one_line = statement.lineno == statement.end_lineno and not any("\n" in line for line in lines)
            return self.replacement(statement, new_line) if is_one_line and not isinstance(statement, ast.If) else None
        indent = self.indent_of(statement) or ""
        all_lines = [*self.comments_in(statement), *lines]
        if self.is_elif(statement) and isinstance(statement, ast.If):
            inner_indent = self.indent_of(statement.body[0])
            if inner_indent is None:
                return None
            return self.replacement(statement, f"\n{inner_indent}".join(["else:", *all_lines]))
        return self.replacement(statement, f"\n{indent}".join(all_lines))

    def deletion(self, statement: ast.stmt) -> Splice:
        """Return the splice that deletes a statement with its lines.

        ``pass`` replaces the only statement of a block, and a statement that shares its lines with other code.
        """
        if len(self.block_of(statement)) == 1 or not self.has_own_lines(statement):
            return self.replacement(statement, "pass")
        return self.line_deletion(statement.lineno, statement.end_lineno or statement.lineno)

    def line_deletion(self, first_line: int, last_line: int) -> Splice:
        """Return the splice that deletes whole lines."""
        return Splice(self._line_starts[first_line - 1], min(self._line_starts[last_line], len(self.text)), "")

    def insertion_before(self, statement: ast.stmt, lines: Sequence[str]) -> Splice | None:
        """Return the splice that inserts lines before a statement; ``None`` if other code precedes it on its line."""
        indent = self.indent_of(statement)
        if indent is None:
            return None
        start = self.line_start(first_line(statement))
        return Splice(start, start, "".join(f"{indent}{line}\n" for line in lines))

    def insertion_after(self, statement: ast.stmt, lines: Sequence[str]) -> Splice | None:
        """Return the splice that inserts lines after a statement; ``None`` if it shares its lines with other code."""
        indent = self.indent_of(statement)
        if indent is None or not self.has_own_lines(statement):
            return None
        offset = min(self._line_starts[statement.end_lineno or statement.lineno], len(self.text))
        leading_newline = "" if self.text[:offset].endswith("\n") else "\n"
        return Splice(offset, offset, leading_newline + "".join(f"{indent}{line}\n" for line in lines))

    def insertion_at_start(self, function: FunctionNode, lines: Sequence[str]) -> Splice | None:
        """Return the splice that inserts lines at a function's start, after its docstring; ``None`` if impossible."""
        first = function.body[0]
        if ast.get_docstring(function, clean=False) is not None:
            if len(function.body) == 1:
                return self.insertion_after(first, lines)
            first = function.body[1]
        return self.insertion_before(first, lines)

    def text_with_changes(self, node: ast.expr | ast.stmt, changes: Mapping[ast.AST, str]) -> str:
        """Return the source text of a node with the given expressions replaced.

        If a replaced expression is in an f-string, the node loses its layout, because columns in f-strings are wrong in
        Python 3.11.
        """
        replaced_parts = [part for part in ast.walk(node) if part in changes and isinstance(part, ast.expr)]
        is_in_string = any(
            isinstance(ancestor, ast.JoinedStr) for part in replaced_parts for ancestor in self.ancestors(part)
        )
        if is_in_string:
            replacer = _ExpressionReplacer(
                {ast.dump(part, include_attributes=True): changes[part] for part in replaced_parts}
            )
            return ast.unparse(replacer.visit(copy.deepcopy(node)))
        start, text = self.start_of(node), self.text_of(node)
        for part in sorted(replaced_parts, key=self.start_of, reverse=True):
            text = text[: self.start_of(part) - start] + changes[part] + text[self.end_of(part) - start :]
        return text

    def apply_splices(self, splices: Iterable[Splice | None]) -> str | None:
        """Return the text with splices applied, unless they overlap or the result is unchanged or not Python."""
        text = self.text
        limit = len(text)
        for splice in sorted(set(splices), key=lambda splice: splice or (0, 0, ""), reverse=True):
            if splice is None or splice.end > limit:
                return None
            text = text[: splice.start] + self._match_line_endings(splice.new_text) + text[splice.end :]
            limit = splice.start
        return text if text != self.text and parse_python(text) is not None else None

    def _match_line_endings(self, new_text: str) -> str:
        unix_text = new_text.replace("\r\n", "\n")
        return unix_text.replace("\n", "\r\n") if "\r\n" in self.text else unix_text


class _ExpressionReplacer(ast.NodeTransformer):
    """Replaces the given expressions in a syntax tree with new code."""

    def __init__(self, changes: Mapping[str, str]) -> None:
        self._changes = changes

    def visit(self, node: ast.AST) -> ast.AST:
        new_text = self._changes.get(ast.dump(node, include_attributes=True)) if isinstance(node, ast.expr) else None
        if new_text is not None:
            return parse_expression(new_text)
        visited_node: ast.AST = super().visit(node)
        return visited_node


def as_operand(text: str) -> str:
    """Return an expression's text as an operand, in parentheses if necessary."""
    try:
        is_operand = isinstance(parse_expression(text), _OPERAND_NODES) and "\n" not in text
    except SyntaxError:
        is_operand = False
    return text if is_operand else f"({text})"


def as_argument(source: ParsedSource, node: ast.expr) -> str:
    """Return an expression's text as an argument of a call, in parentheses if necessary."""
    text = source.text_of(node)
    needs_parentheses = isinstance(
        node, ast.Tuple | ast.Yield | ast.YieldFrom | ast.GeneratorExp | ast.NamedExpr | ast.Starred
    )
    return f"({text})" if needs_parentheses else text


def first_line(statement: ast.stmt) -> int:
    """Return the first line of a statement, or of the decorators of a function or class."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(node.lineno for node in decorators)])


def fresh_name(source: ParsedSource, desired_name: str, taken_names: Iterable[str] = ()) -> str:
    """Return the desired name, with a number if the source or ``taken_names`` already contains it."""
    names = source.taken_names.union(taken_names)
    names |= {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(source.tree) if isinstance(node, ast.arg)}
    names |= {node.name for node in ast.walk(source.tree) if isinstance(node, FunctionNode | ast.ClassDef)}
    names |= {node.asname or node.name for node in ast.walk(source.tree) if isinstance(node, ast.alias)}
    return next(
        name
        for name in (desired_name, *(f"{desired_name}_{number}" for number in range(2, len(names) + 3)))
        if name not in names
    )

"""Locate code in the source texts of a recording: the kind of each file, the user's line numbers, the expressions.

The texts come from ``graphbreak_source`` records; nothing is read from disk.
"""

from __future__ import annotations

import ast
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from jupyter_graphbreak.analysis.functions import (
    end_by_indentation,
    head_kind,
    head_kind_of_line,
    is_in_head,
    last_line_in_tree,
)
from jupyter_graphbreak.analysis.python_text import trees_of
from jupyter_graphbreak.records.package_paths import PackagePaths, as_folder, is_standard_library, is_typed_code
from jupyter_graphbreak.records.records import ExpressionSpan, is_inserted_frame, is_resume_name, original_name
from jupyter_graphbreak.report.location import FunctionName, HeadKind, Location, Segment, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jupyter_graphbreak.knowledge.entries import BranchUse
    from jupyter_graphbreak.records.records import StackFrame
    from jupyter_graphbreak.report.schema import Owner

_UNKNOWN_SPAN = ExpressionSpan()


class ExpressionRange(NamedTuple):
    """The start and the end of an expression, with columns in UTF-8 bytes; ``end_column`` is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


def find_expression(
    tree: ast.AST, line: int, column: int, end_column: int, end_line: int | None
) -> ExpressionRange | None:
    """Return the range of the expression with the given start and end; ``None`` if there is none.

    For a statement such as ``if`` or ``for``, the result is the range of its condition or iterable. If ``end_line`` is
    ``None``, the result is the range of the smallest expression with the other bounds.
    """
    ranges = {
        ExpressionRange(line, column, node.end_lineno or line, end_column): node
        for node in reversed(list(_nodes_at(tree, line, column)))
        if node.end_col_offset == end_column and end_line in (None, node.end_lineno)
    }
    if not ranges:
        return None
    smallest = min(ranges, key=lambda range_: range_.end_line)
    return _head_of(ranges[smallest]) or smallest


def whole_test(tree: ast.AST, operand: ExpressionRange) -> ExpressionRange | None:
    """Return the range of the ``and``/``or`` test that begins with the given operand; ``None`` if there is none.

    Python 3.11 gives every jump of ``a and b`` the position of ``a``, so it is unknown which of the two was evaluated.
    """
    for test in _compound_tests(tree):
        first: ast.expr = test
        while isinstance(first, ast.BoolOp):
            first = first.values[0]
        if operand == _range_of(first):
            return _range_of(test)
    return None


def is_in_compound_test(tree: ast.AST, line: int) -> bool:
    """Return whether a line contains a part of an ``and``/``or`` test."""
    return any(test.lineno <= line <= (test.end_lineno or test.lineno) for test in _compound_tests(tree))


def _compound_tests(tree: ast.AST) -> Iterator[ast.BoolOp]:
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


def _head_of(node: ast.AST) -> ExpressionRange | None:
    """Return the range of the condition of an ``if``, ``while`` or ``assert``, or of the iterable of a ``for`` loop.

    For any other node, the result is ``None``.

    If the condition or iterable begins on a later line, the range begins with the statement, so that a location keeps
    its line.
    """
    if isinstance(node, ast.If | ast.While | ast.Assert):
        expression = node.test
    elif isinstance(node, ast.For):
        expression = node.iter
    else:
        return None
    if expression.end_lineno is None or expression.end_col_offset is None:
        return None
    first = expression if expression.lineno == node.lineno else node
    return ExpressionRange(first.lineno, first.col_offset, expression.end_lineno, expression.end_col_offset)


def branch_uses(tree: ast.AST) -> dict[int, BranchUse]:
    """Return the purposes of branches, as far as they are known, by the lines of their tests."""
    uses: dict[int, BranchUse] = {}
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, is_in_loop = pending.pop()
        if isinstance(node, ast.If | ast.While | ast.Assert):
            use = "error" if isinstance(node, ast.Assert) else _use_of_branch(node, is_in_loop=is_in_loop)
            lines = range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1)
            uses |= dict.fromkeys(lines, use) if use is not None else {}
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            is_in_loop = False
        is_loop = isinstance(node, ast.For | ast.AsyncFor | ast.While)
        pending += [(child, is_in_loop or is_loop) for child in ast.iter_child_nodes(node)]
    return uses


def _use_of_branch(branch: ast.If | ast.While, *, is_in_loop: bool) -> BranchUse | None:
    if isinstance(branch, ast.While):
        return "end of a loop"
    last = branch.body[-1]
    if isinstance(last, ast.Raise) and not branch.orelse:
        return "error"
    if all(map(_writes_message, [*branch.body, *branch.orelse])):
        return "message"
    if _is_flag(branch.test):
        return "flag"
    if is_in_loop and isinstance(last, ast.Break | ast.Return):
        return "end of a loop"
    return "no result" if isinstance(last, ast.Return) and _contains_none(last.value) else None


def _contains_none(result: ast.expr | None) -> bool:
    """Return whether a returned value is ``None`` or a tuple with ``None``, between which no tensor can be selected."""
    match result:
        case None | ast.Constant(None):
            return True
        case ast.Tuple(elts=parts):
            return any(map(_contains_none, parts))
    return False


def _is_flag(test: ast.expr) -> bool:
    """Return whether a test reads only attributes of ``self``, such as ``not self.initialized``."""
    match test:
        case ast.BoolOp(values=values):
            return all(map(_is_flag, values))
        case ast.UnaryOp(op=ast.Not(), operand=value) | ast.Call(func=ast.Name("bool"), args=[value], keywords=[]):
            return _is_flag(value)
        case ast.Call(func=ast.Attribute(value, "item"), args=[], keywords=[]):
            return _is_flag(value)
        case ast.Compare(left=value, ops=[ast.Eq() | ast.NotEq() | ast.Is()], comparators=[ast.Constant(0 | 1)]):
            return _is_flag(value)
        case ast.Attribute(ast.Name("self")):
            return True
    return False


#: Functions and methods that write messages.
_MESSAGE_WRITERS = frozenset({
    "print", "pprint", "write", "warn", "warning", "warning_once", "debug", "info", "error", "exception", "critical",
    "log",
})  # fmt: skip


def _writes_message(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))):
            return name in _MESSAGE_WRITERS
    return False


Kind = Literal["cell", "file", "library", "machinery"]

_TRACEBACK_LINE = re.compile(r'File "(?P<file>[^"\n]{1,4096})", line (?P<line>\d{1,9})')

#: The name of a cell's code if the cell was turned into one function.
_WHOLE_CELL = "cell"
#: The name of a cell's top-level code; only the cell itself calls code with this name.
_MODULE = "<module>"
#: marimo's file name for a cell while a notebook is edited. If the notebook runs as a file, marimo compiles cells
#: without their indentation in that file.
_MARIMO_CELL = re.compile(r"^__marimo__cell_(\w+?)_(?:\.py)?$")
_MARIMO_INDENT = 4
#: A location contains at most this many characters of its expression; the source has the full text.
_MAX_CODE_LENGTH = 2000
#: The number of library lines shown before and after a break.
_LINES_AROUND_BREAK = 10
#: The number of library lines shown before and after any other location in the report.
_LINES_AROUND_LOCATION = 3
#: The beginning of a statement whose head is reached again after its body.
_WITH_OR_WHILE_HEAD = re.compile(r"\s*(?:async\s+)?(?:with|while)\b")


class SourceText(msgspec.Struct, frozen=True):
    """The recorded text of a source, with its file name in code objects and the name to show to the user.

    ``lines`` are further individual lines, by their line numbers in the code. ``line_offset`` and ``indent`` are the
    numbers of lines at the beginning of a cell, and of characters at the beginning of each line, that the notebook
    removed before it ran the cell.
    """

    filename: str
    name: str
    kind: Literal["cell", "file", "library"]
    segments: list[Segment] = []
    lines: dict[int, str] = {}
    line_offset: int = 0
    indent: int = 0


class Sources:
    """Creates locations, and collects the sources that they mention.

    ``library_roots`` are folders of the standard library and of installed packages; ``package_folders`` are those of
    individual packages that are elsewhere. ``folder`` and ``home`` are the run's working directory and the user's home
    folder.
    """

    def __init__(
        self,
        texts: Iterable[SourceText],
        library_roots: Iterable[str] = (),
        folder: str | None = None,
        home: str | None = None,
        package_folders: Iterable[str] = (),
    ) -> None:
        self._texts = {text.filename: text for text in texts}
        self._packages = PackagePaths(tuple(library_roots), tuple(package_folders))
        self._short_folders = dict.fromkeys(map(as_folder, self._packages.roots), "")
        if home:
            self._short_folders[as_folder(home)] = "~/"
        if folder:
            self._short_folders[as_folder(folder)] = ""
        self._ids: dict[str, str] = {}
        self._lines: dict[str, dict[int, str]] = {}  # by file, then by the user's line number
        self._trees: dict[str, list[ast.Module]] = {}  # by file, one per segment
        self._branch_uses: dict[str, dict[int, BranchUse]] = {}  # by file, then by line
        self._functions: dict[str, dict[int, str]] = {}  # by file, qualified names by first line
        for text in self._texts.values():  # cells come first and in order, even if no location mentions them
            if text.kind == "cell":
                self._source_id(text.filename)

    def kind(self, filename: str, function: str = "") -> Kind:
        """Return the kind of a frame's source; stacks in reports leave out machinery."""
        text = self._texts.get(filename)
        if text is not None and text.kind == "cell":
            return "cell"
        module_path = self._packages.module_path(filename)
        if is_machinery(module_path, function):
            return "machinery"
        if text is not None:
            return text.kind
        is_generated = filename.startswith("<") and not is_typed_code(filename)
        return "library" if module_path is not None or is_generated else "file"

    def owner(self, stack: Sequence[StackFrame]) -> Owner:
        """Return the owner of a stack's innermost frame; the standard library and machinery belong to the caller."""
        for stack_frame in reversed(stack):
            kind = self.kind(stack_frame.filename, stack_frame.function)
            if kind in {"cell", "file"}:
                return "own"
            path = self.module_path(stack_frame.filename)
            if kind == "library" and path is not None and not is_standard_library(path):
                return "torch" if path.startswith("torch/") else "library"
        return "own"

    def module_path(self, filename: str) -> str | None:
        """Return the path of a library's file as Python imports it; ``None`` for the user's own files."""
        return self._packages.module_path(filename)

    def is_library(self, location: Location) -> bool:
        """Return whether a location is in a library."""
        filename = next((filename for filename, ident in self._ids.items() if ident == location.source), None)
        return filename is not None and self.kind(filename) == "library"

    def files(self) -> dict[str, str]:
        """Return the file name of each source, by source id; for a cell, the file name of the code below its magics."""
        files: dict[str, str] = {}
        for filename, ident in self._ids.items():
            if ident not in files or self.line_offset(filename) > self.line_offset(files[ident]):
                files[ident] = filename
        return files

    def name_by_id(self, ident: str) -> str:
        """Return the name to show for the source with the given id."""
        return next((self.name(filename) for filename, source_id in self._ids.items() if source_id == ident), ident)

    def set_function_name(self, filename: str, line: int, name: str) -> None:
        """Store the qualified name of the function that begins on a line of the code."""
        short = ".".join(name.replace("<locals>.", "").split(".")[-2:])
        if "." in short and not is_resume_name(name):
            self._functions.setdefault(filename, {})[line + self.line_offset(filename)] = short

    def line_offset(self, filename: str) -> int:
        """Return the difference between the user's line numbers and those of the code."""
        text = self._texts.get(filename)
        return text.line_offset if text is not None else 0

    def source(self, filename: str) -> Source:
        """Return a source with its recorded text."""
        text = self._texts.get(filename)
        kind = text.kind if text is not None else self.kind(filename)
        return Source(
            id=self._source_id(filename),
            name=self.name(filename),
            kind="library" if kind == "machinery" else kind,
            path=None if kind == "cell" else self.path(filename),
            segments=list(text.segments) if text is not None else [],
            functions=[FunctionName(*function) for function in sorted(self._functions.get(filename, {}).items())],
        )

    def name(self, filename: str) -> str:
        """Return the name to show for a source."""
        text = self._texts.get(filename)
        name = text.name if text is not None else PurePath(filename).name or filename
        return _MARIMO_CELL.sub(r"marimo cell \1", name)

    def with_user_names(self, text: str | None) -> str | None:
        """Return a message from PyTorch with the names and line numbers that the user knows, and with short paths."""
        if text is None:
            return None
        text = _TRACEBACK_LINE.sub(self._readable_location, text)
        for root in sorted(self._short_folders, key=len, reverse=True):
            if len(root) > 1:
                text = text.replace(root, self._short_folders[root])
        return text

    def _readable_location(self, match: re.Match[str]) -> str:
        filename = match["file"]
        return f"{self.name(filename)}, line {int(match['line']) + self.line_offset(filename)}"

    def location(
        self,
        filename: str,
        line: int | None,
        function: str | None = None,
        span: ExpressionSpan = _UNKNOWN_SPAN,
        *,
        is_branch: bool = False,
    ) -> Location | None:
        """Return the location of a frame, with the names and line numbers that the user knows; ``None`` without a line.

        At a branch, it is that of the whole test, even if the test has several operands.
        """
        if line is None:
            return None
        source = self._source_id(filename)
        text = self._texts.get(filename)
        name = original_name(function) if function else None
        if text is None:
            return Location(source, line, line, function=name)
        source_line = line + text.line_offset
        expression = self._expression_at(text, source_line, span)
        if expression is not None and is_branch:
            tests = (whole_test(tree, expression) for tree in self._trees_of(text))
            expression = next(filter(None, tests), expression)
        line_numbers = range(expression.line, expression.end_line + 1) if expression is not None else ()
        lines = [code for number in line_numbers if (code := self._text_of_line(text, number)) is not None]
        if expression is None or len(lines) < len(line_numbers):
            code = self._text_of_line(text, source_line)
            stripped_code = code.strip()[:_MAX_CODE_LENGTH] if code is not None else None
            return Location(source, source_line, source_line, function=name, code=stripped_code)
        start = _character_offset(lines[0], expression.column)
        end = _character_offset(lines[-1], expression.end_column)
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][start:]
        # Python sees the lines after the first without the indentation of the cell.
        code = "\n".join([lines[0], *(line[text.indent :] for line in lines[1:])])
        return Location(source, expression.line, expression.end_line, start, end, name, code[:_MAX_CODE_LENGTH])

    def branch_use(self, location: Location | None) -> BranchUse | None:
        """Return the purpose of the branch at a location; ``None`` if there is no branch or its purpose is unknown."""
        filename = self.files().get(location.source) if location is not None else None
        text = self._texts.get(filename or "")
        if location is None or text is None:
            return None
        if text.filename not in self._branch_uses:
            uses = self._branch_uses[text.filename] = {}
            for tree in self._trees_of(text):
                uses.update(branch_uses(tree))
        return self._branch_uses[text.filename].get(location.line)

    def head_kind_at(self, location: Location | None) -> HeadKind | None:
        """Return whether a location is in the head of a loop or a condition; ``None`` if in neither, or if unknown."""
        filename = self.files().get(location.source) if location is not None else None
        text = self._texts.get(filename or "")
        if location is None or text is None:
            return None
        kinds = (head_kind(tree, location.line) for tree in self._trees_of(text))
        return next(filter(None, kinds), None) or head_kind_of_line(self._text_of_line(text, location.line) or "")

    def filename_ending_with(self, path: str) -> str | None:
        """Return the file name of the recorded source whose path ends with ``path``, if there is exactly one."""
        matching_filenames = [filename for filename in self._texts if filename.endswith(path)]
        return matching_filenames[0] if len(matching_filenames) == 1 else None

    def stack_frame_location(self, stack_frame: StackFrame, *, is_branch: bool = False) -> Location | None:
        """Return the location of a stack frame; ``None`` if it has no line."""
        return self.location(
            stack_frame.filename, stack_frame.line, stack_frame.function, stack_frame.span, is_branch=is_branch
        )

    def is_reached_again(self, filename: str, line: int, is_branch: bool) -> bool:  # noqa: FBT001 - called by position
        """Return whether a function may reach an expression on a line repeatedly, without a loop around the line.

        This is the case in the head of a ``with`` or ``while`` statement. If ``is_branch`` is true, it is also the case
        in a test of several operands, because the whole test is treated as one expression. If the text is unknown, the
        result is true.
        """
        text = self._texts.get(filename)
        source_line = line + self.line_offset(filename)
        code = self._text_of_line(text, source_line) if text is not None else None
        if text is None or code is None:
            return True
        trees = self._trees_of(text)
        if is_branch and any(is_in_compound_test(tree, source_line) for tree in trees):
            return True
        return _WITH_OR_WHILE_HEAD.match(code) is not None or any(is_in_head(tree, source_line) for tree in trees)

    def rest_of_function(self, filename: str, line: int | None, name: str) -> Location | None:
        """Return the lines from one line of a function to its end, or only that line if the text is unknown."""
        start = self.location(filename, line, name)
        text = self._texts.get(filename)
        if start is None or text is None:
            return start
        return msgspec.structs.replace(
            start, end_line=max(start.line, self._last_line_of_function(text, start.line, original_name(name)))
        )

    def _last_line_of_function(self, text: SourceText, line: int, name: str) -> int:
        """Return the last line of the function around a line, both with the user's line numbers."""
        ends = (last_line_in_tree(tree, line, name) for tree in self._trees_of(text))
        end = next((end for end in ends if end is not None), None)
        if end is not None:
            return end
        segment = next((s for s in text.segments if 0 <= line - s.first_line <= s.text.count("\n")), None)
        if segment is None:
            return line
        lines = segment.text.rstrip().split("\n")
        if text.kind == "cell" and name == _WHOLE_CELL:
            return segment.first_line + len(lines) - 1
        return segment.first_line + end_by_indentation(lines, min(line - segment.first_line, len(lines) - 1))

    def sources(self, breaks: Iterable[Location | None], other_locations: Iterable[Location | None]) -> list[Source]:
        """Return the sources that locations mention, and all recorded cells, with their texts.

        Library functions can be long, so a library's source only contains the lines around the given locations.
        """
        nearby_lines: dict[str, set[int]] = {}
        for locations, distance in ((breaks, _LINES_AROUND_BREAK), (other_locations, _LINES_AROUND_LOCATION)):
            for location in locations:
                if location is not None:
                    nearby_lines.setdefault(location.source, set()).update(
                        range(location.line - distance, location.line + distance + 1)
                    )
        sources = []
        for source in map(self.source, self.files().values()):
            segments = source.segments
            if source.kind == "library":
                segments = [
                    part
                    for segment in segments
                    for part in _parts_with_lines(segment, nearby_lines.get(source.id, set()))
                ]
            sources.append(msgspec.structs.replace(source, segments=segments))
        return sources

    def path(self, filename: str) -> str:
        """Return a path without the folders that identify the machine, because reports are shared."""
        module_path = self.module_path(filename)
        if module_path is not None:
            return module_path
        path = filename.replace("\\", "/")
        root = max((root for root in self._short_folders if path.startswith(root)), key=len, default="")
        return self._short_folders.get(root, "") + path.removeprefix(root)

    def _source_id(self, filename: str) -> str:
        if filename not in self._ids:
            text = self._texts.get(filename)
            same_cell_ids = (ident for other, ident in self._ids.items() if _is_same_cell(text, self._texts.get(other)))
            self._ids[filename] = next(same_cell_ids, f"s{len(set(self._ids.values())) + 1}")
        return self._ids[filename]

    def _text_of_line(self, text: SourceText, line: int) -> str | None:
        lines = self._lines.get(text.filename)
        if lines is None:
            lines = self._lines[text.filename] = {n + text.line_offset: code for n, code in text.lines.items()}
            for segment in text.segments:
                lines.update(enumerate(segment.text.split("\n"), start=segment.first_line))
        return lines.get(line)

    def _expression_at(self, text: SourceText, line: int, span: ExpressionSpan) -> ExpressionRange | None:
        """Return the range of the expression with a span on a line, with the user's line numbers, if it is known."""
        column, end_column, last_line = span
        first = self._text_of_line(text, line)
        if column is None or end_column is None or first is None:
            return None
        column, end_column = column + text.indent, end_column + text.indent
        end_line = last_line + text.line_offset if last_line is not None else None
        for shift in (0, _MARIMO_INDENT) if text.kind == "file" else (0,):
            for tree in self._trees_of(text):
                expression = find_expression(tree, line, column + shift, end_column + shift, end_line)
                if expression is not None:
                    return expression
        if end_line is None or self._text_of_line(text, end_line) is None:
            return None
        exact = ExpressionRange(line, column, end_line, end_column)
        return exact if end_line > line or first.encode()[column:end_column].strip() else None

    def _trees_of(self, text: SourceText) -> list[ast.Module]:
        if text.filename not in self._trees:
            self._trees[text.filename] = list(trees_of(text.segments))
        return self._trees[text.filename]


def _parts_with_lines(segment: Segment, lines: set[int]) -> Iterator[Segment]:
    """Yield the parts of a segment that consist of the given lines."""
    text = segment.text.split("\n")
    indices = [index for index in range(len(text)) if segment.first_line + index in lines]
    for position, index in enumerate(indices):
        if position and indices[position - 1] == index - 1:
            continue
        end = next(
            (i for i, j in zip(indices[position:], indices[position + 1 :], strict=False) if j != i + 1), indices[-1]
        )
        yield Segment(segment.first_line + index, "\n".join(text[index : end + 1]))


def _is_same_cell(one: SourceText | None, other: SourceText | None) -> bool:
    """Return whether two source texts are one cell. Magics like ``%%time`` run its code under a different file name."""
    if one is None or other is None or one.kind != "cell" or other.kind != "cell":
        return False
    return (one.name, one.segments) == (other.name, other.segments)


def _character_offset(text: str, utf8_offset: int) -> int:
    return len(text.encode()[:utf8_offset].decode(errors="ignore"))


def shown_stack(sources: Sources, stack: Iterable[StackFrame]) -> list[Location]:
    """Return the locations of the frames in a recorded stack that are worth showing.

    Machinery and everything outside the user's outermost frame, such as the program that runs the shell or the user's
    program, are left out. A resume function is merged with the function that it resumes and that called it, and a
    cell's function with the cell.
    """
    stack_frames = list(stack)
    runners = [
        index for index, stack_frame in enumerate(stack_frames) if is_runner(sources.module_path(stack_frame.filename))
    ]
    program_start = runners[-1] + 1 if runners else 0
    kinds = [
        (stack_frame, sources.kind(stack_frame.filename, stack_frame.function))
        for stack_frame in stack_frames[program_start:]
    ]
    user_frames = [(stack_frame, kind) for stack_frame, kind in kinds if kind != "machinery"]
    user_kinds = [kind for _, kind in user_frames]
    first_user_index = next((user_kinds.index(kind) for kind in ("cell", "file") if kind in user_kinds), 0)
    shown_frames: list[StackFrame] = []
    for stack_frame, _ in user_frames[first_user_index:]:
        if shown_frames and _continues_caller(stack_frame, shown_frames[-1]):
            shown_frames[-1] = stack_frame
        else:
            shown_frames.append(stack_frame)
    return [location for location in map(sources.stack_frame_location, shown_frames) if location is not None]


def _continues_caller(stack_frame: StackFrame, caller: StackFrame) -> bool:
    """Return whether a stack frame continues its caller, as its resume function or as a cell's function."""
    is_same_function = (
        original_name(caller.function) == original_name(stack_frame.function)
        and caller.filename == stack_frame.filename
    )
    return is_same_function and (is_resume_name(stack_frame.function) or stack_frame.function == _MODULE)


#: Files and folders of machinery, as :meth:`.package_paths.PackagePaths.module_path` returns them.
_MACHINERY_FILES = (
    "IPython/", "ipykernel/", "ipykernel_launcher.py", "asyncio/", "tornado/", "traitlets/", "zmq/",
    "jupyter_client/", "nest_asyncio", "runpy.py", "<frozen ", "threading.py", "concurrent/futures/",
    "contextlib.py", "debugpy/", "pydevd", "_pydevd", "torch/_dynamo/", "torch/_compile.py",
    "torch/_utils_internal.py", "torch/_functorch/", "torch/_inductor/", "torch/compiler/", "torch/fx/",
    "jupyter_graphbreak/",
)  # fmt: skip


_MACHINERY_FUNCTIONS = {("torch/nn/modules/module.py", name) for name in ("_wrapped_call_impl", "_call_impl")}


#: Files that run a program; the stack outside them belongs to a different program.
_RUNNER_FILES = {"runpy.py", "<frozen runpy>", "jupyter_graphbreak/commands/script.py"}


def is_machinery(module_path: str | None, function: str) -> bool:
    """Return whether a frame is machinery, as the user's own files never are: their path is ``None``.

    If the function's name is empty, only the file counts.
    """
    if module_path is None:
        return False
    return (
        module_path.startswith(_MACHINERY_FILES)
        or is_inserted_frame(module_path, function)
        or (module_path, function) in _MACHINERY_FUNCTIONS
    )


def is_runner(module_path: str | None) -> bool:
    """Return whether a file runs programs, as Python's ``runpy`` does."""
    return module_path in _RUNNER_FILES

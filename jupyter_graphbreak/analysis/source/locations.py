"""Say where something stands: files by kind, lines as the reader counts them, expressions as text.

A pure view of the source texts that a recording carries (``graphbreak_source`` records); nothing is read from disk.
"""

from __future__ import annotations

import ast
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import msgspec

from jupyter_graphbreak.analysis.source.expressions import Range, find_expression, is_in_long_test, whole_test
from jupyter_graphbreak.analysis.source.functions import end_by_indentation, end_in_tree, is_in_head
from jupyter_graphbreak.analysis.source.machinery import is_machinery, is_runner
from jupyter_graphbreak.analysis.source.python_text import parse_python
from jupyter_graphbreak.recording.package_paths import PackagePaths, as_folder, is_of_standard_library
from jupyter_graphbreak.recording.records import is_resume, plain_function
from jupyter_graphbreak.report.location import FunctionName, Location, Segment, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jupyter_graphbreak.recording.records import StackEntry
    from jupyter_graphbreak.report.schema import Owner

Kind = Literal["cell", "file", "library", "machinery"]

_PLACE = re.compile(r'File "(?P<file>[^"\n]{1,4096})", line (?P<line>\d{1,9})')

#: What the code of a cell is called that was made one function.
_WHOLE_CELL = "cell"
#: What the code at the top of a cell is called; nothing but the cell itself calls any.
_MODULE = "<module>"
#: What marimo calls the code of a cell while a notebook is edited. Where a notebook runs as a file, cells are compiled
#: without the indentation that they have there.
_MARIMO_CELL = re.compile(r"^__marimo__cell_(\w+?)_(?:\.py)?$")
_MARIMO_INDENT = 4
#: Of a longer expression a place has the beginning; all of it is in the source, once.
_MOST_CODE = 2000
#: Lines of a library shown before and after a break, and before and after another place of the report.
_NEAR_BREAK, _NEAR_OTHERS = 10, 3


#: How a line begins to which a function comes back at the end of the lines below it.
_HEAD = re.compile(r"\s*(?:async\s+)?(?:with|while)\b")


class SourceText(msgspec.Struct, frozen=True):
    """A source as recorded: its place, what the reader calls it, the known parts of its text.

    ``line_offset`` and ``indent`` are what the notebook took away from the front of a cell before it ran it: lines,
    and characters of each line.
    """

    filename: str
    name: str
    kind: Literal["cell", "file", "library"]
    segments: list[Segment] = []
    lines: dict[int, str] = {}
    line_offset: int = 0
    indent: int = 0


class Sources:
    """Makes locations, and keeps the list of sources that they mention.

    Parameters
    ----------
    texts : iterable of SourceText
        What is known of the sources.
    library_roots, package_folders : iterable of str
        Folders of the standard library and of installed packages; of single packages that are elsewhere.
    folder, home : str or None
        The run's working directory and its user's home.
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
        self._shortened = dict.fromkeys(map(as_folder, self._packages.roots), "")
        if home:
            self._shortened[as_folder(home)] = "~/"
        if folder:
            self._shortened[as_folder(folder)] = ""
        self._ids: dict[str, str] = {}
        self._lines: dict[str, dict[int, str]] = {}  # by file, as the reader counts them
        self._trees: dict[str, list[ast.Module]] = {}  # by file, one for each segment
        self._functions: dict[str, dict[int, str]] = {}  # by file, their qualified names by their first lines
        for text in self._texts.values():  # cells first and in order, whether or not something points at them
            if text.kind == "cell":
                self._id(text.filename)

    def kind(self, filename: str, function: str = "") -> Kind:
        """Say whose a frame is; machinery is never shown."""
        text = self._texts.get(filename)
        if text is not None and text.kind == "cell":
            return "cell"
        module_path = self._packages.module_path(filename)
        if is_machinery(module_path, function):
            return "machinery"
        if text is not None:
            return text.kind
        return "library" if module_path is not None or filename.startswith("<") else "file"

    def owner(self, stack: Sequence[StackEntry]) -> Owner:
        """Say whose code the innermost frame of a stack is; one of the standard library is its caller's.

        Parameters
        ----------
        stack : sequence of StackEntry
            Outermost first.
        """
        for entry in reversed(stack):
            kind = self.kind(entry.filename, entry.function)
            if kind in {"cell", "file"}:
                return "own"
            path = self.module_path(entry.filename)
            if kind == "library" and path is not None and not is_of_standard_library(path):
                return "torch" if path.startswith("torch/") else "library"
        return "own"

    def module_path(self, filename: str) -> str | None:
        """Return the path of a library's file as Python finds it, ``None`` if it is the reader's own."""
        return self._packages.module_path(filename)

    def is_library(self, place: Location) -> bool:
        """Say whether a place is in a library."""
        filename = next((filename for filename, ident in self._ids.items() if ident == place.source), None)
        return filename is not None and self.kind(filename) == "library"

    def files(self) -> dict[str, str]:
        """Return the file name of each source, by its id."""
        return {ident: filename for filename, ident in self._ids.items()}

    def name_of(self, ident: str) -> str:
        """Return what a person calls the source of an id."""
        return next((self.name(filename) for filename, known in self._ids.items() if known == ident), ident)

    def name_function(self, filename: str, line: int, name: str) -> None:
        """Note the qualified name of a function that begins at a line of the code."""
        short = ".".join(name.replace("<locals>.", "").split(".")[-2:])
        if "." in short and not is_resume(name):
            self._functions.setdefault(filename, {})[line + self.line_offset(filename)] = short

    def line_offset(self, filename: str) -> int:
        """Return by how much the reader's line numbers exceed those of the code."""
        text = self._texts.get(filename)
        return text.line_offset if text is not None else 0

    def source(self, filename: str) -> Source:
        """Return a source with the text that is known of it."""
        text = self._texts.get(filename)
        kind = text.kind if text is not None else self.kind(filename)
        return Source(
            id=self._id(filename),
            name=self.name(filename),
            kind="library" if kind == "machinery" else kind,
            path=None if kind == "cell" else self.path(filename),
            segments=list(text.segments) if text is not None else [],
            functions=[FunctionName(*named) for named in sorted(self._functions.get(filename, {}).items())],
        )

    def name(self, filename: str) -> str:
        """Return what a person calls a source."""
        text = self._texts.get(filename)
        name = text.name if text is not None else PurePath(filename).name or filename
        return _MARIMO_CELL.sub(r"marimo cell \1", name)

    def in_words(self, text: str | None) -> str | None:
        """Return a text of PyTorch's in which places are named as the reader counts them, and paths are shortened."""
        if text is None:
            return None
        text = _PLACE.sub(self._in_words, text)
        for root in sorted(self._shortened, key=len, reverse=True):
            if len(root) > 1:
                text = text.replace(root, self._shortened[root])
        return text

    def _in_words(self, place: re.Match[str]) -> str:
        filename = place["file"]
        return f"{self.name(filename)}, line {int(place['line']) + self.line_offset(filename)}"

    def location(
        self,
        filename: str,
        line: int | None,
        function: str | None = None,
        columns: tuple[int | None, int | None, int | None] = (None, None, None),
        *,
        branches: bool = False,
    ) -> Location | None:
        """Return the place of a frame as the reader sees it.

        Parameters
        ----------
        filename, line : str, int
            As the code object has them.
        function : str or None
            The name of the code object.
        columns : tuple
            First and last column in UTF-8 bytes and last line, where known: the fields of ``dis.Positions``.
        branches : bool
            Whether a branch is taken there: where its test has several operands, all of it is the place.
        """
        if line is None:
            return None
        source = self._id(filename)
        text = self._texts.get(filename)
        name = plain_function(function) if function else None
        if text is None:
            return Location(source, line, line, function=name)
        at = line + text.line_offset
        expression = self._expression(text, at, columns)
        if expression is not None and branches:
            tests = (whole_test(tree, expression) for tree in self._trees_of(text))
            expression = next(filter(None, tests), expression)
        known = [self._line(text, number) for number in range(*_lines_of(expression))] if expression else []
        lines = [line for line in known if line is not None]
        if expression is None or len(lines) < len(known):
            code = self._line(text, at)
            return Location(source, at, at, function=name, code=code.strip()[:_MOST_CODE] if code is not None else None)
        start = _characters(lines[0], expression.column)
        end = _characters(lines[-1], expression.end_column)
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][start:]
        # The further lines without the indentation of the cell, as Python has them.
        code = "\n".join([lines[0], *(line[text.indent :] for line in lines[1:])])
        return Location(source, expression.line, expression.end_line, start, end, name, code[:_MOST_CODE])

    def place(self, entry: StackEntry, *, branches: bool = False) -> Location | None:
        """Return the place of an entry of a stack."""
        return self.location(entry.filename, entry.line, entry.function, entry.columns, branches=branches)

    def is_reached_again(self, filename: str, line: int, branches: bool) -> bool:  # noqa: FBT001 - of a callable
        """Whether a function may come back to a place on a line of the code, though no loop is around it.

        It does so at the head of ``with`` and ``while``, and where a branch is taken, at a test of several operands,
        which counts as one place.
        """
        text = self._texts.get(filename)
        at = line + self.line_offset(filename)
        code = self._line(text, at) if text is not None else None
        if text is None or code is None:
            return True
        trees = self._trees_of(text)
        if branches and any(is_in_long_test(tree, at) for tree in trees):
            return True
        return _HEAD.match(code) is not None or any(is_in_head(tree, at) for tree in trees)

    def rest_of_function(self, filename: str, line: int | None, name: str) -> Location | None:
        """Return the lines from one line of a function to its end; where the text is not known, the one line.

        Parameters
        ----------
        filename, line, name : str, int, str
            As a code object has them; the line may be the first, or the one at which a resume function goes on.
        """
        start = self.location(filename, line, name)
        text = self._texts.get(filename)
        if start is None or text is None:
            return start
        return msgspec.structs.replace(
            start, end_line=max(start.line, self._end(text, start.line, plain_function(name)))
        )

    def _end(self, text: SourceText, line: int, name: str) -> int:
        """Return the last line of the function around a line, as the reader counts them."""
        ends = (end_in_tree(tree, line, name) for tree in self._trees_of(text))
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

    def sources(self, breaks: Iterable[Location | None], others: Iterable[Location | None]) -> list[Source]:
        """Return the sources that were mentioned, with their texts.

        Parameters
        ----------
        breaks, others : iterable of Location or None
            Where something happened: of a library only the lines around are kept, its functions can be long.
        """
        near: dict[str, set[int]] = {}
        for places, distance in ((breaks, _NEAR_BREAK), (others, _NEAR_OTHERS)):
            for place in places:
                if place is not None:
                    near.setdefault(place.source, set()).update(range(place.line - distance, place.line + distance + 1))
        shown = []
        for source in map(self.source, list(self._ids)):
            segments = source.segments
            if source.kind == "library":
                segments = [part for segment in segments for part in _parts(segment, near.get(source.id, set()))]
            shown.append(msgspec.structs.replace(source, segments=segments))
        return shown

    def path(self, filename: str) -> str:
        """Return a path without the folders that say whose machine this is: reports are saved and passed on."""
        path = filename.replace("\\", "/")
        root = max((root for root in self._shortened if path.startswith(root)), key=len, default=None)
        if root is not None:
            return self._shortened[root] + path.removeprefix(root)
        return re.sub(r"^.*/(?:site|dist)-packages/", "", path)

    def _id(self, filename: str) -> str:
        return self._ids.setdefault(filename, f"s{len(self._ids) + 1}")

    def _line(self, text: SourceText, line: int) -> str | None:
        lines = self._lines.get(text.filename)
        if lines is None:
            lines = self._lines[text.filename] = {n + text.line_offset: code for n, code in text.lines.items()}
            for segment in text.segments:
                lines.update(enumerate(segment.text.split("\n"), start=segment.first_line))
        return lines.get(line)

    def _expression(
        self, text: SourceText, line: int, columns: tuple[int | None, int | None, int | None]
    ) -> Range | None:
        """Return the range of the expression at some columns of a line, as the reader counts them."""
        column, end_column, last = columns
        first = self._line(text, line)
        if column is None or end_column is None or first is None:
            return None
        column, end_column = column + text.indent, end_column + text.indent
        end_line = last + text.line_offset if last is not None else None
        for shift in (0, _MARIMO_INDENT) if text.kind == "file" else (0,):
            for tree in self._trees_of(text):
                expression = find_expression(tree, line, column + shift, end_column + shift, end_line)
                if expression is not None:
                    return expression
        if end_line is None or self._line(text, end_line) is None:
            return None
        exact = Range(line, column, end_line, end_column)
        return exact if end_line > line or first.encode()[column:end_column].strip() else None

    def _trees_of(self, text: SourceText) -> list[ast.Module]:
        if text.filename not in self._trees:
            self._trees[text.filename] = list(_trees(text))
        return self._trees[text.filename]


def _lines_of(found: Range) -> tuple[int, int]:
    return found.line, found.end_line + 1


def _trees(text: SourceText) -> Iterator[ast.Module]:
    """Yield the syntax trees of the segments of a source, with the lines of the source."""
    for segment in text.segments:
        tree = parse_python(segment.text)
        if tree is not None:
            yield ast.increment_lineno(tree, segment.first_line - 1)


def _parts(segment: Segment, lines: set[int]) -> Iterator[Segment]:
    """Yield the parts of a segment that consist of some lines."""
    text = segment.text.split("\n")
    kept = [index for index in range(len(text)) if segment.first_line + index in lines]
    for position, index in enumerate(kept):
        if position and kept[position - 1] == index - 1:
            continue
        end = next((i for i, j in zip(kept[position:], kept[position + 1 :], strict=False) if j != i + 1), kept[-1])
        yield Segment(segment.first_line + index, "\n".join(text[index : end + 1]))


def _characters(text: str, utf8_offset: int) -> int:
    return len(text.encode()[:utf8_offset].decode(errors="ignore"))


def shown_stack(sources: Sources, stack: Iterable[StackEntry]) -> list[Location]:
    """Turn a recorded stack into the frames worth reading.

    Machinery is dropped, and so is everything outside the outermost frame of the user: where a cell ran, what is
    outside it is the program that runs the shell; where a program was run by another, the other one. A resume function
    called by the function that it resumes is shown as that function, once, and so is a cell that was made into one
    function.

    Parameters
    ----------
    stack : iterable of StackEntry
        Outermost first.
    """
    entries = list(stack)
    runners = [index for index, entry in enumerate(entries) if is_runner(sources.module_path(entry.filename))]
    program = runners[-1] + 1 if runners else 0
    kinds = [(entry, sources.kind(entry.filename, entry.function)) for entry in entries[program:]]
    kept = [(entry, kind) for entry, kind in kinds if kind != "machinery"]
    kinds_kept = [kind for _, kind in kept]
    own = next((kinds_kept.index(kind) for kind in ("cell", "file") if kind in kinds_kept), 0)
    collapsed: list[StackEntry] = []
    for entry, _ in kept[own:]:
        if collapsed and _resumes(entry, collapsed[-1]):
            collapsed[-1] = entry
        else:
            collapsed.append(entry)
    return [place for place in map(sources.place, collapsed) if place is not None]


def _resumes(entry: StackEntry, caller: StackEntry) -> bool:
    """Whether an entry is a resume function of the function that calls it, or what a cell was made into."""
    same = plain_function(caller.function) == plain_function(entry.function) and caller.filename == entry.filename
    return same and (is_resume(entry.function) or entry.function == _MODULE)

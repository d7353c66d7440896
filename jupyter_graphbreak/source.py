"""Say where something stands: files by kind, lines as the reader counts them, expressions as text.

A pure view of the source texts that a recording carries (``graphbreak_source`` records); nothing is read from disk.
"""

from __future__ import annotations

import ast
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jupyter_graphbreak.report import Location, Segment, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Kind = Literal["cell", "file", "library", "machinery"]

_RESUME = re.compile(r"^torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d+)$")
_PLACE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')

# Frames that only carry the program: what runs a cell, what runs Dynamo, and ourselves.
_MACHINERY_PARTS = (
    "/IPython/", "/ipykernel/", "/ipykernel_launcher", "/asyncio/", "/tornado/", "/traitlets/", "/zmq/",
    "/jupyter_client/", "/nest_asyncio", "/runpy", "<frozen ", "/threading.py", "/concurrent/futures/",
    "/contextlib.py", "/debugpy/", "/pydevd", "/torch/_dynamo/", "/torch/_compile.py", "/torch/_utils_internal.py",
    "/torch/_functorch/", "/torch/_inductor/", "/torch/compiler/", "/torch/fx/", "/jupyter_graphbreak/",
)  # fmt: skip
_MACHINERY_FUNCTIONS = {("/torch/nn/modules/module.py", name) for name in ("_wrapped_call_impl", "_call_impl")}
_LIBRARY_PARTS = ("/site-packages/", "/dist-packages/")
#: Lines of a library shown before and after a place where something happened.
_LIBRARY_CONTEXT = 10


def plain_function(name: str) -> str:
    """Return the name that the user gave: of a resume function the function that it resumes."""
    while (match := _RESUME.match(name)) is not None:
        name = match["name"]
    return name


def is_resume(name: str) -> bool:
    """Whether a function of this name was made by Dynamo to go on after a break."""
    return _RESUME.match(name) is not None


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
    library_roots : iterable of str
        Folders of the standard library and of installed packages.
    folder, home : str or None
        The run's working directory and its user's home.
    """

    def __init__(
        self,
        texts: Iterable[SourceText],
        library_roots: Iterable[str] = (),
        folder: str | None = None,
        home: str | None = None,
    ) -> None:
        self._texts = {text.filename: text for text in texts}
        self._roots = tuple(_as_folder(root) for root in library_roots)
        self._shortened = dict.fromkeys(self._roots, "")
        if home:
            self._shortened[_as_folder(home)] = "~/"
        if folder:
            self._shortened[_as_folder(folder)] = ""
        self._ids: dict[str, str] = {}
        self._lines: dict[str, dict[int, str]] = {}  # by file, as the code object counts them
        for text in self._texts.values():  # cells first and in order, whether or not something points at them
            if text.kind == "cell":
                self._id(text.filename)

    def kind(self, filename: str, function: str = "") -> Kind:
        """Say whose a frame is; machinery is never shown."""
        text = self._texts.get(filename)
        if text is not None and text.kind == "cell":
            return "cell"
        path = filename.replace("\\", "/")
        if any(part in path for part in _MACHINERY_PARTS):
            return "machinery"
        if any(path.endswith(end) and function == name for end, name in _MACHINERY_FUNCTIONS):
            return "machinery"
        if text is not None:
            return text.kind
        if path.startswith((*self._roots, "<")) or any(part in path for part in _LIBRARY_PARTS):
            return "library"
        return "file"

    def name_of(self, ident: str) -> str:
        """Return what a person calls the source of an id."""
        return next((self.name(filename) for filename, known in self._ids.items() if known == ident), ident)

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
            path=None if kind == "cell" else self._path(filename),
            segments=list(text.segments) if text is not None else [],
        )

    def name(self, filename: str) -> str:
        """Return what a person calls a source."""
        text = self._texts.get(filename)
        return text.name if text is not None else PurePath(filename).name or filename

    def in_words(self, text: str | None) -> str | None:
        """Return a text of PyTorch's in which places are named as the reader counts them."""
        return _PLACE.sub(self._in_words, text) if text is not None else None

    def _in_words(self, place: re.Match[str]) -> str:
        filename = place["file"]
        return f"{self.name(filename)}, line {int(place['line']) + self.line_offset(filename)}"

    def location(
        self,
        filename: str,
        line: int | None,
        function: str | None = None,
        columns: tuple[int | None, int | None, int | None] = (None, None, None),
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
        """
        if line is None:
            return None
        source = self._id(filename)
        text = self._texts.get(filename)
        name = plain_function(function) if function else None
        if text is None:
            return Location(source, line, line, function=name)
        start, end, last = columns
        expression = self._expression(text, line, start, end, last)
        if expression is None:
            code = self._line(text, line)
            at = line + text.line_offset
            return Location(source, at, at, function=name, code=code.strip() if code is not None else None)
        first_column, last_line, last_column, code = expression
        return Location(
            source,
            line + text.line_offset,
            last_line + text.line_offset,
            first_column + text.indent,
            last_column + text.indent,
            name,
            code,
        )

    def sources(self, places: Iterable[Location | None]) -> list[Source]:
        """Return the sources that were mentioned, with their texts.

        Parameters
        ----------
        places : iterable of Location or None
            Where something happened: of a library only the lines around are kept, its functions can be long.
        """
        lines: dict[str, set[int]] = {}
        for place in places:
            if place is not None:
                lines.setdefault(place.source, set()).add(place.line)
        shown = []
        for source in map(self.source, list(self._ids)):
            segments = source.segments
            if source.kind == "library":
                segments = [part for segment in segments for part in _around(segment, lines.get(source.id, set()))]
            shown.append(msgspec.structs.replace(source, segments=segments))
        return shown

    def _path(self, filename: str) -> str:
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
            lines = self._lines[text.filename] = dict(text.lines)
            for segment in text.segments:
                for at, each in enumerate(segment.text.split("\n"), start=segment.first_line - text.line_offset):
                    lines[at] = each[text.indent :]
        return lines.get(line)

    def _expression(
        self, text: SourceText, line: int, start: int | None, end: int | None, last: int | None
    ) -> tuple[int, int, int, str] | None:
        """Return first column, last line, last column (in characters) and text of an expression."""
        if start is None or end is None:
            return None
        first = self._line(text, line)
        if first is None:
            return None
        column = _characters(first, start)
        for number in [last] if last is not None else range(line, line + 40):
            last_line = number
            ending = self._line(text, last_line)
            if ending is None:
                return None
            last_column = _characters(ending, end)
            code = self._slice(text, line, column, last_line, last_column)
            whole = end <= len(ending.encode()) and _is_expression(code)
            if code.strip() and (last is not None or whole):
                condition = _condition(code, column, line)
                if condition is not None:
                    column, last_line, last_column = condition
                    code = self._slice(text, line, column, last_line, last_column)
                return column, last_line, last_column, code
        return None

    def _slice(self, text: SourceText, line: int, column: int, last_line: int, last_column: int) -> str:
        lines = [self._line(text, number) or "" for number in range(line, last_line + 1)]
        lines[-1] = lines[-1][:last_column]
        lines[0] = lines[0][column:]
        return "\n".join(lines)


def _around(segment: Segment, lines: set[int]) -> Iterator[Segment]:
    """Yield the parts of a segment that are close to some lines."""
    text = segment.text.split("\n")
    kept = [
        index
        for index in range(len(text))
        if any(abs(segment.first_line + index - line) <= _LIBRARY_CONTEXT for line in lines)
    ]
    for position, index in enumerate(kept):
        if position and kept[position - 1] == index - 1:
            continue
        end = next((i for i, j in zip(kept[position:], kept[position + 1 :], strict=False) if j != i + 1), kept[-1])
        yield Segment(segment.first_line + index, "\n".join(text[index : end + 1]))


def _as_folder(path: str) -> str:
    return path.replace("\\", "/").rstrip("/") + "/"


def _characters(text: str, utf8_offset: int) -> int:
    return len(text.encode()[:utf8_offset].decode(errors="ignore"))


def _condition(code: str, column: int, line: int) -> tuple[int, int, int] | None:
    """Of a whole ``if``, ``while`` or ``assert`` (the range of its jump) return the range of its condition."""
    keyword = re.match(r"(?:el)?if\b|while\b|assert\b", code)
    if keyword is None:
        return None
    cut = 2 if keyword[0] == "elif" else 0
    first, *rest = code.split("\n")
    lines = [first[cut:], *(each[column:] for each in rest)]
    try:
        statement = ast.parse("\n".join(lines)).body[0]
    except (SyntaxError, ValueError):
        return None
    if not isinstance(statement, ast.If | ast.While | ast.Assert):
        return None
    test = statement.test
    if test.lineno != 1 or test.end_lineno is None or test.end_col_offset is None:
        return None  # on a line of its own, which would not be the line of the event
    start = column + cut + _characters(lines[0], test.col_offset)
    end = column + (cut if test.end_lineno == 1 else 0) + _characters(lines[test.end_lineno - 1], test.end_col_offset)
    return start, line + test.end_lineno - 1, end


def _is_expression(code: str) -> bool:
    """Whether a range taken from a line is a whole; torch 2.13 gives columns without the line of the last one."""
    for form in (f"({code}\n)", code.strip()):
        try:
            ast.parse(form)
        except (SyntaxError, ValueError):
            continue
        return True
    return False


def shown_stack(sources: Sources, stack: list[list[Any]]) -> list[Location]:
    """Turn a recorded stack into the frames worth reading.

    Machinery is dropped, and so is everything outside the outermost frame of the user; a resume function called by
    the function that it resumes is shown as that function, once.

    Parameters
    ----------
    stack : list of list
        Entries ``[file, line, function, first line, column, end column, end line]``, outermost first; the last four
        may be missing.
    """
    kinds = [(entry, sources.kind(entry[0], entry[2])) for entry in stack]
    kept = [(entry, kind) for entry, kind in kinds if kind != "machinery"]
    own = next((index for index, (_, kind) in enumerate(kept) if kind in {"cell", "file"}), 0)
    collapsed: list[list[Any]] = []
    for entry, _ in kept[own:]:
        previous = collapsed[-1] if collapsed else None
        if (
            previous is not None
            and is_resume(entry[2])
            and plain_function(previous[2]) == plain_function(entry[2])
            and previous[0] == entry[0]
        ):
            collapsed[-1] = entry
        else:
            collapsed.append(entry)
    located = [sources.location(e[0], e[1], e[2], columns_of(e)) for e in collapsed]
    return [each for each in located if each is not None]


def columns_of(entry: list[Any]) -> tuple[int | None, int | None, int | None]:
    """Return the column range of a recorded stack entry."""
    padded = [*entry, None, None, None, None, None, None, None]
    return padded[4], padded[5], padded[6]

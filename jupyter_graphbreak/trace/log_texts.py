"""The texts of what a log mentions: from the files where they are here and still the same, else from the log itself."""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from jupyter_graphbreak.recording.additions import SourceRecorded
from jupyter_graphbreak.recording.package_paths import PackagePaths
from jupyter_graphbreak.recording.records import Record
from jupyter_graphbreak.recording.source_texts import source_of_cell, source_of_file
from jupyter_graphbreak.trace.source_folders import SourceFolders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyter_graphbreak.recording.additions import SegmentText
    from jupyter_graphbreak.recording.records import CompileKey
    from jupyter_graphbreak.recording.source_texts import FindCell

_STACK_ENTRY = re.compile(
    r'^ *File "(?P<file>.{1,4096})", line (?P<line>\d{1,9}), in (?P<function>.{1,4096})$'
    r'(?:\n(?! *File ")(?P<code> +\S.*)$)?',
    re.MULTILINE,
)
_COMMENT = re.compile(
    r"^[ \t]*# File: (?P<file>.{1,4096}?):(?P<line>\d{1,9}) in (?P<function>\S{1,4096}?), code: (?P<code>.*)$",
    re.MULTILINE,
)
_HEADER = re.compile(r"Graph break in user code at (?P<file>.{1,4096}):(?P<line>\d{1,9})[ \t]*\n")
_ANY_MACHINE = PackagePaths()
_DEFINITION = re.compile(r"\s*(?:@|(?:async\s+)?def\s)")
#: Characters that a log has to quote of a function: a closing bracket proves nothing.
_ENOUGH_QUOTED = 6
_MOST_SOURCES = 10_000


class _Mention(NamedTuple):
    """A place in a record, and its line as the log has it, stripped."""

    filename: str
    line: int
    function: str
    part: Literal["frame", "happened", "passed"]
    code: str | None = None


class Texts(msgspec.Struct, frozen=True):
    """Records with the texts of files, what is to be said of them, and what the reader can do to see more."""

    records: list[Record]
    notes: list[str]
    hints: list[str]


def source_records(
    records: list[Record], find_cell: FindCell = lambda _: None, folders: SourceFolders | None = None
) -> Texts:
    """Return the texts of what the records of a process mention.

    Of a file in one of the folders it is the functions of which the log quotes a line, if all lines that the log quotes
    are still the same. Of any other file it is the lines that the log quotes.

    Parameters
    ----------
    records : list of Record
    find_cell : callable
        Given the file name of a code object, the cell that it comes from, where the notebook is open here.
    folders : SourceFolders or None
        ``None``: the working folder and those of packages.
    """
    folders = folders if folders is not None else SourceFolders()
    known = {record.data.get("filename") for record in records if record.kind == "graphbreak_source"}
    without_code = {
        record.compile_key
        for record in records
        if record.kind == "compilation_metrics" and record.data.get("graph_op_count") is None
    }
    mentioned: dict[str, None] = {}
    functions: dict[str, dict[int, str]] = defaultdict(dict)
    codes: dict[str, dict[int, str]] = defaultdict(dict)
    for filename, line, function, part, code in _mentions(records, without_code):
        if filename in known:
            continue
        mentioned[filename] = None
        if code:
            codes[filename][line] = code
        if part == "happened" or (part == "frame" and not _is_library(filename)):
            functions[filename].setdefault(line, function)
    made: list[SourceRecorded] = []
    changed, outside = [], []
    for filename in itertools.islice(mentioned, _MOST_SOURCES):
        cell = find_cell(filename)
        if cell is not None:
            made.append(source_of_cell(filename, cell))
            continue
        quoted = codes[filename]
        if not quoted:  # nothing proves that a file of this name is the one that the log means
            continue
        text = folders.lines(filename)
        if text is not None and not _is_same(text, quoted):
            changed.append(PurePath(filename).name)
            text = None
        elif text is None and not _is_library(filename) and not folders.may_hold(filename):
            outside.append(filename)
        name = PurePath(filename.replace("\\", "/")).name or filename
        if text is None:
            made.append(SourceRecorded(filename=filename, name=name, lines=quoted))
            continue
        segments = _proven(filename, text, quoted, functions[filename])
        lines = {line: text[line - 1].rstrip("\n") for line in quoted}
        made.append(SourceRecorded(filename=filename, name=name, segments=segments, lines=lines))
    notes = [f"{name} has changed since the log was written: its lines are those of the log." for name in changed]
    hints = [_hint(len(outside))] if outside else []
    return Texts([Record({source.kind: msgspec.to_builtins(source)}) for source in made], notes, hints)


def _is_same(text: list[str], quoted: dict[int, str]) -> bool:
    return all(0 < line <= len(text) and text[line - 1].strip() == code for line, code in quoted.items())


def _proven(filename: str, text: list[str], quoted: dict[int, str], functions: dict[int, str]) -> list[SegmentText]:
    """Return the functions of a file of which the log quotes enough that only the same text can be meant."""
    try:
        ast.parse("".join(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a file that Python cannot have compiled
        return []
    source = source_of_file(filename, text, set(), functions)
    proven = []
    for segment in source.segments if source is not None else []:
        last = segment.first_line + segment.text.count("\n")
        inside = [code for line, code in quoted.items() if segment.first_line <= line <= last]
        if _DEFINITION.match(segment.text) and sum(map(len, inside)) >= _ENOUGH_QUOTED:
            proven.append(segment)
    return proven


def _is_library(filename: str) -> bool:
    return filename.startswith("<") or _ANY_MACHINE.module_path(filename) is not None


def _hint(number: int) -> str:
    files = "a file is" if number == 1 else f"{number} files are"
    return (
        f"Only the lines that the log quotes are shown, since {files} outside the working folder: sources=[FOLDER], or "
        "--sources FOLDER, names further folders from which source text may be read."
    )


def _mentions(records: Iterable[Record], without_code: set[CompileKey | None]) -> Iterator[_Mention]:
    """Yield the places in PyTorch's own records; a record that has another form has none.

    Parameters
    ----------
    records : iterable of Record
    without_code : set of CompileKey
        The frames of which no code came.
    """
    names: dict[int, str] = {}
    seen: set[str] = set()
    started: dict[CompileKey | None, list[_Mention]] = {}
    for record in records:
        key = record.compile_key
        try:
            if record.kind == "str":
                names[record.data[1]] = record.data[0]
            elif record.kind == "dynamo_start":
                started[key] = list(_of_start(record.data["stack"], names))
                yield from started[key]
            elif record.payload is not None:
                if key in without_code and record.kind == "artifact:dynamo_graph_break_reason":
                    # The function that is given up: its blocks say why.
                    yield from (place._replace(part="happened") for place in started.get(key, [])[-1:])
                if record.payload not in seen:
                    seen.add(record.payload)
                    yield from _of_text(record.kind, record.payload)
        except (KeyError, TypeError, IndexError, AttributeError):
            continue


def _of_start(stack: list[dict[str, object]], names: dict[int, str]) -> Iterator[_Mention]:
    for depth, entry in enumerate(stack, start=1):
        number, line, code = entry["filename"], entry["line"], entry.get("loc")
        if isinstance(number, int) and isinstance(line, int) and number in names:
            part: Literal["frame", "passed"] = "frame" if depth == len(stack) else "passed"
            text = code.strip() if isinstance(code, str) else None
            yield _Mention(names[number], line, str(entry["name"]), part, text or None)


def _of_text(kind: str, payload: str) -> Iterator[_Mention]:
    match kind:
        case "artifact:dynamo_graph_break_reason":
            stack = list(_of_stack(payload.partition("\nTraceback (most recent call last)")[0]))
            yield from (place._replace(part="passed") for place in stack[:-1])
            yield from stack[-1:]
            header = _HEADER.match(payload)
            if header is not None and stack and stack[-1].filename != header["file"]:
                yield _Mention(header["file"], int(header["line"]), "?", "passed")
        case "artifact:dynamo_error":
            yield from _of_stack(payload.partition("from user code:")[2])
        case "artifact:recompile_reasons":
            yield from (place._replace(part="passed") for place in _of_stack(payload))
        case "dynamo_output_graph":
            for match in _COMMENT.finditer(payload):
                code = match["code"].strip()
                yield _Mention(match["file"], int(match["line"]), match["function"], "passed", code)
        case _:
            return


def _of_stack(text: str) -> Iterator[_Mention]:
    for match in _STACK_ENTRY.finditer(text):
        code = (match["code"] or "").strip()
        yield _Mention(match["file"], int(match["line"]), match["function"].strip(), "happened", code or None)

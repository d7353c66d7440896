"""The texts of what a log mentions: from the files where they are here and still the same, else from the log itself."""

from __future__ import annotations

import linecache
import re
from collections import defaultdict
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from jupyter_graphbreak.recording.additions import SourceRecorded
from jupyter_graphbreak.recording.records import Record
from jupyter_graphbreak.recording.source_texts import source_of_cell, source_of_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyter_graphbreak.recording.records import CompileKey
    from jupyter_graphbreak.recording.source_texts import FindCell

_STACK_ENTRY = re.compile(
    r'^ *File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$(?:\n(?! *File ")(?P<code> +\S.*)$)?',
    re.MULTILINE,
)
_COMMENT = re.compile(r"# File: (?P<file>.+?):(?P<line>\d+) in (?P<function>\S+?), code: (?P<code>.*)$", re.MULTILINE)
_HEADER = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)\s*\n")
_LIBRARY = re.compile(r"/lib/python3\.\d+/|/site-packages/|/dist-packages/|^<")


class _Mention(NamedTuple):
    """A place in a record, and its line as the log has it, stripped."""

    filename: str
    line: int
    function: str
    part: Literal["frame", "happened", "passed"]
    code: str | None = None


class Texts(msgspec.Struct, frozen=True):
    """Records with the texts of files, and what is to be said of them."""

    records: list[Record]
    notes: list[str]


def source_records(records: list[Record], find_cell: FindCell = lambda _: None) -> Texts:
    """Return the texts of what the records of a process mention.

    Parameters
    ----------
    records : list of Record
    find_cell : callable
        Given the file name of a code object, the cell that it comes from, where the notebook is open here.
    """
    known = {record.data.get("filename") for record in records if record.kind == "graphbreak_source"}
    without_code = {
        record.compile_key
        for record in records
        if record.kind == "compilation_metrics" and record.data.get("graph_op_count") is None
    }
    mentioned: dict[str, set[int]] = defaultdict(set)
    functions: dict[str, dict[int, str]] = defaultdict(dict)
    codes: dict[str, dict[int, str]] = defaultdict(dict)
    for filename, line, function, part, code in _mentions(records, without_code):
        if filename in known:
            continue
        mentioned[filename].add(line)
        if code:
            codes[filename][line] = code
        if part == "happened" or (part == "frame" and not _LIBRARY.search(filename)):
            functions[filename].setdefault(line, function)
    made, changed = [], []
    for filename, lines in mentioned.items():
        cell = find_cell(filename)
        if cell is not None:
            source = source_of_cell(filename, cell)
            made.append(Record({source.kind: msgspec.to_builtins(source)}))
            continue
        linecache.checkcache(filename)  # it may have changed since somebody read it last
        file = source_of_file(filename, lines, functions[filename])
        if file is not None and any(file.lines.get(line, "").strip() != code for line, code in codes[filename].items()):
            changed.append(PurePath(filename).name)
            file = None
        if file is None and codes[filename]:
            name = PurePath(filename.replace("\\", "/")).name or filename
            file = SourceRecorded(filename=filename, name=name, lines=codes[filename])
        if file is not None:
            made.append(Record({file.kind: msgspec.to_builtins(file)}))
    notes = [f"{name} has changed since the log was written: its lines are those of the log." for name in changed]
    return Texts(made, notes)


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

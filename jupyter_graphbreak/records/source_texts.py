"""Collect the source text that a recording mentions: whole cells, and the functions in files that took part."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import linecache
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from jupyter_graphbreak.records import additions
from jupyter_graphbreak.records.additions import SegmentText, SourceRecorded
from jupyter_graphbreak.records.package_paths import is_library, package_paths
from jupyter_graphbreak.records.records import (
    StackFrame,
    original_name,
    parse_guard_location,
    read_recompile_reasons,
    read_stack,
    strip_inserted_frames,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.records.records import CompileKey, Record

#: Functions longer than this are truncated.
_MAX_LINES = 2000


class CellText(msgspec.Struct, frozen=True):
    """The name of a cell, and its text in the editor."""

    name: str
    text: str
    #: The number of lines at the beginning of the cell, and of columns at the beginning of each line, that were removed
    #: before the cell ran.
    line_offset: int = 0
    indent: int = 0
    #: Whether the code of other cells may have the same file name.
    is_name_shared: bool = False


#: A function that returns the cell of a code object, given the file name; ``None`` if the code is not from a cell.
FindCell = Callable[[str], CellText | None]


#: The reason why a record mentions a line: the code object of a frame begins on it, an event such as a break occurred
#: on it, or something else.
MentionRole = Literal["frame", "event", "other"]


class _Mention(NamedTuple):
    """A line that a record mentions. A library function is included only if an event occurred in it."""

    filename: str
    line: int | None
    function: str
    role: MentionRole


def collect_sources(
    records: Iterable[Record], find_cell: FindCell, running_filename: str | None = None
) -> list[SourceRecorded]:
    """Return the source text that records mention: whole cells, and the functions and individual lines in files.

    If the file name of the running cell is passed, this cell comes first, even if only functions of other cells took
    part.
    """
    lines: dict[str, set[int]] = {running_filename: set()} if running_filename is not None else {}
    names: dict[str, set[str]] = {}
    functions: dict[str, dict[int, str]] = {}
    records = list(records)
    file_names = {record.data[1]: record.data[0] for record in records if record.kind == "str"}
    keys_without_code = frames_without_code(records)
    for record in records:
        mentions = itertools.chain(
            _mentions(record, is_given_up=record.compile_key in keys_without_code),
            _mentions_in_record(record, file_names, list(lines)),
        )
        for filename, line, function, role in mentions:
            if line is None:
                continue
            lines.setdefault(filename, set()).add(line)
            names.setdefault(filename, set()).add(original_name(function))
            if role == "event" or (role == "frame" and not is_library(filename)):
                functions.setdefault(filename, {}).setdefault(line, function)
    if not any(lines.values()):
        return []
    sources = (
        source_of_cell(filename, cell)
        if (cell := find_cell(filename)) is not None and _defines(cell, names.get(filename, set()))
        else source_of_file(filename, linecache.getlines(filename), mentioned_lines, functions.get(filename, {}))
        for filename, mentioned_lines in lines.items()
    )  # fmt: skip
    return [source for source in sources if source is not None]


def frames_without_code(records: Iterable[Record]) -> set[CompileKey | None]:
    """Return the compile keys of the frames for which Dynamo compiled no code."""
    metrics = (record for record in records if record.kind == "compilation_metrics")
    return {record.compile_key for record in metrics if record.data.get("graph_op_count") is None}


def _defines(cell: CellText, function_names: set[str]) -> bool:
    """Return whether a cell defines all of the given functions, if its file name may belong to other code as well."""
    names = (name for name in function_names if not name.startswith("<"))
    return not cell.is_name_shared or all(re.search(rf"\bdef {re.escape(name)}\b", cell.text) for name in names)


def source_of_cell(filename: str, cell: CellText) -> SourceRecorded:
    """Return the recorded source of a cell, given the file name of its code."""
    return SourceRecorded(
        filename=filename,
        name=cell.name,
        kind_of_source="cell",
        segments=[SegmentText(1, cell.text)],
        line_offset=cell.line_offset,
        indent=cell.indent,
    )


def source_of_file(
    filename: str, text: list[str], mentioned_lines: set[int], functions: dict[int, str]
) -> SourceRecorded | None:
    """Return the recorded source of a file: individual lines and whole functions; ``None`` if the file has no lines.

    The lines of the text have line ends. ``functions`` are the names of those to include, by one of their lines.
    """
    if not text:
        return None
    return SourceRecorded(
        filename=filename,
        name=PurePath(filename).name or filename,
        segments=_segments(text, functions),
        lines={line: text[line - 1].rstrip("\n") for line in sorted(mentioned_lines) if 0 < line <= len(text)},
    )


def _mentions(record: Record, *, is_given_up: bool) -> Iterator[_Mention]:
    """Yield the lines that an addition mentions; none if it cannot be read.

    ``is_given_up`` tells whether the record's frame has no compiled code.
    """
    try:
        addition = additions.read_addition(record)
    except msgspec.ValidationError:
        return
    match addition:
        case additions.FrameStarted() | additions.FrameRefused():
            yield from _frame_mentions(addition)
        case additions.FrameSkipped() | additions.ResumeCreated():
            line = addition.line if isinstance(addition, additions.ResumeCreated) else addition.firstlineno
            yield _Mention(addition.filename, line, addition.name, "other")
        case additions.BreakLogged() | additions.FrameFailed():
            yield from _event_mentions(addition, is_given_up=is_given_up or isinstance(addition, additions.FrameFailed))
        case additions.CompiledForReport(filename=str(filename), line=int(line)):
            yield _Mention(filename, line, "<module>", "other")
        case additions.ScopeOpened():
            yield from _stack_frame_mentions((addition.site, addition.entered), "event")
            yield from _code_mentions(addition.wrapped)
        case additions.AnswerDiffers():
            yield from _stack_frame_mentions((addition.call, addition.branch), "event")
        case additions.GraphStacks():
            for trace in addition.stacks:
                yield from _stack_frame_mentions(read_stack(trace), "other")
        case additions.RunEnded():
            yield from _stack_frame_mentions(addition.stack, "other")
        case _:
            return


def _mentions_in_record(
    record: Record, file_names: Mapping[int, str], known_files: Sequence[str]
) -> Iterator[_Mention]:
    """Yield the lines that created guards, as PyTorch's own records mention them.

    ``file_names`` maps the numbers in the trace to file names. ``known_files`` are those that earlier records mention.
    """
    if record.kind == "symbolic_shape_specialization":
        yield from _stack_frame_mentions(_specializing_frames(record, file_names), "event")
    elif record.kind == "artifact:recompile_reasons":
        for reason in read_recompile_reasons(record.payload or ""):
            stack = read_stack(reason)
            if not stack and (location := parse_guard_location(reason)) is not None:
                files = [filename for filename in known_files if filename.endswith(location.filename)]
                stack = [StackFrame(files[0], location.line, location.function)] if len(files) == 1 else []
            yield from _stack_frame_mentions(stack[-1:], "event")


def _specializing_frames(record: Record, file_names: Mapping[int, str]) -> list[StackFrame]:
    """Return a list with the line that turns a size into a constant; empty if the record has an unexpected form."""
    with contextlib.suppress(KeyError, TypeError):
        stack = [
            StackFrame(file_names[stack_frame["filename"]], stack_frame["line"], stack_frame["name"])
            for stack_frame in record.data["user_stack"] or []
        ]
        return strip_inserted_frames(stack, package_paths())[-1:]
    return []


def _frame_mentions(frame: additions.FrameStarted | additions.FrameRefused) -> Iterator[_Mention]:
    if frame.name is not None and frame.filename is not None:
        yield _Mention(frame.filename, frame.firstlineno, frame.name, "frame")
    if isinstance(frame, additions.FrameRefused):
        yield from _code_mentions(frame.wrapped)
    if frame.fullgraph_site is not None:
        yield from _stack_frame_mentions((frame.fullgraph_site.site,), "event")
        yield from _code_mentions(frame.fullgraph_site.wrapped)


def _event_mentions(event: additions.BreakLogged | additions.FrameFailed, *, is_given_up: bool) -> Iterator[_Mention]:
    stack = event.whole_stack
    event_frames: list[StackFrame] = stack[-1:]
    if is_given_up:  # the blocks of the function on which Dynamo gave up explain the reason
        event_frames = [*event.stack[:1], *event_frames]
    for stack_frame in stack:
        is_event = any(stack_frame is event_frame for event_frame in event_frames)
        yield from _stack_frame_mentions((stack_frame,), "event" if is_event else "other")


def _stack_frame_mentions(stack_frames: Iterable[StackFrame | None], role: MentionRole) -> Iterator[_Mention]:
    for stack_frame in stack_frames:
        if stack_frame is not None:
            yield _Mention(stack_frame.filename, stack_frame.line, stack_frame.function, role)


def _code_mentions(code: additions.CodeObject | None) -> Iterator[_Mention]:
    if code is not None:
        yield _Mention(code.filename, code.firstlineno, code.name, "event")


def _segments(text: list[str], functions: dict[int, str]) -> list[SegmentText]:
    """Return the functions that contain the given lines of a file, each once, in order."""
    blocks: dict[int, int] = {}
    for line, name in functions.items():
        start = _function_start(text, line, name)
        if start is None or start in blocks:
            continue
        with contextlib.suppress(Exception):  # the tokenizer fails if the file was changed after the import
            blocks[start] = start + len(inspect.getblock(text[start - 1 : start - 1 + _MAX_LINES]))
    segments: list[SegmentText] = []
    covered_end = 0
    for start, end in sorted(blocks.items()):
        if start >= covered_end:  # otherwise a function that is already included contains the block
            segments.append(SegmentText(start, "".join(text[start - 1 : end - 1]).rstrip("\n")))
            covered_end = end
    return segments


def _function_start(text: list[str], line: int, name: str) -> int | None:
    """Return the first line (decorators included) of the function ``name`` that contains ``line``.

    For a lambda or a comprehension, it is the first line of the function that contains it, or else the line itself. The
    result is ``None`` if there is no such function.
    """
    if not 0 < line <= len(text):
        return None
    function_name = original_name(name)
    is_named = function_name.isidentifier()
    define = re.compile(rf"\s*(?:async\s+)?def\s+{re.escape(function_name) if is_named else ''}\b")
    position = line
    while position <= len(text) and text[position - 1].lstrip().startswith(("@", "#")):
        position += 1  # a code object's first line is that of its first decorator
    position = min(position, len(text))
    indentation = _indent(text[position - 1])
    while position > 0 and not (
        define.match(text[position - 1]) and (is_named or _indent(text[position - 1]) < indentation)
    ):
        position -= 1
    if position == 0:
        return None if is_named else line
    while position > 1 and text[position - 2].lstrip().startswith("@"):
        position -= 1
    return position


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

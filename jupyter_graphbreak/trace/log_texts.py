"""Collect facts from a log, and the source text that it mentions: from unchanged files, or else from the log itself."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections import defaultdict
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from jupyter_graphbreak.records import additions
from jupyter_graphbreak.records.additions import SourceRecorded
from jupyter_graphbreak.records.package_paths import PackagePaths, is_typed_code
from jupyter_graphbreak.records.records import Record, is_inserted_frame, is_resume_name
from jupyter_graphbreak.records.source_texts import frames_without_code, source_of_cell, source_of_file
from jupyter_graphbreak.trace.source_folders import SourceFolders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyter_graphbreak.records.additions import SegmentText
    from jupyter_graphbreak.records.records import CompileKey
    from jupyter_graphbreak.records.source_texts import FindCell, MentionRole

_TENSOR_DEVICE = re.compile(r'"\w+\[[^\]"]*\](?:\[[^\]"]*\])?(?P<device>[a-z]+(?::\d+)?)"')
_LIBRARY_ROOT = re.compile(r"^(?P<root>.*?/lib/python3\.\d+)/")
_HOME_FOLDER = re.compile(r"^(?P<home>/(?:home|Users)/[^/]+|/root)/")
_REPORTED_SETTINGS = ("nested_graph_breaks", "recompile_limit")
LOG_LIMITATIONS = (
    "A trace log does not say which code Dynamo refuses to compile from the start (generators, functions called under "
    "a dispatch mode), which resume functions never ran, which part of a line broke the graph (several breaks of one "
    "kind on one line may be listed as one), or how long the run took."
)
RESUME_LINE_LIMITATION = (
    "This log does not say on which line a resume function continues (logs of torch 2.13 and later do): the line of "
    "its break is shown instead."
)

OLD_LOG_LIMITATIONS = (
    "Before torch 2.11, a log does not distinguish a function that was skipped at a break from one that failed to "
    "compile: both are listed as errors."
)


class ProcessFacts:
    """Collects facts about a process from its records: versions, settings, devices, folders."""

    def __init__(self) -> None:
        self._torch: str | None = None
        self._python: str | None = None
        self._config: dict[str, Any] = {}
        self._devices: dict[str, None] = {}
        self._roots: dict[str, None] = {}
        self._home: str | None = None
        self._is_own_recording = False
        self._has_errors = False
        self._resume_count = 0
        self._resume_line_count = 0

    def read(self, record: Record) -> None:
        """Collect the facts in one record, before anything is removed from it."""
        match record.kind:
            case "graphbreak_run":
                self._is_own_recording = True
            case "artifact:torch_version":
                self._torch = self._torch or _parse_json_object(record.payload).get("pytorch_version")
            case "artifact:dynamo_error":
                self._has_errors = True
            case "dynamo_start":
                self._resume_count += is_resume_name(_started_function(record.data))
            case additions.ResumedAt.kind:
                self._resume_line_count += 1
            case "compilation_metrics":
                self._read_metrics(record.data)
            case "dynamo_output_graph":
                self._devices.update(
                    dict.fromkeys(match["device"] for match in _TENSOR_DEVICE.finditer(record.payload or ""))
                )
            case "str":
                self._read_filename(record.data)
            case _:
                pass

    def records(self, notes: Iterable[str], hints: Iterable[str] = ()) -> list[Record]:
        """Return the collected facts as our own records, with sentences on problems and on how to see more."""
        collected_additions: list[additions.Addition] = [
            additions.Note(level="warning", message=message) for message in notes
        ]
        collected_additions += [additions.Note(level="info", message=message) for message in hints]
        if not self._is_own_recording:  # our own recordings already contain all of this
            collected_additions.append(additions.Note(level="info", message=LOG_LIMITATIONS))
            if self._torch is None and self._has_errors:  # logs of torch 2.11 and later contain PyTorch's version
                collected_additions.append(additions.Note(level="info", message=OLD_LOG_LIMITATIONS))
            if self._resume_count > self._resume_line_count:
                collected_additions.append(additions.Note(level="info", message=RESUME_LINE_LIMITATION))
            devices = ", ".join(sorted(self._devices)) or "unknown"
            collected_additions.append(additions.DeviceUsed(requested=devices, used=devices))
            collected_additions.append(
                additions.RunSummary(
                    torch=self._torch,
                    python=self._python,
                    config=self._config,
                    library_roots=list(self._roots),
                    folder=str(Path.cwd()),
                    home=self._home,
                )
            )
        return [Record({addition.kind: msgspec.to_builtins(addition)}) for addition in collected_additions]

    def _read_metrics(self, metrics: Any) -> None:
        if not isinstance(metrics, dict) or self._config:
            return
        self._torch = self._torch or metrics.get("pytorch_version")
        self._python = self._python or (str(metrics.get("python_version") or "").partition(" ")[0] or None)
        config = _parse_json_object(metrics.get("dynamo_config"))
        self._config = {name: config[name] for name in _REPORTED_SETTINGS if name in config}

    def _read_filename(self, data: Any) -> None:
        if not (isinstance(data, list) and data and isinstance(data[0], str)):
            return
        root, home = _LIBRARY_ROOT.match(data[0]), _HOME_FOLDER.match(data[0])
        if root is not None:
            self._roots[root["root"]] = None
            self._roots[f"{root['root']}/site-packages"] = None
        if home is not None and self._home is None:
            self._home = home["home"]


def _started_function(data: Any) -> str:
    """Return the name of the function that a record ``dynamo_start`` is about; empty if the record is malformed."""
    stack = data.get("stack") if isinstance(data, dict) else None
    entry = stack[-1] if isinstance(stack, list) and stack else None
    return str(entry.get("name")) if isinstance(entry, dict) else ""


def _parse_json_object(text: Any) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(text) if isinstance(text, str) else None
    except (msgspec.DecodeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


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
#: A log must quote at least this many characters of a function to identify it: a closing bracket is not enough.
_MIN_QUOTED_LENGTH = 6
_MAX_SOURCES = 10_000


class _LogMention(NamedTuple):
    """A line that a record mentions, with its stripped text if the log quotes it."""

    filename: str
    line: int
    function: str
    role: MentionRole
    code: str | None = None


class SourceRecords(msgspec.Struct, frozen=True):
    """Records with the source text of files, notes about the files, and hints on how to see more."""

    records: list[Record]
    notes: list[str]
    hints: list[str]


def source_records(
    records: list[Record], find_cell: FindCell = lambda _: None, folders: SourceFolders | None = None
) -> SourceRecords:
    """Return the source text that the records of a process mention.

    For a cell, this is its whole text. For a file in one of the folders, it is the functions from which the log quotes
    enough text, if all quoted lines are unchanged. For any other file, it is the quoted lines.
    """
    folders = folders if folders is not None else SourceFolders()
    recorded_filenames = {record.data.get("filename") for record in records if record.kind == "graphbreak_source"}
    keys_without_code = frames_without_code(records)
    mentioned_files: dict[str, None] = {}
    functions: dict[str, dict[int, str]] = defaultdict(dict)
    quoted_lines_by_file: dict[str, dict[int, str]] = defaultdict(dict)
    for filename, line, function, role, code in _mentions(records, keys_without_code):
        if filename in recorded_filenames:
            continue
        mentioned_files[filename] = None
        if code:
            quoted_lines_by_file[filename][line] = code
        if role == "event" or (role == "frame" and not _is_library(filename)):
            functions[filename].setdefault(line, function)
    sources: list[SourceRecorded] = []
    changed_files, files_outside = [], []
    for filename in itertools.islice(mentioned_files, _MAX_SOURCES):
        cell = find_cell(filename)
        if cell is not None:
            sources.append(source_of_cell(filename, cell))
            continue
        quoted_lines = quoted_lines_by_file[filename]
        if not quoted_lines:  # nothing proves that the file still has the text that ran
            continue
        text = folders.lines(filename)
        if text is not None and not _matches_quotes(text, quoted_lines):
            changed_files.append(PurePath(filename).name)
            text = None
        elif text is None and not _is_library(filename) and not folders.may_read(filename):
            files_outside.append(filename)
        name = PurePath(filename.replace("\\", "/")).name or filename
        if text is None:
            sources.append(SourceRecorded(filename=filename, name=name, lines=quoted_lines))
            continue
        segments = _verified_segments(filename, text, quoted_lines, functions[filename])
        lines = {line: text[line - 1].rstrip("\n") for line in quoted_lines}
        sources.append(SourceRecorded(filename=filename, name=name, segments=segments, lines=lines))
    notes = [
        f"{name} has changed since the log was written: its lines are shown as in the log." for name in changed_files
    ]
    hints = [_source_folder_hint(len(files_outside))] if files_outside else []
    return SourceRecords([Record({source.kind: msgspec.to_builtins(source)}) for source in sources], notes, hints)


def _matches_quotes(text: list[str], quoted_lines: dict[int, str]) -> bool:
    return all(0 < line <= len(text) and text[line - 1].strip() == code for line, code in quoted_lines.items())


def _verified_segments(
    filename: str, text: list[str], quoted_lines: dict[int, str], functions: dict[int, str]
) -> list[SegmentText]:
    """Return the functions of a file from which the log quotes enough to prove that their text is the same."""
    if not _is_python("".join(text)):  # Python cannot have compiled this text
        return []
    source = source_of_file(filename, text, set(), functions)
    verified_segments = []
    for segment in source.segments if source is not None else []:
        last = segment.first_line + segment.text.count("\n")
        lines_in_segment = [code for line, code in quoted_lines.items() if segment.first_line <= line <= last]
        if _DEFINITION.match(segment.text) and sum(map(len, lines_in_segment)) >= _MIN_QUOTED_LENGTH:
            verified_segments.append(segment)
    return verified_segments


@functools.lru_cache(maxsize=64)
def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _is_library(filename: str) -> bool:
    is_generated = filename.startswith("<") and not is_typed_code(filename)
    return is_generated or _ANY_MACHINE.module_path(filename) is not None


def _source_folder_hint(number: int) -> str:
    files = "a file is" if number == 1 else f"{number} files are"
    return (
        f"Only the lines that the log quotes are shown, because {files} outside the working folder: use "
        "sources=[FOLDER] or --sources FOLDER to allow reading source text from more folders."
    )


def _mentions(records: Iterable[Record], keys_without_code: set[CompileKey | None]) -> Iterator[_LogMention]:
    """Yield the lines that PyTorch's own records mention; records with an unexpected form are ignored."""
    names: dict[int, str] = {}
    read_payloads: set[str] = set()
    start_mentions: dict[CompileKey | None, list[_LogMention]] = {}
    for record in records:
        key = record.compile_key
        try:
            if record.kind == "str":
                names[record.data[1]] = record.data[0]
            elif record.kind == "dynamo_start":
                start_mentions[key] = list(_start_mentions(record.data["stack"], names))
                yield from start_mentions[key]
            elif record.kind == "symbolic_shape_specialization":
                program_mentions = [
                    mention
                    for mention in _start_mentions(record.data["user_stack"] or [], names)
                    if not is_inserted_frame(_ANY_MACHINE.module_path(mention.filename), mention.function)
                ]
                yield from (mention._replace(role="event") for mention in program_mentions[-1:])
            elif record.payload is not None:
                if key in keys_without_code and record.kind == "artifact:dynamo_graph_break_reason":
                    # This is the function on which Dynamo gave up: its blocks show why.
                    yield from (mention._replace(role="event") for mention in start_mentions.get(key, [])[-1:])
                if record.payload not in read_payloads:
                    read_payloads.add(record.payload)
                    yield from _text_mentions(record.kind, record.payload)
        except (KeyError, TypeError, IndexError, AttributeError):
            continue


def _start_mentions(stack: list[dict[str, object]], names: dict[int, str]) -> Iterator[_LogMention]:
    for depth, entry in enumerate(stack, start=1):
        number, line, code = entry["filename"], entry["line"], entry.get("loc")
        if isinstance(number, int) and isinstance(line, int) and number in names:
            role: MentionRole = "frame" if depth == len(stack) else "other"
            text = code.strip() if isinstance(code, str) else None
            yield _LogMention(names[number], line, str(entry["name"]), role, text or None)


def _text_mentions(kind: str, payload: str) -> Iterator[_LogMention]:
    match kind:
        case "artifact:dynamo_graph_break_reason":
            stack = list(_stack_mentions(payload.partition("\nTraceback (most recent call last)")[0]))
            yield from (mention._replace(role="other") for mention in stack[:-1])
            yield from stack[-1:]
            header = _HEADER.match(payload)
            if header is not None and stack and stack[-1].filename != header["file"]:
                yield _LogMention(header["file"], int(header["line"]), "?", "other")
        case "artifact:dynamo_error":
            yield from _stack_mentions(payload.partition("from user code:")[2])
        case "artifact:recompile_reasons":
            yield from (mention._replace(role="other") for mention in _stack_mentions(payload))
        case "dynamo_output_graph":
            for match in _COMMENT.finditer(payload):
                code = match["code"].strip()
                yield _LogMention(match["file"], int(match["line"]), match["function"], "other", code)
        case _:
            return


def _stack_mentions(text: str) -> Iterator[_LogMention]:
    for match in _STACK_ENTRY.finditer(text):
        code = (match["code"] or "").strip()
        yield _LogMention(match["file"], int(match["line"]), match["function"].strip(), "event", code or None)

"""Read the traces of one or several processes from their files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from jupyter_graphbreak.records import additions
from jupyter_graphbreak.records.additions import ResumedAt, read_addition
from jupyter_graphbreak.records.records import (
    NEEDED_RECORDS,
    CompileTime,
    Record,
    compile_time,
    reduce_record,
    with_encodable_text,
)
from jupyter_graphbreak.trace.entries import LISTING_KIND, Tally, read_entries, resumed_line
from jupyter_graphbreak.trace.limits import Deadline, ReadingLimits
from jupyter_graphbreak.trace.log_files import DAMAGE_ERRORS, TooMuchUnpacked, UnreadableTrace, open_trace, rank_in
from jupyter_graphbreak.trace.log_texts import ProcessFacts, source_records
from jupyter_graphbreak.trace.source_folders import SourceFolders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.trace.entries import LogEntry
    from jupyter_graphbreak.trace.log_files import TraceFiles

_Number = Annotated[int, msgspec.Meta(ge=-1, le=1 << 53)]
_Line = Annotated[int, msgspec.Meta(ge=-1, le=10**9)]
_Name = Annotated[str, msgspec.Meta(max_length=4096)]
_Text = Annotated[str, msgspec.Meta(max_length=1 << 20)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _Context(msgspec.Struct):
    """The keys of a record's JSON besides the record itself, with limits for their values."""

    frame_id: _Number | None = None
    frame_compile_id: _Number | None = None
    compiled_autograd_id: _Number | None = None
    attempt: _Number | None = None
    rank: _Number | None = None


class _Frame(msgspec.Struct):
    filename: _Number
    line: _Line
    name: _Name
    loc: _Text | None = None


class _Start(msgspec.Struct):
    stack: Annotated[list[_Frame], msgspec.Meta(max_length=10_000)]


class _Metrics(msgspec.Struct):
    compile_id: _Name | None = None
    co_name: _Name | None = None
    co_filename: _Name | None = None
    co_firstlineno: _Line | None = None
    entire_frame_compile_time_s: _Seconds | None = None
    backend_compile_time_s: _Seconds | None = None
    fail_type: _Name | None = None
    fail_reason: _Text | None = None
    fail_user_frame_filename: _Name | None = None
    fail_user_frame_lineno: _Line | None = None
    graph_op_count: _Number | None = None
    restart_reasons: list[_Text] | None = None
    recompile_reason: _Text | None = None
    cudagraph_skip_reason: _Text | None = None
    pytorch_version: _Name | None = None
    python_version: _Name | None = None
    dynamo_config: _Text | None = None


class _Specialization(msgspec.Struct):
    sources: Annotated[list[_Name], msgspec.Meta(max_length=1_000)]
    user_stack: Annotated[list[_Frame], msgspec.Meta(max_length=10_000)] | None = None


_ENTRY_FORMS: dict[str, Any] = {
    "artifact": dict[str, Any],
    "str": tuple[_Name, _Number],
    "dynamo_start": _Start,
    "dynamo_output_graph": dict[str, Any] | None,
    "compilation_metrics": _Metrics,
    "bwd_compilation_metrics": _Metrics,
    "symbolic_shape_specialization": _Specialization,
}


def _validate(record: Record) -> Record | None:
    """Return a record in a form that can be stored; ``None`` if the record has an unexpected form."""
    data, entry_kind = record.data, record.kind
    try:
        msgspec.convert(record.envelope, _Context)
        if entry_kind.startswith("graphbreak_"):
            read_addition(record)
        else:
            msgspec.convert(data, _ENTRY_FORMS["artifact" if entry_kind.startswith("artifact:") else entry_kind])
        return with_encodable_text(record)
    except (msgspec.ValidationError, RecursionError, KeyError):
        return None


_REQUESTED_ENTRIES = NEEDED_RECORDS | {"artifact:torch_version", "str"}
#: To limit memory, graphs are listed without operations after this many characters of code in total.
_MAX_TOTAL_CODE_LENGTH = 24 << 20
#: Longer messages are cut; PyTorch's messages about breaks and errors, with their stacks, are shorter.
_MAX_MESSAGE_LENGTH = 1 << 20
#: The maximum number of compilations of one process whose times are stored.
_MAX_COMPILE_TIMES = 4096
_LIMITS = ReadingLimits()


@dataclass
class ProcessTrace:
    """The records of one process, from one file; its process id is 0 if unknown.

    ``records`` contains PyTorch's records of the kinds that a report needs, and our own about the run as a whole.
    ``compile_times`` contains the times of its compilations, up to a maximum number.
    """

    file: Path
    pid: int
    rank: int | None = None
    records: list[Record] = field(default_factory=list)
    compile_times: list[CompileTime] = field(default_factory=list)


def read_processes(
    traces: TraceFiles,
    find_cell: FindCell = lambda _: None,
    folders: SourceFolders | None = None,
    limits: ReadingLimits = _LIMITS,
) -> Iterator[ProcessTrace]:
    """Yield the processes' traces, file by file; raise an UnreadableTrace if no file has a readable record."""
    folders = folders if folders is not None else SourceFolders()
    deadline = Deadline(limits.seconds)
    notes = list(traces.notes)
    errors: list[UnreadableTrace] = []
    last_process: list[ProcessTrace] = []  # it is yielded at the end, with the notes about all files
    for file in traces.files:
        try:
            processes = read_file(file, deadline, lambda _: None, folders, find_cell, limits)
        except UnreadableTrace as error:
            errors.append(error)
            continue
        yield from last_process
        last_process = processes[-1:]
        yield from processes[:-1]
    if not last_process and errors:
        raise errors[0]
    for process in last_process:
        notes += [f"{error}." for error in errors]
        note_additions = (additions.Note(level="warning", message=note) for note in notes)
        process.records += [Record({note.kind: msgspec.to_builtins(note)}) for note in note_additions]
        yield process


def read_file(
    file: Path,
    deadline: Deadline,
    on_read: Callable[[int], None],
    folders: SourceFolders,
    find_cell: FindCell = lambda _: None,
    limits: ReadingLimits = _LIMITS,
) -> list[ProcessTrace]:
    """Return the traces of the processes that wrote into one file; usually, this is a single process.

    ``on_read`` receives, during reading, the number of further bytes that were read. An UnreadableTrace is raised if
    the file cannot be read, or contains no trace record.
    """
    return _FileReader(file, on_read, find_cell, folders, limits, deadline).read()


class _FileReader:
    """Reads one file, to which several processes may have written."""

    def __init__(
        self,
        file: Path,
        on_read: Callable[[int], None],
        find_cell: FindCell,
        folders: SourceFolders,
        limits: ReadingLimits,
        deadline: Deadline,
    ) -> None:
        self._find_cell = find_cell
        self._file = file
        self._on_read = on_read
        self._folders = folders
        self._limits = limits
        self._deadline = deadline
        self._tally = Tally()
        self._processes_by_pid: dict[int, ProcessTrace] = {}
        self._facts_by_pid: dict[int, ProcessFacts] = {}
        self._payloads: dict[str, str] = {}
        self._code_length = 0
        self._reduced_graph_count = 0
        self._entry_count = 0
        self._text_size = 0

    def read(self) -> list[ProcessTrace]:
        tally = self._tally
        try:
            with open_trace(self._file, self._on_read, self._limits) as stream:
                try:
                    for entry in read_entries(stream, tally, _REQUESTED_ENTRIES, self._limits, self._deadline):
                        tally.stop_reason = self._add(entry)
                        if tally.stop_reason is not None:
                            break
                except TooMuchUnpacked:
                    tally.stop_reason = "it unpacks to far more text than a log of its size has"
                except DAMAGE_ERRORS as error:
                    tally.cut_reason = tally.compression_problem = f"its compression is damaged ({error})"
        except OSError as error:
            raise UnreadableTrace(f"{self._file}: {error.strerror or error}") from None
        if tally.entry_count == tally.unreadable_count:
            problem = tally.compression_problem or tally.stop_reason or "not a structured trace"
            if self._file.stat().st_size == 0:
                problem = "the file is empty"
            raise UnreadableTrace(f"{self._file}: {problem}; run the program with TORCH_TRACE=FOLDER")
        if not self._processes_by_pid:  # there are records, but none that a report needs
            self._processes_by_pid[0] = ProcessTrace(self._file, 0, rank_in(self._file.name))
            self._facts_by_pid[0] = ProcessFacts()
        notes = list(_problem_notes(self._file.name, tally, self._reduced_graph_count))
        for pid, process in self._processes_by_pid.items():
            sources = source_records(process.records, self._find_cell, self._folders)
            facts = self._facts_by_pid[pid].records([*notes, *sources.notes], sources.hints)
            process.records += [*sources.records, *facts]
        return list(self._processes_by_pid.values())

    def _add(self, entry: LogEntry) -> str | None:
        """Add one record; if no more records can be added, return the reason."""
        unchecked_record = entry.record
        if LISTING_KIND.fullmatch(unchecked_record.kind):
            line = resumed_line(unchecked_record.payload or "")
            if line is None:
                return None
            unchecked_record = _resume_record(line, unchecked_record)
        record = _validate(unchecked_record)
        if record is None:
            self._tally.malformed_count += 1
            return None
        process = self._processes_by_pid.get(entry.process)
        if process is None:
            if len(self._processes_by_pid) >= self._limits.processes:
                return f"more than {self._limits.processes} processes wrote into it"
            process = self._processes_by_pid[entry.process] = ProcessTrace(
                self._file, entry.process, rank_in(self._file.name)
            )
            self._facts_by_pid[entry.process] = ProcessFacts()
        rank = record.envelope.get("rank")
        if isinstance(rank, int):
            process.rank = rank
        self._facts_by_pid[entry.process].read(record)
        time = compile_time(record)
        if time is not None and len(process.compile_times) < _MAX_COMPILE_TIMES:
            process.compile_times.append(time)
        if record.kind != "artifact:torch_version":
            self._entry_count += 1
            self._text_size += entry.size
            process.records.append(self._reduce(reduce_record(record)))
        if self._entry_count > self._limits.entries or self._text_size > self._limits.text:
            return "it is too long"
        return None

    def _reduce(self, record: Record) -> Record:
        """Return a record that needs less memory.

        The code of a graph is left out if the code of all graphs is too long, and a long message is cut. Equal
        payloads, such as those of several ranks, are the same string.
        """
        payload = record.payload
        if payload is None:
            return record
        if record.kind == "dynamo_output_graph":
            self._code_length += len(payload)
            if self._code_length > _MAX_TOTAL_CODE_LENGTH:
                self._reduced_graph_count += 1
                return Record(record.envelope, "")
        elif len(payload) > _MAX_MESSAGE_LENGTH:
            payload = payload[:_MAX_MESSAGE_LENGTH]
        if payload not in self._payloads:
            self._text_size += len(payload)
        return Record(record.envelope, self._payloads.setdefault(payload, payload))


def _resume_record(line: int, listing: Record) -> Record:
    """Return a record with only the line on which a function resumes, to replace the record of its bytecode."""
    data = listing.data
    context = {key: value for key, value in listing.envelope.items() if value is not data}
    return Record({ResumedAt.kind: {"line": line}, **context})


def _problem_notes(name: str, tally: Tally, reduced_graph_count: int) -> Iterator[str]:
    """Yield sentences about the parts of a file that could not be read."""
    if tally.unreadable_count:
        problem = "their JSON is damaged or too long"
        yield f"{tally.unreadable_count} of {tally.entry_count} records of {name} could not be read: {problem}."
    if tally.malformed_count:
        problem = "they do not have the form that PyTorch writes"
        yield f"{tally.malformed_count} of {tally.entry_count} records of {name} could not be read: {problem}."
    if tally.damaged_count:
        yield f"Damaged records in {name}, whose text does not match their checksum: {tally.damaged_count}."
    if tally.stray_line_count:
        yield f"Lines in {name} that belong to no record: {tally.stray_line_count}."
    if tally.cut_reason is not None:
        yield f"The end of {name} may be missing: {tally.cut_reason}."
    if tally.stop_reason is not None:
        yield f"Only the first {tally.entry_count} records of {name} were read: {tally.stop_reason}."
    if reduced_graph_count:
        limitation = "that are listed without operations, because the log is too long"
        yield f"Graphs of {name} {limitation}: {reduced_graph_count}."

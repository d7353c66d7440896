"""Yield the records of a structured trace one by one; only those whose payload is still being read are in memory.

A record begins with a line ``V1122 02:10:26.443000 14822 torch/_dynamo/utils.py:2350] {json}``, in which the number
before the path is the process id. The lines of its payload follow, each after a tab. ``torchrun`` and other launchers
may put ``[rank0]:`` in front of every line.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from jupyter_graphbreak.records.records import Record
from jupyter_graphbreak.trace.limits import ReadingLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.trace.limits import Deadline

_ENTRY_PREFIX = re.compile(
    rb"[VIWEC]\d{4} \d\d:\d\d:\d\d[.,]\d+ (?P<process>\d+) [^\n]{1,2000}?:\d+\]"
    rb"(?: \[[^\]\n]{0,200}\])* "
)
_LAUNCHER_TAG = re.compile(rb"\[[\w.-]{1,40}\]: ?")
_FIRST_KEY = re.compile(rb'\{"(\w+)"')
#: The maximum number of different launcher tags; a line with any further tag belongs to no record.
_MAX_TAGS = 4096
#: The number of lines that are read between two checks of the deadline.
_LINES_PER_TIME_CHECK = 1024
_MAX_DIGITS = 10
#: Process ids are smaller than this. In old traces, the number may be a thread id instead, which is greater.
_PID_LIMIT = 1 << 22
_LIMITS = ReadingLimits()
_UNNAMED_ARTIFACT = {"name": ""}


class LogEntry(msgspec.Struct, frozen=True):
    """A record with the id of its process (0 if unknown) and the length of its JSON in bytes."""

    process: int
    record: Record
    size: int = 0


@dataclass
class Tally:
    """Counts the records of a trace, and those that could not be read."""

    #: The number of all records, including kinds that were not requested.
    entry_count: int = 0
    #: The number of records whose first line contains no valid JSON, or is too long.
    unreadable_count: int = 0
    #: The number of records whose JSON does not have the form that PyTorch writes.
    malformed_count: int = 0
    #: The number of payloads that do not match their checksum.
    damaged_count: int = 0
    #: The number of lines that belong to no record.
    stray_line_count: int = 0
    #: The reason why the end of the trace may be missing; ``None`` if it is complete.
    cut_reason: str | None = None
    #: The problem with the compression of the file, if any.
    compression_problem: str | None = None
    #: The reason why reading stopped before the end, as a sentence without a full stop; ``None`` if it did not stop.
    stop_reason: str | None = None


@dataclass
class _OpenEntry:
    """A record whose payload is still being read."""

    process: int
    envelope: dict[str, object]
    envelope_size: int = 0
    payload_lines: list[bytes] = field(default_factory=list)
    payload_size: int = 0


def read_entries(
    stream: BinaryIO,
    tally: Tally,
    kinds: frozenset[str] | None = None,
    limits: ReadingLimits = _LIMITS,
    deadline: Deadline | None = None,
) -> Iterator[LogEntry]:
    """Yield the records of a trace.

    Our own records and the bytecode of resume functions are always included. Other records are only counted, unless
    their kind is requested; ``None`` requests all kinds.
    """
    requested_keys = frozenset(kind.partition(":")[0] for kind in kinds) if kinds is not None else None
    open_entries: dict[bytes, _OpenEntry | None] = {}  # by the launcher's tag in front of the line
    line = b"\n"
    for line, is_cut in _lines(stream, limits.line, tally, deadline):
        tag = b""
        if line[:1] == b"[" and (tag_match := _LAUNCHER_TAG.match(line)):
            tag, line = tag_match[0], line[tag_match.end() :]  # noqa: PLW2901
        if line[:1] == b"\t":
            entry = open_entries.get(tag)
            if entry is not None and entry.payload_size <= limits.payload:
                entry.payload_lines.append(line[1:])
                entry.payload_size += len(line)
            elif tag not in open_entries:
                tally.stray_line_count += 1
            continue
        prefix = _ENTRY_PREFIX.match(line)
        if prefix is None or (tag not in open_entries and len(open_entries) >= _MAX_TAGS):
            tally.stray_line_count += bool(line.strip()) and not line.startswith(b"#")
            continue
        finished_entry, open_entries[tag] = open_entries.get(tag), None
        if finished_entry is not None:
            yield _complete_entry(finished_entry, tally)
        tally.entry_count += 1
        new_entry = _begin_entry(line, prefix, requested_keys, tally) if not is_cut else None
        tally.unreadable_count += is_cut
        if new_entry is not None and (kinds is None or _is_requested(Record(new_entry.envelope).kind, kinds)):
            open_entries[tag] = new_entry
    if not line.endswith(b"\n") and tally.stop_reason is None:
        tally.cut_reason = "its last line is incomplete"
    for finished_entry in open_entries.values():
        if finished_entry is not None:
            yield _complete_entry(finished_entry, tally)


def _lines(stream: BinaryIO, max_length: int, tally: Tally, deadline: Deadline | None) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of a file until the deadline, each with a flag: whether it was too long and was truncated."""
    for number, line in enumerate(iter(partial(stream.readline, max_length), b"")):
        if deadline is not None and number % _LINES_PER_TIME_CHECK == 0 and deadline.is_over:
            tally.stop_reason = "reading it takes too long"
            return
        if line.endswith(b"\n") or len(line) < max_length:
            yield line, False
            continue
        for remainder in iter(partial(stream.readline, max_length), b""):
            if remainder.endswith(b"\n"):
                break
        yield line + b"\n", True


def starts_like_trace(head: bytes) -> bool:
    """Return whether one of the lines at the beginning of a file starts a record of a trace."""
    return any(
        (prefix := _ENTRY_PREFIX.match(line)) is not None and line[prefix.end() : prefix.end() + 1] == b"{"
        for line in head.split(b"\n")
    )


def _is_requested(kind: str, kinds: frozenset[str]) -> bool:
    return kind in kinds or kind.startswith("graphbreak_") or LISTING_KIND.fullmatch(kind) is not None


def _begin_entry(
    line: bytes, prefix: re.Match[bytes], requested_keys: frozenset[str] | None, tally: Tally
) -> _OpenEntry | None:
    text = line[prefix.end() :]
    key = _FIRST_KEY.match(text)
    if key is not None and requested_keys is not None and not _is_requested(key[1].decode(), requested_keys):
        return None
    try:
        envelope = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        envelope = None
    if not isinstance(envelope, dict):
        tally.unreadable_count += 1
        return None
    artifact = envelope.get("artifact", _UNNAMED_ARTIFACT)
    if not isinstance(artifact, dict) or not isinstance(artifact.get("name"), str):
        tally.malformed_count += 1
        return None
    process = int(prefix["process"]) if len(prefix["process"]) <= _MAX_DIGITS else 0
    return _OpenEntry(process if process < _PID_LIMIT else 0, envelope, len(text))


def _checksum(payload: bytes) -> str:
    return hashlib.md5(payload, usedforsecurity=False).hexdigest()


def _complete_entry(entry: _OpenEntry, tally: Tally) -> LogEntry:
    """Return a record whose payload has been read; the line break after the last line is not part of the payload."""
    if not entry.payload_lines:
        tally.damaged_count += bool(entry.envelope.get("has_payload"))
        return LogEntry(entry.process, Record(entry.envelope), entry.envelope_size)
    payload = b"".join(entry.payload_lines).removesuffix(b"\n")
    checksum = entry.envelope.get("has_payload")
    if payload.endswith(b"\r") and _checksum(payload) != checksum:  # written on a system with CRLF line endings
        payload = payload.removesuffix(b"\r").replace(b"\r\n", b"\n")
    if isinstance(checksum, str) and _checksum(payload) != checksum:
        tally.damaged_count += 1
    return LogEntry(entry.process, Record(entry.envelope, payload.decode(errors="replace")), entry.envelope_size)


#: The kinds of the records that contain the bytecode of a resume function as a listing.
LISTING_KIND = re.compile(r"artifact:torch_dynamo_resume_in_.*_ORIGINAL_BYTECODE")


_PROLOGUE = "__is_tracing_resume_prologue"


_ROW = re.compile(
    r"^ *(?P<first>\d+|--)?(?: *(?:-->|>>|(?P<label>L\d+):))*(?: *(?P<second>\d+))? +(?P<operation>[A-Z][A-Z_0-9]+)"
    r"(?: +[\w-]+)?(?: +\((?P<argument>.*)\))?$"
)


_TARGET = re.compile(r"to (?P<target>\w+)")


class _Row(NamedTuple):
    line: int | None
    offset_or_label: str | None
    operation: str
    argument: str


def resumed_line(listing: str) -> int | None:
    """Return the line on which a resume function continues; ``None`` if the listing has an unknown form.

    A resume function begins with code that Dynamo inserts between two assignments to a variable. It then jumps to the
    instruction of the copied function at which execution continues. Torch 2.13 and newer releases log the bytecode of
    resume functions, as ``dis`` in Python 3.11 to 3.14 shows it.
    """
    rows = _rows(listing)
    prologue_ends = [
        index for index, row in enumerate(rows) if (row.operation, row.argument) == ("STORE_FAST", _PROLOGUE)
    ]
    if len(prologue_ends) < 2 or prologue_ends[1] + 1 >= len(rows):  # noqa: PLR2004 - the variable is set and reset
        return None
    next_row = rows[prologue_ends[1] + 1]
    jump = _TARGET.fullmatch(next_row.argument)
    if jump is None or not next_row.operation.startswith("JUMP"):
        return next_row.line
    return next((row.line for row in rows if row.offset_or_label == jump["target"]), None)


def _rows(listing: str) -> list[_Row]:
    # If all spaces are single, a row of any length matches in only one way, and matching is fast.
    normalized_lines = (" " + " ".join(line.split()) for line in listing.split("\n"))
    matches = [match for match in map(_ROW.match, normalized_lines) if match is not None]
    has_offsets = all(match["first"] or match["second"] for match in matches)  # Python 3.13 writes labels instead
    rows = []
    line: int | None = None
    for match in matches:
        numbers = [number for number in (match["first"], match["second"]) if number]
        offset = numbers.pop() if has_offsets else None
        if numbers:
            line = int(numbers[0]) if numbers[0].isdigit() else None
        rows.append(_Row(line, offset or match["label"], match["operation"], match["argument"] or ""))
    return rows

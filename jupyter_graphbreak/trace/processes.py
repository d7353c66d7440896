"""Read the traces of one or several processes: which files there are, and what each process wrote into them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyter_graphbreak.recording.additions import ResumedAt
from jupyter_graphbreak.recording.records import KEPT, Record, without_spare_metrics
from jupyter_graphbreak.trace.bytecode import LISTING, resumed_line
from jupyter_graphbreak.trace.entries import Tally, begins_as_trace, entries
from jupyter_graphbreak.trace.log_texts import source_records
from jupyter_graphbreak.trace.opening import DAMAGE, opened
from jupyter_graphbreak.trace.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from jupyter_graphbreak.recording.source_texts import FindCell

_RANK = re.compile(r"_rank_(\d+)(?:_|\.|$)")
_HEAD = 1 << 16
_WANTED = KEPT | {"artifact:torch_version", "str"}
#: Graphs beyond so many characters of code in all are listed without their operations, so that memory stays flat.
_MOST_CODE = 24 << 20


class UnreadableTrace(ValueError):  # noqa: N818 - reads as the sentence it reports
    """There is no trace where one was looked for; the message says in one line what is there."""


@dataclass
class ProcessTrace:
    """What one process wrote into one file.

    Parameters
    ----------
    file : Path
    pid : int
        0 where the trace does not say.
    rank : int or None
    records : list of Record
        PyTorch's, of the kinds that a report is made from, and ours about the run as a whole.
    """

    file: Path
    pid: int
    rank: int | None = None
    records: list[Record] = field(default_factory=list)


def trace_files(path: Path) -> list[Path]:
    """Return the files of traces that a path means: itself, or those in the folder and the folders in it.

    Raises
    ------
    UnreadableTrace
        If there is none.
    """
    try:
        if path.is_file():
            return [path]
        if not path.is_dir():
            what = "neither a file nor a folder" if path.exists() else "no such file or folder"
            raise UnreadableTrace(f"{path}: {what}")
    except OSError as error:  # a name that no file can have
        raise UnreadableTrace(f"{path}: {error.strerror or error}") from None
    candidates = [
        each
        for pattern in ("*", "*/*")
        for each in sorted(path.glob(pattern))
        if each.is_file() and not each.name.startswith(".")
    ]
    files = [each for each in candidates if _is_trace(each)]
    if not files:
        raise UnreadableTrace(f"{path}: no structured trace in this folder; run the program with TORCH_TRACE={path}")
    return sorted(files, key=lambda each: (_rank_in(each) is not None, _rank_in(each) or 0, str(each)))


def read_processes(
    files: Sequence[Path], on_read: Callable[[int], None] = lambda _: None, find_cell: FindCell = lambda _: None
) -> Iterator[ProcessTrace]:
    """Yield what each process wrote, one file after the other.

    Parameters
    ----------
    files : sequence of Path
    on_read : callable
        Told how many further bytes were read.
    find_cell : callable
        Given the file name of a code object, the cell that it comes from.

    Raises
    ------
    UnreadableTrace
        If a file cannot be read or holds no entry of a trace.
    """
    for file in files:
        yield from _FileReader(file, on_read, find_cell).processes()


class _FileReader:
    """Reads one file, in which more than one process may have written."""

    def __init__(self, file: Path, on_read: Callable[[int], None], find_cell: FindCell) -> None:
        self._find_cell = find_cell
        self._file = file
        self._on_read = on_read
        self._tally = Tally()
        self._by_pid: dict[int, ProcessTrace] = {}
        self._origins: dict[int, Origin] = {}
        self._payloads: dict[str, str] = {}
        self._code = 0
        self._left_out = 0

    def processes(self) -> list[ProcessTrace]:
        tally = self._tally
        try:
            with opened(self._file, self._on_read) as stream:
                try:
                    for entry in entries(stream, tally, _WANTED):
                        self._take(entry.process, entry.record)
                except DAMAGE as error:
                    tally.cut = tally.damage = f"its compression is damaged ({error})"
        except OSError as error:
            raise UnreadableTrace(f"{self._file}: {error.strerror or error}") from None
        if tally.entries == tally.unreadable:
            empty = self._file.stat().st_size == 0
            what = "the file is empty" if empty else tally.damage or "not a structured trace"
            raise UnreadableTrace(f"{self._file}: {what}; run the program with TORCH_TRACE=FOLDER")
        if not self._by_pid:  # entries there are, but none that a report is made from
            self._by_pid[0] = ProcessTrace(self._file, 0, _rank_in(self._file))
            self._origins[0] = Origin()
        notes = list(_told(self._file.name, tally, self._left_out))
        for pid, process in self._by_pid.items():
            texts = source_records(process.records, self._find_cell)
            process.records += [*texts.records, *self._origins[pid].records([*notes, *texts.notes])]
        return list(self._by_pid.values())

    def _take(self, pid: int, record: Record) -> None:
        process = self._by_pid.get(pid)
        if process is None:
            process = self._by_pid[pid] = ProcessTrace(self._file, pid, _rank_in(self._file))
            self._origins[pid] = Origin()
        rank = record.envelope.get("rank")
        if isinstance(rank, int):
            process.rank = rank
        if LISTING.fullmatch(record.kind):
            line = resumed_line(record.payload or "")
            if line is None:
                return
            record = _resumed_at(line, record)
        self._origins[pid].read(record)
        if record.kind != "artifact:torch_version":
            process.records.append(self._light(without_spare_metrics(record)))

    def _light(self, record: Record) -> Record:
        """Return a record that shares its text with those before that say the same, as ranks do."""
        payload = record.payload
        if payload is None:
            return record
        if record.kind == "dynamo_output_graph":
            self._code += len(payload)
            if self._code > _MOST_CODE:
                self._left_out += 1
                return Record(record.envelope, "")
        return Record(record.envelope, self._payloads.setdefault(payload, payload))


def _resumed_at(line: int, listing: Record) -> Record:
    """Return what a report takes from the listing of a resume function's bytecode."""
    data = listing.data
    context = {key: value for key, value in listing.envelope.items() if value is not data}
    return Record({ResumedAt.kind: {"line": line}, **context})


def _told(name: str, tally: Tally, left_out: int) -> Iterator[str]:
    """Yield what of a file could not be read, in sentences."""
    if tally.unreadable:
        yield f"{tally.unreadable} of {tally.entries} entries of {name} could not be read: they are no JSON."
    if tally.damaged:
        yield f"{tally.damaged} entries of {name} are damaged: their text is not what their checksum says."
    if tally.foreign:
        yield f"{tally.foreign} lines of {name} belong to no entry."
    if tally.cut is not None:
        yield f"The end of {name} may be missing: {tally.cut}."
    if left_out:
        yield f"{left_out} graphs of {name} are listed without their operations: the log is too long to hold them all."


def _rank_in(file: Path) -> int | None:
    match = _RANK.search(file.name)
    return int(match[1]) if match is not None else None


def _is_trace(file: Path) -> bool:
    try:
        with opened(file) as stream:
            return begins_as_trace(stream.read(_HEAD))
    except (OSError, *DAMAGE):
        return False

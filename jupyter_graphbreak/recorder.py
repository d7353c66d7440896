"""Record what PyTorch says and does while some code runs, in this process.

The code is neither changed nor slowed: a handler on the logger of the structured trace collects the entries that the
report needs, the hooks of :mod:`jupyter_graphbreak._torch_compat` add what the trace leaves out. Both are gone when
the context ends, however it ends.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import logging
import platform
import re
import threading
import time
import traceback
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak import _torch_compat
from jupyter_graphbreak.records import Record, stack_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.report import Device

#: The entries of PyTorch's trace that a report is made from.
KEPT = frozenset(
    {
        "artifact:dynamo_error",
        "artifact:dynamo_graph_break_reason",
        "artifact:recompile_reasons",
        "bwd_compilation_metrics",
        "compilation_metrics",
        "dynamo_output_graph",
        "dynamo_start",
    }
)
#: Of the metrics only these are kept; the rest, some fifty settings and counters, is nobody's question here.
_METRICS = ("compile_id", "co_name", "co_filename", "co_firstlineno", "entire_frame_compile_time_s", "fail_type",
            "fail_reason", "fail_user_frame_filename", "fail_user_frame_lineno", "graph_op_count",
            "restart_reasons", "recompile_reason", "backend_compile_time_s")  # fmt: skip
_BLOCK_MOST = 400


class CellText(msgspec.Struct, frozen=True):
    """A cell: what the reader calls it, its text as the editor has it, what was cut off its front to run it."""

    name: str
    text: str
    line_offset: int = 0
    indent: int = 0


class Recording:
    """The records of one run, in order, and the time that taking them cost.

    Parameters
    ----------
    find_cell : callable
        Given the file name of a code object, the cell it comes from; ``None`` for anything that is not a cell.
    on_record : callable or None
        Told of each record as it comes, for live progress; called from the thread that compiles.
    """

    def __init__(
        self,
        find_cell: Callable[[str], CellText | None] = lambda _: None,
        on_record: Callable[[Record], None] | None = None,
    ) -> None:
        self.records: list[Record] = []
        self.capture_s = 0.0
        self._find_cell = find_cell
        self._on_record = on_record
        self._lock = threading.Lock()

    def add(self, kind: str, data: Any) -> None:
        """Append a record of our own, in the context of the compilation in progress on this thread."""
        self.take(Record({kind: data, **_torch_compat.envelope()}))

    def take(self, record: Record) -> None:
        """Append a record."""
        with self._lock:
            self.records.append(record)
        if self._on_record is not None:
            self._on_record(record)

    def spent(self, seconds: float) -> None:
        """Count time that our own code took."""
        with self._lock:
            self.capture_s += seconds

    def note(self, level: str, message: str) -> None:
        """Add a sentence for the report's diagnostics."""
        self.take(Record({"graphbreak_note": {"level": level, "message": message}}))

    def describe_device(self, device: Device) -> None:
        """Note where the code runs."""
        self.take(Record({"graphbreak_device": msgspec.structs.asdict(device)}))

    def started_codes(self) -> list[tuple[str, str, int]]:
        """Return function, file and first line of each code object whose compilation began so far."""
        starts = [record.data for record in self.records if record.kind == "graphbreak_start"]
        return [(start["name"], start["filename"], start["firstlineno"]) for start in starts]

    def fail(self, error: BaseException) -> None:
        """Note the exception that ended the run."""
        stack = [
            [e.filename, e.lineno, e.name, None, e.colno, e.end_colno, e.end_lineno]
            for e in traceback.extract_tb(error.__traceback__)
        ]
        kind = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
        data = {"status": kind, "type": type(error).__name__, "message": _message(error), "stack": stack}
        self.take(Record({"graphbreak_error": data}))

    def _finish(self, wall_s: float) -> None:
        start = time.perf_counter()
        for source in _source_records(self.records, self._find_cell):
            self.records.append(Record({"graphbreak_source": source}))
        self.records.append(
            Record(
                {
                    "graphbreak_run": {
                        "torch": _torch_compat.require_torch(),
                        "python": platform.python_version(),
                        "config": _torch_compat.dynamo_config(),
                        "library_roots": _torch_compat.library_roots(),
                        **_folders(),
                        "wall_s": wall_s,
                        "capture_s": self.capture_s + time.perf_counter() - start,
                    }
                }
            )
        )


@contextlib.contextmanager
def record(
    find_cell: Callable[[str], CellText | None] = lambda _: None,
    on_record: Callable[[Record], None] | None = None,
) -> Iterator[Recording]:
    """Record the compilations of the code in the ``with`` block, on all threads.

    An exception of the block is noted and goes on unchanged. After the block the recording is complete: the sources
    that the records mention and a record of the run as a whole stand at its end.

    Raises
    ------
    TorchUnavailable
        If there is no torch, or one that is too old.
    """
    _torch_compat.require_torch()
    recording = Recording(find_cell, on_record)
    logger = _torch_compat.trace_logger()
    handler = _TraceHandler(recording)
    logger.addHandler(handler)
    start = time.perf_counter()
    try:
        with (
            _torch_compat.narrowed_trace(handler, KEPT),
            _torch_compat.watch(recording.add, recording.spent) as missing,
        ):
            for sentence in missing:
                recording.note("warning", sentence)
            yield recording
    except BaseException as error:
        recording.fail(error)
        raise
    finally:
        wall_s = time.perf_counter() - start
        logger.removeHandler(handler)
        recording._finish(wall_s)  # noqa: SLF001 - same module


class _TraceHandler(logging.Handler):
    """Takes the entries that a report needs off the structured trace."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(logging.DEBUG)
        self._recording = recording
        self._named: set[int] = set()

    def emit(self, entry: logging.LogRecord) -> None:
        start = time.perf_counter()
        try:
            envelope = getattr(entry, "metadata", None)
            if not isinstance(envelope, dict):
                return
            seen = Record(envelope, getattr(entry, "payload", None))
            if seen.kind not in KEPT:
                return
            if seen.kind == "dynamo_start":
                self._name_files(seen.data.get("stack", ()))
            if seen.kind.endswith("compilation_metrics"):
                kept = {key: _plain(seen.data.get(key)) for key in _METRICS}
                seen = Record({**{k: v for k, v in envelope.items() if v is not seen.data}, seen.kind: kept})
            self._recording.take(seen)
        except Exception as error:  # noqa: BLE001 - the user's program must not notice us
            with contextlib.suppress(Exception):
                self._recording.note("error", f"a record of the trace was lost: {type(error).__name__}: {error}")
        finally:
            self._recording.spent(time.perf_counter() - start)

    def _name_files(self, stack: Any) -> None:
        """Add the names of files that were interned, perhaps before we listened."""
        for entry in stack:
            number = entry.get("filename")
            if isinstance(number, int) and number not in self._named:
                self._named.add(number)
                name = _torch_compat.interned_name(number)
                if name is not None:
                    self._recording.take(Record({"str": [name, number]}))


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else value


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ is the user's, and no reason to fail
        return f"<{type(error).__name__} whose message cannot be read>"


def _folders() -> dict[str, str]:
    """Return the folders that the paths in a report are told from."""
    found = {}
    for name, find in (("folder", Path.cwd), ("home", Path.home)):
        with contextlib.suppress(OSError, RuntimeError):  # the working directory is deleted, the user has no home
            found[name] = str(find())
    return found


def _source_records(records: list[Record], find_cell: Callable[[str], CellText | None]) -> list[dict[str, Any]]:
    """Collect the texts of what the records mention: whole cells, and of files the functions that took part.

    Of a library only the functions that hold a break are kept: the reader's own code is what the report shows.
    """
    lines: dict[str, set[int]] = {}
    functions: dict[str, dict[int, str]] = {}
    roots = tuple(_torch_compat.library_roots())
    for entry in records:
        for filename, line, name, part in _mentions(entry):
            if not isinstance(filename, str) or not isinstance(line, int):
                continue
            lines.setdefault(filename, set()).add(line)
            if part == "break" or (part == "frame" and not filename.startswith(roots)):
                functions.setdefault(filename, {}).setdefault(line, name)
    made: list[dict[str, Any]] = []
    for filename, mentioned in lines.items():
        cell = find_cell(filename)
        text = linecache.getlines(filename) if cell is None else []
        if cell is not None:
            source = {
                "name": cell.name,
                "kind": "cell",
                "segments": [{"first_line": 1, "text": cell.text}],
                "line_offset": cell.line_offset,
                "indent": cell.indent,
            }
        elif text:
            source = {
                "name": PurePath(filename).name or filename,
                "segments": _segments(text, functions.get(filename, {})),
                "lines": {str(n): text[n - 1].rstrip("\n") for n in sorted(mentioned) if 0 < n <= len(text)},
            }
        else:
            continue
        made.append({"filename": filename, **source})
    return made


def _mentions(entry: Record) -> Iterator[tuple[Any, Any, str, str]]:
    """Yield file, line and function of every place in a record, and its part in it: "frame", "break" or "other"."""
    data = entry.data
    match entry.kind:
        case "graphbreak_start" | "graphbreak_refusal":
            yield data.get("filename"), data.get("firstlineno"), data.get("name", ""), "frame"
            yield from _scope_mentions(data.get("fullgraph_site") or {})
            yield from _scope_mentions(data)
        case "graphbreak_scope":
            yield from _scope_mentions(data)
        case "graphbreak_skip":
            yield data.get("filename"), data.get("firstlineno"), data.get("name", ""), "other"
        case "graphbreak_resume":
            yield data.get("filename"), data.get("line"), data.get("name", ""), "other"
        case "graphbreak_break" | "graphbreak_failure":
            stack = [*data.get("above", ()), *data.get("stack", ())]
            for index, each in enumerate(stack):
                yield each[0], each[1], each[2], "break" if index == len(stack) - 1 else "other"
        case "graphbreak_error":
            for each in data.get("stack", ()):
                yield each[0], each[1], each[2], "other"
        case "graphbreak_graph":
            for trace in data.get("stacks", ()):
                for filename, line, name in stack_entries(trace):
                    yield filename, line, name, "other"
        case _:
            return


def _scope_mentions(scope: dict[str, Any]) -> Iterator[tuple[Any, Any, str, str]]:
    """Yield the places of a scope: where it is written, where it was entered, the function that it is put around."""
    for site in (scope.get("site"), scope.get("entered")):
        if site is not None:
            yield site[0], site[1], site[2], "break"
    wrapped = scope.get("wrapped")
    if wrapped is not None:
        yield wrapped["filename"], wrapped["firstlineno"], wrapped["name"], "break"


def _segments(text: list[str], functions: dict[int, str]) -> list[dict[str, Any]]:
    """Return the functions around some lines of a file, each once, in order."""
    blocks: dict[int, int] = {}
    for line, name in functions.items():
        start = _function_start(text, line, name)
        if start is None or start in blocks:
            continue
        with contextlib.suppress(Exception):  # a tokenizer error: the file is not what was imported
            blocks[start] = start + len(inspect.getblock(text[start - 1 : start - 1 + _BLOCK_MOST]))
    kept: list[dict[str, Any]] = []
    covered = 0
    for start, end in sorted(blocks.items()):
        if start >= covered:  # a function inside one that is already there
            kept.append({"first_line": start, "text": "".join(text[start - 1 : end - 1]).rstrip("\n")})
            covered = end
    return kept


def _function_start(text: list[str], line: int, name: str) -> int | None:
    """Return the first line (decorators included) of the function ``name`` that holds ``line``.

    Of a lambda or a comprehension it is that of the function around it, or else the line itself.
    """
    if not 0 < line <= len(text):
        return None
    plain = re.sub(r"^(?:torch_dynamo_resume_in_)+(.+?)(?:_at_\d+)+$", r"\1", name)
    is_named = plain.isidentifier()
    define = re.compile(rf"\s*(?:async\s+)?def\s+{re.escape(plain) if is_named else ''}\b")
    at = line
    while at <= len(text) and text[at - 1].lstrip().startswith(("@", "#")):
        at += 1  # a code object's first line is that of its first decorator
    at = min(at, len(text))
    inside = _indent(text[at - 1])
    while at > 0 and not (define.match(text[at - 1]) and (is_named or _indent(text[at - 1]) < inside)):
        at -= 1
    if at == 0:
        return None if is_named else line
    while at > 1 and text[at - 2].lstrip().startswith("@"):
        at -= 1
    return at


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

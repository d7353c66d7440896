"""Record what PyTorch does while some code runs in this process.

The code is not changed: a handler on the logger of the structured trace collects the records that the report needs, and
the hooks of :mod:`jupyter_graphbreak._torch_compat` add missing events. Both are removed at the end of the
context, even after an error.
"""

from __future__ import annotations

import contextlib
import linecache
import logging
import platform
import sys
import threading
import time
import traceback
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak import faults
from jupyter_graphbreak._torch_compat.compiled import count_compilations, is_known_code, snapshot_known_code
from jupyter_graphbreak._torch_compat.configuration import dynamo_settings, why_compile_is_disabled
from jupyter_graphbreak._torch_compat.hooks.compilation import (
    watch_breaks,
    watch_cudagraph_skips,
    watch_failures,
    watch_graphs,
    watch_resumes,
    watch_starts,
)
from jupyter_graphbreak._torch_compat.hooks.compiling_calls import watch_compile_calls, watch_repeated_compiling
from jupyter_graphbreak._torch_compat.hooks.observer import Emit, Observer
from jupyter_graphbreak._torch_compat.hooks.paths import watch_paths
from jupyter_graphbreak._torch_compat.hooks.refusals import (
    watch_abandoned_frames,
    watch_generators,
    watch_limits,
    watch_skips,
)
from jupyter_graphbreak._torch_compat.hooks.remembered_skips import watch_remembered_skips
from jupyter_graphbreak._torch_compat.hooks.saving import watch_saving
from jupyter_graphbreak._torch_compat.hooks.scopes import watch_scopes
from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import identity
from jupyter_graphbreak._torch_compat.structured_trace import (
    current_compile_context,
    interned_name,
    restrict_trace,
    trace_logger,
)
from jupyter_graphbreak._torch_compat.threads import claim_thread
from jupyter_graphbreak._torch_compat.toolchain import require_torch
from jupyter_graphbreak.records import additions
from jupyter_graphbreak.records.package_paths import is_library, library_roots, package_folders
from jupyter_graphbreak.records.records import NEEDED_RECORDS, Record, StackFrame, reduce_record, with_encodable_text
from jupyter_graphbreak.records.source_texts import CellText, collect_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType
    from typing import Literal
    from weakref import ref

    from jupyter_graphbreak._torch_compat.threads import Claim
    from jupyter_graphbreak.records.additions import Addition
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.schema import Device


def cell_of_shell(filename: str) -> CellText | None:
    """Return the cell of this process's IPython shell with a file name, with the text that tracebacks show, if any."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = find_shell() if find_shell is not None else None
    numbers: dict[str, int] = getattr(getattr(shell, "compile", None), "_filename_map", {})
    text = "".join(linecache.getlines(filename)) if filename in numbers else ""
    return CellText(f"Cell In[{numbers[filename]}]", text.rstrip("\n")) if text else None


class Recording:
    """The records of one run, in order, and the time that recording took.

    ``find_cell`` returns the cell that a code object comes from, given its file name. ``on_record`` is called with each
    new record, for live progress, on the thread that compiles. ``running_filename`` is that of the cell that is
    running.
    """

    def __init__(
        self,
        find_cell: FindCell = cell_of_shell,
        on_record: Callable[[Record], None] | None = None,
        running_filename: str | None = None,
    ) -> None:
        self.records: list[Record] = []
        self.capture_s = 0.0
        self._find_cell = find_cell
        self._on_record = on_record
        self._running_filename = running_filename
        self._lock = threading.Lock()
        self._start = time.perf_counter()
        self._noted_errors: set[str] = set()
        self._has_compiled_calls = False

    def add(self, addition: Addition) -> None:
        """Append an addition, in the context of the compilation in progress on this thread."""
        context: dict[str, Any] = {}
        try:
            context = current_compile_context()
        except Exception as error:  # noqa: BLE001 - the record is still worth keeping, outside any compilation
            self.note_lost_record("context", error)
        self.append(Record({addition.kind: msgspec.to_builtins(addition), **context}))

    def append(self, record: Record) -> None:
        """Append a record; characters that cannot be encoded are escaped."""
        record = with_encodable_text(record)
        with self._lock:
            self.records.append(record)
        if self._on_record is not None:
            self._on_record(record)

    def add_time_spent(self, seconds: float) -> None:
        """Add the given number of seconds to the time that recording took."""
        with self._lock:
            self.capture_s += seconds

    def note(self, level: Literal["info", "warning", "error"], message: str) -> None:
        """Add a sentence for the report's diagnostics."""
        self._append_without_context(additions.Note(level=level, message=message))

    def note_lost_record(self, kind: str, error: Exception) -> None:
        """Add a note that a record of the trace is missing, once per kind and error."""
        self._note_error_once(f"A record of the trace ({kind}) was lost: {type(error).__name__}: {error}.")

    def note_fault(self, activity: str, fault: Exception) -> None:
        """Add a note about an internal error, once per error."""
        self._note_error_once(faults.internal_error_sentence(activity, fault))

    def _note_error_once(self, sentence: str) -> None:
        if sentence not in self._noted_errors:
            self._noted_errors.add(sentence)
            self.note("error", sentence)

    def record_device(self, device: Device) -> None:
        """Record the device of the run."""
        self._append_without_context(additions.DeviceUsed(**msgspec.structs.asdict(device)))

    def note_compiled_callables(self, callables: Iterable[additions.CompiledForReport]) -> None:
        """Record the code that was compiled for the report although the program does not compile it."""
        self._has_compiled_calls = True
        for compiled_callable in callables:
            self._append_without_context(compiled_callable)

    def started_functions(self) -> list[tuple[str, str, int]]:
        """Return the function, file and first line of each code object that Dynamo has begun to compile."""
        return [frame_start.code_key for frame_start in additions.additions_of(self.records, additions.FrameStarted)]

    def record_error(self, error: BaseException) -> None:
        """Record the exception that ended the run."""
        stack = [
            StackFrame(
                summary.filename,
                summary.lineno,
                summary.name,
                None,
                summary.colno,
                summary.end_colno,
                summary.end_lineno,
            )
            for summary in traceback.extract_tb(error.__traceback__)
        ]
        self._append_without_context(
            additions.RunEnded(
                status="interrupted" if isinstance(error, KeyboardInterrupt) else "error",
                type=type(error).__name__,
                message=_message(error),
                stack=stack,
            )
        )

    def _append_without_context(self, addition: Addition) -> None:
        """Append an addition that does not belong to a compilation."""
        self.append(_record_of(addition))

    def records_so_far(self) -> list[Record]:
        """Return the records so far, complete with the sources that they mention and a summary."""
        with self._lock:
            records = list(self.records)
        return [*records, *self._closing_records(records, None, None)]

    def _finish(self, compilation_count: int | None, earlier_code: list[ref[CodeType]] | None) -> None:
        for record in self._closing_records(self.records, compilation_count, earlier_code):
            self.append(record)
        for failure in additions.additions_of(self.records, additions.WatchFailed):
            faults.collect_fault(failure.sentence)
        for note in additions.additions_of(self.records, additions.Note):
            if note.level == "error":
                faults.collect_fault(note.message)

    def _closing_records(
        self, records: list[Record], compilation_count: int | None, earlier_code: list[ref[CodeType]] | None
    ) -> list[Record]:
        """Return the sources that records mention and a summary of the run."""
        start = time.perf_counter()
        sources = list(collect_sources(records, self._find_cell, self._running_filename))
        summary = additions.RunSummary(
            torch=require_torch(),
            python=platform.python_version(),
            config=self._settings(),
            library_roots=library_roots(),
            package_folders=package_folders(),
            **_folders(),
            wall_s=start - self._start,
            capture_s=self.capture_s + time.perf_counter() - start,
            watched=True,
            compiled_calls=self._has_compiled_calls,
            begun=compilation_count,
            held=self._read_earlier_code(earlier_code),
        )
        return [_record_of(addition) for addition in (*sources, summary)]

    def _read_earlier_code(self, earlier_code: list[ref[CodeType]] | None) -> list[additions.EarlierCode] | None:
        """Return the code that Dynamo knew when the run began and still knows; ``None`` if listing it fails."""
        with faults.suppress_faults("listing known code", self.note_fault):
            return list(self._unchanged_earlier_code(earlier_code)) if earlier_code is not None else None
        return None

    def _unchanged_earlier_code(self, earlier_code: list[ref[CodeType]]) -> Iterator[additions.EarlierCode]:
        """Yield the code that Dynamo knew when the run began and still knows, without functions that were redefined."""
        started_ids: dict[tuple[str, str, int], set[int | None]] = {}
        for frame_start in additions.additions_of(self.records, additions.FrameStarted):
            started_ids.setdefault(frame_start.code_key, set()).add(frame_start.id)
        for reference in earlier_code:
            code = reference()
            if code is None or not is_known_code(code):
                continue
            code_identity = identity(code)
            ids = started_ids.get((code.co_name, code.co_filename, code.co_firstlineno))
            if ids is not None and code_identity["id"] not in ids:
                continue
            cell = self._find_cell(code.co_filename)
            if cell is not None:
                code_identity["firstlineno"] += cell.line_offset
            yield additions.EarlierCode(**code_identity, cell=cell.name if cell is not None else None)

    def _note_why_compile_is_disabled(self) -> None:
        try:
            reason = why_compile_is_disabled()
        except Exception as error:  # noqa: BLE001 - the version of PyTorch may be unknown
            reason = f"Cannot tell whether torch.compile is switched off ({type(error).__name__}: {error})."
        if reason:
            self.note("warning", reason)

    def _settings(self) -> dict[str, Any]:
        try:
            return dynamo_settings()[0]
        except Exception as error:  # noqa: BLE001 - the version of PyTorch may be unknown
            self.note("warning", f"Dynamo's settings could not be read ({type(error).__name__}: {error}).")
            return {}


@contextlib.contextmanager
def record(
    find_cell: FindCell = cell_of_shell,
    on_record: Callable[[Record], None] | None = None,
    running_filename: str | None = None,
) -> Iterator[Recording]:
    """Record the compilations of the code in the ``with`` block; see :class:`Recording` for the parameters.

    This covers the calling thread and threads that it starts within the block, except threads that begin a recording.
    Recordings may be nested, and several threads may record at the same time.

    An exception of the block is recorded and passed on unchanged. After the block, the recording is complete: it ends
    with the sources that the records mention and a summary of the run.
    """
    require_torch()
    recording = Recording(find_cell, on_record, running_filename)
    earlier_code: list[ref[CodeType]] | None = None
    get_compilation_count: Callable[[], int | None] | None = None
    try:
        with (
            claim_thread(recording.note_fault) as claim,
            _snapshot_earlier_code(recording.note_fault) as earlier_code,
            count_compilations(claim) as get_compilation_count,
            _attach_handler(handler := _TraceHandler(recording, claim)),
            restrict_trace(handler, NEEDED_RECORDS, recording.note_lost_record, claim),
            watch(recording.add, recording.add_time_spent, claim) as missing_hooks,
        ):
            for sentence in missing_hooks:
                recording.note("warning", sentence)
            recording._note_why_compile_is_disabled()  # noqa: SLF001 - both classes are in this module
            yield recording
    except BaseException as error:
        recording.record_error(error)
        raise
    finally:
        compilation_count = get_compilation_count() if get_compilation_count is not None else None
        recording._finish(compilation_count, earlier_code)  # noqa: SLF001 - both classes are in this module


@contextlib.contextmanager
def _snapshot_earlier_code(on_fault: faults.OnFault) -> Iterator[list[ref[CodeType]] | None]:
    """Yield the code objects that Dynamo knows now, or ``None`` if listing them fails."""
    with contextlib.ExitStack() as stack:
        earlier_code = None
        try:
            earlier_code = stack.enter_context(snapshot_known_code())
        except AttributeError:  # not in this PyTorch
            pass
        except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
            faults.report_fault("listing known code", fault, on_fault)
        yield earlier_code


@contextlib.contextmanager
def _attach_handler(handler: logging.Handler) -> Iterator[None]:
    """Attach a handler to the logger of the structured trace while the context is open."""
    logger = trace_logger()
    try:
        logger.addHandler(handler)
        yield
    finally:
        logger.removeHandler(handler)


#: The kinds of records with a stack that refers to its files by number, each with the key of the stack.
_STACK_KEYS = {"dynamo_start": "stack", "symbolic_shape_specialization": "user_stack"}


class _TraceHandler(logging.Handler):
    """Collects the records of the structured trace that a report needs."""

    def __init__(self, recording: Recording, claim: Claim) -> None:
        super().__init__(logging.DEBUG)
        self._recording = recording
        self._claim = claim
        self._named_file_numbers: set[int] = set()

    def emit(self, log_record: logging.LogRecord) -> None:
        start = time.perf_counter()
        try:
            envelope = getattr(log_record, "metadata", None)
            if isinstance(envelope, dict) and self._claim.covers_this_thread():
                self._append_if_needed(Record(envelope, getattr(log_record, "payload", None)))
        except Exception as error:  # noqa: BLE001 - our errors must not reach the user's program
            with contextlib.suppress(Exception):
                self._recording.note_lost_record("record", error)
        try:
            self._recording.add_time_spent(time.perf_counter() - start)
        except Exception as error:  # noqa: BLE001 - our errors must not reach the user's program
            with contextlib.suppress(Exception):
                self._recording.note_fault("measuring the time of the recording", error)

    def _append_if_needed(self, record: Record) -> None:
        if record.kind not in NEEDED_RECORDS:
            return
        if (stack := _STACK_KEYS.get(record.kind)) is not None:
            self._append_file_names(record.data.get(stack) or ())
        self._recording.append(reduce_record(record))

    def _append_file_names(self, stack: Any) -> None:
        """Append the names of the files in a stack; PyTorch may have interned them before recording began."""
        for stack_frame in stack:
            number = stack_frame.get("filename")
            if isinstance(number, int) and number not in self._named_file_numbers:
                self._named_file_numbers.add(number)
                name = interned_name(number)
                if name is not None:
                    self._recording.append(Record({"str": [name, number]}))


def _record_of(addition: Addition) -> Record:
    return Record({addition.kind: msgspec.to_builtins(addition)})


def _message(error: BaseException) -> str:
    """Return the message of an exception, or its arguments' types if building the message would run the user's code."""
    if any(map(_needs_user_code, error.args)):
        return ", ".join(type(argument).__name__ for argument in error.args)
    try:
        return BaseException.__str__(error) if _needs_user_code(error) else str(error)
    except Exception:  # noqa: BLE001 - the __str__ of a library may be broken
        return f"<{type(error).__name__} whose message cannot be read>"


def _needs_user_code(value: object) -> bool:
    """Return whether converting a value to a string would run the user's code."""
    methods = (type(value).__str__, type(value).__repr__)
    files = [method.__code__.co_filename for method in methods if isinstance(method, types.FunctionType)]
    return not all(map(is_library, files))


def _folders() -> dict[str, str]:
    """Return the folders to which paths in a report are relative."""
    folders = {}
    for name, find in (("folder", Path.cwd), ("home", Path.home)):
        with contextlib.suppress(OSError, RuntimeError):  # the working directory is deleted, or the user has no home
            folders[name] = str(find())
    return folders


_HOOKS = (
    watch_scopes, watch_compile_calls, watch_starts, watch_breaks, watch_failures, watch_resumes, watch_graphs,
    watch_generators, watch_limits, watch_abandoned_frames, watch_skips, watch_cudagraph_skips,
    watch_remembered_skips, watch_repeated_compiling, watch_saving, watch_paths,
)  # fmt: skip


@contextlib.contextmanager
def watch(emit: Emit, add_time: Callable[[float], None], claim: Claim) -> Iterator[list[str]]:
    """Send observations of Dynamo on the threads of a run to ``emit`` while the context is open.

    ``emit`` is called without holding a lock, on the thread that compiles. An exception in it never reaches PyTorch.
    Yield a sentence for each hook that this release of PyTorch does not support.
    """
    notes: list[str] = []
    observer = Observer(emit, add_time, claim)
    with contextlib.ExitStack() as stack:
        for hook in _HOOKS:
            try:
                stack.enter_context(hook(observer))
            except Exception as error:  # noqa: BLE001 - a release of torch may have changed anything
                purpose = (hook.__doc__ or "").partition("\n")[0].rstrip(".")
                purpose = f"a hook to {purpose[:1].lower()}{purpose[1:]}"
                notes.append(f"Not available in this PyTorch: {purpose} ({type(error).__name__}: {error}).")
        yield notes

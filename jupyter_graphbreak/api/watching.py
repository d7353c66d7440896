"""Watch a block of code, or one call to a function, and pass on events while it runs."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.threads import claim_thread
from jupyter_graphbreak._torch_compat.toolchain import require_torch
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.api.rerun import Rerun, keep_for_analysis
from jupyter_graphbreak.api.run_reports import job_of, processes_in, report_of
from jupyter_graphbreak.compiling.compile_options import CompileOptions, ensure_compiled
from jupyter_graphbreak.faults import internal_error_sentence, suppress_faults
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.recording.recorder import cell_of_shell
from jupyter_graphbreak.recording.targets import forget_compiled_code
from jupyter_graphbreak.records.records import Record
from jupyter_graphbreak.records.source_texts import collect_sources
from jupyter_graphbreak.report.schema import Device, Diagnostic
from jupyter_graphbreak.results import Report, Reproducer
from jupyter_graphbreak.views.words.events import events_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from jupyter_graphbreak.api.rerun import KeptRun
    from jupyter_graphbreak.records.records import CompileKey
    from jupyter_graphbreak.report import reproducer
    from jupyter_graphbreak.results import Job
    from jupyter_graphbreak.views.words.events import Event


class Run:
    """A watched run; its :attr:`report` is available after the ``with`` block.

    An *entry* of the run is a compiled function that the block called, with the arguments and state of its first call.
    The methods that run entries again raise ``RuntimeError`` unless ``capture(entries=True)`` has kept copies of them.
    They return the report of the block with their results.
    """

    def __init__(self) -> None:
        self._recording: recorder.Recording | None = None
        self._report: Report | None = None
        self._rerun: Rerun | None = None
        #: The job of this process and of the processes that it started, if any were started and watched.
        self.job: Job | None = None

    @property
    def report(self) -> Report:
        """The report.

        Raises
        ------
        RuntimeError
            If the ``with`` block is still running.
        """
        if self._report is None:
            raise RuntimeError(
                "the report is not ready before the with block of capture() ends; read it after the block"
            )
        return self._report

    def report_so_far(self) -> Report:
        """Return the report of what the block has done so far; any thread may call it while the block runs."""
        if self._report is not None or self._recording is None:
            return self.report
        return Report.of(build_report(self._recording.records_so_far()))

    def set_recording(self, recording: recorder.Recording) -> None:
        """Store the recording that has begun."""
        self._recording = recording

    def finish(self, recording: recorder.Recording, trace_folder: Path | None, kept_run: KeptRun | None) -> None:
        """Build the report of a complete recording, and the job if there is a folder with traces of child processes."""
        self._report, files = report_of(recording)
        if kept_run is not None:
            self._rerun = Rerun(self._report, files, kept_run)
            self._report.set_reproduce_function(self._rerun.reproduce)
        if trace_folder is not None:
            self.job = job_of(self._report, processes_in(trace_folder))

    def note_failure(self, activity: str, fault: Exception) -> None:
        """Add a note about an internal error that prevented the report or the job."""
        note = Diagnostic("error", internal_error_sentence(activity, fault))
        report = self._report if self._report is not None else Report("ok", Device("auto", "unknown"))
        self._report = Report.of(msgspec.structs.replace(report, diagnostics=[*report.diagnostics, note]))

    def try_remedies(self, *, also: Sequence[str | os.PathLike[str]] = (), seconds: float | None = None) -> Report:
        """Try to remove the breaks of the block and to prevent its recompiles, on copies of its entries.

        Parameters
        ----------
        also : sequence of path
            Files with your own patches, as unified diffs; they are judged in the same way.
        seconds : float or None
            The time limit; by default 100 seconds.

        Raises
        ------
        OSError
            If a patch cannot be read.
        ValueError
            If a file is not a patch.
        """
        from jupyter_graphbreak.experiments.remedies.own_edits import read_patch

        return self._get_rerun().try_remedies(own_edits=[read_patch(path) for path in also], seconds=seconds)

    def measure(self, seconds: float | None = None) -> Report:
        """Measure what compiling the entries of the block costs and saves.

        After :meth:`try_remedies`, working remedies are also measured.

        Parameters
        ----------
        seconds : float or None
            The time limit; by default 120 seconds.
        """
        return self._get_rerun().measure(seconds)

    def check(self, seconds: float | None = None) -> Report:
        """Compare the compiled results of the block's entries with eager ones.

        Parameters
        ----------
        seconds : float or None
            The time limit; by default 120 seconds.
        """
        return self._get_rerun().check(seconds)

    def values(self, *, at: Sequence[str] = (), seconds: float | None = None) -> Report:
        """Look at the values inside the block's compiled code, and find where NaN and Inf arise.

        Parameters
        ----------
        at : sequence of str
            Lines whose operations are listed one by one, such as ``"12"`` or ``"model.py:12"``.
        seconds : float or None
            The time limit; by default 120 seconds.

        Raises
        ------
        ValueError
            If an item of ``at`` is not a line.
        """
        return self._get_rerun().record_values(at, seconds)

    def reproducer(self, ident: str, *, redacted: bool = False, seconds: float | None = None) -> Reproducer:
        """Return a standalone script that reproduces a finding of the block; see :meth:`Report.reproducer`.

        Raises
        ------
        NotReproducedError
            If no standalone script reproduces the finding.
        LookupError
            If the report has no such id.
        """
        return Reproducer.of(self._get_rerun().reproduce(ident, redacted=redacted, seconds=seconds))

    def add_cost(self) -> None:
        """Add the cost of the entries to the report, or a note if they cannot be measured."""
        try:
            self._report = self.measure()
        except Exception as fault:  # noqa: BLE001 - the block has run, and its report is valid
            note = Diagnostic("error", internal_error_sentence("measuring", fault))
            self._report = msgspec.structs.replace(self.report, diagnostics=[*self.report.diagnostics, note])

    def _get_rerun(self) -> Rerun:
        if self._rerun is None:
            raise RuntimeError("no copies of the compiled functions were kept; use capture(entries=True)")
        return self._rerun


@contextlib.contextmanager
def capture(
    *,
    processes: bool = False,
    entries: bool = False,
    cost: bool = False,
    compile: bool = False,  # noqa: A002 - torch uses this word
    on_event: Callable[[Event], object] | None = None,
) -> Iterator[Run]:
    """Watch the compilations of a ``with`` block.

    The block runs as it would without this function. An exception is passed on unchanged, and there is still a report.
    The report covers this thread and the threads that the block starts, except those that call ``capture`` themselves.
    Captures may be nested, and several threads may capture at the same time.

    Parameters
    ----------
    processes : bool
        Whether to also watch the processes that the block starts, such as the workers of a ``DataLoader`` or of
        ``torch.multiprocessing``, or the ranks of ``torchrun``.
    entries : bool
        Whether to keep copies of the compiled functions that the block calls and of their first arguments, so that
        they can be analysed after the block.
    cost : bool
        Whether to measure, after the block, what compiling these functions costs and saves. A block that raises is not
        measured.
    compile : bool
        Whether to compile the outermost call to each module in the block with the backend ``eager``;
        ``report.compiled`` lists the modules. Functions are not compiled: use :func:`explain` for a function.
    on_event : callable or None
        Called with an event for each compilation, recompilation, break and failure, and for each function that runs
        eagerly. The call comes when PyTorch finishes or gives up compiling the function, on the thread that compiles.
        ``print`` and ``logger.info`` are suitable, because ``str`` of an event is a sentence. If the callable raises an
        exception, it is not called again, and ``report.diagnostics`` has a note.

    Yields
    ------
    Run
        After the block, it has the ``report`` and, with ``processes``, the ``job``. With ``entries``, you can call its
        ``try_remedies()``, ``measure()``, ``check()``, ``values()`` and ``reproducer(id)``. While the block runs,
        ``report_so_far()`` returns a report of the block so far.

    Raises
    ------
    TorchUnavailable
        If torch is missing or older than 2.9.

    Examples
    --------
    >>> with jupyter_graphbreak.capture() as run:  # doctest: +SKIP
    ...     compiled_step(batch)
    >>> print(run.report.to_text())  # doctest: +SKIP
    """
    from jupyter_graphbreak.recording.children import note_earlier_processes, trace_child_processes

    require_torch()
    run = Run()
    recording: recorder.Recording | None = None

    early_notes: list[str] = []

    def add_note(sentence: str) -> None:
        if recording is None:
            early_notes.append(sentence)
        else:
            recording.note("warning", sentence)

    events = None
    if on_event is not None:
        events = EventStream(on_event, lambda error: add_note(f"on_event raised {type(error).__name__}: {error}"))

    with (
        claim_thread(),
        trace_child_processes(add_note) if processes else contextlib.nullcontext() as trace_folder,
        (
            keep_for_analysis(looks_for_nan=entries and not cost) if entries or cost else contextlib.nullcontext()
        ) as kept_run,
    ):
        try:
            with recorder.record(on_record=events.receive if events is not None else None) as recording:
                run.set_recording(recording)
                recording.record_device(Device("auto", default_device_name()))
                for sentence in early_notes:
                    recording.note("warning", sentence)
                with (
                    _compile_modules(recording) if compile else contextlib.nullcontext(),
                    note_earlier_processes(add_note) if processes else contextlib.nullcontext(),
                ):
                    yield run
        finally:
            if recording is not None:
                with suppress_faults("building the report", run.note_failure):
                    run.finish(recording, trace_folder, kept_run)
    if cost:
        run.add_cost()


@contextlib.contextmanager
def _compile_modules(recording: recorder.Recording) -> Iterator[None]:
    """Compile the modules that the code calls while the context is open, and record them."""
    from jupyter_graphbreak.compiling.compiled_calls import compile_calls
    from jupyter_graphbreak.compiling.descriptions import describe_compiled_callables

    with compile_calls(CompileOptions(), recording.note_fault) as calls:
        try:
            yield
        finally:
            with suppress_faults("describing what was compiled", recording.note_fault):
                recording.note_compiled_callables(describe_compiled_callables(calls.compiled_callables))


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Compile a function, call it once with the given arguments, and explain what happened.

    A function or module that is not compiled yet is compiled with the backend ``eager``, which has the same graphs and
    breaks as any other backend but generates no code. The result of the call is discarded.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; compiled or not.
    *args, **kwargs
        The arguments of the call.

    Returns
    -------
    Report

    Raises
    ------
    Exception
        Any exception that the call raises. To get a report in this case, use :func:`capture`.
    """
    compiled = ensure_compiled(fn, CompileOptions())
    forget_compiled_code(fn)
    with capture() as run:
        compiled(*args, **kwargs)

    def reproduce(ident: str, **options: Any) -> reproducer.Reproducer:
        from jupyter_graphbreak.experiments.cost.entry_cost import entry_of
        from jupyter_graphbreak.experiments.reproducer.finding import reproduce
        from jupyter_graphbreak.experiments.trial.entry import RecordedEntries

        recorded_entries = RecordedEntries()
        recorded_entries.entries.append(entry_of(compiled, *args, **kwargs))
        return reproduce(run.report, recorded_entries, ident, **options)

    return run.report.set_reproduce_function(reproduce)


class EventStream:
    """Turns records into events and passes them to the user's function."""

    def __init__(self, on_event: Callable[[Event], object], on_error: Callable[[Exception], None]) -> None:
        self._on_event: Callable[[Event], object] | None = on_event
        self._on_error = on_error
        self._lock = threading.Lock()
        self._file_name_records: list[Record] = []
        self._records_by_compilation: dict[CompileKey, list[Record]] = {}
        self._sent_texts: set[str] = set()

    def receive(self, record: Record) -> None:
        """Receive a record; the last record of a compilation triggers the events of the compilation."""
        if self._on_event is None:
            return
        key = record.compile_key
        with self._lock:
            if record.kind == "str":
                self._file_name_records.append(record)
            if key is None:
                return
            self._records_by_compilation.setdefault(key, []).append(record)
            if not record.kind.endswith("compilation_metrics"):
                return
            records = [*self._file_name_records, *self._records_by_compilation.pop(key)]
        if record.kind == "compilation_metrics":
            self._send_events(records)

    def _send_events(self, records: list[Record]) -> None:
        sources = collect_sources(records, cell_of_shell)
        records += [Record({source.kind: msgspec.to_builtins(source)}) for source in sources]
        for event in events_of(build_report(records)):
            if self._on_event is None:
                return
            if event.kind == "break":  # send it once, although it recurs in each function that inlines its line
                if event.text in self._sent_texts:
                    continue
                self._sent_texts.add(event.text)
            try:
                self._on_event(event)
            except Exception as error:  # noqa: BLE001 - an error in on_event must not reach the user's program
                self._on_event = None
                self._on_error(error)

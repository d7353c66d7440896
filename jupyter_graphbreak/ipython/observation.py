"""Observe one run; a single exit stack undoes all changes that the observation makes."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any, Literal

from IPython.core.error import UsageError
from IPython.display import display
from msgspec.structs import replace

from jupyter_graphbreak.faults import internal_error_sentence, suppress_faults
from jupyter_graphbreak.ipython.output import Output
from jupyter_graphbreak.ipython.progress import Progress, ProgressMeter
from jupyter_graphbreak.recording.exit_stack import GuardedExitStack, defer_interrupts
from jupyter_graphbreak.report.schema import Device, Diagnostic
from jupyter_graphbreak.results import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.api.rerun import KeptRun, Rerun
    from jupyter_graphbreak.api.run_reports import ChildProcesses
    from jupyter_graphbreak.compiling.compiled_calls import CompiledCalls
    from jupyter_graphbreak.experiments.remedies.own_edits import Patch
    from jupyter_graphbreak.experiments.trial.guard import RunEffects
    from jupyter_graphbreak.ipython.cell.texts import CellTexts
    from jupyter_graphbreak.ipython.options import DeviceChoice, Options
    from jupyter_graphbreak.ipython.output import LiveOutputs
    from jupyter_graphbreak.recording.recorder import Recording
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.results import Frontends, Job

#: The stance with which code must have been compiled earlier.
_FORBIDS_COMPILING = "fail_on_recompile"
#: The time limit, in seconds, of a cell and its reruns together. If the cell takes long, its reruns still get
#: ``_MIN_RERUNS_S``. No rerun gets more than ``_MAX_RERUN_S``.
_MAX_TOTAL_S = 140.0
_MIN_RERUNS_S = 60.0
_MAX_RERUN_S = 100.0
#: The relative shares of the time for the reruns.
_TIME_WEIGHTS = {"trying remedies": 3, "measuring": 1, "checking": 1, "recording values": 1, "reproducing": 3}


def _time_shares(purposes: Sequence[str], elapsed_s: float) -> Iterator[float]:
    """Yield the time in seconds for each rerun when it begins; unused time is available to the later ones."""
    end = time.monotonic() + max(_MAX_TOTAL_S - elapsed_s, _MIN_RERUNS_S)
    for number, purpose in enumerate(purposes):
        share = _TIME_WEIGHTS[purpose] / sum(_TIME_WEIGHTS[later_purpose] for later_purpose in purposes[number:])
        yield min(share * max(0.0, end - time.monotonic()), _MAX_RERUN_S)


class Observation:
    """A run, from the start of watching to the report.

    ``mentioned_objects`` are those of the notebook that the code refers to. ``cell_id`` is the front end's id of the
    running cell, if it sends one. If ``is_worth_showing`` is given, the output waits until there is something to show.
    If an option requires something that is not available, a UsageError is raised, and nothing has been changed.
    """

    def __init__(
        self,
        shell: InteractiveShell,
        cells: CellTexts,
        options: Options,
        mentioned_objects: dict[str, Any],
        live_outputs: LiveOutputs,
        cell_id: str | None = None,
        is_worth_showing: Callable[[Report], bool] | None = None,
    ) -> None:
        self.cell_id = cell_id
        self.is_worth_showing = is_worth_showing
        self._live_outputs = live_outputs
        self.options = options
        #: The texts, before and after, of cells that were edited but not run, to try as remedies.
        self.edited_cells: Sequence[tuple[str, str]] = ()
        #: Compares the front ends after the run; it receives the run's effects.
        self.compare: Callable[[RunEffects | None], Frontends] | None = None
        #: The report on the previous run of the cell, and the remedies of this run.
        self.previous_report: Report | None = None
        self.remedies: list[Remedy] | None = None
        self._effects: RunEffects | None = None
        self.recording: Recording | None = None
        self._started_at = time.perf_counter()
        self._shell = shell
        #: The mentioned objects that are compiled; weak references, so that objects that the code deletes are freed.
        self._compiled_objects: dict[str, weakref.ref[Any]] = {}
        self._notes: list[Diagnostic] = []
        self._exit_stack = GuardedExitStack(self.note_fault)
        self._output: Output | None = None
        self._trace_folder: Path | None = None
        self._children: ChildProcesses | None = None
        self._cells = cells
        self._kept_run: KeptRun | None = None
        self._rerun: Rerun | None = None
        self._compiled_calls: CompiledCalls | None = None
        self._phase = ""
        self._phase_end = 0.0
        self._patches_to_try = _patches_to_try(options)
        choice = self._choose_device(mentioned_objects)
        self._device = choice.default if choice is not None else None
        try:
            with defer_interrupts():
                self._start(cells, choice, mentioned_objects)
        except BaseException as error:
            self._undo_failed_start(error)
            raise

    def _start(self, cells: CellTexts, choice: DeviceChoice | None, mentioned_objects: dict[str, Any]) -> None:
        from jupyter_graphbreak._torch_compat.configuration import current_stance, force_backend
        from jupyter_graphbreak._torch_compat.default_device import use_default_device
        from jupyter_graphbreak.recording import recorder
        from jupyter_graphbreak.recording.children import note_earlier_processes, trace_child_processes
        from jupyter_graphbreak.recording.targets import forget_all_compiled_code, forget_compiled_code, is_compiled

        exit_stack = self._exit_stack
        if self.options.frontends:
            from jupyter_graphbreak.experiments.trial.guard import observe_effects

            self._effects = exit_stack.enter("watching for side effects", observe_effects, None)
        else:
            self._live_outputs.make_room()
            self._output = Output(self._shell, waits_for_graph=self.is_worth_showing is not None)
            problem = exit_stack.enter("showing the live view", self._output.show_live, None)
            if problem is not None:
                self._notes.append(Diagnostic("warning", problem))
        with suppress_faults("discarding earlier compiled code", self.note_fault):
            if self.options.fresh:
                forget_all_compiled_code()
            # Code that was compiled earlier is kept if the stance makes any further compilation an error.
            running_cell = cells.find(cells.running_filename or "")
            text = running_cell.text if running_cell is not None else ""
            if current_stance() != _FORBIDS_COMPILING and _FORBIDS_COMPILING not in text:
                forget_compiled_code(*mentioned_objects.values())
            self._compiled_objects = {
                name: weakref.ref(value) for name, value in mentioned_objects.items() if is_compiled(value)
            }
        meter = None
        if self._output is not None and self._output.is_updatable:
            show = self._output.show_progress
            meter = exit_stack.enter("showing progress", lambda: ProgressMeter(show), None)
        count = meter.count if meter is not None else None
        self.recording = exit_stack.enter(
            "watching", lambda: recorder.record(cells.find, count, cells.running_filename), None
        )
        if self.recording is not None and choice is not None:
            self.recording.record_device(choice.device)
        if self.options.runs_again:
            from jupyter_graphbreak.api.rerun import keep_for_analysis

            keep_copies = functools.partial(keep_for_analysis, looks_for_nan=self.options.looks_at_values)
            self._kept_run = exit_stack.enter("keeping copies of what is compiled", keep_copies, None)
        if self.options.processes:
            warn = functools.partial(self.note, "warning")
            activity = "watching the processes that the cell starts"
            self._trace_folder = exit_stack.enter(activity, lambda: trace_child_processes(warn), None)
            exit_stack.enter("looking for earlier processes", lambda: note_earlier_processes(warn), None)
        if stance := exit_stack.enter("setting the backend", lambda: force_backend(self.options.backend), ""):
            self.note("warning", f'--backend had no effect: the stance is "{stance}".')
        exit_stack.enter("setting the default device", lambda: use_default_device(self._device), None)

    def compile_calls(self) -> None:
        """Compile the calls that the code makes from now on."""
        from jupyter_graphbreak.compiling.compiled_calls import compile_calls

        options, filename = self.options.compile_options(), self._cells.running_filename
        start_compiling = functools.partial(compile_calls, options, self.note_fault, filename)
        self._compiled_calls = self._exit_stack.enter("compiling what the cell calls", start_compiling, None)

    def _note_compiled_callables(self) -> None:
        """Record, for the report, which callables were compiled."""
        from jupyter_graphbreak.compiling.descriptions import describe_compiled_callables

        if self._compiled_calls is not None and self.recording is not None:
            calls = self._compiled_calls
            self.recording.note_compiled_callables(
                describe_compiled_callables(calls.compiled_callables, self._shell.user_ns, calls.filename)
            )
            if not calls.compiled_callables:
                for name, reason in list(calls.reasons_not_compiled.items())[:1]:
                    self.note("info", f"`{name}` was not compiled: {reason}.")

    def cell_caller(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that calls a cell's function, compiled if possible."""
        with suppress_faults("compiling the cell", self.note_fault):
            return self._compiled_calls.cell_caller(function) if self._compiled_calls is not None else function
        return function

    def _choose_device(self, mentioned_objects: dict[str, Any]) -> DeviceChoice | None:
        """Check the options and choose the device; raise :class:`UsageError` for any misuse."""
        from jupyter_graphbreak._torch_compat.toolchain import TorchUnavailable, require_torch

        user_errors = (TorchUnavailable, ValueError, UsageError)
        try:
            with suppress_faults("choosing the device", self.note_fault, errors_to_raise=user_errors):
                require_torch()
                return _choose_default_device(self.options, mentioned_objects)
        except (TorchUnavailable, ValueError) as error:
            raise UsageError(str(error)) from None
        return None  # the code then uses its own devices

    def note(self, level: Any, message: str) -> None:
        """Add a sentence for the report's diagnostics."""
        self._notes.append(Diagnostic(level, message))

    def note_fault(self, activity: str, fault: Exception) -> None:
        """Note an internal error."""
        diagnostic = Diagnostic("error", internal_error_sentence(activity, fault))
        if diagnostic not in self._notes:
            self._notes.append(diagnostic)

    def ignore_compile_options(self, reason: str) -> None:
        """Warn that options for the code that the magic compiles had no effect."""
        unused_options = self.options.used_compile_options()
        if unused_options:
            self.note("warning", f"{', '.join(unused_options)} had no effect: {reason}.")

    def close(self, error: BaseException | None, finish: Callable[[Report], Report] = lambda report: report) -> None:
        """Stop watching, then create, store and show the report; an internal error is reported, never raised.

        A KeyboardInterrupt that arrives while watching ends is deferred until the report is shown; the run is then not
        repeated. ``finish`` completes the report with information that only the caller has.
        """
        report_and_files: list[tuple[Report, dict[str, str]]] = []
        interrupt: KeyboardInterrupt | None = None
        try:
            with defer_interrupts():
                self._stop(error)
                report_and_files.append(self._report(error, finish))
                self._preview(report_and_files[0][0])
        except KeyboardInterrupt as deferred:
            if not report_and_files:
                raise
            interrupt = deferred
        ((report, files),) = report_and_files
        if self._kept_run is not None and interrupt is None:
            report = self._run_again(report, files, self._kept_run)
        elif self._kept_run is not None:
            note = Diagnostic("warning", "The run was not repeated, because it was interrupted.")
            report = replace(report, diagnostics=[*report.diagnostics, note])
        self._store_and_show(report)
        if interrupt is not None:
            raise interrupt
        if self.options.frontends:
            self._show_comparison(report)

    def _preview(self, report: Report) -> None:
        """Show a report that further runs will complete."""
        if self._kept_run is not None and self._output is not None and self._should_show(report):
            with suppress_faults("showing the report", self.note_fault):
                self._output.preview(report)

    def _store_and_show(self, report: Report) -> None:
        with defer_interrupts():
            self.remedies = report.remedies
            report, job = self._with_job(report)
            if self._rerun is not None:
                report.set_reproduce_function(self._rerun.reproduce)
            if self.options.output is not None:
                self._shell.user_ns[self.options.output] = report if job is None else job
            if self._output is not None:
                if job is not None or self._should_show(report):
                    self._output.show_report(report, self._notes, job)
                    self._live_outputs.add(self._output, self.cell_id)
                else:
                    self._output.apply_pending_clear()
            elif self.options.output is None:
                for note in self._notes:
                    if note.level == "error":
                        print(f"compile_explain: {note.message}", file=sys.stderr)  # noqa: T201

    def report_failure(self, activity: str, fault: Exception) -> None:
        """Note an error that prevented the report, and show an empty report with the error."""
        self.note_fault(activity, fault)
        if self._output is not None:
            report = replace(self._empty_report(None), diagnostics=list(self._notes))
            self._output.show_report(report, self._notes)

    def _should_show(self, report: Report) -> bool:
        with suppress_faults("deciding whether there is anything to show", self.note_fault):
            return self.is_worth_showing is None or self.is_worth_showing(report)
        return True

    def _stop(self, error: BaseException | None) -> None:
        last_notes: list[tuple[str, Callable[[], None]]] = [
            ("noting how the run ended", lambda: self._note_error(error)),
            ("looking for code that was compiled before the run", self._note_not_compiled_again),
            ("noting what was compiled", self._note_compiled_callables),
            ("reading what other processes wrote", self._read_children),
        ]
        for activity, note in last_notes:
            with suppress_faults(activity, self.note_fault):
                note()
        with suppress_faults("undoing our changes", self.note_fault):
            self._exit_stack.contexts.close()

    def undo(self) -> None:
        """Undo those changes of the observation that are still in effect."""
        self._exit_stack.contexts.close()

    def _note_error(self, error: BaseException | None) -> None:
        if error is not None and self.recording is not None:
            self.recording.record_error(error)

    def _read_children(self) -> None:
        if self._trace_folder is not None:
            from jupyter_graphbreak.api.run_reports import processes_in

            self._children = processes_in(self._trace_folder, self._cells.find)

    def _run_again(self, report: Report, files: dict[str, str], kept_run: KeptRun) -> Report:
        """Run the kept entries again on copies, without their output, and return the report with the results."""
        from jupyter_graphbreak._torch_compat.default_device import use_default_device
        from jupyter_graphbreak.api.rerun import Rerun
        from jupyter_graphbreak.experiments.remedies.own_edits import EditedCells
        from jupyter_graphbreak.ipython.cell.texts import compiler_for

        find = self._cells.find
        compile_text = compiler_for(self._shell, find)
        own_edits = [*([EditedCells(tuple(self.edited_cells))] if self.edited_cells else []), *self._patches_to_try]
        rerun = Rerun(report, files, kept_run, find, self._show_status)

        def try_remedies(seconds: float) -> Report:
            return rerun.try_remedies(
                seconds=seconds if self.options.remedies else 0,  # a patch has its own time limit
                compile_text=compile_text,
                own_edits=own_edits,
                first_break_ids=self._breaks_left_untried(report),
            )

        record_values = functools.partial(rerun.record_values, self.options.at or [])
        analyses: list[tuple[bool, str, Callable[..., Report]]] = [
            (self.options.tries_changes, "trying remedies", try_remedies),
            (self.options.cost, "measuring", rerun.measure),
            (self.options.check, "checking", rerun.check),
            (self.options.looks_at_values, "recording values", record_values),
            (self.options.repro, "reproducing", rerun.reproduce_all),
        ]
        requested_activities = [activity for is_requested, activity, _ in analyses if is_requested]
        shares = _time_shares(requested_activities, time.perf_counter() - self._started_at)
        for is_requested, activity, analyse in analyses:
            if is_requested:
                seconds = next(shares)
                self._phase = activity.split()[0]
                self._phase_end = time.perf_counter() + seconds
                self._show_status("")
                note_count = len(self._notes)
                try:
                    with suppress_faults(activity, self.note_fault), use_default_device(self._device), _hide_output():
                        analyse(seconds=seconds)
                except KeyboardInterrupt:
                    self.note("warning", f"{activity.capitalize()} was interrupted.")
                rerun.report = replace(rerun.report, diagnostics=[*rerun.report.diagnostics, *self._notes[note_count:]])
        self._rerun = rerun
        return rerun.report

    def _breaks_left_untried(self, report: Report) -> list[str]:
        """Return the ids of the breaks whose remedies an interrupt left untried in the previous run of the cell."""
        from jupyter_graphbreak.analysis.matching import same_breaks
        from jupyter_graphbreak.report.remedies import INTERRUPTED_REASON

        if self.previous_report is None:
            return []
        remedies = self.previous_report.remedies or []
        untried_ids = {ident for remedy in remedies if remedy.reason == INTERRUPTED_REASON for ident in remedy.breaks}
        return [later for earlier, later in same_breaks(self.previous_report, report).items() if earlier in untried_ids]

    def _show_status(self, activity: str) -> None:
        """Show the current activity above the preview of the report."""
        if self._output is not None and self._output.is_updatable:
            now = time.perf_counter()
            left_s = max(0.0, self._phase_end - now)
            activity = activity.replace("`", "")
            progress = Progress(self._phase, activity or None, 0, 0, 0, now - self._started_at, left_s)
            self._output.show_progress(progress)

    def _report(self, error: BaseException | None, finish: Callable[[Report], Report]) -> tuple[Report, dict[str, str]]:
        """Return the report and the files of its sources; the report is empty if it cannot be created."""
        from jupyter_graphbreak.api.run_reports import report_of

        report, files = None, dict[str, str]()
        if self.recording is not None:
            with suppress_faults("building the report", self.note_fault):
                report, files = report_of(self.recording)
        if report is None:
            report = self._empty_report(error)
        report = replace(report, diagnostics=[*report.diagnostics, *self._notes])
        with suppress_faults("comparing with the previous run", self.note_fault):
            return finish(report), files
        return replace(report, diagnostics=[*report.diagnostics, self._notes[-1]]), files

    def _with_job(self, report: Report) -> tuple[Report, Job | None]:
        """Return the report, and the job of the kernel and the processes that the cell started, if any."""
        from jupyter_graphbreak.api.run_reports import job_of

        with suppress_faults("joining the reports of several processes", self.note_fault):
            return report, job_of(report, self._children) if self._children is not None else None
        return replace(report, diagnostics=[*report.diagnostics, self._notes[-1]]), None

    def _undo_failed_start(self, error: BaseException) -> None:
        """Undo everything, and show that the run could not begin."""
        with defer_interrupts():
            self.undo()
            if isinstance(error, Exception) and not isinstance(error, UsageError):
                self.note_fault("starting to watch", error)
            if self._output is not None:
                report = replace(self._empty_report(error), diagnostics=list(self._notes))
                self._output.show_report(report, self._notes)

    def _empty_report(self, error: BaseException | None) -> Report:
        """Return a report with only the status of the run."""
        status: Literal["ok", "error", "interrupted"] = "ok" if error is None else "error"
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else status
        return Report(status, Device(self.options.device, "unknown"))

    def _show_comparison(self, report: Report) -> None:
        """Compare the front ends, if the run succeeded, and show the table above the report."""
        from jupyter_graphbreak._torch_compat.default_device import use_default_device

        note_count = len(self._notes)
        try:
            with suppress_faults("comparing the front ends", self.note_fault, errors_to_raise=(UsageError,)):
                if report.status == "ok" and self.compare is not None:
                    with use_default_device(self._device):
                        frontends = self.compare(self._effects)
                    if self.options.output is not None:
                        self._shell.user_ns[self.options.output] = frontends
                    display(frontends)
        except UsageError as error:
            print(f"UsageError: {error}", file=sys.stderr)  # noqa: T201 - the cell has run, so the error is not raised
        finally:
            display(replace(report, diagnostics=[*report.diagnostics, *self._notes[note_count:]]))

    def _note_not_compiled_again(self) -> None:
        from jupyter_graphbreak.recording.targets import names_not_compiled_again

        if self.recording is None:
            return
        # A name to which the cell assigned refers to something that the cell itself compiled.
        namespace = self._shell.user_ns
        unchanged_objects = {
            name: namespace[name]
            for name, reference in self._compiled_objects.items()
            if name in namespace and namespace[name] is reference()
        }
        for name in names_not_compiled_again(unchanged_objects, self.recording.started_functions()):
            self.note("warning", f"{name} was compiled before and was not compiled again: its graphs are missing here.")


@contextlib.contextmanager
def _hide_output() -> Iterator[None]:
    """Hide the output and displays of this thread while the context is open."""
    from jupyter_graphbreak.experiments.trial.effects import suppress_displays
    from jupyter_graphbreak.experiments.trial.other_threads import redirect_thread_streams

    with redirect_thread_streams(io.StringIO(), io.StringIO()), suppress_displays():
        yield


def _patches_to_try(options: Options) -> list[Patch]:
    """Return the patch to try, if there is one; raise :class:`UsageError` if it cannot be read."""
    if options.patch is None:
        return []
    from jupyter_graphbreak.experiments.remedies.own_edits import read_patch

    try:
        return [read_patch(options.patch)]
    except (OSError, ValueError) as error:
        raise UsageError(f"--patch {options.patch}: {error}") from None


def _choose_default_device(options: Options, mentioned_objects: dict[str, Any]) -> DeviceChoice:
    from jupyter_graphbreak._torch_compat.configuration import backend_names, mode_names
    from jupyter_graphbreak._torch_compat.default_device import CudaDevices, cuda_devices
    from jupyter_graphbreak.ipython.options import choose_device
    from jupyter_graphbreak.recording.targets import with_used_globals

    if options.backend is not None and options.backend not in (backends := backend_names()):
        raise UsageError(f"unknown backend {options.backend!r}: use one of {', '.join(backends)}")
    if options.mode is not None and options.mode not in (modes := mode_names()):
        raise UsageError(f"unknown mode {options.mode!r}: use one of {', '.join(modes)}")
    cuda = cuda_devices() if options.device != "cpu" else CudaDevices()
    return choose_device(options.device, cuda, with_used_globals(mentioned_objects))

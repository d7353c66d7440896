"""Run the cell magic: observe the cell, compile its calls if the cell compiles nothing itself, and show a report."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.error import UsageError
from msgspec.structs import replace

from jupyter_graphbreak import faults
from jupyter_graphbreak.analysis.python_text import parse_python
from jupyter_graphbreak.ipython import calls
from jupyter_graphbreak.ipython.cell.function import as_module_code
from jupyter_graphbreak.ipython.cell.mentions import (
    mentioned_objects,
    mentions_compile,
    note_on_methods,
    notes_on_saving,
)
from jupyter_graphbreak.ipython.cell.rewriting import read_explain_request
from jupyter_graphbreak.ipython.cell.top_level import lines_with_tensor_operations
from jupyter_graphbreak.ipython.observation import Observation
from jupyter_graphbreak.records.additions import ORIG_MOD
from jupyter_graphbreak.report.schema import Diagnostic

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Sequence

    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

    from jupyter_graphbreak.ipython.cell.rewriting import ExplainRequest, Plan
    from jupyter_graphbreak.ipython.cell.texts import CellTexts
    from jupyter_graphbreak.ipython.options import Options
    from jupyter_graphbreak.ipython.output import LiveOutputs
    from jupyter_graphbreak.results import Report

#: The maximum number of cells whose last report is kept for comparison.
_MAX_LAST_REPORTS = 100
_NOTE_ON_FUNCTION = "The cell computes with tensors at its top level: it was compiled as one function."
_NOTE_ON_REPEAT = (
    "A graph of the cell raised an error. The cell then ran again without the compiler, to bind the names that a "
    "plain run binds before the error."
)
#: Matches the description of a break that involves a tensor or one of PyTorch's functions.
_TORCH_IN_BREAK = re.compile(r"\bTensor(?:Variable)?\b|\bmodule: torch\b|\btorch\.\* op")
#: The beginning of the note that suggests moving lines into a function.
_NOTE_ON_LINES = "Nothing was compiled: the cell computes with tensors outside of any function."


class _InitialState(NamedTuple):
    """The names that a cell binds, their earlier values, and a function that restores PyTorch's random generators."""

    names: Sequence[str]
    values: dict[str, Any]
    restore_generators: Callable[[], None]

    @classmethod
    def of(cls, namespace: dict[str, Any], names: Sequence[str]) -> _InitialState:
        from jupyter_graphbreak._torch_compat.configuration import save_generator_states

        return cls(names, {name: namespace[name] for name in names if name in namespace}, save_generator_states())

    def restore(self, namespace: dict[str, Any]) -> None:
        for name in self.names:
            namespace.pop(name, None)
        namespace |= self.values
        self.restore_generators()


class CellRuns:
    """Observes the cells of a shell, one after the other."""

    def __init__(self, shell: InteractiveShell, cells: CellTexts, live_outputs: LiveOutputs) -> None:
        self._shell = shell
        self._cells = cells
        self._live_outputs = live_outputs
        self._initial_state: _InitialState | None = None
        self._will_repeat = False
        self._observation: Observation | None = None
        self._inner_cell_count = 0
        self._tree: ast.Module | None = None  # the cell's code
        self._top_level: ast.Module | None = None  # the code of a cell whose calls are compiled
        #: The code that notes on earlier cells are about, and the sentences of the other notes on earlier cells.
        self._already_noted: set[str] = set()
        self._request: ExplainRequest | None = None
        self._last_reports: dict[str, Report] = {}  # by the front end's id of the cell

    # IPython calls these before and after a cell, through with_fallback.

    def read_request(self, _: ExecutionInfo) -> None:
        """At ``pre_run_cell``, store the cell's request, or count the cell if the observed cell runs it."""
        if self._observation is not None:
            self._inner_cell_count += 1
        else:
            self._request = read_explain_request(self._cells.request())

    def pop_request(self) -> ExplainRequest | None:
        """Return the request of the cell that is about to run, and forget it; ``None`` if there is none."""
        request, self._request = self._request, None
        return request

    def end(self, result: ExecutionResult | None) -> None:
        """At ``post_run_cell``, end the observation of the cell."""
        self._request = None  # a request may be left from a cell that could not be parsed
        if self._inner_cell_count and result is not None:  # the observed cell ran it, for example with %%capture
            self._inner_cell_count -= 1
            return
        observation, self._observation = self._observation, None
        if observation is None:
            return
        error = None
        if result is not None:
            error = result.error_in_exec or result.error_before_exec
        try:
            with faults.suppress_faults("building the report", observation.report_failure):
                observation.close(error, lambda report: self._with_changes(self._with_notes(report), observation))
                self._keep_remedies(observation)
        except KeyboardInterrupt as interrupt:  # deferred until the report is built; it still ends the cell
            self._show_interrupt(interrupt, result)
        finally:
            with faults.suppress_faults("undoing our changes"):
                observation.undo()

    def undo_observation(self, _: ExecutionResult | None) -> None:
        """Undo the observation's changes without a report, because :meth:`end` failed."""
        observation, self._observation = self._observation, None
        if observation is not None:
            with contextlib.suppress(Exception):
                observation.undo()

    def _show_interrupt(self, interrupt: KeyboardInterrupt, result: ExecutionResult | None) -> None:
        """Show an interrupt that arrived while the report was made as an interrupt of the cell."""
        if result is not None and result.success:
            result.error_in_exec = interrupt.with_traceback(None)
            self._shell.showtraceback((KeyboardInterrupt, interrupt, None))

    # Checks before a cell runs.

    def uses_compile(self, tree: ast.Module) -> bool:
        """Return whether a cell compiles something itself."""
        from jupyter_graphbreak.recording.targets import any_uses_torch_compile

        namespace = self._shell.user_ns
        if mentions_compile(tree, namespace):
            return True
        return "torch" in sys.modules and any_uses_torch_compile(mentioned_objects(tree, namespace).values())

    def magic_runs_code(self, magic: str) -> bool:
        """Return whether a line magic runs code in the notebook's namespace, as ``%run`` does."""
        return magic == "run" or bool(getattr(self._shell.find_line_magic(magic), "needs_local_scope", False))

    # Functions that the rewritten cell calls.

    def begin(
        self,
        options: Options,
        plan: Plan,
        cell_magic: str,
        filename: str,
        *,
        only_torch: bool = False,
        edited_cells: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Begin to observe the running cell, whose code another magic, such as ``%%time``, may run."""
        self._inner_cell_count = 0
        self.end(None)  # in case IPython did not announce the end of the previous cell
        if options.expression:
            raise UsageError(
                f"%%compile_explain takes options only, not {options.expression!r}; "
                "for one call write %compile_explain f(x)"
            )
        self._cells.note_running_cell(filename)
        text = self._cells.find(filename)
        tree = parse_python(text.text if text is not None else "") or parse_python("")
        if tree is None:
            raise AssertionError("an empty text is valid Python")
        if options.frontends and not calls.calls_to_last_function(tree, lambda _: True):
            raise UsageError(f"--frontends: the cell calls no function; {calls.HOW_TO_COMPARE}")
        objects = mentioned_objects(tree, self._shell.user_ns)
        is_worth_showing = functools.partial(_is_about_torch, plan) if only_torch else None
        observation = Observation(
            self._shell, self._cells, options, objects, self._live_outputs, self._running_cell_id(), is_worth_showing
        )
        self._observation = observation
        observation.edited_cells = edited_cells
        with faults.suppress_faults("preparing the cell", observation.note_fault):
            if options.frontends:
                comparison = calls.FrontendComparison(self._shell, self._cells, options)
                observation.compare = lambda effects: comparison.compare_last_call(tree, effects)
            _note_plan(observation, plan, cell_magic)
            self._tree, self._top_level = tree, tree if plan == "calls" else None
            if plan in {"calls", "function"}:
                observation.compile_calls()

    def cell_caller(self, name: str, bound_names: Sequence[str] | None) -> Callable[[], Any]:
        """Return a function that calls the cell's function, compiled if possible.

        If the cell cannot run again, the names that it binds are ``None``.
        """
        with faults.suppress_faults("preparing to run the cell again"):
            self._initial_state = (
                _InitialState.of(self._shell.user_ns, bound_names) if bound_names is not None else None
            )
        function = self._shell.user_ns[name]
        function.__code__ = as_module_code(function.__code__)
        caller = self._observation.cell_caller(function) if self._observation is not None else function
        del self._shell.user_ns[name]
        return caller

    def prepare_repeat(self, error: Exception) -> bool:
        """Undo the changes of the cell's function, and return whether the cell should run again unchanged.

        A graph binds the cell's names only after it has run. If the graph raised an error, a run without the compiler
        would still have bound the names that are assigned before the error.
        """
        from jupyter_graphbreak.compiling.tracebacks import is_raised_in_graph

        initial_state, self._initial_state = self._initial_state, None
        if initial_state is None or not is_raised_in_graph(error):
            return False
        initial_state.restore(self._shell.user_ns)
        self._will_repeat = True
        if self._observation is not None:
            self._observation.note("info", _NOTE_ON_REPEAT)
        return True

    def should_repeat(self) -> bool:
        """Return whether the cell should run again unchanged, once after a successful :meth:`prepare_repeat`."""
        will_repeat, self._initial_state, self._will_repeat = self._will_repeat, None, False
        return will_repeat

    def _running_cell_id(self) -> str | None:
        """Return the id of the running notebook cell, if the front end sends one (nbclient does not)."""
        cell_id = (self._cells.request() or {}).get("metadata", {}).get("cellId")
        return cell_id if isinstance(cell_id, str) else None

    def _with_notes(self, report: Report) -> Report:
        """Add notes on saved states, on methods of compiled modules, and on lines to move into a function."""
        tree, self._tree = self._tree, None
        notes = dict(notes_on_saving(tree, self._shell.user_ns)) if tree is not None else {}
        # Saves in functions were noted while the cell ran, because the namespace lacks their variables.
        notes_of_run = {note.message: note for note in report.diagnostics if f"`{ORIG_MOD}`" in note.message}
        new_notes = [Diagnostic("info", note) for code, note in notes.items() if code not in self._already_noted]
        new_notes += [
            note for message, note in notes_of_run.items() if not notes and message not in self._already_noted
        ]
        self._already_noted |= notes.keys() | notes_of_run.keys()
        if tree is not None and not report.summary.frames and not report.skipped and report.error is None:
            note_on_call = note_on_methods(tree, self._shell.user_ns)
            new_notes += [Diagnostic("info", note_on_call)] if note_on_call is not None else []
        other_notes = [note for note in report.diagnostics if note.message not in notes_of_run]
        return self._with_advice(
            replace(report, diagnostics=[*other_notes, *new_notes]) if new_notes or notes_of_run else report
        )

    def _with_advice(self, report: Report) -> Report:
        """Add a note on lines to move into a function, if nothing was compiled and the top level uses tensors."""
        tree, self._top_level = self._top_level, None
        if tree is None or report.summary.frames or report.skipped or report.error is not None:
            return report
        lines = lines_with_tensor_operations(tree.body, self._shell.user_ns)
        if not lines:
            return report
        place = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
        note = Diagnostic("info", f"{_NOTE_ON_LINES} Put {place} into a function and call it.")
        return replace(report, diagnostics=[*report.diagnostics, note])

    def _with_changes(self, report: Report, observation: Observation) -> Report:
        """Add the changes since the previous run of the same cell to a report, and keep the report for the next run."""
        cell_id = observation.cell_id
        if cell_id is None:
            return report
        previous_report = observation.previous_report = self._last_reports.pop(cell_id, None)
        self._last_reports[cell_id] = report
        if len(self._last_reports) > _MAX_LAST_REPORTS:
            del self._last_reports[next(iter(self._last_reports))]
        return replace(report, changes=previous_report.diff(report)) if previous_report is not None else report

    def _keep_remedies(self, observation: Observation) -> None:
        """Keep the remedies, so that the next run of the cell begins with those that an interrupt left untried."""
        report = self._last_reports.get(observation.cell_id or "")
        if report is not None and observation.remedies is not None:
            self._last_reports[observation.cell_id or ""] = replace(report, remedies=observation.remedies)


def _note_plan(observation: Observation, plan: Plan, cell_magic: str) -> None:
    """Note how the cell runs, and which options have no effect."""
    match plan:
        case "unchanged":
            observation.ignore_compile_options("the cell's code uses torch.compile and runs unchanged")
        case "function":
            observation.note("info", _NOTE_ON_FUNCTION)
        case "nothing":
            note = "There was nothing to compile: the cell contains only imports, definitions and commands."
            observation.note("info", note)
        case "calls" if cell_magic:
            note = f"{cell_magic} runs the cell's code: only the modules that it calls in this process were compiled."
            observation.note("info", note)


def _is_about_torch(plan: Plan, report: Report) -> bool:
    """Return whether a cell used PyTorch; a cell that compiles something itself must also have used the compiler."""
    if plan == "unchanged":
        return _has_dynamo_events(report)
    return _involves_tensors(report) or any(note.message.startswith(_NOTE_ON_LINES) for note in report.diagnostics)


def _has_dynamo_events(report: Report) -> bool:
    """Return whether Dynamo captured or broke a graph, skipped a function, recompiled one or failed."""
    summary = report.summary
    return bool(summary.graphs or summary.breaks or summary.skipped or summary.errors or report.recompiles)


def _involves_tensors(report: Report) -> bool:
    """Return whether operations were captured, a function was skipped or failed, or a break involves a tensor.

    Code that is compiled only for the report breaks on any ``print``; without tensors, such a break is irrelevant.
    """
    summary = report.summary
    descriptions = (f"{break_.gb_type} {break_.explanation} {break_.context}" for break_ in report.breaks)
    return bool(summary.ops or summary.skipped or summary.errors) or any(map(_TORCH_IN_BREAK.search, descriptions))

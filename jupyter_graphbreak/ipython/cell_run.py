"""The magic on a cell: begin to observe it, compile it where it compiles nothing itself, end with a report."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from msgspec.structs import replace

from jupyter_graphbreak import faults
from jupyter_graphbreak.analysis.python_text import parse_python
from jupyter_graphbreak.ipython import calls, relevance
from jupyter_graphbreak.ipython.cell.function import as_module_code
from jupyter_graphbreak.ipython.cell.mentions import mentions_compile
from jupyter_graphbreak.ipython.cell.requests import asked_by
from jupyter_graphbreak.ipython.cell.top_level import lines_that_compute
from jupyter_graphbreak.ipython.namespace import named_in
from jupyter_graphbreak.ipython.observation import Observation
from jupyter_graphbreak.report.schema import Diagnostic

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Sequence

    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

    from jupyter_graphbreak.ipython.cell.requests import Asked
    from jupyter_graphbreak.ipython.cell.rewriting import Plan
    from jupyter_graphbreak.ipython.cell.texts import CellTexts
    from jupyter_graphbreak.ipython.options import Options
    from jupyter_graphbreak.ipython.output import LiveOutputs
    from jupyter_graphbreak.results import Report


#: Cells whose last report is kept to be compared with the next.
_MOST_REMEMBERED = 100
_AS_FUNCTION = "The cell computes with tensors at its top level: it was compiled as one function."
#: How the note begins that says what to move into a function.
_MOVE = "Nothing was compiled: the cell computes with tensors outside of any function."


class CellRuns:
    """The observed cells of a shell, one after the other.

    Parameters
    ----------
    shell : InteractiveShell
    cells : CellTexts
    live : LiveOutputs
    """

    def __init__(self, shell: InteractiveShell, cells: CellTexts, live: LiveOutputs) -> None:
        self._shell = shell
        self._cells = cells
        self._live = live
        self._observation: Observation | None = None
        self._inner_cells = 0
        self._top_level: ast.Module | None = None  # of a cell whose calls are compiled
        self._asked: Asked | None = None
        self._last_reports: dict[str, Report] = {}  # by the front end's id of the cell

    # What IPython calls around a cell; internal errors have a fallback.

    def enter(self, _: ExecutionInfo) -> None:
        """Note what is asked for of a cell, or count it among those that the observed one runs: ``pre_run_cell``."""
        if self._observation is not None:
            self._inner_cells += 1
        else:
            self._asked = asked_by(self._cells.request())

    def take_asked(self) -> Asked | None:
        """Return what is asked for of the cell that is about to run, once."""
        asked, self._asked = self._asked, None
        return asked

    def end(self, result: ExecutionResult | None) -> None:
        """End the observation of the cell: ``post_run_cell``."""
        self._asked = None  # of a cell that could not be parsed
        if self._inner_cells and result is not None:  # the end of a cell that the observed one ran, as %%capture does
            self._inner_cells -= 1
            return
        observation, self._observation = self._observation, None
        if observation is None:
            return
        error = None
        if result is not None:
            error = result.error_in_exec or result.error_before_exec
        try:
            with faults.suppress_faults("making the report", observation.give_up):
                observation.close(error, lambda report: self._compared(self._advised(report), observation.cell_id))
        except KeyboardInterrupt as interrupt:  # it waited for the report, and still ends the cell and those after it
            self._interrupted(interrupt, result)
        finally:
            with faults.suppress_faults("undoing what the run needed"):
                observation.undo()

    def drop(self, _: ExecutionResult | None) -> None:
        """Undo what the observation of the cell has changed, without a report: when :meth:`end` fails."""
        observation, self._observation = self._observation, None
        if observation is not None:
            with contextlib.suppress(Exception):
                observation.undo()

    def _interrupted(self, interrupt: KeyboardInterrupt, result: ExecutionResult | None) -> None:
        """Show an interrupt that came while the report was made as that of the cell."""
        if result is not None and result.success:
            result.error_in_exec = interrupt.with_traceback(None)
            self._shell.showtraceback((KeyboardInterrupt, interrupt, None))

    # What is asked about a cell before it runs.

    def uses_compile(self, tree: ast.Module) -> bool:
        """Whether a cell compiles something itself."""
        from jupyter_graphbreak.recording.targets import leads_to_compiled

        namespace = self._shell.user_ns
        if mentions_compile(tree, namespace):
            return True
        return "torch" in sys.modules and leads_to_compiled(named_in(tree, namespace).values())

    def runs_code(self, magic: str) -> bool:
        """Whether a line magic runs code of its own."""
        return magic == "run" or bool(getattr(self._shell.find_line_magic(magic), "needs_local_scope", False))

    # What the rewritten cell calls.

    def begin(
        self,
        options: Options,
        plan: Plan,
        reason: str,
        filename: str,
        *,
        only_torch: bool = False,
        edited: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Begin to observe the running cell.

        Parameters
        ----------
        options : Options
        plan : str
            What is done with the cell.
        reason : str
            Why it is not compiled, where it is not.
        filename : str
            Of its code object.
        only_torch : bool
            Whether the cell has a report only if it has to do with PyTorch.
        edited : sequence of tuple
            Cells that were edited and not run, by their texts before and after, to be tried as remedies.
        """
        self._inner_cells = 0
        self.end(None)  # an observation that a strange front end never ended
        if options.expression:
            raise UsageError(
                f"%%compile_explain takes options only, not {options.expression!r}; "
                "for one call write %compile_explain f(x)"
            )
        self._cells.enter(filename)
        text = self._cells.find(filename)
        tree = parse_python(text.text if text is not None else "") or parse_python("")
        if tree is None:
            raise AssertionError("an empty text is Python")
        if options.frontends and not calls.last_called(tree, lambda _: True):
            raise UsageError(f"--frontends: the cell calls no function; {calls.HOW_TO_COMPARE}")
        named = named_in(tree, self._shell.user_ns)
        worth = self._worth_showing(plan) if only_torch else None
        observation = Observation(self._shell, self._cells, options, named, self._live, self._id_of_cell(), worth)
        self._observation = observation
        observation.edited = edited
        with faults.suppress_faults("preparing the cell", observation.note_fault):
            if options.frontends:
                comparison = calls.FrontendComparison(self._shell, self._cells, options)
                observation.compare = lambda: comparison.of_cell(tree)
            _describe(observation, plan, reason)
            self._top_level = tree if plan == "calls" else None
            if plan in {"calls", "function"}:
                observation.compile_calls()

    def cell_caller(self, name: str) -> Callable[[], Any]:
        """Return what calls the function that the cell was made into, compiled if that is possible."""
        function = self._shell.user_ns[name]
        function.__code__ = as_module_code(function.__code__)
        caller = self._observation.cell_caller(function) if self._observation is not None else function
        del self._shell.user_ns[name]
        return caller

    def _worth_showing(self, plan: Plan) -> Callable[[Report], bool]:
        """Return what tells, when the cell has run, whether it had anything to do with PyTorch."""

        def is_about_torch(report: Report) -> bool:
            if plan == "as it stands":
                return relevance.holds_anything(report)
            return relevance.tells_of_tensors(report) or any(
                note.message.startswith(_MOVE) for note in report.diagnostics
            )

        return is_about_torch

    def _id_of_cell(self) -> str | None:
        """Return the id of the notebook cell that runs, where the front end sends one (nbclient, say, does not)."""
        cell_id = (self._cells.request() or {}).get("metadata", {}).get("cellId")
        return cell_id if isinstance(cell_id, str) else None

    def _advised(self, report: Report) -> Report:
        """Say what to move into a function, if nothing was compiled and the cell computes at its top level."""
        tree, self._top_level = self._top_level, None
        if tree is None or report.summary.frames or report.skipped or report.error is not None:
            return report
        lines = lines_that_compute(tree.body, self._shell.user_ns)
        if not lines:
            return report
        where = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
        note = Diagnostic("info", f"{_MOVE} Put {where} into a function and call it.")
        return replace(report, diagnostics=[*report.diagnostics, note])

    def _compared(self, report: Report, cell_id: str | None) -> Report:
        """Add to a report what changed since the run before of the same cell, and remember it for the next."""
        if cell_id is None:
            return report
        before = self._last_reports.pop(cell_id, None)
        self._last_reports[cell_id] = report
        if len(self._last_reports) > _MOST_REMEMBERED:
            del self._last_reports[next(iter(self._last_reports))]
        return replace(report, changes=before.diff(report)) if before is not None else report


def _describe(observation: Observation, plan: Plan, reason: str) -> None:
    """Note what is done with the cell, and which options have nothing to apply to."""
    match plan:
        case "as it stands":
            observation.ignore_compile_options("the cell's code uses torch.compile and runs as it stands")
        case "function":
            observation.note("info", _AS_FUNCTION)
        case "nothing":
            note = "There was nothing to compile: the cell only imports, defines or runs commands."
            observation.note("info", note)
        case "calls" if reason:
            note = f"{reason} runs the cell's code: only the modules that it calls in this process were compiled."
            observation.note("info", note)
        case "calls":
            pass

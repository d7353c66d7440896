"""Analyse a finished run further by running its kept entries again on copies, without showing their output.

An entry is a compiled function that the run called, with copies of the arguments and state of its first call.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.version import require_torch
from jupyter_graphbreak.analysis.priority import prioritize_breaks
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time
from jupyter_graphbreak.faults import error_headline, redirect_faults
from jupyter_graphbreak.recording.shell_cells import cell_of_shell
from jupyter_graphbreak.report.cost import Cost
from jupyter_graphbreak.report.schema import Diagnostic
from jupyter_graphbreak.results import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.cost.timing import WarmCalls
    from jupyter_graphbreak.experiments.recompiles.finding import FoundRecompileRemedies
    from jupyter_graphbreak.experiments.remedies.finding import FoundRemedies
    from jupyter_graphbreak.experiments.reproducer.processes import ScriptRunner
    from jupyter_graphbreak.experiments.trial.entry import Entry, RecordedEntries
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report import schema
    from jupyter_graphbreak.report.reproducer import Reproducer

_Method = TypeVar("_Method", bound="Callable[..., Any]")
#: The time limit, in seconds, of all analyses except trying remedies.
_TIME_LIMIT_S = 120.0
#: The share of the time for breaks if the report also has recompiles, and if it has only recompiles.
_SHARE_OF_BREAKS, _SHARE_WITHOUT_BREAKS = 0.75, 0.3
#: The share of the time limit after which no further entry is analysed, and only a few calls are timed.
_SHARE_FOR_STARTING = 0.5
#: The minimum number of seconds for finding one script.
_MIN_FOR_SCRIPT_S = 15.0


class KeptRun(NamedTuple):
    """The parts of a run that are kept for further analysis: copies of its entries, and the times of its calls."""

    entries: RecordedEntries
    warm: WarmCalls


@contextlib.contextmanager
def keep_for_analysis(*, looks_for_nan: bool) -> Iterator[KeptRun]:
    """Keep copies of entries and times of calls for further analysis while the context is open.

    Parameters
    ----------
    looks_for_nan : bool
        Whether to look for the first call whose result has NaN; reading each result takes time.
    """
    require_torch()
    from jupyter_graphbreak.experiments.cost.timing import time_calls
    from jupyter_graphbreak.experiments.trial.entry import record_entries

    with time_calls() as warm, record_entries(looks_for_nan=looks_for_nan) as entries:
        yield KeptRun(entries, warm)


def _collecting_faults(method: _Method) -> _Method:
    """Return a method that collects the internal errors of its trials for the report."""

    @functools.wraps(method)
    def collect(self: Rerun, *args: Any, **kwargs: Any) -> Any:
        with redirect_faults(self._faults):
            return method(self, *args, **kwargs)

    return cast("_Method", collect)


class Rerun:
    """The kept entries of a run, and its report, which each analysis extends.

    Parameters
    ----------
    files : mapping
        The file name of each source of the report, by source id.
    kept : KeptRun
        The kept parts of the run.

    Attributes
    ----------
    report : Report
        The report with all results so far.
    """

    def __init__(
        self,
        report: Report,
        files: Mapping[str, str],
        kept: KeptRun,
        find_cell: FindCell = cell_of_shell,
        on_status: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.report = report
        self._files = files
        self._kept = kept.entries
        self._warm = kept.warm
        self._find_cell = find_cell
        self._on_status = on_status
        self._found: FoundRemedies | None = None
        self._found_for_recompiles: FoundRecompileRemedies | None = None
        self._notes: list[str] = []
        self._faults: list[str] = []

    @_collecting_faults
    def try_remedies(self, **options: Any) -> Report:
        """Try to remove the breaks and to end the recompiles.

        Parameters
        ----------
        **options
            The options of :func:`jupyter_graphbreak.experiments.remedies.finding.find_remedies`.
        """
        from jupyter_graphbreak.experiments.remedies.finding import PATIENCE_S, find_remedies

        seconds = options.pop("seconds", None)
        time_limit = PATIENCE_S if seconds is None else seconds
        end = time.monotonic() + time_limit
        share = _share_of_breaks(self.report)
        self._found = find_remedies(
            self.report,
            self._files,
            self._kept,
            find_cell=self._find_cell,
            on_status=self._on_status,
            seconds=share * time_limit,
            **options,
        )
        report = self._found.report
        self._found_for_recompiles = None
        if report.recompiles:
            from jupyter_graphbreak.experiments.recompiles.finding import find_recompile_remedies
            from jupyter_graphbreak.experiments.remedies.application import compile_file

            self._found_for_recompiles = find_recompile_remedies(
                report,
                self._files,
                self._kept,
                seconds=end - time.monotonic(),
                find_cell=self._find_cell,
                on_status=self._on_status,
                compile_text=options.get("compile_text", compile_file),
                break_remedy_contexts=self._found.remedy_contexts,
            )
            report = self._found_for_recompiles.report
        return self._update(report)

    @_collecting_faults
    def measure(self, seconds: float | None = None) -> Report:
        """Measure the cost of the entries, and what the remedies that were found earlier save.

        Parameters
        ----------
        seconds : float or None
            The time limit; by default 120 seconds.
        """
        from jupyter_graphbreak.experiments.cost.entry_cost import device_of, measure_entry
        from jupyter_graphbreak.experiments.cost.startup import combine_startups
        from jupyter_graphbreak.experiments.trial.entry import backend_name

        end, latest_start = _deadlines(seconds)
        costs, starts = [], []
        for entry in self._entries(latest_start, "measured"):
            self._on_status(f"{entry.function}: running repeatedly on copies")
            with entry.set_up(), self._noting_failures(f"Measuring {entry.function}", entry), limit_time(end):
                results = [result for result in (self._found, self._found_for_recompiles) if result is not None]
                contexts = {
                    ids: context for result in results for ids, context in result.remedy_contexts(entry).items()
                }
                measured = measure_entry(entry, contexts, self.report, end=latest_start, find_cell=self._find_cell)
                costs.append(replace(measured.cost, in_run=self._warm.spread_of(entry.callable_id)))
                starts.append(measured.startup)
        if costs:
            first_entry = self._kept.entries[0]
            cost = Cost(device_of(first_entry), backend_name(first_entry.backend), costs)
            return self._update(prioritize_breaks(replace(self.report, cost=cost, startup=combine_startups(starts))))
        return self._update(self.report)

    @_collecting_faults
    def check(self, seconds: float | None = None) -> Report:
        """Compare the compiled results of the entries with their eager results.

        Parameters
        ----------
        seconds : float or None
            The time limit; by default 120 seconds.
        """
        from jupyter_graphbreak.experiments.check.checking import check_instances, group_instances

        end, latest_start = _deadlines(seconds)
        checks = []
        groups = {id(group[0]): group for group in group_instances(self._kept.entries)}
        for entry in self._entries(latest_start, "checked"):
            if id(entry) not in groups:  # the entry is checked with the first entry of its group
                continue
            self._on_status(f"{entry.function}: comparing compiled with eager results")
            with entry.set_up(), self._noting_failures(f"Checking {entry.function}", entry), limit_time(end):
                group = groups[id(entry)]
                checked = check_instances(group, self.report, find_cell=self._find_cell)
                if checked.error_name is None:
                    checks.append(replace(checked.check, calls=max(map(self._kept.count_calls, group))))
        return self._update(replace(self.report, check=checks))

    @_collecting_faults
    def look_at_values(self, at: Sequence[str] = (), seconds: float | None = None) -> Report:
        """Record the values of the entries' lines, and find where NaN and Inf arise.

        Parameters
        ----------
        at : sequence of str
            The lines whose operations are listed one by one, such as ``"12"`` or ``"model.py:12"``.
        seconds : float or None
            The time limit; by default 120 seconds.
        """
        from jupyter_graphbreak.experiments.values.finding import values_of_entry
        from jupyter_graphbreak.experiments.values.requested_lines import parse_lines, sentences_about_missing_lines

        requested_lines = parse_lines(at)
        end, latest_start = _deadlines(seconds)
        entry_values = []
        for entry in self._entries(latest_start, "looked into"):
            self._on_status(f"{entry.function}: running operation by operation on copies")
            calls = self._kept.count_calls(entry)
            number, entry_with_nan = self._kept.call_with_nan(entry) or (1, None)
            if entry_with_nan is None and number > 1:
                self._notes.append(
                    f"The result of call {number} of {entry.function} has NaN, but there was not enough memory to keep "
                    "its arguments."
                )
            observed, number = (entry_with_nan, number) if entry_with_nan is not None else (entry, 1)
            activity = f"Recording the values of {entry.function}"
            with entry.set_up(), self._noting_failures(activity, entry), limit_time(end):
                found_values = values_of_entry(
                    observed, self.report, lines=requested_lines, number=number, calls=calls, find_cell=self._find_cell
                )
                entry_values.append(found_values.values)
        self._notes += sentences_about_missing_lines(requested_lines, entry_values, self.report)
        return self._update(replace(self.report, values=entry_values))

    def reproduce(
        self,
        ident: str,
        *,
        redacted: bool = False,
        seconds: float | None = None,
        runner: ScriptRunner | None = None,
    ) -> Reproducer:
        """Find a script that shows a break, a recompile, the error or the wrong result without the rest of the program.

        Parameters
        ----------
        ident : str
            The id of the finding.
        redacted : bool
            Whether to replace the names and texts of the program.
        seconds : float or None
            The time limit; by default 90 seconds.
        runner : ScriptRunner or None
            Runs the scripts; by default a new one.
        """
        from jupyter_graphbreak.experiments.reproducer.finding import reproduce

        return reproduce(
            self.report,
            self._kept,
            ident,
            redacted=redacted,
            seconds=seconds,
            on_status=self._on_status,
            runner=runner,
        )

    @_collecting_faults
    def reproduce_all(self, seconds: float | None = None) -> Report:
        """Find scripts for everything in the report that can have one, as far as time allows.

        Parameters
        ----------
        seconds : float or None
            The time limit; by default 120 seconds.
        """
        from jupyter_graphbreak.experiments.reproducer.processes import ScriptRunner
        from jupyter_graphbreak.experiments.reproducer.target import reproducible_ids

        end = time.monotonic() + (_TIME_LIMIT_S if seconds is None else seconds)
        scripts: list[Reproducer] = []
        idents = reproducible_ids(self.report)
        with ScriptRunner() as runner:
            for number, ident in enumerate(idents):
                seconds_left = end - time.monotonic()
                if seconds_left < _MIN_FOR_SCRIPT_S and scripts:
                    self._notes.append(f"There was no time for {len(idents) - number} of {len(idents)} reproducers.")
                    break
                share = max(_MIN_FOR_SCRIPT_S, seconds_left / (len(idents) - number))
                with self._noting_failures(f"Reproducing {ident}"):
                    scripts.append(self.reproduce(ident, seconds=share, runner=runner))
        return self._update(replace(self.report, reproducers=scripts))

    def _entries(self, latest_start: float, verb: str) -> Iterator[Entry]:
        """Yield the entries until time is up; add a note about the entries that are left out."""
        for number, entry in enumerate(self._kept.entries):
            if time.monotonic() > latest_start:
                left_out = len(self._kept.entries) - number
                self._notes.append(f"{left_out} of {number + left_out} calls were not {verb}: time was up.")
                return
            yield entry

    @contextlib.contextmanager
    def _noting_failures(self, activity: str, entry: Entry | None = None) -> Iterator[None]:
        """Add a note instead of raising if an activity fails, so that the other entries or scripts still follow.

        An entry that is stopped before it has an effect outside its copies is left out from now on.

        Parameters
        ----------
        activity : str
            The activity, as the beginning of a sentence: "Measuring f".
        """
        from jupyter_graphbreak.experiments.trial.entry import why_copies_failed
        from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError

        try:
            yield
        except TimeUpError:
            self._notes.append(f"{activity} took too long and was stopped.")
        except Exception as fault:  # noqa: BLE001 - the function failed, or a copy lacks something that it needs
            if isinstance(fault, TrialStoppedError) and entry is not None:
                self._kept.leave_out(entry, fault.effect)
                return
            if entry is not None and self.report.error is not None:
                reason = why_copies_failed(entry, fault, self.report)
                self._notes.append(f"{reason.removesuffix('.')}.")
            else:
                self._notes.append(f"{activity} failed ({error_headline(fault)}).")

    def _update(self, report: schema.Report) -> Report:
        """Store and return an extended report; its diagnostics have each note and internal error so far once."""
        from jupyter_graphbreak.experiments.trial.effect_locations import with_effects

        report = with_effects(report, self._files, self._kept.effects, self._find_cell)
        sentences = dict.fromkeys([*self._kept.left_out, *self._notes])
        notes = [
            *(Diagnostic("warning", sentence) for sentence in sentences),
            *(Diagnostic("error", sentence) for sentence in [*self._warm.faults, *self._faults]),
        ]
        new_notes = [note for note in notes if note not in report.diagnostics]
        extended = Report.of(replace(report, diagnostics=[*report.diagnostics, *new_notes]))
        self.report = extended.set_reproduce_function(self.reproduce)
        return self.report


def _share_of_breaks(report: schema.Report) -> float:
    """Return the share of the time in which to look for remedies of breaks."""
    if not report.recompiles:
        return 1.0
    return _SHARE_OF_BREAKS if report.breaks else _SHARE_WITHOUT_BREAKS


def _deadlines(seconds: float | None) -> tuple[float, float]:
    """Return the end of the time limit, and the time after which no further entry starts, as :func:`time.monotonic`."""
    limit = _TIME_LIMIT_S if seconds is None else seconds
    return time.monotonic() + limit, time.monotonic() + _SHARE_FOR_STARTING * limit

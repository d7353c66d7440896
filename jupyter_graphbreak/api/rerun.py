"""Analyse a finished run by running its entries again on copies, without showing their output.

An entry is a compiled function that the run called, with copies of the arguments and state of its first call.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.toolchain import require_torch
from jupyter_graphbreak.analysis.priority import prioritize_breaks
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time
from jupyter_graphbreak.faults import error_headline, redirect_faults
from jupyter_graphbreak.recording.recorder import cell_of_shell
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
#: The share of the time for breaks if the report also contains recompiles, and if it contains only recompiles.
_SHARE_OF_BREAKS, _SHARE_WITHOUT_BREAKS = 0.75, 0.3
#: The share of the time limit after which no further entry is analysed, and only a few calls are timed.
_SHARE_FOR_STARTING = 0.5
#: The minimum time, in seconds, for finding one reproducing script.
_MIN_FOR_SCRIPT_S = 15.0


class KeptRun(NamedTuple):
    """The parts of a run that are kept for further analyses: copies of its entries, and the times of its calls."""

    entries: RecordedEntries
    warm_calls: WarmCalls


@contextlib.contextmanager
def keep_for_analysis(*, looks_for_nan: bool) -> Iterator[KeptRun]:
    """While the context is open, keep copies of entries and call times for further analysis.

    With ``looks_for_nan``, also look for the first call whose result contains NaN; reading each result takes time.
    """
    require_torch()
    from jupyter_graphbreak.experiments.cost.timing import time_calls
    from jupyter_graphbreak.experiments.trial.entry import record_entries

    with time_calls() as warm_calls, record_entries(looks_for_nan=looks_for_nan) as entries:
        yield KeptRun(entries, warm_calls)


def _collect_faults(method: _Method) -> _Method:
    """Decorate a method so that it collects the internal errors of its trials for the report."""

    @functools.wraps(method)
    def collect(self: Rerun, *args: Any, **kwargs: Any) -> Any:
        with redirect_faults(self._faults):
            return method(self, *args, **kwargs)

    return cast("_Method", collect)


class Rerun:
    """The kept entries of a run and its report, to which each analysis adds its results.

    ``files`` contains the file name of each source of the report, by source id.
    """

    def __init__(
        self,
        report: Report,
        files: Mapping[str, str],
        kept_run: KeptRun,
        find_cell: FindCell = cell_of_shell,
        on_status: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.report = report
        self._files = files
        self._kept_entries = kept_run.entries
        self._warm_calls = kept_run.warm_calls
        self._find_cell = find_cell
        self._on_status = on_status
        self._found_remedies: FoundRemedies | None = None
        self._found_recompile_remedies: FoundRecompileRemedies | None = None
        self._notes: list[str] = []
        self._faults: list[str] = []

    @_collect_faults
    def try_remedies(self, **options: Any) -> Report:
        """Try to remove the breaks and to prevent the recompiles.

        The options are those of :func:`jupyter_graphbreak.experiments.remedies.finding.find_remedies`.
        """
        from jupyter_graphbreak.experiments.remedies.finding import PATIENCE_S, find_remedies

        seconds = options.pop("seconds", None)
        time_limit = PATIENCE_S if seconds is None else seconds
        deadline = time.monotonic() + time_limit
        share = _share_of_breaks(self.report)
        self._found_remedies = find_remedies(
            self.report,
            self._files,
            self._kept_entries,
            find_cell=self._find_cell,
            on_status=self._on_status,
            seconds=share * time_limit,
            **options,
        )
        report = self._found_remedies.report
        self._found_recompile_remedies = None
        if report.recompiles:
            from jupyter_graphbreak.experiments.recompiles.finding import find_recompile_remedies
            from jupyter_graphbreak.experiments.remedies.application import compile_file

            self._found_recompile_remedies = find_recompile_remedies(
                report,
                self._files,
                self._kept_entries,
                seconds=deadline - time.monotonic(),
                find_cell=self._find_cell,
                on_status=self._on_status,
                compile_text=options.get("compile_text", compile_file),
                break_remedy_contexts=self._found_remedies.remedy_contexts,
            )
            report = self._found_recompile_remedies.report
        return self._update(report)

    @_collect_faults
    def measure(self, seconds: float | None = None) -> Report:
        """Measure the cost of the entries, and the savings of the remedies that were found earlier."""
        from jupyter_graphbreak.experiments.cost.entry_cost import device_of, measure_entry
        from jupyter_graphbreak.experiments.cost.startup import combine_startups
        from jupyter_graphbreak.experiments.trial.entry import backend_name

        deadline, latest_start = _deadlines(seconds)
        costs, startups = [], []
        for entry in self._entries(latest_start, "measured"):
            self._on_status(f"{entry.name}: running repeatedly on copies")
            with entry.set_up(), self._note_failures(f"Measuring {entry.name}", entry), limit_time(deadline):
                results = [
                    result for result in (self._found_remedies, self._found_recompile_remedies) if result is not None
                ]
                contexts = {
                    ids: context for result in results for ids, context in result.remedy_contexts(entry).items()
                }
                measured_entry = measure_entry(
                    entry, contexts, self.report, deadline=latest_start, find_cell=self._find_cell
                )
                costs.append(replace(measured_entry.cost, in_run=self._warm_calls.spread_of(entry.callable_id)))
                startups.append(measured_entry.startup)
        if costs:
            first_entry = self._kept_entries.entries[0]
            cost = Cost(device_of(first_entry), backend_name(first_entry.backend), costs)
            return self._update(prioritize_breaks(replace(self.report, cost=cost, startup=combine_startups(startups))))
        return self._update(self.report)

    @_collect_faults
    def check(self, seconds: float | None = None) -> Report:
        """Compare the compiled results of the entries with their eager results."""
        from jupyter_graphbreak.experiments.check.checking import check_instances, group_instances

        deadline, latest_start = _deadlines(seconds)
        checks = []
        groups = {id(group[0]): group for group in group_instances(self._kept_entries.entries)}
        for entry in self._entries(latest_start, "checked"):
            if id(entry) not in groups:  # the entry is checked together with the first entry of its group
                continue
            self._on_status(f"{entry.name}: comparing compiled with eager results")
            with entry.set_up(), self._note_failures(f"Checking {entry.name}", entry), limit_time(deadline):
                group = groups[id(entry)]
                check_result = check_instances(group, self.report, find_cell=self._find_cell)
                if check_result.error_name is None:
                    checks.append(replace(check_result.check, calls=max(map(self._kept_entries.count_calls, group))))
        return self._update(replace(self.report, check=checks))

    @_collect_faults
    def record_values(self, at: Sequence[str] = (), seconds: float | None = None) -> Report:
        """Record the values that the entries' lines compute, and find where NaN and Inf arise.

        The operations of the lines in ``at``, such as ``"12"`` or ``"model.py:12"``, are listed one by one.
        """
        from jupyter_graphbreak.experiments.values.finding import values_of_entry
        from jupyter_graphbreak.experiments.values.requested_lines import parse_lines, sentences_about_missing_lines

        requested_lines = parse_lines(at)
        deadline, latest_start = _deadlines(seconds)
        entry_values = []
        for entry in self._entries(latest_start, "run operation by operation"):
            self._on_status(f"{entry.name}: running operation by operation on copies")
            calls = self._kept_entries.count_calls(entry)
            number, entry_with_nan = self._kept_entries.call_with_nan(entry) or (1, None)
            if entry_with_nan is None and number > 1:
                self._notes.append(
                    f"The result of call {number} of {entry.name} contains NaN, but there was not enough memory to "
                    "keep the arguments of this call."
                )
            observed_entry, number = (entry_with_nan, number) if entry_with_nan is not None else (entry, 1)
            activity = f"Recording the values of {entry.name}"
            with entry.set_up(), self._note_failures(activity, entry), limit_time(deadline):
                result = values_of_entry(
                    observed_entry,
                    self.report,
                    lines=requested_lines,
                    call_number=number,
                    call_count=calls,
                    find_cell=self._find_cell,
                )
                entry_values.append(result.values)
        self._notes += sentences_about_missing_lines(requested_lines, entry_values, self.report)
        return self._update(replace(self.report, values=entry_values))

    def reproduce(
        self, ident: str, *, redacted: bool = False, seconds: float | None = None, runner: ScriptRunner | None = None
    ) -> Reproducer:
        """Find a script that shows a break, a recompile, the error or the wrong result without the rest of the program.

        With ``redacted``, the names and strings of the program are replaced.
        """
        from jupyter_graphbreak.experiments.reproducer.finding import reproduce

        return reproduce(
            self.report,
            self._kept_entries,
            ident,
            redacted=redacted,
            seconds=seconds,
            on_status=self._on_status,
            runner=runner,
        )

    @_collect_faults
    def reproduce_all(self, seconds: float | None = None) -> Report:
        """Find scripts for all findings of the report that can be reproduced, as far as time allows."""
        from jupyter_graphbreak.experiments.reproducer.processes import ScriptRunner
        from jupyter_graphbreak.experiments.reproducer.target import reproducible_ids

        deadline = time.monotonic() + (_TIME_LIMIT_S if seconds is None else seconds)
        scripts: list[Reproducer] = []
        idents = reproducible_ids(self.report)
        with ScriptRunner() as runner:
            for number, ident in enumerate(idents):
                seconds_left = deadline - time.monotonic()
                if seconds_left < _MIN_FOR_SCRIPT_S and scripts:
                    self._notes.append(f"There was no time for {len(idents) - number} of {len(idents)} reproducers.")
                    break
                share = max(_MIN_FOR_SCRIPT_S, seconds_left / (len(idents) - number))
                with self._note_failures(f"Reproducing {ident}"):
                    scripts.append(self.reproduce(ident, seconds=share, runner=runner))
        return self._update(replace(self.report, reproducers=scripts))

    def _entries(self, latest_start: float, verb: str) -> Iterator[Entry]:
        """Yield the entries until time is up; then add a note about the entries that are left out."""
        for number, entry in enumerate(self._kept_entries.entries):
            if time.monotonic() > latest_start:
                total = len(self._kept_entries.entries)
                not_run = "One call was" if total - number == 1 else f"{total - number} calls were"
                self._notes.append(f"{not_run} not {verb} (of {total} in total): time was up.")
                return
            yield entry

    @contextlib.contextmanager
    def _note_failures(self, activity: str, entry: Entry | None = None) -> Iterator[None]:
        """If an activity fails, add a note instead of raising, so that the remaining entries or scripts still follow.

        The activity is the beginning of a sentence: "Measuring f". If an entry is stopped because of an effect outside
        its copies, later analyses leave the entry out.
        """
        from jupyter_graphbreak.experiments.trial.entry import why_copies_failed
        from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError

        try:
            yield
        except TimeUpError:
            self._notes.append(f"{activity} took too long and was stopped.")
        except Exception as fault:  # noqa: BLE001 - the function failed, or a copy lacks something that is needed
            if isinstance(fault, TrialStoppedError) and entry is not None:
                self._kept_entries.leave_out(entry, fault.effect)
                return
            if entry is not None and self.report.error is not None:
                reason = why_copies_failed(entry, fault, self.report)
                self._notes.append(f"{reason.removesuffix('.')}.")
            else:
                self._notes.append(f"{activity} failed ({error_headline(fault)}).")

    def _update(self, report: schema.Report) -> Report:
        """Store and return a report with all notes and internal errors so far in its diagnostics, each once."""
        from jupyter_graphbreak.experiments.trial.effect_locations import with_effects

        report = with_effects(report, self._files, self._kept_entries.effects, self._find_cell)
        sentences = dict.fromkeys([*self._kept_entries.omission_reasons, *self._notes])
        notes = [
            *(Diagnostic("warning", sentence) for sentence in sentences),
            *(Diagnostic("error", sentence) for sentence in [*self._warm_calls.faults, *self._faults]),
        ]
        new_notes = [note for note in notes if note not in report.diagnostics]
        updated_report = Report.of(replace(report, diagnostics=[*report.diagnostics, *new_notes]))
        self.report = updated_report.set_reproduce_function(self.reproduce)
        return self.report


def _share_of_breaks(report: schema.Report) -> float:
    """Return the share of the time that is spent on remedies for breaks."""
    if not report.recompiles:
        return 1.0
    return _SHARE_OF_BREAKS if report.breaks else _SHARE_WITHOUT_BREAKS


def _deadlines(seconds: float | None) -> tuple[float, float]:
    """Return two values of :func:`time.monotonic`: the time limit, and the time after which no further entry starts."""
    limit = _TIME_LIMIT_S if seconds is None else seconds
    return time.monotonic() + limit, time.monotonic() + _SHARE_FOR_STARTING * limit

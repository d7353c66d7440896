"""Find remedies for the entries of a run."""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.compiled import CompileArguments, compile_arguments, uncompiled_callable
from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak.analysis.matching import same_breaks
from jupyter_graphbreak.experiments.remedies.application import compile_file
from jupyter_graphbreak.experiments.remedies.changed_entry import make_remedy_context
from jupyter_graphbreak.experiments.remedies.own_edits import Patch
from jupyter_graphbreak.experiments.remedies.remedy_list import with_remedies
from jupyter_graphbreak.experiments.remedies.search import OWN_EDIT_S, Search
from jupyter_graphbreak.experiments.remedies.trial_runner import TrialRunner
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry, callable_name, why_copies_failed
from jupyter_graphbreak.experiments.trial.rebuilt_calls import CannotRebuildError, can_be_rebuilt, rebuild_arguments
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time
from jupyter_graphbreak.recording.recorder import cell_of_shell
from jupyter_graphbreak.report.remedies import INTERRUPTED_REASON
from jupyter_graphbreak.report.schema import Device, Diagnostic, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from types import CodeType

    from jupyter_graphbreak.experiments.remedies.candidates import Candidate
    from jupyter_graphbreak.experiments.remedies.own_edits import EditedCells
    from jupyter_graphbreak.experiments.remedies.search import OnStatus
    from jupyter_graphbreak.experiments.trial.entry import RecordedEntries, RemedyContext
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.schema import Break

#: Seconds after which no further trial starts.
PATIENCE_S = 100.0
#: Seconds that the first run on copies may take even if the time is up. With changes by the user, it may take
#: ``OWN_EDIT_S``, because inputs are derived during a share of that time.
_MIN_FIRST_RUN_S = 10.0
#: The share of the remaining time for an entry that is not the last.
_SHARE_OF_EARLIER_ENTRY = 0.7
#: The maximum number of later calls to an entry to repeat, for breaks that its first call does not reach.
_MAX_LATER_CALLS = 4
#: The maximum number of remedies of one entry to measure: each has to be compiled again.
_MAX_MEASURED = 6


@dataclass(frozen=True)
class FoundRemedies:
    """The result of a search for remedies: for each entry the search, and its candidates by the ids of the remedies."""

    report: Report
    searches: list[tuple[Search, dict[str, Candidate]]]

    def remedy_contexts(self, entry: Entry) -> dict[tuple[str, ...], RemedyContext]:
        """Return the contexts that apply the remedies of an entry that are worth measuring, by the remedies' ids."""
        return {
            (ident,): make_remedy_context(entry, search.runner.program, candidates[ident].result.change)
            for search, candidates in self.searches
            if search.runner.entry is entry
            for ident in choose_remedies_to_measure(candidates)
        }


def find_remedies_of_call(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    own_changes: Sequence[Callable[..., Any] | Patch] = (),
    seconds: float | None = None,
) -> FoundRemedies:
    """Compile a function, call it on copies, and return its report with remedies for its breaks.

    The user's own rewrites of the function are tried first. The time limit is 100 seconds by default. A ValueError is
    raised if a patch changes nothing that the call compiles, a TrialStoppedError if the function was stopped before it
    did something outside of its copies, and any exception that the function itself raises.
    """
    function = uncompiled_callable(fn)
    options = compile_arguments(fn) or CompileArguments("eager")
    entry = Entry(callable_name(function), None, function, Arguments(*args, **kwargs).to_positional(function), *options)
    deadline = time.monotonic() + (PATIENCE_S if seconds is None else seconds)
    reason = entry.why_not_run()
    if reason is not None:
        return _empty_result(reason)
    with entry.set_up():
        try:
            with limit_time(_deadline_of_first_run(deadline, own_changes)):
                runner = TrialRunner(entry)
        except TimeUpError:
            return _empty_result(_out_of_time_message(entry))
        search = Search(runner, deadline)
        reasons: list[str] = []
        try:
            for rewrite in own_changes:
                if not isinstance(rewrite, Patch):
                    search.try_function(uncompiled_callable(rewrite))
                elif not search.try_edit(rewrite):
                    raise ValueError(_no_effect_message(rewrite))
            search.run()
        except KeyboardInterrupt:
            reasons.append(INTERRUPTED_REASON)
    return _collect_remedies(runner.original.report, runner.original.files, [search], reasons)


def _deadline_of_first_run(deadline: float, own_changes: Sequence[object]) -> float:
    """Return the time at which the first run on copies must end, given the time at which the search ends."""
    return max(deadline, time.monotonic() + (OWN_EDIT_S if own_changes else _MIN_FIRST_RUN_S))


def _empty_result(reason: str) -> FoundRemedies:
    """Return an empty report with the reason why a function cannot run on copies."""
    device = Device("auto", default_device_name())
    return FoundRemedies(Report("ok", device, diagnostics=[Diagnostic("warning", reason)], remedies=[]), [])


def _out_of_time_message(entry: Entry) -> str:
    return f"Nothing was tried for {entry.name}: running it on copies took all the available time."


def _not_started_message(entry: Entry) -> str:
    return f"Nothing was tried for {entry.name}: the time limit was reached before it could run."


def find_remedies(  # noqa: PLR0913 - the options of the search are independent
    report: Report,
    files: Mapping[str, str],
    recorded_entries: RecordedEntries,
    *,
    seconds: float | None = None,
    compile_text: Callable[[str, str], list[CodeType]] = compile_file,
    find_cell: FindCell = cell_of_shell,
    on_status: OnStatus = lambda _: None,
    own_edits: Sequence[EditedCells | Patch] = (),
    first_break_ids: Collection[str] = (),
) -> FoundRemedies:
    """Return a report with remedies for its breaks. An interrupt stops the search early but keeps the results so far.

    The user's own edits are tried first, and nothing else if the time limit, by default 100 seconds, is 0. The search
    starts with the breaks that an earlier, interrupted search did not reach.
    """
    deadline = time.monotonic() + (PATIENCE_S if seconds is None else seconds)
    reasons = [
        *recorded_entries.omission_reasons,
        *(f"the function was not run again: it {effect.description}" for effect in recorded_entries.effects),
    ]
    progress = _Progress(report, on_status, own_edits, first_break_ids)
    entries = _sort_by_breaks(report, recorded_entries.entries, first_break_ids) if report.breaks else []
    later_calls = itertools.chain.from_iterable(_later_calls(entry, recorded_entries) for entry in entries)
    try:
        for index, entry in enumerate(itertools.chain(entries, later_calls)):
            is_later = index >= len(entries)
            if is_later and not progress.unreached_break_ids():
                break
            # An entry may use most of the remaining time, and leaves the rest to later entries. The first entry has the
            # most breaks.
            left_s = deadline - time.monotonic()
            is_last = index == len(entries) - 1 and not _has_breaks_only_in_recompiles(report)
            entry_deadline = deadline if is_last else time.monotonic() + left_s * _SHARE_OF_EARLIER_ENTRY
            if left_s <= 0 and (is_later or not own_edits):
                reasons += [] if is_later else [_not_started_message(entry)]
                continue
            on_status(f"to repeat {entry.name} on copies")
            with entry.set_up():
                first_run_deadline = _deadline_of_first_run(entry_deadline, own_edits)
                runner = _runner_or_reason(entry, report, first_run_deadline, recorded_entries, compile_text, find_cell)
                if not isinstance(runner, TrialRunner):
                    reasons.append(runner)
                    continue
                break_ids_to_remove = progress.note_breaks(runner, is_later=is_later)
                if index >= len(entries) - 1 and not progress.unreached_break_ids():
                    entry_deadline = deadline  # no later call is needed
                if break_ids_to_remove:
                    progress.search(runner, entry_deadline, break_ids_to_remove)
    except KeyboardInterrupt:
        reasons.append(INTERRUPTED_REASON)
        note = "The search for remedies was interrupted before it reached some breaks; run it again for the rest."
        report = replace(report, diagnostics=[*report.diagnostics, Diagnostic("warning", note)])
    if seconds == 0:  # only the user's own edits were to be tried
        for search in progress.searches:
            search.unreached_break_ids.clear()
    untried_edit_notes = [
        Diagnostic("warning", _why_not_tried(edit, recorded_entries))
        for edit in own_edits
        if edit not in progress.applicable_edits
    ]
    report = replace(report, diagnostics=[*report.diagnostics, *untried_edit_notes])
    return _collect_remedies(report, files, progress.searches, reasons, progress.break_ids_by_function)


@dataclass
class _Progress:
    """The searches for the breaks of a report so far, the breaks that they reached, and those that they fixed."""

    report: Report
    on_status: OnStatus
    own_edits: Sequence[EditedCells | Patch]
    first_break_ids: Collection[str]
    searches: list[Search] = field(default_factory=list)
    #: The user's own edits that change the program of an entry.
    applicable_edits: list[EditedCells | Patch] = field(default_factory=list)
    #: The ids of the breaks that the runs of each function have reached.
    break_ids_by_function: dict[str, set[str]] = field(default_factory=dict)
    _fixed_break_ids: set[str] = field(default_factory=set)
    #: The ids of the breaks that are fixed for a function, because only parts of it are compiled instead.
    _fixed_in_function: dict[str, set[str]] = field(default_factory=dict)

    def unreached_break_ids(self) -> set[str]:
        """Return the breaks that no search has reached."""
        ids_by_function = (self.break_ids_by_function, self._fixed_in_function)
        known_break_ids = {ident for ids in ids_by_function for ident in itertools.chain.from_iterable(ids.values())}
        return {break_.id for break_ in self.report.breaks} - known_break_ids - self._fixed_break_ids

    def note_breaks(self, runner: TrialRunner, *, is_later: bool) -> frozenset[str]:
        """Note the breaks that the run of an entry has reached. Return the ids, in this run, of the breaks to remove.

        If the run repeats a later call of an entry, only breaks that no earlier run reached are used.
        """
        breaks_in_run, function = same_breaks(self.report, runner.original.report), runner.entry.name
        fixed_break_ids = self._fixed_break_ids | self._fixed_in_function.get(function, set())
        searched_breaks = breaks_in_run.keys() & (
            self.unreached_break_ids() if is_later else breaks_in_run.keys() - fixed_break_ids
        )
        self.break_ids_by_function.setdefault(function, set()).update(breaks_in_run)
        return frozenset(breaks_in_run[ident] for ident in searched_breaks)

    def search(self, runner: TrialRunner, deadline: float, break_ids_to_remove: frozenset[str]) -> None:
        """Search for remedies of an entry, the user's own edits first."""
        breaks_in_run = same_breaks(self.report, runner.original.report)
        first_break_ids = frozenset(breaks_in_run[ident] for ident in self.first_break_ids if ident in breaks_in_run)
        search = Search(runner, deadline, break_ids_to_remove, self.on_status, first_break_ids)
        self.searches.append(search)
        self.applicable_edits += [edit for edit in self.own_edits if search.try_edit(edit)]
        candidates = search.run()
        for candidate in candidates:
            if candidate.works:
                fixed_break_ids = {ident for ident, run_id in breaks_in_run.items() if run_id in candidate.breaks}
                if candidate.result.change.inner_calls:
                    self._fixed_in_function.setdefault(runner.entry.name, set()).update(fixed_break_ids)
                else:
                    self._fixed_break_ids |= fixed_break_ids


def _runner_or_reason(
    entry: Entry,
    report: Report,
    deadline: float,
    recorded_entries: RecordedEntries,
    compile_text: Callable[[str, str], list[CodeType]],
    find_cell: FindCell,
) -> TrialRunner | str:
    """Return the runner of an entry's trials, or a sentence that says why it cannot run again."""
    try:
        with limit_time(deadline):
            return TrialRunner(entry, compile_text, find_cell)
    except TimeUpError:
        return _out_of_time_message(entry)
    except TrialStoppedError as stopped:
        recorded_entries.leave_out(entry, stopped.effect)
        return f"{entry.name} was not run again: it {stopped.effect.description}"
    except Exception as error:  # noqa: BLE001 - the function itself fails, or a copy lacks what it needs
        return why_copies_failed(entry, error, report)


def _later_calls(entry: Entry, recorded_entries: RecordedEntries) -> Iterator[Entry]:
    """Yield the entry with the arguments of each of its next few calls in the same modes, if they can be rebuilt."""
    calls = recorded_entries.calls_to(entry)
    for call in [call for call in calls[1:] if call.modes == entry.modes][:_MAX_LATER_CALLS]:
        if can_be_rebuilt(call, calls[0]):
            with contextlib.suppress(CannotRebuildError):
                arguments = rebuild_arguments(entry.function, call.arguments, call.keyword_names, entry.arguments)
                yield replace_fields(entry, arguments=arguments)


def _has_breaks_only_in_recompiles(report: Report) -> bool:
    """Return whether any break occurs only in recompiled code."""
    recompiled_frame_ids = {frame.id for frame in report.frames if frame.recompile_of is not None}
    for frame in report.frames:  # callers come first
        if frame.caller in recompiled_frame_ids:
            recompiled_frame_ids.add(frame.id)
    return any(
        {occurrence.frame for occurrence in break_.occurrences} <= recompiled_frame_ids for break_ in report.breaks
    )


def _sort_by_breaks(report: Report, entries: Sequence[Entry], first_break_ids: Collection[str]) -> list[Entry]:
    """Sort entries by how often the first breaks to try occur in them, then by how often any break occurs.

    Entries that reuse code add no breaks and are left out.
    """
    frame_ids = [frame.id for frame in report.frames]
    starts = {entry.frame_id: frame_ids.index(entry.frame_id) for entry in entries if entry.frame_id in frame_ids}

    def occurrences_in_entry(entry: Entry, breaks: Sequence[Break]) -> int:
        start_index = starts.get(entry.frame_id or "", 0)
        end_index = min(
            (other_start for other_start in starts.values() if other_start > start_index), default=len(frame_ids)
        )
        frames_of_entry = set(frame_ids[start_index:end_index])
        return sum(occurrence.frame in frames_of_entry for break_ in breaks for occurrence in break_.occurrences)

    breaks_to_begin_with = [break_ for break_ in report.breaks if break_.id in first_break_ids]
    entries_with_own_code = [entry for entry in entries if not entry.reuses_code]
    return sorted(
        entries_with_own_code,
        key=lambda entry: (
            -occurrences_in_entry(entry, breaks_to_begin_with),
            -occurrences_in_entry(entry, report.breaks),
        ),
    )


def _why_not_tried(edit: EditedCells | Patch, recorded_entries: RecordedEntries) -> str:
    """Return the reason why the user's own edit was not tried, as a sentence."""
    if recorded_entries.effects and not recorded_entries.entries:
        description = recorded_entries.effects[0].description
        side_effect = f"running the function again would have a side effect (it {description})"
        return f"{edit.title} was not tried: {side_effect}."
    return _no_effect_message(edit)


def _no_effect_message(edit: EditedCells | Patch) -> str:
    files = f" It changes {', '.join(edit.files)}." if isinstance(edit, Patch) else ""
    return f"{edit.title} was not tried: it changes neither a function with a graph break nor a caller of one.{files}"


def _collect_remedies(
    report: Report,
    files: Mapping[str, str],
    searches: list[Search],
    reasons: Sequence[str],
    break_ids_by_function: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> FoundRemedies:
    completed_report, candidates = with_remedies(report, files, searches, reasons, break_ids_by_function)
    return FoundRemedies(completed_report, list(zip(searches, candidates, strict=True)))


def choose_remedies_to_measure(remedies: Mapping[str, Candidate]) -> list[str]:
    """Return the ids of a few remedies: the one that removes the most breaks, and the best for each break."""
    working_remedies = {
        ident: candidate for ident, candidate in remedies.items() if candidate.works and candidate.result.change
    }
    if not working_remedies:
        return []
    with_most_breaks = max(working_remedies, key=lambda ident: len(working_remedies[ident].breaks))
    best_by_break: dict[str, str] = {}
    for ident, candidate in working_remedies.items():
        for break_id in candidate.breaks:
            earlier_best = best_by_break.get(break_id)
            if earlier_best is None or _preference(candidate) < _preference(working_remedies[earlier_best]):
                best_by_break[break_id] = ident
    return list(dict.fromkeys([with_most_breaks, *best_by_break.values()]))[:_MAX_MEASURED]


def _preference(candidate: Candidate) -> tuple[int, int]:
    """Return a sort key that prefers remedies for few breaks, because their effect is clear, then better verdicts."""
    return len(candidate.breaks), candidate.rank

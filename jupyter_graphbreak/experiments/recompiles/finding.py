"""Find remedies for the recompiles of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.configuration import apply_settings
from jupyter_graphbreak.experiments.recompiles.entry_search import EntryFindings, EntrySearch
from jupyter_graphbreak.experiments.recompiles.manual_steps import is_about_freed_objects, is_general, manual_steps
from jupyter_graphbreak.experiments.recompiles.replay import Adjustment, run_lines
from jupyter_graphbreak.experiments.recompiles.report_texts import ReportTexts
from jupyter_graphbreak.experiments.recompiles.variations import find_variations
from jupyter_graphbreak.experiments.remedies.change import Change, decision_remedy, remedy_of_change
from jupyter_graphbreak.experiments.trial.call_specs import state_roots
from jupyter_graphbreak.experiments.trial.internal_errors import note_if_internal
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time
from jupyter_graphbreak.report.remedies import INTERRUPTED_REASON, NOTHING_TRIED_REASON, WORKING, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import CodeType

    from jupyter_graphbreak.experiments.recompiles.candidates import RecompileCandidate
    from jupyter_graphbreak.experiments.recompiles.trying import CandidateTrial
    from jupyter_graphbreak.experiments.trial.entry import Entry, RecordedEntries, RemedyContext
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.schema import Recompile, Report

#: The time in seconds that repeating the calls to an entry may take even if the time limit has passed.
_MIN_SECONDS_PER_ENTRY = 10.0


class FoundRecompileRemedies(NamedTuple):
    """A report with remedies for its recompiles, and the best working remedy of each entry.

    ``working_remedies`` contains the entry, the id of the remedy, its change, and the name of the called module.
    """

    report: Report
    working_remedies: list[tuple[Entry, str, RecompileCandidate, str]]

    def remedy_contexts(self, entry: Entry) -> dict[tuple[str, ...], RemedyContext]:
        """Return the context that applies the best remedy of an entry, by the remedy's id."""
        return {
            (ident,): partial(_apply_adjustment, working_entry, candidate.adjustment, owner)
            for working_entry, ident, candidate, owner in self.working_remedies
            if working_entry is entry
            and not candidate.adjustment.replaced_numbers
            and candidate.changes_only_calls
            and all(preparation.path.root.kind == "argument" for preparation in candidate.preparations)
        }


@contextlib.contextmanager
def _apply_adjustment(entry: Entry, adjustment: Adjustment, owner: str) -> Iterator[Entry]:
    """Apply the settings of a change while the context is open, and yield the entry with the rest of the change."""
    arguments = entry.arguments.copy()
    if adjustment.lines:
        code = compile("\n".join(adjustment.lines), "<before the call>", "exec")
        arguments = run_lines(code, entry.function, arguments, state_roots(entry.function, arguments), owner)
    dynamic = entry.dynamic if adjustment.dynamic is None else adjustment.dynamic
    with apply_settings(adjustment.settings):
        yield dataclasses.replace(entry, arguments=arguments, dynamic=dynamic)


def find_recompile_remedies(
    report: Report,
    files: Mapping[str, str],
    recorded_entries: RecordedEntries,
    *,
    seconds: float,
    find_cell: FindCell,
    on_status: Callable[[str], None],
    compile_text: Callable[[str, str], list[CodeType]],
    break_remedy_contexts: Callable[[Entry], Mapping[tuple[str, ...], RemedyContext]],
) -> FoundRecompileRemedies:
    """Try changes for the recompiles of a run, and return the run's report with remedies for recompiles added.

    After the time limit, at most one candidate is tried for each further entry. ``break_remedy_contexts`` returns the
    contexts that apply the remedies for breaks of an entry, by the ids of the remedies.
    """
    end = time.monotonic() + seconds
    texts = ReportTexts(report, files, find_cell)
    builder = _RecompileRemedyBuilder(report, texts)
    recompiles_by_entry, recompiles_without_entry = _recompiles_by_entry(report, recorded_entries.entries)
    for entry, recompiles in recompiles_by_entry:
        on_status(f"to repeat the calls to {entry.name} on copies")
        calls, has_repeated_calls = recorded_entries.calls_to(entry), recorded_entries.has_repeated_calls(entry)
        search = EntrySearch(
            entry, calls, recompiles, report, texts, compile_text, on_status, has_repeated_calls=has_repeated_calls
        )
        with entry.set_up():
            try:
                with limit_time(max(end, time.monotonic() + _MIN_SECONDS_PER_ENTRY)):
                    findings = search.run(end)
                    combined_remedy = search.try_combined(findings, break_remedy_contexts(entry))
                    is_enough = combined_remedy is not None and combined_remedy.trial.prevents_recompiles
                    steps = [] if is_enough else findings.manual_steps
                    findings = dataclasses.replace(findings, combined_remedy=combined_remedy, manual_steps=steps)
            except TimeUpError:
                findings = search.findings_so_far(NOTHING_TRIED_REASON)
            except TrialStoppedError as error:
                recorded_entries.leave_out(entry, error.effect)
                findings = search.findings_so_far(f"the function was not run again: it {error.effect.description}")
            except KeyboardInterrupt:
                builder.add(search.findings_so_far(INTERRUPTED_REASON))
                break
            except Exception as error:  # noqa: BLE001 - the function may fail, or a copy may lack what it needs
                note_if_internal("trying fixes for recompiles", error)
                findings = search.findings_so_far(
                    f"the calls could not be repeated on copies ({type(error).__name__}: {error})"
                )
        builder.add(findings, entry)
    reason = next(iter(recorded_entries.omission_reasons), None)
    effect_reasons = [f"the function was not run again: it {effect.description}" for effect in recorded_entries.effects]
    for recompiles in recompiles_without_entry:
        steps = manual_steps(find_variations([]), recompiles)
        builder.add(EntryFindings(recompiles, [], manual_steps=steps, reason=next(iter(effect_reasons), reason)))
    return FoundRecompileRemedies(builder.report(), builder.working_remedies)


def _recompiles_by_entry(
    report: Report, entries: Sequence[Entry]
) -> tuple[list[tuple[Entry, list[Recompile]]], list[list[Recompile]]]:
    """Return the recompiles of each entry, and the recompiles that cannot be repeated, grouped by function.

    A recompile cannot be repeated if its entry was not recorded, or if it happens because an object was freed: the
    copies of the entry's objects stay alive.
    """
    frames = {frame.id: frame for frame in report.frames}

    def entry_frame(ident: str) -> str:
        """Return the first frame of the entry that leads to a frame."""
        visited_frame_ids: set[str] = set()
        while ident in frames and ident not in visited_frame_ids:
            visited_frame_ids.add(ident)
            frame = frames[ident]
            outer_frame = frame.caller or frame.recompile_of
            if outer_frame is None:
                break
            ident = outer_frame
        return ident

    entry_by_frame = {entry.frame_id: entry for entry in reversed(entries) if entry.frame_id is not None}
    by_entry: dict[int, tuple[Entry, list[Recompile]]] = {}
    recompiles_without_entry: dict[str, list[Recompile]] = {}
    for recompile in report.recompiles:
        first_frame = recompile.of or recompile.frame
        entry = (
            entry_by_frame.get(first_frame)
            or entry_by_frame.get(entry_frame(first_frame))
            or entry_by_frame.get(entry_frame(recompile.frame))
        )
        if entry is not None and not is_about_freed_objects(recompile):
            by_entry.setdefault(id(entry), (entry, []))[1].append(recompile)
        else:
            recompiles_without_entry.setdefault(first_frame, []).append(recompile)
    return list(by_entry.values()), list(recompiles_without_entry.values())


class _RecompileRemedyBuilder:
    """Adds remedies for recompiles to a report."""

    def __init__(self, report: Report, texts: ReportTexts) -> None:
        self._report = report
        self._texts = texts
        self._remedies = list(report.remedies or [])
        #: The best working remedy of each entry: the entry, the id of the remedy, its change, and the name of the
        #: called module.
        self.working_remedies: list[tuple[Entry, str, RecompileCandidate, str]] = []

    def add(self, findings: EntryFindings, entry: Entry | None = None) -> None:
        """Add the findings about the recompiles of one entry."""
        idents = [recompile.id for recompile in findings.recompiles]
        if (combination := findings.combined_remedy) is not None:
            combined_remedy = self._remedy(combination.trial, combination.change, idents)
            self._remedies.append(
                replace(
                    combined_remedy,
                    breaks=combination.remedy.breaks,
                    frames=combination.remedy.frames,
                    family=f"{combination.remedy.family} and {combined_remedy.family}",
                    title=f"{combination.remedy.title}; {combined_remedy.title}",
                )
            )
        for number, (trial, change) in enumerate(findings.trials):
            self._remedies.append(self._remedy(trial, change, idents))
            if not number and entry is not None and trial.verdict in WORKING:
                self.working_remedies.append((entry, self._remedies[-1].id, trial.candidate, findings.owner))
        for sentence, recompiles in findings.manual_steps:
            if findings.trials or not is_general(sentence):
                decision = decision_remedy(self._next_id(), sentence, findings.reason)
                self._remedies.append(
                    replace(decision, recompiles=recompiles, is_right=findings.are_recompiles_expected)
                )

    def _next_id(self) -> str:
        return f"r{len(self._remedies) + 1}"

    def _remedy(self, trial: CandidateTrial, change: Change, recompiles: list[str]) -> Remedy:
        candidate = trial.candidate
        original_texts = {source: self._texts.text(source) for source in change.texts}
        paths = {source: self._texts.path(source) for source in change.texts}
        remedy = remedy_of_change(
            self._next_id(), change, trial, families=candidate.families, title=candidate.title, kind=candidate.kind,
            original_texts=original_texts, paths=paths,
        )  # fmt: skip
        return replace(remedy, recompiles=recompiles)

    def report(self) -> Report:
        """Return the report with all remedies."""
        sources = [*self._report.sources, *self._texts.new_sources]
        return replace(self._report, remedies=self._remedies, sources=sources)

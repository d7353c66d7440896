"""Turn the candidates of searches into the remedies of a report."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.compiled import compiled_callable
from jupyter_graphbreak.analysis.matching import same_breaks
from jupyter_graphbreak.experiments.remedies.candidates import VERDICT_RANK
from jupyter_graphbreak.experiments.remedies.change import decision_remedy, do_settings_conflict, remedy_of_change
from jupyter_graphbreak.experiments.remedies.changed_entry import outermost_module
from jupyter_graphbreak.experiments.remedies.run_comparison import code_at
from jupyter_graphbreak.knowledge.causes import known_cause
from jupyter_graphbreak.knowledge.hints import manual_step_of_hints
from jupyter_graphbreak.knowledge.owners import (
    ADVICE_BY_OWNER,
    LIBRARY_OPTIMIZER_ADVICE,
    LIBRARY_OPTIMIZER_MANUAL_STEP,
    OPTIMIZER_ADVICE,
    OPTIMIZER_MANUAL_STEP,
)
from jupyter_graphbreak.knowledge.switches import switch_with_title
from jupyter_graphbreak.records.attributes import globals_of
from jupyter_graphbreak.report.location import Segment, Source
from jupyter_graphbreak.report.remedies import INNER_FAMILY, INTERRUPTED_REASON, NOTHING_TRIED_REASON, WORKING, Evidence
from jupyter_graphbreak.report.schema import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.remedies.candidates import Candidate
    from jupyter_graphbreak.experiments.remedies.search import Search
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Report, Skipped


def manual_step_of_break(report: Report, break_: Break, failed_titles: Sequence[str] = ()) -> str:
    """Return the sentence that tells the user what to decide about a break; it suggests no change that failed."""
    if break_.owner != "own":
        steps = {OPTIMIZER_ADVICE: OPTIMIZER_MANUAL_STEP, LIBRARY_OPTIMIZER_ADVICE: LIBRARY_OPTIMIZER_MANUAL_STEP}
        optimizer_step = next((steps[advice.text] for advice in break_.advice if advice.text in steps), None)
        if optimizer_step is not None:
            return optimizer_step
        owner, call = ADVICE_BY_OWNER[break_.owner], _user_call(report, break_)
        if call is None:
            # A line in PyTorch only shows what the program does, such as running a module's hook.
            step = known_cause(break_.gb_id, break_.gb_type).manual_step if break_.owner == "torch" else None
            return step.text if step is not None else owner.manual_step
        sentence = owner.step_for_error if break_.outcome == "error" else owner.step_for_call
        return sentence.format(call=f"`{_shorten(_code_of_call(call))}` (line {call.line})")
    code = code_at(break_)
    cause = known_cause(break_.gb_id, break_.gb_type, break_.context, code)
    advice_texts = {advice.text for advice in break_.advice}
    use = next((use for use, advice in cause.advice_by_use if advice in advice_texts), None)
    step = dict(cause.manual_steps_by_use).get(use, cause.manual_step) if use is not None else cause.manual_step
    if step is None:
        return manual_step_of_hints(break_.hints) or _general_step(code)
    is_obsolete = step.obsolete_if_failed and any(step.obsolete_if_failed in title for title in failed_titles)
    return step.text_after_failure if is_obsolete else step.text


def _user_call(report: Report, break_: Break) -> Location | None:
    """Return the call in the user's compiled code that leads to a break in a library, if there is one."""
    user_source_ids = {source.id for source in report.sources if source.kind != "library"}
    compiled_functions = {
        (frame.location.source, frame.function) for frame in report.frames if frame.location is not None
    }
    last = next((location for location in reversed(break_.stack) if location.source in user_source_ids), None)
    return last if last is not None and last.code and (last.source, last.function) in compiled_functions else None


def _code_of_call(call: Location) -> str:
    """Return the code of a call without a leading ``return``; for a lambda, only its body, not the whole statement."""
    code = (call.code or "").removeprefix("return ")
    if call.function == "<lambda>" and call.column is None:
        with contextlib.suppress(SyntaxError):
            bodies = [node.body for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Lambda)]
            if len(bodies) == 1:
                return ast.unparse(bodies[0])
    return code


def _general_step(code: str) -> str:
    call = re.match(r"[\w.]+(?=\()", code)
    subject = f"{call[0]}()" if call is not None else _shorten(code)
    if not subject:
        return "Decide whether the code that PyTorch could not trace here is needed in the compiled function."
    return f"Decide whether {subject} can go before or after the call, or be written with operations on tensors."


def _shorten(code: str) -> str:
    line = " ".join(code.split())
    limit = 60
    return line if len(line) <= limit else f"{line[: limit - 3].rstrip()}..."


def manual_step_of_function(skipped: Skipped) -> str:
    """Return the sentence that tells the user what to decide about a function that runs eagerly without a break."""
    if skipped.way_out is not None:
        return f"{skipped.function} runs eagerly; {skipped.way_out}"
    return (
        f"{skipped.function} runs eagerly because {skipped.reason.rstrip('.')}: decide whether that is intended; "
        "if it is, keep the function out of the compiled code."
    )


def with_remedies(
    report: Report,
    files: Mapping[str, str],
    searches: Sequence[Search],
    reasons: Sequence[str] = (),
    break_ids_by_function: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> tuple[Report, list[dict[str, Candidate]]]:
    """Return a report with remedies, and the candidates of each search by the ids of the remedies.

    ``break_ids_by_function`` are the ids of the breaks that each compiled function reaches, if there are several.
    Compiling only parts of one function does not remove a break that another function also reaches.
    """
    source_ids = {filename: source for source, filename in files.items()}
    remedies: list[Remedy] = []
    sources: list[Source] = []
    candidates_of_searches: list[dict[str, Candidate]] = []
    part_steps: list[Remedy] = []
    for search in searches:
        function = search.runner.entry.name
        ids_of_others = frozenset(
            itertools.chain.from_iterable(ids for other, ids in break_ids_by_function.items() if other != function)
        )
        builder = _BreakRemedyBuilder(report, source_ids, search, ids_of_others)
        candidates_of_searches.append(builder.candidates(len(remedies)))
        remedies += [builder.remedy(ident, candidate) for ident, candidate in candidates_of_searches[-1].items()]
        sources += builder.new_sources
        part_steps += builder.advice_on_part()
    entries = {
        ident: search.runner.entry
        for search, candidates_of_search in zip(searches, candidates_of_searches, strict=True)
        for ident in candidates_of_search
    }
    remedies = [remedy for remedy in remedies if remedy.breaks]
    remedies, merged_ids = _merge_over_entries(_merge_over_calls(remedies, entries))
    remedies = _with_exclusions(remedies)
    remaining_ids = {remedy.id for remedy in remedies}
    candidates_of_searches = [
        {
            new_id: candidate
            for ident, candidate in candidates_of_search.items()
            if (new_id := merged_ids.get(ident, ident)) in remaining_ids
        }
        for candidates_of_search in candidates_of_searches
    ]
    fixed_break_ids = {ident for remedy in remedies if remedy.verdict in WORKING for ident in remedy.breaks}
    steps = [
        *_manual_steps(report, remedies, searches, reasons),
        *(step for step in part_steps if fixed_break_ids.isdisjoint(step.breaks)),
    ]
    last_number = max((int(ident[1:]) for ident in entries), default=0)  # merged remedies leave gaps
    remedies += [replace(step, id=f"r{number}") for number, step in enumerate(steps, start=last_number + 1)]
    faults = [Diagnostic("error", sentence) for search in searches for sentence in dict.fromkeys(search.faults)]
    notes = [
        Diagnostic("warning", f"Changes to {runner.entry.name} may behave differently with its own backend: {reason}.")
        for runner in (search.runner for search in searches)
        if (reason := runner.why_different_backend()) is not None
    ]
    diagnostics = [*report.diagnostics, *faults, *notes]
    return replace(
        report, remedies=remedies, sources=[*report.sources, *sources], diagnostics=diagnostics
    ), candidates_of_searches


class _BreakRemedyBuilder:
    """Turns the candidates of one search into remedies for the breaks of the report."""

    def __init__(
        self,
        report: Report,
        source_ids: dict[str, str],
        search: Search,
        break_ids_of_others: frozenset[str],
    ) -> None:
        self._search = search
        self._break_ids_of_others = break_ids_of_others
        self._original = search.runner.original
        self._report, self._source_ids = report, source_ids
        self._breaks = {run_id: report_id for report_id, run_id in same_breaks(report, self._original.report).items()}
        self.new_sources: list[Source] = []
        self._sources: dict[str, str] = {}
        for source in self._original.report.sources:
            self._sources[source.id] = self._id_in_report(self._original.files[source.id], source)
        self._paths = {source.id: source.path or source.name for source in self._original.report.sources}
        changed_sources = {source for candidate in search.candidates for source in candidate.result.change.texts}
        for ident, (filename, cell) in search.runner.other_cells.items():
            if ident in changed_sources:
                source = Source("", cell.name, "cell", segments=[Segment(1, cell.text)])
                self._sources[ident], self._paths[ident] = self._id_in_report(filename, source), cell.name

    def _id_in_report(self, filename: str, source: Source) -> str:
        """Return the id of a source in the report, to which the source is added if it is missing."""
        if filename not in self._source_ids:
            self._source_ids[filename] = f"s{len(self._report.sources) + len(self.new_sources) + 1}"
            self.new_sources.append(replace(source, id=self._source_ids[filename]))
        return self._source_ids[filename]

    def candidates(self, count: int) -> dict[str, Candidate]:
        """Return the candidates for breaks of the report, by ids whose numbers continue after ``count``."""
        candidates = [
            candidate
            for candidate in self._search.candidates
            if any(ident in self._breaks for ident in candidate.breaks)
        ]
        return {f"r{number}": candidate for number, candidate in enumerate(candidates, start=count + 1)}

    def remedy(self, ident: str, candidate: Candidate) -> Remedy:
        """Return a candidate as a remedy of the report."""
        result, texts = candidate.result, self._search.runner.program.texts
        remedy = remedy_of_change(
            ident, result.change, result, families=candidate.families, title="; ".join(candidate.titles),
            kind=candidate.kind, original_texts=texts, paths=self._paths,
        )  # fmt: skip
        breaks = [self._breaks[break_id] for break_id in candidate.breaks if break_id in self._breaks]
        breaks += self._breaks_outside_parts(candidate) if candidate.works else ()
        if candidate.works and candidate.result.change.inner_calls:
            breaks = [ident for ident in breaks if ident not in self._break_ids_of_others]
        return replace(
            remedy,
            breaks=breaks,
            edits=[replace(edit, source=self._sources[edit.source]) for edit in remedy.edits],
            code=self._code_for_reader(remedy.code),
        )

    def advice_on_part(self) -> Iterator[Remedy]:
        """Yield the advice on the part that could be compiled if its only break were removed."""
        part = self._search.part_with_one_break
        ident = self._breaks.get(part.break_) if part is not None else None
        if part is None or ident is None:
            return
        step = f"compiling `{part.name}` instead of {self._search.runner.entry.name}"
        sentence = (
            f"`{part.name}` does {round(100 * part.share)}% of the forward operations, and of all breaks only this one "
            f"is inside it: if you can remove this break, try {step}."
        )
        title = f"Try {step}"
        yield replace(decision_remedy("", sentence, None), title=title, family=INNER_FAMILY, breaks=[ident])

    def _breaks_outside_parts(self, candidate: Candidate) -> Iterator[str]:
        """Yield the breaks of later calls that cannot occur if only parts of the entry are compiled."""
        parts, frame = candidate.result.change.inner_calls, self._search.runner.entry.frame_id
        if not parts or frame is None:
            return
        functions_inside = {
            (self._source_ids.get(filename), name) for part in parts for filename, name in part.functions
        }
        frames_of_entry, known_break_ids = _frames_within(self._report, frame), set(self._breaks.values())
        for break_ in self._report.breaks:
            locations = (location for location in (break_.location, *break_.stack) if location is not None)
            is_inside = any((location.source, location.function) in functions_inside for location in locations)
            if (
                break_.id not in known_break_ids
                and not is_inside
                and frames_of_entry.issuperset(occurrence.frame for occurrence in break_.occurrences)
            ):
                yield break_.id

    def _code_for_reader(self, code: str | None) -> str | None:
        """Return code with the user's name for the module that switches call ``model``, if the name is unambiguous."""
        entry = self._search.runner.entry
        module = outermost_module(entry.function, entry.arguments)
        if code is None or module is None:
            return code
        names = globals_of(entry.function) or vars(sys.modules["__main__"])
        uncompiled_names = [
            name for name, value in names.items() if type(value) is type(module) and not name.startswith("_")
        ]
        compiled_names = [name for name, value in names.items() if type(compiled_callable(value)) is type(module)]
        model_names = uncompiled_names or compiled_names
        return re.sub(r"\bmodel\b", model_names[0], code) if len(model_names) == 1 else code


def _frames_within(report: Report, ident: str) -> set[str]:
    """Return a frame, its recompiles, and all frames that these call or that continue after their breaks."""
    frame_ids = {ident}
    for frame in report.frames:  # callers come first
        if frame.caller in frame_ids or frame.recompile_of in frame_ids:
            frame_ids.add(frame.id)
    return frame_ids


def _merge_over_calls(remedies: list[Remedy], entry_by_remedy_id: Mapping[str, Entry]) -> list[Remedy]:
    """Merge equal changes that were tried with different calls to one entry, and keep the worse verdict."""
    remedies_by_change: dict[object, Remedy] = {}
    for remedy in remedies:
        entry, change = entry_by_remedy_id[remedy.id], (str(remedy.edits), str(remedy.settings), remedy.code)
        has_change = bool(remedy.edits or remedy.settings or remedy.code)
        key = (entry.frame_id, entry.name, remedy.family, change) if has_change else remedy.id
        earlier_remedy = remedies_by_change.setdefault(key, remedy)
        if entry_by_remedy_id[earlier_remedy.id] is not entry:
            worse_remedy = max(earlier_remedy, remedy, key=lambda one: VERDICT_RANK.get(one.verdict, len(VERDICT_RANK)))
            breaks = list(dict.fromkeys([*earlier_remedy.breaks, *remedy.breaks]))
            remedies_by_change[key] = replace(worse_remedy, id=earlier_remedy.id, breaks=breaks)
        elif earlier_remedy is not remedy:
            remedies_by_change[remedy.id] = remedy
    return list(remedies_by_change.values())


def _merge_over_entries(remedies: list[Remedy]) -> tuple[list[Remedy], dict[str, str]]:
    """Merge equal changes that work for different entries. Return the remedies, and the new ids of those merged."""
    remedies_by_change: dict[object, Remedy] = {}
    merged_ids: dict[str, str] = {}
    for remedy in remedies:
        backend = remedy.evidence.backend if remedy.evidence is not None else None
        change = (str(remedy.edits), str(remedy.settings), remedy.code, remedy.title, backend)
        key = change if remedy.verdict in WORKING else remedy.id
        earlier_remedy = remedies_by_change.setdefault(key, remedy)
        if earlier_remedy is not remedy:
            remedies_by_change[key] = _merge_pair(earlier_remedy, remedy)
            merged_ids[remedy.id] = earlier_remedy.id
    return list(remedies_by_change.values()), merged_ids


def _merge_pair(one: Remedy, other: Remedy) -> Remedy:
    """Return two remedies with the same change as one, with the worse verdict and the sum of the evidence."""
    worse_remedy = max(one, other, key=lambda remedy: VERDICT_RANK[remedy.verdict])
    evidence = None
    if one.evidence is not None and other.evidence is not None:
        first, second = one.evidence, other.evidence
        branch_coverage = [covers for covers in (first.both_sides, second.both_sides) if covers is not None]
        evidence = Evidence(
            backend=first.backend,
            inputs=first.inputs + second.inputs,
            both_sides=all(branch_coverage) if branch_coverage else None,
            compared=[aspect for aspect in first.compared if aspect in second.compared],
            graphs_before=first.graphs_before + second.graphs_before,
            graphs_after=first.graphs_after + second.graphs_after,
            breaks_before=first.breaks_before + second.breaks_before,
            breaks_after=first.breaks_after + second.breaks_after,
        )
    return replace(
        one,
        breaks=list(dict.fromkeys([*one.breaks, *other.breaks])),
        verdict=worse_remedy.verdict,
        reason=worse_remedy.reason,
        differences=list(dict.fromkeys([*one.differences, *other.differences])),
        evidence=evidence,
        seconds=one.seconds + other.seconds,
    )


def _with_exclusions(remedies: list[Remedy]) -> list[Remedy]:
    """Return the remedies. Each working remedy lists the working ones that cannot be applied together with it."""
    working_remedies = [remedy for remedy in remedies if remedy.verdict in WORKING]
    excludes = {
        remedy.id: [other.id for other in working_remedies if other is not remedy and _are_in_conflict(remedy, other)]
        for remedy in working_remedies
    }
    return [replace(remedy, excludes=excludes.get(remedy.id, [])) for remedy in remedies]


def _are_in_conflict(first: Remedy, second: Remedy) -> bool:
    """Return whether two remedies change the same lines or the same setting, or one makes the other useless."""
    if INNER_FAMILY in {first.family, second.family} and not set(first.breaks).isdisjoint(second.breaks):
        return True
    for first_edit in first.edits:
        for second_edit in second.edits:
            are_separate = (
                first_edit.last_line < second_edit.first_line or second_edit.last_line < first_edit.first_line
            )
            has_insertion = (
                first_edit.last_line < first_edit.first_line or second_edit.last_line < second_edit.first_line
            )
            are_at_same_lines = first_edit.first_line == second_edit.first_line if has_insertion else not are_separate
            if first_edit.source == second_edit.source and are_at_same_lines:
                return True
    return do_settings_conflict(first.settings, second.settings)


def _manual_steps(
    report: Report, remedies: list[Remedy], searches: Sequence[Search], reasons: Sequence[str]
) -> list[Remedy]:
    """Return the decisions that remain for breaks without a working remedy, and for functions that run eagerly."""
    fixed_break_ids = {ident for remedy in remedies if remedy.verdict in WORKING for ident in remedy.breaks}
    ran_out_of_time = any(search.unreached_break_ids for search in searches)
    manual_steps: list[Remedy] = []

    for break_ in report.breaks:
        if break_.id not in fixed_break_ids:
            tried_remedies = [
                remedy for remedy in remedies if remedy.verdict != "not tried" and break_.id in remedy.breaks
            ]
            failed_titles = [remedy.title for remedy in tried_remedies]
            reason = None if failed_titles else NOTHING_TRIED_REASON if ran_out_of_time else next(iter(reasons), None)
            reason = INTERRUPTED_REASON if INTERRUPTED_REASON in reasons else reason
            # While there are changes left to try, the user has nothing to decide.
            sentence = None
            if reason != INTERRUPTED_REASON:
                sentence = _decision_on_switch(break_, remedies) or manual_step_of_break(report, break_, failed_titles)
            step = decision_remedy("", sentence, reason)
            manual_steps.append(replace(step, breaks=[break_.id]))
    for skipped in report.skipped:
        if skipped.break_ is None and skipped.frame is not None:
            step = decision_remedy("", manual_step_of_function(skipped), None)
            manual_steps.append(replace(step, frames=[skipped.frame]))
    return manual_steps


def _decision_on_switch(break_: Break, remedies: Sequence[Remedy]) -> str | None:
    """Return the decision on a library's switch, if any, that removes a break but changes the results on purpose."""
    changing_remedies = [
        remedy for remedy in remedies if break_.id in remedy.breaks and remedy.verdict == "another result"
    ]
    switches = [switch for remedy in changing_remedies if (switch := switch_with_title(remedy.title)) is not None]
    switch = next((switch for switch in switches if switch.result_difference is not None), None)
    return (
        f"Decide whether to {switch.step}: that removes the break, but {switch.result_difference}." if switch else None
    )

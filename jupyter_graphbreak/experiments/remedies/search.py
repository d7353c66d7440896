"""Search for remedies: for each break alone, in steps that only work together, and with working remedies combined."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.families.inner_compilation import propose_inner_compilation
from jupyter_graphbreak.experiments.families.proposal import Problem
from jupyter_graphbreak.experiments.families.switches import SWITCHES_FAMILY
from jupyter_graphbreak.experiments.families.table import proposals_for
from jupyter_graphbreak.experiments.remedies import own_edits
from jupyter_graphbreak.experiments.remedies.application import CannotApplyError
from jupyter_graphbreak.experiments.remedies.candidates import VERDICT_RANK, Candidate, without_needless_candidates
from jupyter_graphbreak.experiments.remedies.change import Change, merge_changes
from jupyter_graphbreak.experiments.remedies.inner_calls import describe_entry
from jupyter_graphbreak.experiments.remedies.run_comparison import cause_of, code_at
from jupyter_graphbreak.experiments.remedies.trial_runner import TrialResult
from jupyter_graphbreak.experiments.trial.entry import is_cell
from jupyter_graphbreak.experiments.trial.swapped_bindings import top_level_names
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time
from jupyter_graphbreak.faults import internal_error_sentence
from jupyter_graphbreak.knowledge.causes import belongs_outside
from jupyter_graphbreak.report.remedies import NO_TIME_REASON, WORKING, RemedyVerdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from jupyter_graphbreak.experiments.families.proposal import Proposal
    from jupyter_graphbreak.experiments.remedies.inner_calls import PartWithOneBreak
    from jupyter_graphbreak.experiments.remedies.original import WatchedCondition
    from jupyter_graphbreak.experiments.remedies.own_edits import EditedCells, Patch
    from jupyter_graphbreak.experiments.remedies.trial_runner import TrialRunner
    from jupyter_graphbreak.report.schema import Break, Report

#: If at least this many breaks have no remedy yet, removing them one by one rarely works.
_MANY_UNFIXED_BREAKS = 4
#: If there is time for fewer trials than this, the search rarely removes breaks in libraries.
_FEW_TRIALS = 5
#: The maximum number of steps of one remedy. Each step fixes the break that the step before it uncovered.
_MAX_STEPS = 3
#: The maximum number of further steps after all working candidates have been combined.
_MAX_STEPS_TOGETHER = 12
#: The share of the time after which the search stops applying all settings at once.
_SHARE_AT_ONCE = 0.3
#: The share of the time after which the search stops fixing individual breaks.
_SHARE_OF_SINGLE_BREAKS = 0.65
#: The share of the time after which the search stops combining remedies; the rest is for compiling a part of the entry.
_SHARE_OF_COMBINING = 0.8
#: The share of the remaining time that compiling a part of the entry may take if it is tried first.
_SHARE_OF_PART_FIRST = 0.4
#: The share of the remaining time that compiling a part of the entry may take if there are many breaks.
_SHARE_OF_PART_IF_MANY = 0.6
#: All settings and switches are applied at once if at least this many breaks have one.
_MIN_BREAKS_AT_ONCE = 2
#: If the breaks cost nothing, a part is worth compiling only if it performs at least this share of the operations.
_SUFFICIENT_SHARE = 0.5
#: The family of the user's own edits.
_OWN_EDIT_FAMILY = "own"
#: The time in seconds that an edit by the user may take even if no time is left.
OWN_EDIT_S = 60.0
#: A setting that makes sizes unknown while tracing, so the code can raise an error instead of breaking.
_RISKY_SETTING = "capture_dynamic_output_shape_ops"
#: The verdicts after which a further step makes sense: the results are right.
_VERDICTS_WITH_RIGHT_RESULTS: frozenset[RemedyVerdict] = WORKING | {"another break", "break stays"}

#: Receives status messages.
OnStatus = Callable[[str], None]


@dataclass
class Search:
    """The search for the remedies of one entry: those of the breaks to remove, or of all breaks of the runner's report.

    It starts with the breaks that an earlier, interrupted search did not reach.
    """

    runner: TrialRunner
    deadline: float
    break_ids_to_remove: frozenset[str] | None = None
    on_status: OnStatus = lambda _: None
    first_break_ids: frozenset[str] = frozenset()
    candidates: list[Candidate] = field(default_factory=list)
    #: The breaks that the search did not reach in time.
    unreached_break_ids: list[str] = field(default_factory=list)
    #: Sentences about internal errors.
    faults: list[str] = field(default_factory=list)
    #: If no part without breaks is worth compiling, the largest part with a single break.
    part_with_one_break: PartWithOneBreak | None = None
    #: The proposals that work for many breaks at once. They are not tried again for an individual break.
    _settings_applied_at_once: list[Proposal] = field(default_factory=list)
    #: The steps that did not improve the combination: each with the break's type, its code, and the step's title.
    _useless_steps: set[tuple[str, str, str]] = field(default_factory=set)
    _phase_deadline: float = float("inf")
    #: The time when the search for the current break must end, so that time is left for the other breaks.
    _share_deadline: float = float("inf")
    #: The proposals that were tried for each individual break, by its id.
    _tried_proposals: dict[str, list[Proposal]] = field(default_factory=dict)
    #: The time in seconds that the longest trial has taken.
    _longest_trial_s: float = 0.0

    def run(self) -> list[Candidate]:
        """Try all settings at once, then proposals for each break until one works, then all working ones combined.

        Compiling only a part of the entry comes first if that is most likely to help: for a training step, for loops
        that run eagerly, if no change is known for at least half of the breaks, or if there is time for only a few
        trials and at least half of the breaks are in libraries. In any other case, it comes before the individual
        breaks if there are many, and last if not.
        """
        start_s, total_s = time.monotonic(), self.deadline - time.monotonic()
        is_hopeless = self._has_few_proposals() or self._is_short_of_time_for_library(total_s)
        has_tried_part = is_hopeless or self._usually_needs_a_part()
        if has_tried_part:  # there may be no time left for it later
            self._try_compiling_part_until(self.deadline if is_hopeless else start_s + _SHARE_OF_PART_FIRST * total_s)
        # Nothing else is tried for the breaks that a training step should leave outside the compiled part.
        best_candidates = self._part_candidates_of_training_step()
        self._phase_deadline = start_s + _SHARE_AT_ONCE * total_s
        settings_candidate = self._try_all_settings(excluded_break_ids=best_candidates.keys())
        self._phase_deadline = start_s + _SHARE_OF_SINGLE_BREAKS * total_s
        settings_by_break = (
            dict.fromkeys(settings_candidate.breaks, settings_candidate) if settings_candidate is not None else {}
        )
        # A result that differs, or also needs an edit, is used only for breaks without a better candidate.
        if settings_candidate is not None and settings_candidate.is_sufficient:
            best_candidates = settings_by_break | best_candidates
        if not has_tried_part and len(self._unfixed_breaks()) >= _MANY_UNFIXED_BREAKS:
            has_tried_part = True
            now_s = time.monotonic()
            self._try_compiling_part_until(now_s + _SHARE_OF_PART_IF_MANY * (self.deadline - now_s))
        self._search_each_break(best_candidates)
        if settings_candidate is not None and not settings_candidate.is_sufficient:
            improved_breaks = {ident for ident, best in best_candidates.items() if best.rank <= settings_candidate.rank}
            if improved_breaks >= settings_by_break.keys():
                self.candidates = [candidate for candidate in self.candidates if candidate is not settings_candidate]
        best_candidates = settings_by_break | best_candidates
        self._phase_deadline = start_s + _SHARE_OF_COMBINING * total_s
        best_ids = set(map(id, best_candidates.values()))
        self._try_combination([candidate for candidate in self.candidates if id(candidate) in best_ids])
        if not has_tried_part:
            self._try_compiling_part_until(self.deadline)
        self.candidates = without_needless_candidates(self.candidates)
        return self.candidates

    def _part_candidates_of_training_step(self) -> dict[str, Candidate]:
        """Return the candidate that compiles a part of a training step, for each break that it removes."""
        outside_break_ids = self._breaks_to_keep_outside()
        working_candidates = [
            candidate
            for candidate in self.candidates
            if candidate.works and not outside_break_ids.isdisjoint(candidate.breaks)
        ]
        return {ident: candidate for candidate in working_candidates for ident in candidate.breaks}

    def _search_each_break(self, best_candidates: dict[str, Candidate]) -> None:
        """Search for a candidate for each break alone, in the order of priority, and add it to ``best_candidates``.

        A break that takes more than its share of the time waits until all breaks have had their share.
        """
        report = self.runner.original.report
        breaks = {break_.id: break_ for break_ in report.breaks}
        waiting_break_ids = [ident for ident in report.order or breaks if self._must_remove(ident)]
        waiting_break_ids.sort(key=lambda ident: ident not in self.first_break_ids)
        for late_break_ids in (
            self.unreached_break_ids,
            list[str](),
        ):  # in the second round, breaks do not count as unreached
            pending_break_ids, waiting_break_ids = waiting_break_ids, []
            for index, ident in enumerate(pending_break_ids):
                if ident in best_candidates:
                    continue
                if self._is_out_of_time():
                    late_break_ids.append(ident)
                    continue
                now_s = time.monotonic()
                self._share_deadline = now_s + (min(self._phase_deadline, self.deadline) - now_s) / (
                    len(pending_break_ids) - index
                )
                candidate, is_done = self._search_break(breaks[ident])
                self._share_deadline = float("inf")
                if candidate is not None:
                    best_candidates.update(
                        {break_id: candidate for break_id in candidate.breaks if break_id not in best_candidates}
                    )
                elif not is_done:
                    waiting_break_ids.append(ident)

    def try_function(self, function: Callable[..., Any]) -> None:
        """Run the trial of the user's replacement for the entry's function."""
        name = getattr(function, "__qualname__", type(function).__name__)
        change = own_edits.replacement_as_change(self.runner.program, self.runner.entry.function, function)
        goals = self._all_break_ids()
        self.on_status(f"{name} instead of {self.runner.entry.name}")
        result = self.runner.run_function_trial(function, change, goals)
        self.candidates.append(
            Candidate.create([_OWN_EDIT_FAMILY], [f"Your function {name}"], ["edit"], goals, (), result)
        )

    def try_edit(self, edit: EditedCells | Patch) -> bool:
        """Run the trial of the user's edit, and return whether the edit changes this entry's program."""
        program, goals = self.runner.executed_program, self._all_break_ids()
        names = {source.id: source.path or source.name for source in self.runner.original.report.sources}
        watched_conditions: tuple[WatchedCondition, ...] = ()
        self.on_status(edit.title)
        try:
            texts = edit.texts_for(program, names)
            if not texts:
                return False
            function = self.runner.entry.function
            change = own_edits.change_from_texts(
                texts, program, function.__code__.co_filename if is_cell(function) else None
            )
            watched_conditions = tuple(
                (Change(), condition) for condition in own_edits.conditions_around_changed_lines(texts, program)
            )
            result = self._run_trial(change, goals, watched_conditions, is_thorough=True)
        except CannotApplyError as error:
            result = TrialResult(Change(), "not tried", str(error))
        self.candidates.append(
            Candidate.create([_OWN_EDIT_FAMILY], [edit.title], ["edit"], goals, watched_conditions, result)
        )
        return True

    def _run_trial(
        self,
        change: Change,
        goals: frozenset[str],
        watched_conditions: tuple[WatchedCondition, ...],
        *,
        is_thorough: bool = False,
    ) -> TrialResult:
        """Run the trial of a change. An internal error does not stop the search."""
        start = time.monotonic()
        deadline = max(self.deadline, start + OWN_EDIT_S) if is_thorough else self.deadline
        try:
            with limit_time(deadline):
                return self.runner.run_trial(change, goals, watched_conditions, is_thorough=is_thorough)
        except TimeUpError:
            return TrialResult(change, "not tried", NO_TIME_REASON)
        except Exception as fault:  # noqa: BLE001 - the search continues with other changes
            self._note_fault("running the trial of a change", fault)
            return TrialResult(
                change, "not tried", f"its trial failed because of an internal error ({type(fault).__name__}: {fault})"
            )
        finally:
            self._longest_trial_s = max(self._longest_trial_s, time.monotonic() - start)

    def _all_break_ids(self) -> frozenset[str]:
        return frozenset(break_.id for break_ in self.runner.original.report.breaks)

    def _proposals_for(
        self, break_: Break, report: Report | None = None, changed_texts: Mapping[str, str] | None = None
    ) -> list[Proposal]:
        """Return the proposals for a break of the original report, or of the report of a changed program."""
        texts = {**self.runner.program.texts, **(changed_texts or {})}
        # A function has its own names, but a cell shares the names of the notebook.
        taken_names = top_level_names() if is_cell(self.runner.entry.function) else frozenset[str]()
        problem = Problem(report or self.runner.original.report, break_, texts, taken_names)
        return proposals_for(problem, self._note_fault)

    def _note_fault(self, action: str, fault: Exception) -> None:
        self.faults.append(internal_error_sentence(action, fault))

    def _is_out_of_time(self) -> bool:
        """Return whether there is too little time left for another trial, judging by the longest trial so far."""
        now = time.monotonic()
        deadline = min(self._phase_deadline, self._share_deadline, self.deadline)
        return now > deadline or now + self._longest_trial_s / 2 > self.deadline

    def _try_all_settings(self, excluded_break_ids: Collection[str]) -> Candidate | None:
        """Try the settings and switches for all breaks together, as a single setting may only uncover the next break.

        Return the candidate that works, if there is one.
        """
        goals: list[str] = []
        steps: list[Proposal] = []
        is_risk_needed = False
        for break_ in self.runner.original.report.breaks:
            if break_.id not in excluded_break_ids and self._must_remove(break_.id):
                without_edits = [proposal for proposal in self._proposals_for(break_) if proposal.kind != "edit"]
                goals += [break_.id] if without_edits else []
                steps += [proposal for proposal in without_edits if proposal not in steps]
                is_risk_needed |= bool(without_edits) and not _without_risky_settings(without_edits)
        if len(goals) < _MIN_BREAKS_AT_ONCE:
            return None
        settings = [step for step in steps if step.kind == "setting"]
        # A switch may turn off a part of the program, such as a check.
        steps_without_switches = [step for step in steps if step.family != SWITCHES_FAMILY]
        choices = [steps, steps_without_switches, settings]
        choices_without_risk = [_without_risky_settings(choice) for choice in choices]
        # The minimum settings for each break come first. More may be needed after these have taken effect.
        choices = (
            [*choices, *choices_without_risk]
            if is_risk_needed
            else [choices_without_risk[0], *choices, *choices_without_risk[1:]]
        )
        for index, chosen_steps in enumerate(choices):
            if chosen_steps and chosen_steps not in choices[:index] and not self._is_out_of_time():
                candidate = self._run_steps_at_once(frozenset(goals), chosen_steps)
                if candidate.works:
                    candidate = self._try_without_risky_settings(candidate, chosen_steps)
                    self._settings_applied_at_once = chosen_steps if candidate.is_sufficient else []
                self.candidates.append(candidate)
                if candidate.works:
                    return candidate
        return None

    def _run_steps_at_once(self, goals: frozenset[str], steps: list[Proposal]) -> Candidate:
        steps = _without_subsumed_settings(steps)
        return self._run_candidate(goals, steps, f"all settings at once: {'; '.join(step.title for step in steps)}")

    def _try_without_risky_settings(self, candidate: Candidate, steps: list[Proposal]) -> Candidate:
        """Return the candidate without risky settings if it removes the same breaks without them."""
        safe_steps = _without_risky_settings(steps)
        if not safe_steps or len(safe_steps) == len(steps) or self._is_out_of_time():
            return candidate
        safer_candidate = self._run_steps_at_once(frozenset(candidate.breaks), safe_steps)
        is_as_good = safer_candidate.works and safer_candidate.rank <= candidate.rank
        return safer_candidate if is_as_good and set(safer_candidate.breaks) >= set(candidate.breaks) else candidate

    def _search_break(self, target: Break) -> tuple[Candidate | None, bool]:
        """Try the proposals for a break. Return the best one that works, and whether there was time for the search."""
        best: Candidate | None = None
        tried_proposals = self._tried_proposals.setdefault(target.id, [])
        proposals = self._proposals_for(target)
        for number, proposal in enumerate(proposals, start=1):
            # Proposals that were applied at once have shown that they do not remove this break.
            if proposal in self._settings_applied_at_once or proposal in tried_proposals:
                continue
            if best is not None and _only_extends_settings(proposal, best.result.change):
                continue
            if self._is_out_of_time():
                return best, False
            tried_proposals.append(proposal)
            status = f"{number} of {len(proposals)}: {proposal.title} {_location_text(target)}"
            candidate = self._run_candidate(frozenset({target.id}), [proposal], status)
            self.candidates.append(candidate)
            if candidate.works and (best is None or candidate.rank < best.rank):
                best = candidate
            if candidate.result.verdict == "works":
                break
        return best, True

    def _run_candidate(self, goals: frozenset[str], steps: list[Proposal], status: str) -> Candidate:
        """Try proposals together. If a different break appears, also try to fix it."""
        change = Change()
        for proposal in steps:
            change = change.with_proposal(proposal)
        self.on_status(status)
        watched_conditions = tuple((Change(), condition) for proposal in steps for condition in proposal.conditions)
        result = self._run_trial(change, goals, watched_conditions)
        first_result = result, watched_conditions, steps
        max_steps = len(steps) + _MAX_STEPS - 1
        while result.verdict == "another break" and len(steps) < max_steps and not self._is_out_of_time():
            next_step = self._next_step(result, goals, watched_conditions, max_targets=2)
            if next_step is None:
                result, watched_conditions, steps = first_result
                break
            result, step, watched_conditions = next_step
            steps = [*steps, step]
        if result.verdict in WORKING and len(steps) > 1 and all(step.kind != "edit" for step in steps[:-1]):
            result_alone = self._try_last_step_alone(result, goals, steps[-1], watched_conditions)
            result, steps = (result_alone, steps[-1:]) if result_alone is not None else (result, steps)
        families, titles, kinds = zip(*((step.family, step.title, step.kind) for step in steps), strict=True)
        return Candidate.create(families, titles, kinds, goals, watched_conditions, result)

    def _try_last_step_alone(
        self,
        result: TrialResult,
        goals: frozenset[str],
        step: Proposal,
        watched_conditions: tuple[WatchedCondition, ...],
    ) -> TrialResult | None:
        """Return the result of a step without the settings before it, if it is as good as the result with them."""
        if self._is_out_of_time():
            return None
        new_result = self._run_trial(Change().with_proposal(step), goals, watched_conditions)
        is_as_good = new_result.verdict in WORKING and VERDICT_RANK[new_result.verdict] <= VERDICT_RANK[result.verdict]
        return new_result if is_as_good and new_result.removed_break_ids >= result.removed_break_ids else None

    def _unfixed_breaks(self) -> frozenset[str]:
        """Return the breaks that no candidate removes without changing results."""
        working_candidates = (
            candidate for candidate in self.candidates if candidate.works and not candidate.result.differences
        )
        fixed_break_ids = {ident for candidate in working_candidates for ident in candidate.breaks}
        return frozenset(filter(self._must_remove, self._all_break_ids())) - fixed_break_ids

    def _must_remove(self, break_id: str) -> bool:
        return self.break_ids_to_remove is None or break_id in self.break_ids_to_remove

    def _has_few_proposals(self) -> bool:
        """Return whether at least half of the unfixed breaks have no proposals, as in a library's generation loop."""
        breaks = [break_ for break_ in self.runner.original.report.breaks if break_.id in self._unfixed_breaks()]
        return 2 * sum(bool(self._proposals_for(break_)) for break_ in breaks) <= len(breaks)

    def _is_short_of_time_for_library(self, seconds: float) -> bool:
        """Return whether there is time for only a few trials and at least half of the breaks are in libraries."""
        breaks = self.runner.original.report.breaks
        library_break_count = sum(break_.owner != "own" for break_ in breaks)
        return seconds < _FEW_TRIALS * self.runner.original_seconds and 2 * library_break_count >= len(breaks)

    def _usually_needs_a_part(self) -> bool:
        """Return whether compiling a part is the usual answer, as for breaks in a training step or in a loop."""
        report, unfixed_breaks = self.runner.original.report, self._unfixed_breaks()
        if any(skipped.kind == "loop" and skipped.break_ in unfixed_breaks for skipped in report.skipped):
            return True
        return not unfixed_breaks.isdisjoint(self._breaks_to_keep_outside())

    def _breaks_to_keep_outside(self) -> frozenset[str]:
        breaks = self.runner.original.report.breaks
        return frozenset(
            break_.id for break_ in breaks if belongs_outside(break_.gb_id, break_.gb_type, code_at(break_))
        )

    def _try_compiling_part_until(self, deadline: float) -> None:
        """Compile the largest parts without breaks instead of the entry, if a break has no remedy."""
        total_deadline, self._phase_deadline, self.deadline = self.deadline, float("inf"), deadline
        try:
            self._try_compiling_part()
        finally:
            self.deadline = total_deadline

    def _try_compiling_part(self) -> None:
        report, program = self.runner.original.report, self.runner.program
        goals = self._unfixed_breaks()
        if not goals or is_cell(self.runner.entry.function) or self._is_out_of_time():
            return
        self.on_status(f"to compile a part of {self.runner.entry.name} instead of all of it")
        libraries = {source.id for source in report.sources if source.kind == "library"}
        texts = {source: text for source, text in program.texts.items() if source not in libraries}
        try:
            with limit_time(self.deadline):
                inner_calls = self.runner.find_inner_calls(self._breaks_to_keep_outside())
            self.part_with_one_break = inner_calls.part_with_one_break
            entry = describe_entry(self.runner.entry)
            proposal = propose_inner_compilation(
                texts,
                program.files,
                entry,
                inner_calls.calls,
                inner_calls.share,
                top_level_names(),
                has_all_layers=inner_calls.has_all_layers,
            )
        except TimeUpError:
            return
        except Exception as fault:  # noqa: BLE001 - the other remedies are still valid
            self._note_fault("looking for a part to compile", fault)
            return
        if inner_calls.share < _SUFFICIENT_SHARE and self._breaks_cost_no_graph():
            return  # more than the part is compiled without any change
        if proposal is not None and not goals <= inner_calls.breaks:
            candidate = self._run_candidate(goals - inner_calls.breaks, [proposal], proposal.title)
            new_report = candidate.result.report
            is_as_expected = new_report is None or (
                new_report.graphs
                and len(new_report.breaks) <= len(inner_calls.breaks)
                and (inner_calls.breaks or not new_report.skipped)
            )
            if is_as_expected or not candidate.works:
                self.candidates.append(candidate)

    def _breaks_cost_no_graph(self) -> bool:
        """Return whether all breaks split no graph, make no function run eagerly, and are not in a backward pass."""
        report = self.runner.original.report
        costs = [break_.cost for break_ in report.breaks]
        return (
            bool(report.graphs)
            and all(cost is not None and not cost.graphs and not cost.eager for cost in costs)
            and not self._breaks_to_keep_outside()
        )

    def _next_step(
        self,
        result: TrialResult,
        goals: frozenset[str],
        watched_conditions: tuple[WatchedCondition, ...],
        max_targets: int | None = None,
    ) -> tuple[TrialResult, Proposal, tuple[WatchedCondition, ...]] | None:
        """Fix one more break of a changed program. Return the first better result, its step and all conditions, if any.

        At most ``max_targets`` breaks are considered, by default all of them.
        """
        report = result.report
        if report is None:
            return None
        old_causes = set(map(cause_of, self.runner.original.report.breaks))
        sorted_breaks = sorted(report.breaks, key=lambda break_: cause_of(break_) in old_causes)
        for target in sorted_breaks[:max_targets]:
            for proposal in self._proposals_for(target, report, result.change.texts):
                change = result.change.with_proposal(proposal)
                key = *cause_of(target), proposal.title
                if change == result.change or (max_targets is None and key in self._useless_steps):
                    continue
                if self._is_out_of_time():
                    return None
                self.on_status(f"{proposal.title} {_location_text(target)} as well")
                new_conditions = [(result.change, condition) for condition in proposal.conditions]
                all_conditions = (*watched_conditions, *new_conditions)
                next_result = self._run_trial(change, goals, all_conditions)
                if _removes_more_breaks(next_result, result, target):
                    return next_result, proposal, all_conditions
                self._useless_steps.add(key)
        return None

    def _try_combination(self, candidates: list[Candidate]) -> None:
        """Combine the working candidates, and fix the breaks that remain."""
        texts, goals = self.runner.program.texts, self._all_break_ids()
        change, merged_candidates = Change(), list[Candidate]()
        for candidate in candidates:
            if (combined_change := merge_changes(texts, change, candidate.result.change)) is not None:
                change = combined_change
                merged_candidates.append(candidate)
        if not merged_candidates or (len(merged_candidates) == 1 and goals <= set(merged_candidates[0].breaks)):
            return
        watched_conditions = tuple(
            condition for candidate in merged_candidates for condition in candidate.watched_conditions
        )
        result = (
            self._run_trial(change, goals, watched_conditions)
            if len(merged_candidates) > 1
            else merged_candidates[0].result
        )
        if result.verdict not in WORKING:  # the candidates conflict: continue with the one that removes the most breaks
            merged_candidates = [max(merged_candidates, key=lambda candidate: len(candidate.breaks))]
            result, watched_conditions = merged_candidates[0].result, merged_candidates[0].watched_conditions
        steps: list[Proposal] = []
        while result.verdict in WORKING and _break_count(result) and len(steps) < _MAX_STEPS_TOGETHER:
            next_step = self._next_step(result, goals, watched_conditions)
            if next_step is None:
                break
            result, step, watched_conditions = next_step
            steps.append(step)
        if len(merged_candidates) == 1 and not steps:
            return
        families = [family for candidate in merged_candidates for family in candidate.families]
        titles = [title for candidate in merged_candidates for title in candidate.titles]
        families, titles = families + [step.family for step in steps], titles + [step.title for step in steps]
        kinds = [*(candidate.kind for candidate in merged_candidates), *(step.kind for step in steps)]
        self.candidates.append(Candidate.create(families, titles, kinds, goals, watched_conditions, result))


def _only_extends_settings(proposal: Proposal, change: Change) -> bool:
    """Return whether a proposal contains all settings of a change and further settings."""
    return proposal.kind == "setting" and bool(change.settings) and change.settings.items() < proposal.settings.items()


def _without_subsumed_settings(steps: list[Proposal]) -> list[Proposal]:
    """Return the steps, except those whose settings are only a part of the settings of a different step."""
    all_settings = [step.settings.items() for step in steps]
    return [
        step for step in steps if not (step.settings and any(step.settings.items() < other for other in all_settings))
    ]


def _without_risky_settings(steps: list[Proposal]) -> list[Proposal]:
    return [step for step in steps if not any(name.endswith(_RISKY_SETTING) for name in step.settings)]


def _removes_more_breaks(result: TrialResult, earlier_result: TrialResult, target: Break) -> bool:
    """Return whether a further step leaves fewer breaks than before, or removes its target and leaves as many."""
    if result.report is None or result.verdict not in (
        WORKING if earlier_result.verdict in WORKING else _VERDICTS_WITH_RIGHT_RESULTS
    ):
        return False
    is_removed = cause_of(target) not in map(cause_of, result.report.breaks)
    return _break_count(result) < _break_count(earlier_result) or (
        is_removed and _break_count(result) == _break_count(earlier_result)
    )


def _break_count(result: TrialResult) -> int:
    return result.report.summary.breaks if result.report is not None else 1 << 30


def _location_text(break_: Break) -> str:
    location = break_.location
    return f"on line {location.line}" if location is not None else f"for {break_.gb_type}"

"""Run the trial of a candidate change: run the program on copies, compare it with the original, reach a verdict."""

from __future__ import annotations

import contextlib
import functools
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import backend_and_options
from jupyter_graphbreak._torch_compat.configuration import use_eager_random_numbers
from jupyter_graphbreak.experiments.remedies.application import Program, compile_file, find_compiling_cells, source_text
from jupyter_graphbreak.experiments.remedies.change import Change
from jupyter_graphbreak.experiments.remedies.changed_entry import open_to_compile, open_uncompiled
from jupyter_graphbreak.experiments.remedies.compiled_run import ProgramOnCopies, run_on_inputs
from jupyter_graphbreak.experiments.remedies.inner_calls import find_inner_calls
from jupyter_graphbreak.experiments.remedies.original import UncompiledOriginal
from jupyter_graphbreak.experiments.remedies.own_edits import require_exact_edits
from jupyter_graphbreak.experiments.remedies.run_comparison import (
    EdgeFindings,
    break_summary,
    compare_breaks,
    compared_aspects,
    is_refusal_by_operation,
    is_refused_or_nan,
    stop_reason,
    verdict_of_error,
    verdict_of_lost_compilation,
    without_expected_edge_differences,
)
from jupyter_graphbreak.experiments.remedies.second_derivatives import (
    NO_SECOND_DERIVATIVE_TEXT,
    can_differentiate_twice,
    computes_gradients,
    find_different_second_derivative,
)
from jupyter_graphbreak.experiments.trial.difference import ROUNDED_KINDS, differences
from jupyter_graphbreak.experiments.trial.entry import backend_name, compile_separately
from jupyter_graphbreak.experiments.trial.outcome import LineLimitError, limit_lines, sandbox_runs
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.time_limit import TimeBudget, TimeUpError, limit_time, seconds_left
from jupyter_graphbreak.faults import error_headline
from jupyter_graphbreak.recording.recorder import cell_of_shell
from jupyter_graphbreak.report.remedies import OTHER_CAUSE_PREFIX, WORKING, Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import CodeType

    from jupyter_graphbreak.experiments.remedies.compiled_run import CompiledRun, IsPromising
    from jupyter_graphbreak.experiments.remedies.inner_calls import InnerCalls
    from jupyter_graphbreak.experiments.remedies.original import EdgeCaseChoice, WatchedCondition
    from jupyter_graphbreak.experiments.remedies.run_comparison import BreakComparison
    from jupyter_graphbreak.experiments.trial.difference import Difference
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.reference import ReferenceCase
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.remedies import RemedyVerdict
    from jupyter_graphbreak.report.schema import Report


@dataclass(frozen=True)
class TrialResult:
    """The result of the trial of a change; the removed breaks are those that the program no longer has on any input."""

    change: Change
    verdict: RemedyVerdict
    reason: str | None = None
    differences: list[str] = field(default_factory=list)
    evidence: Evidence | None = None
    removed_break_ids: frozenset[str] = frozenset()
    report: Report | None = None
    seconds: float = 0.0


#: The processor time in seconds after which a changed program runs on no further edge inputs.
_TIME_BUDGET_S = 20.0
_CONTROL_FLOW_CALLS = (".cond(", ".while_loop(")
_SELECTION_CALL = ".where("
#: The program is compiled for edge inputs only if its compiled run on the usual inputs took at most this share of the
#: remaining time.
_SHARE_OF_EDGE_CASES = 0.15
#: The share of the remaining time after which the original is compiled with a backend that compiles nothing.
_SHARE_OF_BACKEND = 0.4
_CHEAPEST_BACKEND = "eager"
#: The cheapest backend that compiles a backward pass, as the backends that make code do.
_CHEAPEST_BACKEND_FOR_GRADIENTS = "aot_eager"
#: The setting with which a compiled backward pass can raise, although a graph's own does not.
_COMPILED_AUTOGRAD = "torch._dynamo.config.compiled_autograd"
_BRANCH_NEVER_RAN_REASON = "one branch of a condition never ran"
_CODE_NEVER_RAN_REASON = "code that may change inputs of the moved code never ran"
_NO_TIME_FOR_EDGE_CASES_REASON = "there was no time to try unusual sizes and values"
_NO_TIME_FOR_ALL_INPUTS_REASON = "there was no time to try all inputs"


@dataclass(frozen=True)
class _RunnableChange:
    """A changed program that can be run."""

    change: Change
    run_compiled: Callable[[list[ReferenceCase], IsPromising], CompiledRun]
    open_uncompiled: Callable[[], AbstractContextManager[tuple[Any, Subject]]]
    compiles_different_function: bool

    @property
    def equals_original_uncompiled(self) -> bool:
        """Whether the uncompiled program is assumed to equal the original, because no code changes."""
        return not self.change.texts and not self.compiles_different_function

    @property
    def differs_when_compiled(self) -> bool:
        """Whether the change may make only the compiled program behave differently."""
        return self.equals_original_uncompiled or bool(self.change.settings) or self.has_control_flow_calls

    @property
    def has_selections(self) -> bool:
        """Whether a changed source computes both branches of a condition, and selects from the results."""
        return any(_SELECTION_CALL in text for text in self.change.texts.values())

    @property
    def has_control_flow_calls(self) -> bool:
        """Whether a changed source calls a control flow operator of PyTorch."""
        return any(name in text for text in self.change.texts.values() for name in _CONTROL_FLOW_CALLS)


class TrialRunner:
    """Runs the trials of candidates for one entry, and keeps the runs of the original for comparison."""

    def __init__(
        self,
        entry: Entry,
        compile_text: Callable[[str, str], list[CodeType]] = compile_file,
        find_cell: FindCell = cell_of_shell,
    ) -> None:
        self.entry = entry
        self._uncompiled_original = UncompiledOriginal(entry)
        self.program = Program(find_cell=find_cell)
        usual_inputs = _sort_accepted_first(self._uncompiled_original.usual_inputs())
        #: The backend of all trials: the entry's own, if there is time for it.
        self.backend = entry.backend
        #: The compiled run of the unchanged program, and its time in seconds: a trial takes at least as long.
        self.original, self.original_seconds = self._run_original(usual_inputs)
        #: The compiled run of the original on each choice of edge inputs.
        self._original_on_edge_cases: dict[EdgeCaseChoice, tuple[CompiledRun, list[ReferenceCase]]] = {}
        texts = {source: source_text(filename, find_cell) for source, filename in self.original.files.items()}
        #: Other cells that may compile the entry, as file name and cell, by the ids of their sources.
        self.other_cells = {
            f"other{number}": (filename, cell)
            for number, (filename, cell) in enumerate(
                find_compiling_cells(self.original.files.values(), find_cell).items()
            )
        }
        #: The sources that ran. ``program`` also contains the other cells.
        self.executed_program = Program(
            self.original.files, {source: text for source, text in texts.items() if text}, compile_text, find_cell
        )
        other_files = {source: filename for source, (filename, _) in self.other_cells.items()}
        other_texts = {source: cell.text for source, (_, cell) in self.other_cells.items()}
        self.program = replace(
            self.executed_program,
            files={**self.executed_program.files, **other_files},
            texts={**self.executed_program.texts, **other_texts},
        )
        #: The paths in arguments and state whose values differ after each run.
        self._varying_paths = frozenset[str]()
        if not all(
            difference.is_acceptable for difference in self._differences(usual_inputs[0], self.original.results[0])
        ):
            self._varying_paths = self._uncompiled_original.varying_paths()
        # The differences that compilation alone makes, by input: no remedy causes them. Those on the first input, such
        # as state that a library sets only if `is_compiling()` is false, are expected on all.
        self._compile_differences: dict[int, set[str]] = {}
        self._usual_differences: set[str] = set()
        for case, result in zip(usual_inputs, self.original.results, strict=False):
            diffs = self._differences(case, result)
            self._compile_differences[id(case)] = {difference.text for difference in diffs}
            if case is usual_inputs[0]:
                self._usual_differences = self._compile_differences[id(case)]
            if not all(difference.is_acceptable or difference.text in self._usual_differences for difference in diffs):
                self._uncompiled_original.exclude(case)

    def _run_original(self, cases: list[ReferenceCase]) -> tuple[CompiledRun, float]:
        """Run the unchanged program, with the cheapest backend if its own takes too long; also return the time."""
        start, max_seconds = time.monotonic(), seconds_left() * _SHARE_OF_BACKEND
        if backend_and_options(self.backend)[0] != _CHEAPEST_BACKEND:
            with contextlib.suppress(TimeUpError), limit_time(start + max_seconds):
                run = self._run_compiled(Change(), cases, lambda _: True)
                if (seconds := time.monotonic() - start) <= max_seconds:  # otherwise no time is left to try changes
                    return run, seconds
            self.backend, start = _CHEAPEST_BACKEND, time.monotonic()
        return self._run_compiled(Change(), cases, lambda _: True), time.monotonic() - start

    def why_different_backend(self) -> str | None:
        """Return why trials do not use the entry's backend, worded as the end of a sentence; ``None`` if they do."""
        if self.backend is self.entry.backend:
            return None
        return f"there was no time to compile it with {backend_name(self.entry.backend)}, only with {self.backend}"

    def find_inner_calls(self, outside_break_ids: frozenset[str]) -> InnerCalls:
        """Return the largest parts of the entry without breaks or, if they are small, without ``outside_break_ids``."""
        return find_inner_calls(self._uncompiled_original, self.original.report, self.original.files, outside_break_ids)

    def _differences(
        self, case: ReferenceCase, result: Result, *, compares_signs_of_zero: bool = False
    ) -> list[Difference]:
        compare = functools.partial(
            differences,
            case.expected_result,
            result,
            compares_values=self._uncompiled_original.is_repeatable,
            ignored_paths=self._varying_paths,
            compares_signs_of_zero=compares_signs_of_zero,
        )
        diffs = compare()
        if self._uncompiled_original.is_repeatable and any(difference.kind in ROUNDED_KINDS for difference in diffs):
            return compare(rounding_errors=self._uncompiled_original.rounding_errors(case))
        return diffs

    def run_trial(
        self,
        change: Change,
        goals: frozenset[str],
        watched_conditions: Sequence[WatchedCondition] = (),
        *,
        is_thorough: bool = False,
    ) -> TrialResult:
        """Run a changed program, compare its results with the original's, and reach a verdict.

        A thorough trial uses all inputs, because nothing is known about the change.
        """
        candidate = _RunnableChange(
            change,
            functools.partial(self._run_compiled, change),
            functools.partial(open_uncompiled, self.entry, self.program, change),
            compiles_different_function=change.compiles_inner_function,
        )
        if self._is_choosing_slow(watched_conditions):  # many changes already fail on the first input
            first_case = self._uncompiled_original.cases[:1]
            result = self._run_and_judge(candidate, goals, first_case, ran_both_branches=None, uses_edge_cases=False)
            if result.verdict not in WORKING:
                return result
        try:
            cases, ran_both_branches = self._uncompiled_original.choose_inputs(self.program, watched_conditions)
        except TrialStoppedError as stopped:
            return TrialResult(change, "not tried", stop_reason(stopped))
        cases = _sort_accepted_first(self._uncompiled_original.cases if is_thorough else cases)
        has_tests = any(condition.required_results for _, condition in watched_conditions)
        reason = _BRANCH_NEVER_RAN_REASON if has_tests else _CODE_NEVER_RAN_REASON
        return self._run_and_judge(
            candidate, goals, cases, ran_both_branches=ran_both_branches, reason_if_unproven=reason
        )

    def _is_choosing_slow(self, watched_conditions: Sequence[WatchedCondition]) -> bool:
        """Return whether choosing inputs for conditions takes longer than compiling and calling the program."""
        is_chosen = self._uncompiled_original.has_chosen_inputs(watched_conditions)
        return not is_chosen and self._uncompiled_original.seconds > self.original_seconds

    def run_function_trial(self, function: Callable[..., Any], change: Change, goals: frozenset[str]) -> TrialResult:
        """Run a replacement for the entry's function on every input, and reach a verdict."""
        cases = _sort_accepted_first(self._uncompiled_original.cases)

        def run_compiled(chosen_cases: list[ReferenceCase], is_promising: IsPromising) -> CompiledRun:
            with sandbox_runs(), use_eager_random_numbers():
                subject = Subject(function, self.entry.arguments)
                program = ProgramOnCopies(subject.function, subject, Change(), self.program.find_cell)
                with compile_separately(subject.function):
                    return run_on_inputs(self._uncompiled_original, self.backend, program, chosen_cases, is_promising)

        @contextlib.contextmanager
        def open_uncompiled() -> Iterator[tuple[Any, Subject]]:
            with sandbox_runs(), use_eager_random_numbers():
                subject = Subject(function, self.entry.arguments)
                yield subject.function, subject

        candidate = _RunnableChange(change, run_compiled, open_uncompiled, compiles_different_function=True)
        return self._run_and_judge(candidate, goals, cases, ran_both_branches=None)

    def _run_and_judge(
        self,
        candidate: _RunnableChange,
        goals: frozenset[str],
        cases: list[ReferenceCase],
        *,
        ran_both_branches: bool | None,
        reason_if_unproven: str = _BRANCH_NEVER_RAN_REASON,
        uses_edge_cases: bool = True,
    ) -> TrialResult:
        start = time.perf_counter()
        verdict: RemedyVerdict = "fails"
        reason: str | None = None
        removed_break_ids = frozenset[str]()
        diffs: list[Difference] = []
        run: CompiledRun | None = None
        input_count = 0

        def is_promising(first_run: CompiledRun) -> bool:
            reason, diffs = self._compare_results(first_run, cases)
            return reason is None and self._verdict(candidate, first_run, diffs, goals)[0] in WORKING

        try:
            require_exact_edits(self.program.texts, candidate.change)
            run = candidate.run_compiled(cases, is_promising)
            input_count = len(run.results)
            reason, diffs = self._compare_results(run, cases)
            removed_break_ids = self._compare_breaks(candidate.change, run).removed_break_ids
            if reason is None:
                verdict, reason = self._verdict(candidate, run, diffs, goals)
            if verdict in WORKING and uses_edge_cases:
                try:
                    verdict, reason, removed_break_ids, diffs, edge_case_count = self._compare_on_edge_cases(
                        candidate, run, removed_break_ids, diffs
                    )
                    input_count += edge_case_count
                except TimeUpError:  # the results so far are worth more than no verdict
                    verdict, reason = (
                        ("works on what ran" if verdict == "works" else verdict),
                        _NO_TIME_FOR_EDGE_CASES_REASON,
                    )
        except (TrialStoppedError, Exception) as error:  # noqa: BLE001 - the changed program may make torch raise anything
            verdict, reason = verdict_of_error(error)
        if verdict == "works" and ran_both_branches is False:
            verdict, reason = "works on what ran", reason_if_unproven
        elif verdict == "works" and candidate.change.assumptions:
            verdict, reason = "works on what ran", candidate.change.assumptions[0]
        elif verdict == "works" and (problem := self._second_derivative_problem(candidate)) is not None:
            verdict, reason = "works on what ran", problem
        elif verdict == "works" and run is not None and not run.is_complete:
            verdict, reason = "works on what ran", _NO_TIME_FOR_ALL_INPUTS_REASON
        elif verdict in WORKING and (other_backend := self.why_different_backend()) is not None:
            verdict, reason = ("works on what ran" if verdict == "works" else verdict), other_backend
        return TrialResult(
            candidate.change,
            verdict,
            reason,
            list(dict.fromkeys(difference.text for difference in diffs)),
            self._evidence(candidate.change, run, cases, input_count, ran_both_branches=ran_both_branches)
            if run is not None
            else None,
            removed_break_ids,
            run.report if run is not None else None,
            time.perf_counter() - start,
        )

    def _second_derivative_problem(self, candidate: _RunnableChange) -> str | None:
        """Return how the gradients of gradients in a changed program differ; ``None`` if no difference is found."""
        if not can_differentiate_twice(self.backend):
            return None
        if candidate.has_control_flow_calls and computes_gradients(self._uncompiled_original):
            return NO_SECOND_DERIVATIVE_TEXT
        if candidate.has_selections:
            return find_different_second_derivative(self._uncompiled_original, candidate.open_uncompiled)
        return None

    def _compare_on_edge_cases(
        self, candidate: _RunnableChange, run: CompiledRun, removed_break_ids: frozenset[str], diffs: list[Difference]
    ) -> tuple[RemedyVerdict, str | None, frozenset[str], list[Difference], int]:
        """Compare a program that works on usual inputs with the original on edge inputs, uncompiled and compiled.

        Return the verdict, its reason, the removed breaks, the differences, and the number of edge inputs.
        """
        try:
            findings = EdgeFindings(diffs).with_inputs(self._edge_differences(candidate))
        except LineLimitError:
            return "fails", "runs too long on some inputs", removed_break_ids, diffs, 0
        uncompiled_input_count = findings.input_count
        choice: EdgeCaseChoice = "many" if candidate.differs_when_compiled else "some"
        original = self._compiled_edge_cases(choice) if findings.disqualifying_difference is None else None
        if original is not None:
            edge_run, cases = candidate.run_compiled(original[1], lambda _: True), original[1]
            pairs = list(zip(cases, edge_run.results, original[0].results, strict=False))
            # The edit was already compared uncompiled. Captured code may accept inputs that the original refuses.
            findings = findings.with_inputs(
                (self._compiled_differences(*results) for results in pairs), is_only_noted=is_refused_or_nan
            )
        diffs, input_count = findings.differences, findings.input_count
        if findings.disqualifying_difference is not None:
            return "another result", findings.disqualifying_difference, removed_break_ids, diffs, input_count
        if original is not None:
            breaks_before, breaks_after = [*self.original.breaks, *original[0].breaks], [*run.breaks, *edge_run.breaks]
            texts = self._changed_texts(candidate.change)
            comparison = compare_breaks(breaks_before, breaks_after, texts)
            removed_break_ids = comparison.removed_break_ids
            if comparison.new_breaks:
                return (
                    "another break",
                    f"then it breaks {break_summary(comparison.new_breaks[0], breaks_after, texts)}",
                    removed_break_ids,
                    diffs,
                    input_count,
                )
            if not removed_break_ids:
                return "break stays", "on some inputs", removed_break_ids, diffs, input_count
        if candidate.differs_when_compiled and findings.noted_difference is None:
            findings = self._compare_on_different_kinds(candidate, removed_break_ids, findings)
        diffs, input_count = findings.differences, findings.input_count
        edge_cases, note = self._uncompiled_original.edge_cases(), findings.noted_difference
        has_tried_edge_cases = candidate.equals_original_uncompiled or uncompiled_input_count == len(edge_cases)
        has_tried_edge_cases = has_tried_edge_cases and not self._uncompiled_original.misses_edge_cases
        if candidate.differs_when_compiled and original is None:
            has_tried_edge_cases = has_tried_edge_cases and not self._uncompiled_original.edge_cases_to_compile(choice)
        if note is None and edge_cases and not has_tried_edge_cases:
            note = _NO_TIME_FOR_EDGE_CASES_REASON
        verdict: RemedyVerdict = "works" if note is None else "works on what ran"
        return ("works but differs" if diffs else verdict), note, removed_break_ids, diffs, input_count

    def _compare_on_different_kinds(
        self, candidate: _RunnableChange, removed_break_ids: frozenset[str], findings: EdgeFindings
    ) -> EdgeFindings:
        """Add the differences of a compiled program on inputs of different kinds to its findings."""
        choices: tuple[EdgeCaseChoice, ...] = ("truth values", "different kinds")
        for choice in choices:
            original = self._compiled_edge_cases(choice)
            if original is None or findings.noted_difference is not None:
                continue
            original_run, cases = original
            changed_run = candidate.run_compiled(cases, lambda _: True)
            pairs = zip(cases, changed_run.results, original_run.results, strict=False)
            findings = findings.with_inputs(self._compiled_differences(*results) for results in pairs)
            if findings.noted_difference is None and not self._removes_breaks(
                candidate, removed_break_ids, original_run, changed_run
            ):
                # Skip inputs of a different rank: PyTorch runs different code for a zero-dimensional mask, which it
                # treats as a number.
                same_rank = (case for case in cases if not case.input.has_different_rank)
                runs = ((case, candidate.run_compiled([case], lambda _: True)) for case in same_rank)
                breaking_case = next(
                    (
                        case
                        for case, run in runs
                        if not self._removes_breaks(candidate, removed_break_ids, original_run, run)
                    ),
                    None,
                )
                if breaking_case is not None:
                    note = f"it still breaks with {breaking_case.input.description}"
                    findings = replace(findings, noted_difference=note)
        return findings

    def _removes_breaks(
        self,
        candidate: _RunnableChange,
        removed_break_ids: frozenset[str],
        original_run: CompiledRun,
        further_run: CompiledRun,
    ) -> bool:
        """Return whether a changed program has none of the removed breaks in a further run."""
        all_breaks_before = [*self.original.breaks, *original_run.breaks]
        texts = self._changed_texts(candidate.change)
        return removed_break_ids <= compare_breaks(all_breaks_before, further_run.breaks, texts).removed_break_ids

    def _compiled_differences(
        self, case: ReferenceCase, result: Result, original_result: Result
    ) -> tuple[ReferenceCase, list[Difference]]:
        """Return the differences of the compiled changed program, without those of the compiled original."""
        known_texts = {difference.text for difference in self._differences(case, original_result)}
        diffs = without_expected_edge_differences(self._differences(case, result), case, result)
        return case, [difference for difference in diffs if difference.text not in known_texts]

    def _edge_differences(self, candidate: _RunnableChange) -> Iterator[tuple[ReferenceCase, list[Difference]]]:
        """Yield edge inputs until the time is up, each with the differences of the uncompiled changed program."""
        if candidate.equals_original_uncompiled:
            return
        edge_cases = self._uncompiled_original.edge_cases()
        time_budget = TimeBudget(_TIME_BUDGET_S)
        with candidate.open_uncompiled() as (call, subject):
            for case in edge_cases:
                if time_budget.is_over:
                    return
                # When PyTorch compiles the bodies of its control flow operators, it runs many lines.
                with contextlib.nullcontext() if candidate.differs_when_compiled else limit_lines():
                    result = self._uncompiled_original.run(call, subject, case)
                yield (
                    case,
                    without_expected_edge_differences(
                        self._differences(case, result, compares_signs_of_zero=True), case, result
                    ),
                )

    def _compiled_edge_cases(self, choice: EdgeCaseChoice) -> tuple[CompiledRun, list[ReferenceCase]] | None:
        """Return the original's compiled run on edge inputs; ``None`` if there are none or too little time is left."""
        has_time = self.original_seconds <= _SHARE_OF_EDGE_CASES * seconds_left()
        if choice not in self._original_on_edge_cases and has_time:
            cases = self._uncompiled_original.edge_cases_to_compile(choice)
            if cases:
                self._original_on_edge_cases[choice] = self._run_compiled(Change(), cases, lambda _: True), cases
        return self._original_on_edge_cases.get(choice)

    def _changed_texts(self, change: Change) -> dict[str, tuple[str, str]]:
        return {self.program.files[name]: (self.program.texts[name], text) for name, text in change.texts.items()}

    def _compare_breaks(self, change: Change, run: CompiledRun) -> BreakComparison:
        return compare_breaks(self.original.breaks, run.breaks, self._changed_texts(change))

    def _verdict(
        self, candidate: _RunnableChange, run: CompiledRun, diffs: list[Difference], goals: frozenset[str]
    ) -> tuple[RemedyVerdict, str | None]:
        """Return the verdict on a program that ran, and the reason."""
        if any(not difference.is_acceptable for difference in diffs):
            return "another result", next(difference.text for difference in diffs if not difference.is_acceptable)
        comparison = self._compare_breaks(candidate.change, run)
        texts = self._changed_texts(candidate.change)
        if goals.isdisjoint(comparison.removed_break_ids):
            break_with_different_cause = next(
                (
                    comparison.breaks_with_different_cause[goal]
                    for goal in goals
                    if goal in comparison.breaks_with_different_cause
                ),
                None,
            )
            if break_with_different_cause is None:
                return "break stays", None
            return (
                "another break",
                f"{OTHER_CAUSE_PREFIX} {break_summary(break_with_different_cause, run.breaks, texts)}",
            )
        # A program that Dynamo gave up on has no breaks either.
        if not (run.report.frames if candidate.compiles_different_function else run.compiles_same_start(self.original)):
            return "not tried", "Dynamo did not compile the start of the program"
        verdict_of_loss = verdict_of_lost_compilation(
            self.original.report, run.report, compiles_different_function=candidate.compiles_different_function
        )
        if verdict_of_loss is not None:
            return verdict_of_loss
        has_no_fewer_breaks = run.report.summary.breaks >= self.original.report.summary.breaks
        if comparison.new_breaks or has_no_fewer_breaks:
            new_break = next(iter(comparison.new_breaks), None)
            reason = (
                f"then it breaks {break_summary(new_break, run.breaks, texts)}"
                if new_break is not None
                else "there are at least as many breaks as before"
            )
            return "another break", reason
        if not self._uncompiled_original.is_repeatable:
            return "not tried", "the function returns a different result each time: its results cannot be compared"
        return ("works but differs" if diffs else "works"), None

    def _compare_results(self, run: CompiledRun, cases: list[ReferenceCase]) -> tuple[str | None, list[Difference]]:
        """Return the reason why the changed program fails, if it does, and the differences of its results."""
        diffs: list[Difference] = []
        for case, result in zip(cases, run.results, strict=False):
            known_texts = self._compile_differences.get(id(case), self._usual_differences)
            if result.error is not None and case.expected_result.error is None:
                return f"raises {error_headline(result.error)}, on {case.input.description}", []
            diffs += [
                difference
                for difference in self._differences(case, result)
                if difference.text not in known_texts and not is_refusal_by_operation(difference, case)
            ]
        return None, diffs

    def _backend_for(self, change: Change) -> Any:
        """Return the backend for a change: one that compiles the backward pass, if the change could make it raise."""
        if _COMPILED_AUTOGRAD in change.settings and backend_and_options(self.backend)[0] == _CHEAPEST_BACKEND:
            return _CHEAPEST_BACKEND_FOR_GRADIENTS
        return self.backend

    def _evidence(
        self,
        change: Change,
        run: CompiledRun,
        cases: list[ReferenceCase],
        input_count: int,
        *,
        ran_both_branches: bool | None,
    ) -> Evidence:
        summary_before, summary_after = self.original.report.summary, run.report.summary
        return Evidence(
            backend=backend_name(self._backend_for(change)),
            inputs=input_count,
            both_sides=ran_both_branches,
            compared=compared_aspects([case.expected_result for case in cases]),
            graphs_before=summary_before.graphs,
            graphs_after=summary_after.graphs,
            breaks_before=summary_before.breaks,
            breaks_after=summary_after.breaks,
        )

    def _run_compiled(self, change: Change, cases: list[ReferenceCase], is_promising: IsPromising) -> CompiledRun:
        find_cell = self.program.changed_cell_finder(change.texts)
        with open_to_compile(self.entry, self.program, change) as (call, subject, _):
            program, backend = ProgramOnCopies(call, subject, change, find_cell), self._backend_for(change)
            return run_on_inputs(self._uncompiled_original, backend, program, cases, is_promising)


def _sort_accepted_first(cases: list[ReferenceCase]) -> list[ReferenceCase]:
    """Move the inputs for which the function raises to the end."""
    return sorted(cases, key=lambda case: case.expected_result.error is not None)

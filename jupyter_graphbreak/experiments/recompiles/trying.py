"""Try candidates on all calls to an entry and on calls with sizes that the run never used, and return verdicts."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak.experiments.recompiles.replay import Adjustment, RepeatedCall, replay
from jupyter_graphbreak.experiments.recompiles.variations import Number, NumberList, Size, find_variations
from jupyter_graphbreak.experiments.remedies.candidates import VERDICT_RANK
from jupyter_graphbreak.experiments.remedies.run_comparison import compared_aspects
from jupyter_graphbreak.experiments.trial.call_specs import ContainerSpec, TensorSpec
from jupyter_graphbreak.experiments.trial.code_hints import numbers_in_code
from jupyter_graphbreak.experiments.trial.difference import (
    ROUNDED_KINDS,
    describe_error,
    differences,
    varying_state_paths,
)
from jupyter_graphbreak.experiments.trial.entry import backend_name
from jupyter_graphbreak.experiments.trial.internal_errors import note_if_internal
from jupyter_graphbreak.experiments.trial.rebuilt_calls import can_be_rebuilt
from jupyter_graphbreak.experiments.trial.rounding import rounding_errors
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.uncopied_code import ThreadSeesCopyError
from jupyter_graphbreak.report.remedies import Evidence, UnseenInputs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from jupyter_graphbreak._torch_compat.compiled import CompilationCounts
    from jupyter_graphbreak.experiments.recompiles.candidates import RecompileCandidate
    from jupyter_graphbreak.experiments.recompiles.replay import ReplayResult
    from jupyter_graphbreak.experiments.recompiles.variations import OtherVariation, Variations
    from jupyter_graphbreak.experiments.trial.call_specs import CallSpec, Path
    from jupyter_graphbreak.experiments.trial.difference import Difference
    from jupyter_graphbreak.experiments.trial.entry import Entry, RemedyContext
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.values import RoundingErrors
    from jupyter_graphbreak.report.location import HeadKind
    from jupyter_graphbreak.report.remedies import Remedy, RemedyVerdict

    #: Returns the rounding errors in the results of calls, by the ids of the expected tensors.
    _MeasureRounding = Callable[[], Mapping[int, RoundingErrors]]

#: PyTorch's error if the code turns a marked size into a constant.
_REJECTED_MARK_ERROR = "ConstraintViolationError"
#: PyTorch's message if the code turns a marked size into a constant.
_SPECIALIZED_MESSAGE = "specialized it to be a constant"
#: A line in the stacks of PyTorch's message about a marked size that became a constant.
_STACK_LINE = re.compile(r'File "([^"]+)", line (\d+), in [^\n]*\n([^\n]*)')
#: The smallest share of the compilations after the first call that a change must avoid.
_MIN_AVOIDED_SHARE = 0.2
#: The maximum number of calls with sizes and numbers that the run never used.
_MAX_UNSEEN = 3
#: The maximum number of calls with sizes near constants in the code.
_MAX_AROUND_CONSTANTS = 4
#: The largest size to try near a constant in the code, unless the run used a larger size.
_MAX_CONSTANT_SIZE = 128
#: The maximum number of numbers for which edge values are tried.
_MAX_EDGE_NUMBERS = 2
#: The maximum number of pairs of calls from which calls that the run never made are derived.
_MAX_PAIRS = 200
#: Different kinds of tensors to try: a description, whether they replace floating-point tensors instead of integer
#: tensors, their dtype, and whether they keep the dimensions of the replaced tensors.
_DIFFERENT_KINDS = (
    ("int64 tensors", True, torch.int64, True),
    ("zero-dimensional float16 tensors", True, torch.float16, False),
    ("zero-dimensional int32 tensors", False, torch.int32, False),
    ("float64 tensors", True, torch.float64, True),
)
#: The minimum size to try, unless the run used a smaller size: PyTorch compiles sizes 0 and 1 separately.
_MIN_SIZE = 2
#: The values of the sizes and numbers, and the lengths of the lists, that varied.
_Values = tuple[float, ...]
#: A size, a number, or a list of numbers whose length varied.
_Axis = Size | Number | NumberList


class SpecializingLine(NamedTuple):
    """A line that makes PyTorch compile each value, or each range of values, separately.

    ``source`` is the id of the line's source in the report, or PyTorch's name for the file. ``library_file`` is the
    name of the file if the file belongs to a library. ``frame`` is the id of the first frame of the function whose
    guard shows the line, or ``None`` if an error shows it. ``head`` says whether the line is in the head of a loop or
    of a condition.
    """

    source: str
    line: int
    code: str
    library_file: str | None = None
    frame: str | None = None
    head: HeadKind | None = None


@dataclass(frozen=True)
class CandidateTrial:
    """The result of the trial of a candidate.

    If it prevents recompiles, only the first of all calls compiles anything, including the unseen calls.
    """

    candidate: RecompileCandidate
    verdict: RemedyVerdict
    reason: str | None = None
    differences: list[str] = field(default_factory=list)
    evidence: Evidence | None = None
    prevents_recompiles: bool = False
    seconds: float = 0.0

    @property
    def compilation_count(self) -> int:
        """The number of frames compiled in all calls, including unseen ones, or a huge number if it is unknown."""
        evidence = self.evidence
        if evidence is None or evidence.compilations_after is None:
            return 1 << 30
        return evidence.compilations_after + (evidence.unseen.compilations if evidence.unseen is not None else 0)

    def combine_with(self, remedy: Remedy) -> CandidateTrial:
        """Return this trial combined with a remedy: with the worse of the two verdicts, and all differences."""
        return replace(
            self,
            verdict=max(self.verdict, remedy.verdict, key=lambda verdict: VERDICT_RANK[verdict]),
            reason=self.reason or remedy.reason,
            differences=list(dict.fromkeys([*remedy.differences, *self.differences])),
        )


@dataclass(frozen=True)
class _FurtherCalls:
    """Further calls, and their results with the unchanged entry, both uncompiled and compiled.

    ``measure_rounding`` returns the rounding errors in the uncompiled results.
    """

    calls: list[RepeatedCall]
    eager_results: list[Result]
    compiled_results: list[Result]
    measure_rounding: _MeasureRounding


class CallTrials:
    """Repeats the calls to an entry with candidates, and compares the results with those of the unchanged entry.

    ``run_calls`` are the distinct calls of the run; the arguments of the first one were copied. A TrialStoppedError is
    raised if the entry has an effect outside its copies, and other exceptions if the calls cannot be repeated.
    """

    def __init__(self, entry: Entry, run_calls: Sequence[CallSpec]) -> None:
        self.entry = entry
        #: The line that turns a size into a constant, if a PyTorch error has shown one.
        self.specializing_line: SpecializingLine | None = None
        usable_calls = self._usable_calls = [call for call in run_calls if can_be_rebuilt(call, run_calls[0])]
        #: The number of calls whose arguments cannot be created again.
        self.left_out_count = len(run_calls) - len(usable_calls)
        self.variations = find_variations(usable_calls)
        self.owner = next(
            (call.site.owner_name for call in usable_calls if call.site is not None and call.site.owner_name), None
        )
        assigned_paths = {number.path for number in self.variations.numbers} | {
            variation.path for variation in self.variations.other_variations
        }
        calls = _repeated_calls(usable_calls, assigned_paths)
        new_calls = unseen_calls(usable_calls, self.variations, assigned_paths)
        expected = replay(entry, [*calls, *new_calls], Adjustment(), self.owner, compiles=False)
        pairs = list(zip([*calls, *new_calls], expected.results, strict=True))
        rejected_calls = [call for call, result in pairs if call.is_unseen and result.error is not None]
        if rejected_calls:  # a call that raises may leave its state half changed
            new_calls = [call for call in new_calls if call not in rejected_calls]
            expected = replay(entry, [*calls, *new_calls], Adjustment(), self.owner, compiles=False)
        self.calls = [*calls, *new_calls]
        self._expected_results = expected.results
        self._measure_rounding = self._rounding_measurement(self.calls, expected.results)
        start = time.monotonic()
        self.original = replay(entry, self.calls, Adjustment(), self.owner)
        #: The time in seconds that the calls take when they are compiled.
        self.seconds = time.monotonic() - start
        calls_near_constants = calls_around_constants(
            usable_calls, self.variations, assigned_paths, numbers_in_code(entry.function)
        )
        self._assigned_paths = assigned_paths
        self._calls_near_constants = self._run_further_calls(
            [calls[0], *calls_near_constants] if calls_near_constants else []
        )
        self._varying_paths = self._find_varying_paths()
        self._known_differences = [
            {difference.text for difference in differences(*pair, ignored_paths=self._varying_paths)}
            for pair in zip(self._expected_results, self.original.results, strict=True)
        ]

    def _run_further_calls(self, calls: list[RepeatedCall]) -> _FurtherCalls:
        """Run the unchanged entry on further calls, uncompiled and compiled."""
        expected = self._replay(self.entry, calls, Adjustment(), compiles=False)
        if any(result.error is not None for result in expected):  # a call that raises may leave its state half changed
            is_rejected = [result.error is not None for result in expected]
            calls = [call for _, call in sorted(zip(is_rejected, calls, strict=True), key=lambda pair: pair[0])]
            expected = self._replay(self.entry, calls, Adjustment(), compiles=False)
        original = self._replay(self.entry, calls, Adjustment())
        return _FurtherCalls(calls, expected, original, self._rounding_measurement(calls, expected))

    @functools.cached_property
    def _edge_number_calls(self) -> _FurtherCalls:
        """Calls with zero and negative numbers, with which a changed function may behave differently."""
        return self._run_further_calls(
            calls_with_edge_numbers(self._usable_calls, self.variations, self._assigned_paths)
        )

    @functools.cached_property
    def _different_kind_calls(self) -> _FurtherCalls:
        """Calls with tensors of different dtypes, because type promotion treats numbers and tensors differently."""
        return self._run_further_calls(calls_with_different_tensor_kinds(self._usable_calls[0]))

    def _find_varying_paths(self) -> frozenset[str]:
        """Return the paths of values that vary from run to run, which matters only if compiled results differ."""
        pairs = zip(self._expected_results, self.original.results, strict=True)
        if all(difference.is_acceptable for pair in pairs for difference in differences(*pair)):
            return frozenset()
        repeated_run = replay(self.entry, self.calls, Adjustment(), self.owner, compiles=False)
        paths = (varying_state_paths(*pair) for pair in zip(self._expected_results, repeated_run.results, strict=True))
        return frozenset[str]().union(*paths)

    def _rounding_measurement(
        self, calls: Sequence[RepeatedCall], expected_results: Sequence[Result]
    ) -> _MeasureRounding:
        """Return a function that repeats uncompiled calls, once, to measure rounding errors."""

        @functools.cache
        def measure() -> Mapping[int, RoundingErrors]:
            try:
                noisy = replay(self.entry, calls, Adjustment(), self.owner, compiles=False, adds_noise=True)
            except TrialStoppedError:
                return {}
            pairs = zip(expected_results, noisy.results, strict=False)  # without parameters, nothing is repeated
            return {ident: errors for pair in pairs for ident, errors in rounding_errors(*pair).items()}

        return measure

    def _differences(self, expected: Result, result: Result, measure_rounding: _MeasureRounding) -> list[Difference]:
        """Return the differences of a result, except those that rounding errors explain."""
        compare = functools.partial(differences, expected, result, ignored_paths=self._varying_paths)
        all_differences = compare()
        if any(difference.kind in ROUNDED_KINDS for difference in all_differences):
            return compare(rounding_errors=measure_rounding())
        return all_differences

    @property
    def compilation_count(self) -> int:
        """The number of frames that the unchanged entry compiles over all calls of the run."""
        return self.original.count_frames(self.calls, is_unseen=False)

    @property
    def frame_count_of_first_call(self) -> int:
        """The number of frames that the first call compiles."""
        return self.original.counts[0].frames

    def expected_compilation_count(self, selecting_variations: Sequence[OtherVariation]) -> int:
        """Return how many frames are compiled if each program that the calls select is compiled once."""
        programs = {
            (
                call.modes,
                tuple(variation.program_key(call.values.get(variation.path)) for variation in selecting_variations),
            )
            for call in self._usable_calls
        }
        return len(programs) * self.frame_count_of_first_call

    def run(self, candidate: RecompileCandidate, remedy_context: RemedyContext | None = None) -> CandidateTrial:
        """Repeat the calls with a candidate, in a context that may also fix breaks, and return a verdict."""
        start = time.perf_counter()
        changes_code = remedy_context is not None or not candidate.changes_only_calls
        try:
            call_groups = [self._calls_near_constants]
            # The unchanged entry runs these calls now, because applying the change also changes the entry.
            if changes_code or candidate.adjustment.replaced_numbers:
                call_groups += [self._edge_number_calls, self._different_kind_calls]
            if remedy_context is not None:
                self._measure_rounding()
                for group in call_groups:
                    group.measure_rounding()
            with remedy_context() if remedy_context is not None else contextlib.nullcontext(self.entry) as entry:
                replay_result = replay(entry, self.calls, candidate.adjustment, self.owner)
                trial = self._judge(candidate, replay_result, removes_breaks=remedy_context is not None)
                if trial.verdict == "works":
                    reason = self._difference_on_further_calls(call_groups, entry, candidate)
                    trial = replace(trial, verdict="works on what ran", reason=reason) if reason is not None else trial
        except (TrialStoppedError, Exception) as error:  # noqa: BLE001 - the change may make torch raise anything
            note_if_internal("trying a fix for a recompile", error)
            verdict, reason = _verdict_of_error(error) or ("fails", self._reason_of_error(error))
            return CandidateTrial(candidate, verdict, reason, seconds=time.perf_counter() - start)
        return replace(trial, seconds=time.perf_counter() - start)

    def _difference_on_further_calls(
        self, further_calls: Sequence[_FurtherCalls], entry: Entry, candidate: RecompileCandidate
    ) -> str | None:
        """Return the first difference between a candidate and the original on further calls; ``None`` without one."""
        for group in further_calls:
            results = self._replay(entry, group.calls, candidate.adjustment)
            if (failure := self._failure_on_further_calls(group, results)) is not None:
                return failure
        return None

    def _replay(
        self, entry: Entry, calls: list[RepeatedCall], adjustment: Adjustment, *, compiles: bool = True
    ) -> list[Result]:
        return replay(entry, calls, adjustment, self.owner, compiles=compiles).results if calls else []

    def _failure_on_further_calls(self, group: _FurtherCalls, results: list[Result]) -> str | None:
        for call, expected, original, result in zip(
            group.calls, group.eager_results, group.compiled_results, results, strict=True
        ):
            if expected.error is not None or original.error is not None:
                if expected.error is not None and original.error is not None and result.error is None:
                    error = describe_error(expected.error)
                    return f"it raises nothing, but the original raises {error}{_call_suffix(call)}"
                continue
            if result.error is not None:
                is_rejected = type(result.error).__name__ == _REJECTED_MARK_ERROR
                failure = "PyTorch rejects the mark" if is_rejected else f"it raises {describe_error(result.error)}"
                return f"{failure}{_call_suffix(call)}"
            known_differences = {difference.text for difference in differences(expected, original)}
            for difference in self._differences(expected, result, group.measure_rounding):
                is_acceptable = difference.is_acceptable and difference.kind != "lost alias"
                if not is_acceptable and difference.text not in known_differences:
                    return f"it {difference.text}{_call_suffix(call)}"
        return None

    def _judge(
        self, candidate: RecompileCandidate, replay_result: ReplayResult, *, removes_breaks: bool
    ) -> CandidateTrial:
        evidence = self._evidence(replay_result)
        new_differences: list[Difference] = []
        rows = zip(self.calls, self._expected_results, replay_result.results, self._known_differences, strict=True)
        for call, expected, result, known_differences in rows:
            if result.error is not None and expected.error is None:
                return CandidateTrial(candidate, "fails", f"{self._reason_of_error(result.error)}{_call_suffix(call)}")
            for difference in self._differences(expected, result, self._measure_rounding):
                if difference.text in known_differences:
                    continue
                if not difference.is_acceptable:
                    return CandidateTrial(
                        candidate, "another result", f"{difference.text}{_call_suffix(call)}", [], evidence
                    )
                new_differences.append(difference)
        difference_texts = list(dict.fromkeys(difference.text for difference in new_differences))
        if (failure := self._why_compilation_is_worse(replay_result, may_have_fewer_frames=removes_breaks)) is not None:
            return CandidateTrial(candidate, "another break", failure, difference_texts, evidence)
        compilations_before, compilations_after = self.compilation_count, evidence.compilations_after or 0
        unseen_before = self.original.count_frames(self.calls, is_unseen=True)
        unseen_compilations = evidence.unseen.compilations if evidence.unseen is not None else 0
        later_compilation_count = sum(count.frames for count in replay_result.counts[1:])
        prevents_recompiles = later_compilation_count == 0
        # With a higher limit, Dynamo compiles calls that it otherwise runs eagerly.
        is_limit_raised = "limit" in candidate.families and compilations_after > compilations_before
        prevents_some = avoids_enough_compilations(
            compilations_before - self.frame_count_of_first_call,
            compilations_before - compilations_after,
            unseen_before,
            unseen_compilations,
        )
        if not prevents_recompiles and not prevents_some and not is_limit_raised:
            return CandidateTrial(candidate, "break stays", None, difference_texts, evidence)
        keeps_recompiles = not prevents_recompiles and compilations_after >= compilations_before
        verdict: RemedyVerdict = (
            "works but differs"
            if difference_texts
            else "works on what ran"
            if unseen_compilations or keeps_recompiles
            else "works"
        )
        reason = None
        if unseen_compilations:
            reason = "each new size or value causes a recompile"
        elif keeps_recompiles and not is_limit_raised:
            reason = "the recompiles of this run stay"
        return CandidateTrial(candidate, verdict, reason, difference_texts, evidence, prevents_recompiles)

    def _why_compilation_is_worse(self, replay_result: ReplayResult, *, may_have_fewer_frames: bool) -> str | None:
        """Return the reason why the changed function compiles worse than the original; ``None`` if it does not."""
        first, original = replay_result.counts[0], self.original.counts[0]
        if first.breaks > original.breaks or first.graphs > max(1, original.graphs):
            return "then a graph breaks"
        abandoning_calls, original_abandoning_calls = (
            _calls_with_abandoned_functions(calls.counts) for calls in (replay_result, self.original)
        )
        call_count = len(self.calls)  # the original gives up when it reaches the limit; a change must not do so earlier
        compiles_less = first.frames < original.frames or first.graphs < original.graphs
        compiles_nothing = original.graphs > 0 and not first.graphs
        if (
            len(abandoning_calls) > len(original_abandoning_calls)
            or min(abandoning_calls, default=call_count) < min(original_abandoning_calls, default=call_count)
            or compiles_nothing
            or (compiles_less and not may_have_fewer_frames)
        ):
            return "then Dynamo compiles less"
        return None

    def _reason_of_error(self, error: BaseException) -> str:
        """Return why a candidate raises, and remember a line that turns a size into a constant."""
        text = str(error)
        if _SPECIALIZED_MESSAGE not in text:
            return f"raises {describe_error(error)}"
        lines = _STACK_LINE.findall(text)
        if lines:
            filename, line, code = lines[-1]
            self.specializing_line = SpecializingLine(filename, int(line), code.strip())
            return f"PyTorch rejects it: `{code.strip()}` turns the size into a constant"
        return "PyTorch rejects it: the code turns the size into a constant"

    def _evidence(self, replay_result: ReplayResult) -> Evidence:
        unseen_count = sum(call.is_unseen for call in self.calls)
        counts_before, counts_after = self.original.counts[0], replay_result.counts[0]
        return Evidence(
            backend=backend_name(self.entry.backend),
            inputs=len(self.calls),
            both_sides=None,
            compared=compared_aspects(self._expected_results),
            graphs_before=counts_before.graphs,
            graphs_after=counts_after.graphs,
            breaks_before=counts_before.breaks,
            breaks_after=counts_after.breaks,
            compilations_before=self.compilation_count,
            compilations_after=replay_result.count_frames(self.calls, is_unseen=False),
            unseen=UnseenInputs(unseen_count, replay_result.count_frames(self.calls, is_unseen=True))
            if unseen_count
            else None,
        )


def avoids_enough_compilations(avoidable_count: int, avoided_count: int, unseen_before: int, unseen_after: int) -> bool:
    """Return whether a change that leaves some recompiles is worth making.

    ``avoidable_count`` and ``avoided_count`` count compilations after the first call of the run; ``unseen_before`` and
    ``unseen_after`` count the compilations in calls that the run never made, without and with the change.
    """
    return avoided_count >= max(1, _MIN_AVOIDED_SHARE * avoidable_count) or (
        avoided_count == 0 and unseen_after == 0 < unseen_before
    )


def _calls_with_abandoned_functions(counts: Sequence[CompilationCounts]) -> list[int]:
    """Return the numbers of the calls in which Dynamo gives up compiling functions, once for each function."""
    return [number for number, count in enumerate(counts) for _ in range(count.abandoned_frames)]


def _call_suffix(call: RepeatedCall) -> str:
    return f", on {call.description}" if call.description else ""


def _verdict_of_error(error: BaseException) -> tuple[RemedyVerdict, str] | None:
    match error:
        case TrialStoppedError():
            return "not tried", f"the trial was stopped before it {error.effect.description}"
        case ThreadSeesCopyError() | LookupError():
            return "not tried", str(error)
    return None


def _repeated_calls(calls: Sequence[CallSpec], assigned_paths: set[Path]) -> list[RepeatedCall]:
    repeated_calls = []
    for number, call in enumerate(calls):
        description = "the first call" if not number else f"call {number + 1}"
        arguments = call.arguments if number else None
        state = call.plain_state(assigned_paths)
        repeated_calls.append(
            RepeatedCall(arguments, state, description, keyword_names=call.keyword_names, modes=call.modes)
        )
    return repeated_calls


def unseen_calls(
    calls: Sequence[CallSpec], variations: Variations, assigned_paths: Collection[Path]
) -> list[RepeatedCall]:
    """Return new calls with sizes and numbers that the calls of the run do not have.

    The new calls extrapolate from two of the calls. Sizes and numbers that belong together, such as the length of a
    tensor and a maximum length, therefore still fit together. State is assigned before each call.
    """
    lists = [number_list for number_list in variations.lists if number_list.varies_in_length]
    numbers = [
        number for number in variations.numbers if not any(number_list.contains(number.path) for number_list in lists)
    ]
    axes: list[_Axis] = [*variations.sizes, *numbers, *lists]
    values_by_call = [(call, values) for call in calls if (values := _values_of(call, axes)) is not None]
    known_values = {values for _, values in values_by_call}
    if not axes or len(known_values) < 2:  # noqa: PLR2004
        return []
    unseen_by_values: dict[_Values, RepeatedCall] = {}
    for new_values, call in itertools.islice(_extrapolate(values_by_call, axes), _MAX_PAIRS):
        if new_values not in known_values and new_values not in unseen_by_values:
            unseen_by_values[new_values] = _call_with_values(call, axes, new_values, assigned_paths)
        if len(unseen_by_values) == _MAX_UNSEEN:
            break
    return list(unseen_by_values.values())


def _values_of(call: CallSpec, axes: Sequence[_Axis]) -> _Values | None:
    values: list[float] = []
    for axis in axes:
        spec: Any = call.values.get(axis.path)
        if isinstance(axis, Size) and isinstance(spec, TensorSpec):
            values.append(spec.shape[axis.dim])
        elif isinstance(axis, NumberList) and isinstance(spec, ContainerSpec):
            values.append(len(spec.keys))
        elif isinstance(axis, Number) and type(spec) in {int, float}:
            values.append(spec)
        else:
            return None
    return tuple(values)


def _extrapolate(
    values_by_call: Sequence[tuple[CallSpec, _Values]], axes: Sequence[_Axis]
) -> Iterator[tuple[_Values, CallSpec]]:
    """Yield values extrapolated from two calls, or between them, each with the second call."""
    largest = max(values_by_call, key=lambda pair: sum(map(abs, pair[1])))
    smaller_pairs = [pair for pair in values_by_call if pair is not largest]
    pairs = itertools.chain(((other, largest) for other in smaller_pairs), itertools.permutations(values_by_call, 2))
    for (_, one), (call, other) in pairs:
        for steps, parts in ((1, 1), (-1, 2), (1, 2), (2, 1)):
            new_values = tuple(b + (b - a) * steps / parts for a, b in zip(one, other, strict=True))
            if (allowed_values := _values_if_allowed(axes, new_values)) is not None:
                yield allowed_values, call


def calls_around_constants(
    calls: Sequence[CallSpec], variations: Variations, assigned_paths: Collection[Path], constants: Sequence[float]
) -> list[RepeatedCall]:
    """Return calls with sizes that the code may treat differently: its constants, and the sizes next to these.

    Like the calls of :func:`unseen_calls`, these calls extrapolate from two of the calls.
    """
    axes: list[_Axis] = [*variations.sizes, *variations.numbers]
    values_by_call = [(call, values) for call in calls if (values := _values_of(call, axes)) is not None]
    known_values = {values for _, values in values_by_call}
    if not variations.sizes or len(known_values) < 2:  # noqa: PLR2004
        return []
    sizes = [int(number) + offset for number in constants if float(number).is_integer() for offset in (0, -1, 1)]
    largest = max(max(size.values) for size in variations.sizes)
    new_calls: dict[_Values, RepeatedCall] = {}
    for size in (size for size in sizes if _MIN_SIZE <= size <= max(_MAX_CONSTANT_SIZE, largest)):
        for (_, one), (call, other) in itertools.islice(itertools.permutations(values_by_call, 2), _MAX_PAIRS):
            if (step := other[0] - one[0]) == 0:
                continue
            new_values = tuple(b + (b - a) * (size - other[0]) / step for a, b in zip(one, other, strict=True))
            if (allowed_values := _values_if_allowed(axes, new_values)) is not None:
                if allowed_values not in known_values and allowed_values not in new_calls:
                    new_calls[allowed_values] = _call_with_values(call, axes, allowed_values, assigned_paths)
                break
        if len(new_calls) == _MAX_AROUND_CONSTANTS:
            break
    return list(new_calls.values())


def calls_with_edge_numbers(
    calls: Sequence[CallSpec], variations: Variations, assigned_paths: Collection[Path]
) -> list[RepeatedCall]:
    """Return variants of the first call with zero and negative values for the first numbers that varied."""
    return [
        _call_with_values(calls[0], [number], (value,), assigned_paths)
        for number in variations.numbers[:_MAX_EDGE_NUMBERS]
        for value in ((0, -1) if number.is_int else (0.0, -1.5))
        if value not in number.values
    ]


def calls_with_different_tensor_kinds(call: CallSpec) -> list[RepeatedCall]:
    """Return variants of a call with different dtypes, and with zero-dimensional tensors."""
    calls: list[RepeatedCall] = []
    for description, is_floating, dtype, has_dimensions in _DIFFERENT_KINDS:
        arguments: dict[Path, Any] = dict(call.arguments)
        for path, spec in call.arguments.items():
            is_number = isinstance(spec, TensorSpec) and spec.dtype != torch.bool
            if is_number and spec.dtype.is_floating_point is is_floating:
                shape = spec.shape if has_dimensions else ()
                requires_grad = spec.requires_grad and dtype.is_floating_point
                # Integers may be indices; the index 0 is always valid.
                data = torch.full(shape, 3 if is_floating else 0, dtype=dtype, device=spec.device)
                arguments[path] = dataclasses.replace(
                    spec, shape=shape, dtype=dtype, requires_grad=requires_grad, data=data
                )
        if arguments != call.arguments:
            calls.append(_unseen_call(call, arguments, {}, description))
    return calls


def _unseen_call(call: CallSpec, arguments: dict[Path, Any], state: dict[Path, Any], description: str) -> RepeatedCall:
    """Return a call that the run never made, in the modes of one that it made."""
    names, modes = call.keyword_names, call.modes
    return RepeatedCall(arguments, state, description, is_unseen=True, keyword_names=names, modes=modes)


def _values_if_allowed(axes: Sequence[_Axis], values: _Values) -> _Values | None:
    """Return values with sizes and integers as ints; ``None`` if a value is not of the kind that the run used."""
    int_axes = [axis for axis in axes if not isinstance(axis, Number) or axis.is_int]
    if not all(float(value).is_integer() for axis, value in zip(axes, values, strict=True) if axis in int_axes):
        return None
    rounded_values = tuple(int(v) if axis in int_axes else v for axis, v in zip(axes, values, strict=True))
    is_allowed = all(_is_allowed(axis, value) for axis, value in zip(axes, rounded_values, strict=True))
    return rounded_values if is_allowed else None


def _is_allowed(axis: _Axis, value: float) -> bool:
    """Return whether a value is like those of the run, that is, a size of at least 2 or a number of the same sign."""
    if not isinstance(axis, Number) or (axis.is_int and min(axis.values) >= 0):
        return value >= min(_MIN_SIZE, *axis.values) and (value >= _MIN_SIZE or value in axis.values)
    if all(used_value > 0 for used_value in axis.values):
        return value > 0
    return all(used_value < 0 for used_value in axis.values) is (value < 0) or min(axis.values) < 0 < max(axis.values)


def _call_with_values(
    call: CallSpec, axes: Sequence[_Axis], values: _Values, assigned_paths: Collection[Path]
) -> RepeatedCall:
    arguments: dict[Path, Any] = dict(call.arguments)
    state = call.plain_state(assigned_paths)
    for axis, value in zip(axes, values, strict=True):
        if isinstance(axis, Size):
            spec = arguments.get(axis.path)
            if isinstance(spec, TensorSpec):
                shape = (*spec.shape[: axis.dim], int(value), *spec.shape[axis.dim + 1 :])
                arguments[axis.path] = dataclasses.replace(spec, shape=shape, data=None)
        elif isinstance(axis, NumberList):
            content = itertools.cycle(next(filter(None, axis.contents), (1,)))
            arguments[axis.path] = ContainerSpec(axis.container_type, tuple(range(int(value))))
            arguments |= {axis.path.child("item", index): next(content) for index in range(int(value))}
        elif axis.path in arguments:
            arguments[axis.path] = value
        else:
            state[axis.path] = value
    description = ", ".join(
        f"size {value} of {axis}"
        if isinstance(axis, Size)
        else f"length {value} of {axis}"
        if isinstance(axis, NumberList)
        else f"{axis} = {value:g}"
        for axis, value in zip(axes, values, strict=True)
    )
    return _unseen_call(call, arguments, state, description)

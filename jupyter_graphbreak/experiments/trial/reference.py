"""Run the original function on every input, to compare the results of other programs with its results."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jupyter_graphbreak._torch_compat.compiled import force_eager_on_thread
from jupyter_graphbreak.experiments.trial.code_hints import looks_like_indices
from jupyter_graphbreak.experiments.trial.edge_inputs import edge_inputs
from jupyter_graphbreak.experiments.trial.effects import random_states, seed_all
from jupyter_graphbreak.experiments.trial.inputs import Input, derived_inputs, example_of
from jupyter_graphbreak.experiments.trial.outcome import LineLimitError, Result, limit_lines, run
from jupyter_graphbreak.experiments.trial.rounding import add_noise_to_parameters, rounding_errors
from jupyter_graphbreak.experiments.trial.side_effects import THREAD_WAIT_EFFECT, TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.tensor_changes import map_tensors, resize, tensors_in
from jupyter_graphbreak.experiments.trial.time_limit import TimeBudget
from jupyter_graphbreak.experiments.trial.unaudited_functions import announce_sleep
from jupyter_graphbreak.experiments.trial.values import describe_difference
from jupyter_graphbreak.report.frontends import Example, Raised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.values import RoundingErrors

#: The processor time in seconds after which no further input is derived.
_MAX_SECONDS = 2.0
#: The maximum number of random seeds to try for different paths through the function.
_MAX_SEEDS = 24
#: The maximum processor time in seconds for trying random seeds.
_MAX_SECONDS_FOR_SEEDS = 0.5
#: A function is slow if a call takes this many seconds of processor time. It then gets smaller inputs and fewer calls.
_SLOW_S = 0.05
#: The maximum number of sizes of the first input to shrink.
_MAX_SHRUNK_SIZES = 3
#: The smallest size to which a dimension shrinks.
_MIN_SIZE = 2
#: The smallest size that is worth shrinking.
_MIN_SHRINKABLE = 8
#: A further size to try, because networks for images halve sizes several times.
_DIVISIBLE_SIZE = 16
#: The lines of the user's code that ran: files and line numbers.
LineSet = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class ReferenceCase:
    """An input and the original function's result for it, with the lines that ran if they were recorded."""

    input: Input
    expected_result: Result
    lines: LineSet = frozenset()

    def example(self) -> Example:
        """Return the report's description of the input."""
        error = self.expected_result.error
        raised = None if error is None else describe_raised(error, "function")
        return msgspec.structs.replace(self.input.example, raised=raised)


class Reference:
    """The original function with its results on the first input and on derived inputs.

    The constructor raises any exception that the function raises on the first input, and a TrialStoppedError if the
    function has an effect outside its copies.
    """

    def __init__(self, fn: Any, first_input: Input) -> None:
        self.fn = fn
        #: ``base_input`` is the input from which others are derived. After :meth:`shrink`, it may be a smaller one.
        self.first_input = self.base_input = first_input
        #: Whether edge inputs with the state and the kinds of tensors of the first input were left out for lack of
        #: time, or any edge inputs for lack of wall-clock time.
        self.misses_edge_cases = False
        self.subject = Subject(fn, first_input.arguments)
        self.result = self._call(first_input.arguments)
        #: The sizes of the first input, by the smaller sizes that the base input has instead.
        self._original_sizes: dict[int, int] = {}
        #: The sets of lines that ran in calls whose result a second call has reproduced.
        self._repeated_lines: set[LineSet] = set()
        if self.result.error is not None:
            raise self.result.error
        state_before = self.subject.initial_state
        self.changed_names = {
            name
            for name, value in self.result.state.items()
            if name not in state_before or describe_difference(state_before[name], value)
        }
        start = time.thread_time()
        #: Whether the function returns the same value when it is called again. Only then can it be random.
        self.is_repeatable = not self._differs(self._call(first_input.arguments))
        #: The processor time of a call with the base input, measured after the first call, which may take longer.
        self._seconds_of_call = time.thread_time() - start
        self.is_random = self.is_repeatable and self._differs(self._call(first_input.arguments, seed=1))

    def shrink(self) -> None:
        """Derive the inputs for a slow function from a smaller input if the same lines run for it."""
        if self._seconds_of_call < _SLOW_S:
            return
        expected = self._lines_of_call(self.first_input.arguments)
        if expected is None:
            return
        if self.is_repeatable:
            self._repeated_lines.add(expected)
        for size in shrinkable_sizes(self.first_input.arguments)[:_MAX_SHRUNK_SIZES]:
            smaller_inputs = (
                pair
                for pair in smaller_arguments(self.base_input.arguments, size)
                if self._lines_of_call(pair[0]) == expected
            )
            arguments, new_size = next(smaller_inputs, (None, 0))
            if arguments is None:
                continue
            start = time.thread_time()
            self._call(arguments)
            self._seconds_of_call = time.thread_time() - start
            self._original_sizes[new_size] = size
            example = example_of(self.first_input.example.what, arguments, self.fn)
            self.base_input = replace(self.base_input, arguments=arguments, example=example, is_smaller=True)
            if self._seconds_of_call < _SLOW_S:
                return

    def _lines_of_call(self, arguments: Arguments) -> LineSet | None:
        """Return the user's lines that run in a call, or ``None`` if the call raises, is stopped or runs too long."""
        with contextlib.suppress(LineLimitError, TrialStoppedError), limit_lines() as lines:
            if self._call(arguments, runs_backward=False).error is None:
                return frozenset(lines)
        return None

    def cases(
        self, given_arguments: Sequence[Arguments] = (), time_budget: TimeBudget | None = None
    ) -> list[ReferenceCase]:
        """Return cases for the given arguments and further random seeds or, without arguments, for derived inputs.

        No further input is derived once the time budget is spent.
        """
        cases: list[ReferenceCase] = []
        if given_arguments:
            inputs = [
                Input(arguments, example_of("", arguments, self.fn), preceding_call_count=1)
                for arguments in given_arguments
            ]
            for input_ in [*inputs, *self._reseeded_inputs()]:
                with contextlib.suppress(TrialStoppedError):
                    cases.append(ReferenceCase(input_, self._run_input(input_)))
            return cases
        time_budget = time_budget or TimeBudget(_MAX_SECONDS)
        for derived_input in self._derive_inputs():
            if time_budget.is_over:
                break
            with contextlib.suppress(LineLimitError, TrialStoppedError), limit_lines() as lines:
                case = ReferenceCase(derived_input, self._run_input(derived_input), frozenset(lines))
                # If a special input raises an error, the function rejects it.
                if case.expected_result.error is None or not derived_input.is_special:
                    cases.append(case)
        return cases

    def edge_cases(self, time_budget: TimeBudget | None = None) -> Iterator[ReferenceCase]:
        """Yield cases with edge inputs whose result is repeatable, including inputs that the function rejects."""
        time_budget = time_budget or TimeBudget(_MAX_SECONDS)
        self.subject.restore()
        variables = {name: value for name, (value, _) in self.subject.variables().items()}
        further_inputs = edge_inputs(self.base_input.arguments, self.fn, variables)
        for derived_input in itertools.chain(
            self._late_repetitions(), map(self._describe_by_first_input, further_inputs)
        ):
            if time_budget.is_over:
                is_common_kind = not derived_input.state and not derived_input.different_kind
                self.misses_edge_cases = is_common_kind or time_budget.is_wall_clock_over
                break
            case = None
            try:
                with contextlib.suppress(LineLimitError), limit_lines() as lines:
                    case = ReferenceCase(derived_input, self._run_input(derived_input), frozenset(lines))
            except TrialStoppedError as stopped:
                # Like an endless loop, a run that waits for a thread has no result to compare.
                if stopped.effect.description != THREAD_WAIT_EFFECT:
                    raise
            if case is not None and self.has_repeatable_result(case):
                yield case

    def has_repeatable_result(self, case: ReferenceCase) -> bool:
        """Return whether the function returns the same result again. It may not, for example if it reads the clock.

        A slow function is not called again if the same lines ran in an earlier call with a repeatable result.
        """
        if self._seconds_of_call >= _SLOW_S and case.lines in self._repeated_lines:
            return True
        repeated_result = self._run_input(case.input)
        has_same_error = type(case.expected_result.error) is type(repeated_result.error)
        is_repeatable = (
            has_same_error and describe_difference(case.expected_result.value, repeated_result.value) is None
        )
        if is_repeatable:
            self._repeated_lines.add(case.lines)
        return is_repeatable

    def repeat(self, case: ReferenceCase) -> Result:
        """Call the function once more with the input of a case, and return the result."""
        return self._run_input(case.input)

    def repeat_on_new_copies(self) -> Result:
        """Copy the function and its objects again, call the copy with the first input, and return the result."""
        subject = Subject(self.fn, self.first_input.arguments)
        with force_eager_on_thread(), announce_sleep(), subject.restore_on_exit():
            return run(subject.function, subject, subject.replace_with_copies(self.first_input.arguments))

    def rounding_errors(self, case: ReferenceCase) -> dict[int, RoundingErrors]:
        """Return the rounding errors in what the function leaves behind, by the ids of the expected tensors."""
        subject = Subject(self.fn, self.first_input.arguments)
        with add_noise_to_parameters(subject) as has_noise:
            if not has_noise:
                return {}
            subject.set_variables(case.input.state)
            with force_eager_on_thread(), announce_sleep():
                result = self.run_after_preceding_calls(subject.function, subject, case.input)
        return rounding_errors(case.expected_result, result)

    def _derive_inputs(self) -> Iterator[Input]:
        if self.changed_names:
            yield self._repeated_input("the first input again", preceding_call_count=1)
        yield from self._reseeded_inputs()
        new_inputs = map(self._describe_by_first_input, derived_inputs(self.base_input.arguments, self.fn))
        yield from (replace(new_input, preceding_call_count=1) for new_input in new_inputs)
        yield from self._late_repetitions()

    def _late_repetitions(self) -> Iterator[Input]:
        """Yield the first input after several calls, because a change may affect only one of them."""
        if self.changed_names:
            yield self._repeated_input("the first input a third time", preceding_call_count=2)
            yield self._repeated_input("the first input a fourth time", preceding_call_count=3)

    def _repeated_input(self, description: str, preceding_call_count: int) -> Input:
        return replace(
            self.base_input,
            example=Example(description, self.base_input.example.values),
            preceding_call_count=preceding_call_count,
        )

    def _describe_by_first_input(self, derived_input: Input) -> Input:
        """Return an input that was derived from the base input, with a description that refers to the first input."""
        description = derived_input.example.what
        for new_size, size in self._original_sizes.items():
            description = re.sub(rf"\binstead of {new_size}\b", f"instead of {size}", description)
        return replace(
            derived_input,
            example=Example(description, derived_input.example.values),
            is_smaller=self.base_input.is_smaller,
        )

    def _reseeded_inputs(self) -> Iterator[Input]:
        values = self.base_input.example.values
        for seed in self._further_seeds:
            yield replace(self.base_input, example=Example("the first input, different random seed", values), seed=seed)

    @functools.cached_property
    def _further_seeds(self) -> list[int]:
        """A second seed if the result depends on the random seed, and the seeds for which different lines run."""
        seeds = [1] if self.is_random else []
        seed_all(0)
        if not self.is_repeatable or random_states() == self.result.random:  # the function draws no random numbers
            return seeds
        time_budget = TimeBudget(_MAX_SECONDS_FOR_SEEDS)
        known_line_sets: set[LineSet] = set()
        with contextlib.suppress(LineLimitError, TrialStoppedError):
            for seed in range(_MAX_SEEDS):
                if time_budget.is_over:
                    break
                with limit_lines() as lines:
                    self._call(self.base_input.arguments, seed, runs_backward=False)
                if frozenset(lines) not in known_line_sets and seed not in (0, *seeds):
                    seeds.append(seed)
                known_line_sets.add(frozenset(lines))
        return seeds

    def _run_input(self, input_: Input) -> Result:
        self.subject.restore()
        self.subject.set_variables(input_.state)
        with force_eager_on_thread(), announce_sleep():
            return self.run_after_preceding_calls(self.subject.function, self.subject, input_)

    def run_after_preceding_calls(
        self, program: Callable[..., Any], subject: Subject, input_: Input, *, runs_backward: bool = True
    ) -> Result:
        """Run a program on an input, after the input's preceding calls if the original changes state.

        The subject is restored afterwards, so that it keeps nothing that the run has created, such as gradients.
        """
        with subject.restore_on_exit():
            if self.changed_names:
                first_arguments = (self.base_input if input_.is_smaller else self.first_input).arguments
                for _ in range(input_.preceding_call_count):
                    run(program, subject, subject.replace_with_copies(first_arguments), runs_backward=False)
            arguments = subject.replace_with_copies(input_.arguments)
            return run(program, subject, arguments, input_.seed, runs_backward=runs_backward)

    def _call(self, arguments: Arguments, seed: int = 0, *, runs_backward: bool = True) -> Result:
        self.subject.restore()
        copies = self.subject.replace_with_copies(arguments)
        with force_eager_on_thread(), announce_sleep(), self.subject.restore_on_exit():
            return run(self.subject.function, self.subject, copies, seed, runs_backward=runs_backward)

    def _differs(self, other: Result) -> bool:
        return other.error is not None or describe_difference(self.result.value, other.value) is not None


def describe_raised(error: Exception, raiser: Literal["capture", "program", "function"]) -> Raised:
    """Return the report's description of an exception."""
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:  # noqa: BLE001 - calls the user's `__str__`
        lines = []
    return Raised(type(error).__name__, lines[0] if lines else "", raiser)


def shrinkable_sizes(original_arguments: Arguments) -> list[int]:
    """Return the sizes of dimensions that may shrink, starting with first dimensions, such as batches."""
    tensors = tensors_in(original_arguments.values())
    first_sizes = [tensor.shape[0] for tensor in tensors if tensor.dim()]
    other_sizes = [size for tensor in tensors for size in tensor.shape[1:]]
    return [size for size in dict.fromkeys([*first_sizes, *other_sizes]) if size >= _MIN_SHRINKABLE]


def smaller_arguments(original_arguments: Arguments, size: int) -> Iterator[tuple[Arguments, int]]:
    """Yield arguments in which each dimension of one size is smaller, and the new size, starting with the smallest.

    Integers that are valid indices for the size stay valid for the new size, because some operations do not check
    indices. No other dimension has the new size.
    """
    tensors = tensors_in(original_arguments.values())
    largest_indices = [int(tensor.max()) for tensor in tensors if looks_like_indices(tensor) and tensor.numel()]
    smallest_size = max([_MIN_SIZE, *(index + 1 for index in largest_indices if index < size)])
    sizes = {length for tensor in tensors for length in tensor.shape}
    unused_size = next(number for number in range(smallest_size, smallest_size + len(sizes) + 1) if number not in sizes)
    adds_divisible_size = unused_size < _DIVISIBLE_SIZE and _DIVISIBLE_SIZE not in sizes and size % _DIVISIBLE_SIZE == 0
    for smaller_size in (unused_size, _DIVISIBLE_SIZE) if adds_divisible_size else (unused_size,):
        if 2 * smaller_size <= size:
            change = functools.partial(resize, size=size, new_size=smaller_size)
            yield map_tensors(original_arguments, change), smaller_size

"""Run the original program, uncompiled, on several inputs, to compare changed programs with it."""

from __future__ import annotations

import builtins
import contextlib
import itertools
import re
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal

import torch

from jupyter_graphbreak._torch_compat.compiled import backend_and_options, disable_torch_compile
from jupyter_graphbreak.experiments.remedies.application import replace_functions
from jupyter_graphbreak.experiments.remedies.change import Change
from jupyter_graphbreak.experiments.trial.difference import is_raised_by_operation, varying_state_paths
from jupyter_graphbreak.experiments.trial.inputs import DIFFERENT_SIZE_SUFFIX, Input, example_of
from jupyter_graphbreak.experiments.trial.named_objects import named_tensors
from jupyter_graphbreak.experiments.trial.outcome import LineLimitError, limit_lines, sandbox_runs
from jupyter_graphbreak.experiments.trial.reference import Reference, ReferenceCase
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.time_limit import TimeBudget, seconds_left
from jupyter_graphbreak.records.attributes import globals_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.families.proposal import Condition
    from jupyter_graphbreak.experiments.remedies.application import Program
    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.values import RoundingErrors

#: The name of the builtin function that an instrumented text calls.
RECORDER_NAME = "__graphbreak_record__"


def instrument_text(text: str, conditions: Mapping[int, Condition]) -> str:
    """Return source text in which ``__graphbreak_record__(i, (E))`` replaces each test ``E`` with the number ``i``.

    Line numbers do not change. Tests may be nested. If a condition requires no results, only its evaluation is
    recorded.
    """
    lines = [line.encode() for line in text.split("\n")]
    # At one position, the inner test is closed first and the outer test is opened first. Insertions start at the end
    # of the text, so that they do not move the positions that follow.
    insertions: list[tuple[tuple[int, ...], bytes]] = []
    for number, test in conditions.items():
        start, end = (test.line, test.column), (test.end_line, test.end_column)
        insertions.append(((*start, 1, -end[0], -end[1]), f"{RECORDER_NAME}({number}, (".encode()))
        insertions.append(((*end, 0, -start[0], -start[1]), b"))" if test.required_results else b"), False)"))
    for (line, column, *_), inserted_text in sorted(insertions, reverse=True):
        lines[line - 1] = lines[line - 1][:column] + inserted_text + lines[line - 1][column:]
    return b"\n".join(lines).decode()


@contextlib.contextmanager
def record_test_results() -> Iterator[dict[int, set[bool | None]]]:
    """Record the results of numbered tests while the context is open: ``{number: {True, False}}``.

    ``None`` stands for the evaluation of an expression that is not a test.
    """
    results: dict[int, set[bool | None]] = defaultdict(set)

    def record(number: int, value: Any, is_test: bool = True) -> Any:  # noqa: FBT001, FBT002 - the instrumented code calls it by position
        if not is_test:
            results[number].add(None)
            return value
        result = bool(value)
        results[number].add(result)
        return result

    setattr(builtins, RECORDER_NAME, record)
    try:
        yield results
    finally:
        delattr(builtins, RECORDER_NAME)


#: The maximum number of inputs of a trial, not counting those that a condition requires.
_MAX_INPUTS = 6
#: Seconds after which no more inputs are derived.
_MAX_DERIVING_S = 10.0
#: The maximum size in bytes of the results on edge inputs.
_MAX_KEPT_BYTES = 1 << 26
#: The number of results on edge inputs to keep, whatever their size.
_MIN_EDGE_CASES = 3
#: The share of the remaining time after which no more inputs are derived.
_SHARE_OF_INPUTS = 0.06
#: The factor by which deriving inputs may take more wall-clock time than processor time: the machine may be busy.
_WALL_CLOCK_FACTOR = 4.0
#: The backends that run a graph as it was captured.
_BACKENDS_WITHOUT_COMPILER = frozenset({"eager", "aot_eager"})
#: The message of PyTorch's error for a test of several elements.
_ERROR_OF_TEST = "Boolean value of Tensor with more than one value"
#: Parts of the messages of PyTorch's errors for in-place operations that cannot store their results.
_ERRORS_IN_PLACE = ("can't be cast to the desired output type", "is being used in an in-place operation")
#: The maximum number of edge inputs for which a program is compiled.
_MAX_EDGE_CASES = 6
#: The maximum number of edge inputs for a program that differs from the original only when compiled.
_MAX_EDGE_CASES_OF_SETTINGS = 10
#: The maximum number of edge inputs of different kinds for a program that differs only when compiled.
_MAX_DIFFERENT_KINDS = 8
#: The maximum number of edge inputs that change a number in a global or an attribute between compiled calls.
_MAX_STATE_NUMBERS = 2
#: The maximum number of edge inputs in which one argument is empty and the others are not.
_MAX_EMPTY_TENSORS = 2
#: The maximum number of edge inputs that the original refuses but for which programs are compiled anyway.
_MAX_REFUSED_INPUTS = 2
#: Kinds of edge inputs, by the beginnings and ends of their descriptions.
_KINDS_OF_EDGE_CASES = ("size 0", "size 1 ", "size", " empty", " with one row")
#: The end of the descriptions of edge inputs with NaN.
_NAN_SUFFIX = " nan"
#: Words that occur in conditions on sizes.
_SIZE_WORDS = re.compile(r"\b(shape|size|numel|len|ndim|dim)\b")
#: The edge inputs for which a program is compiled. ``some``: the usual selection. For a change that has an effect only
#: when compiled: ``many``, a larger selection; ``truth values``, with booleans in place of numbers; ``different
#: kinds``, with tensors of a different dtype, size or rank.
EdgeCaseChoice = Literal["some", "many", "truth values", "different kinds"]
#: A condition, and the change to whose text the condition's position refers.
WatchedCondition = tuple[Change, "Condition"]


class UncompiledOriginal:
    """The results of an uncompiled entry on its own input and on derived inputs."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        start = time.monotonic()
        self._deriving_s = _SHARE_OF_INPUTS * seconds_left()
        first_input = Input(entry.arguments, example_of("the first input", entry.arguments, entry.function))
        with sandbox_runs():
            self._reference = Reference(entry.function, first_input)
            # Every trial compiles the program for the usual inputs. For inputs of a further size, this may take long.
            has_compiler = backend_and_options(entry.backend)[0] not in _BACKENDS_WITHOUT_COMPILER
            if not has_compiler:
                self._reference.shrink()
            candidate_cases = self._reference.cases(time_budget=self._time_budget())
            if has_compiler:
                self._reference.shrink()
            derived_cases = [case for case in candidate_cases if _stays_finite(case.input, entry.arguments)]
            if self._reference.is_repeatable:  # otherwise the function may read uninitialized memory, or the clock
                derived_cases = [
                    case for case in derived_cases if seconds_left() > 0 and self._reference.has_repeatable_result(case)
                ]
        #: All inputs with the results of the original.
        self.cases = [ReferenceCase(first_input, self._reference.result), *derived_cases]
        #: The time in seconds that the runs of the original on all inputs took.
        self.seconds = time.monotonic() - start
        self._edge_cases: list[ReferenceCase] | None = None
        #: The results of :meth:`rounding_errors`, by the ids of the cases, with the cases.
        self._rounding_errors: dict[int, tuple[ReferenceCase, dict[int, RoundingErrors]]] = {}
        #: The results of :meth:`choose_inputs`, with the conditions.
        self._choices: list[tuple[Sequence[WatchedCondition], tuple[list[ReferenceCase], bool | None]]] = []

    def _time_budget(self) -> TimeBudget:
        """Return the time budget for deriving usual inputs, or edge inputs."""
        return TimeBudget(min(_MAX_DERIVING_S, self._deriving_s), wall_clock=_WALL_CLOCK_FACTOR * self._deriving_s)

    def edge_cases(self) -> list[ReferenceCase]:
        """Return edge inputs, which the function may refuse, with the results of the original.

        The first call must happen while no change is applied. The results stay in memory, so there are fewer inputs if
        the results are large.
        """
        if self._edge_cases is None:
            max_edge_cases = max(_MIN_EDGE_CASES, _MAX_KEPT_BYTES // max(1, _size_in_bytes(self._reference.result)))
            with sandbox_runs():
                edge_cases = self._reference.edge_cases(self._time_budget()) if self.is_repeatable else iter(())
                self._edge_cases = _drop_refused_kinds(list(itertools.islice(edge_cases, max_edge_cases)))
        return self._edge_cases

    def edge_cases_to_compile(self, choice: EdgeCaseChoice) -> list[ReferenceCase]:
        """Return the edge inputs of a choice, one of each kind, and a few that the original refuses."""
        accepted_cases: dict[str, ReferenceCase] = {}
        refused_cases: dict[str, ReferenceCase] = {}
        for case in self.edge_cases():
            kind, error = _kind_of_edge_case(case), case.expected_result.error
            if case.input.preceding_call_count or case.input.has_flag is not (choice == "truth values"):
                continue
            if bool(case.input.different_kind) is not (choice in {"truth values", "different kinds"}):
                continue
            if error is None:
                accepted_cases.setdefault(case.input.different_kind or kind, case)
            elif not kind.startswith("size") and not case.input.different_kind:
                refused_cases.setdefault(kind, case)
        max_accepted_cases = {"some": _MAX_EDGE_CASES, "many": _MAX_EDGE_CASES_OF_SETTINGS}.get(
            choice, _MAX_DIFFERENT_KINDS
        )
        # While tracing, Dynamo computes with numbers that it treats as constants, and cannot convert NaN. It assumes
        # that a captured number equals itself, but NaN does not. It captures a second size as a symbol, except for
        # sizes 0 and 1, and a symbol can break the graph where a constant does not.
        important_cases = [
            accepted_cases.pop(kind) for kind in list(accepted_cases) if kind.endswith(_NAN_SUFFIX) or kind == "size"
        ]
        # Dynamo also captures a number in a global or attribute as a symbol if the number changes between calls.
        kinds_with_number = [
            kind
            for kind, case in accepted_cases.items()
            if any(type(value) in {int, float} for value in case.input.state.values())
        ]
        # A slice of an empty tensor whose bound the graph computes may raise only in the graph.
        kinds_with_empty_tensor = [kind for kind in accepted_cases if kind.endswith(f" empty, {DIFFERENT_SIZE_SUFFIX}")]
        important_cases = [
            *(accepted_cases.pop(kind) for kind in kinds_with_number[:_MAX_STATE_NUMBERS]),
            *(accepted_cases.pop(kind) for kind in kinds_with_empty_tensor[:_MAX_EMPTY_TENSORS]),
            *important_cases,
        ]
        return [
            *[*important_cases, *accepted_cases.values()][:max_accepted_cases],
            *list(refused_cases.values())[:_MAX_REFUSED_INPUTS],
        ]

    @property
    def misses_edge_cases(self) -> bool:
        """Whether common edge inputs were left out for lack of time; see :class:`.Reference`."""
        return self._reference.misses_edge_cases

    @property
    def is_repeatable(self) -> bool:
        """Whether the function returns the same result when it is called again."""
        return self._reference.is_repeatable

    def varying_paths(self) -> frozenset[str]:
        """Return the paths in arguments and state whose values vary, such as the time of day or an address."""
        with sandbox_runs():
            return varying_state_paths(self._reference.result, self._reference.repeat_on_new_copies())

    def rounding_errors(self, case: ReferenceCase) -> dict[int, RoundingErrors]:
        """Return the rounding errors in what the function leaves behind; see :meth:`.Reference.rounding_errors`."""
        if id(case) not in self._rounding_errors:
            with sandbox_runs(), contextlib.suppress(TrialStoppedError):
                self._rounding_errors[id(case)] = case, self._reference.rounding_errors(case)
        return self._rounding_errors.setdefault(id(case), (case, {}))[1]

    def usual_inputs(self) -> list[ReferenceCase]:
        """Return the inputs of every trial."""
        return self.cases[:_MAX_INPUTS]

    def exclude(self, case: ReferenceCase) -> None:
        """Exclude a derived input for which compilation alone changes the result."""
        if case is not self.cases[0]:
            self.cases = [other for other in self.cases if other is not case]

    def run(
        self, program: Callable[..., Any], subject: Subject, case: ReferenceCase, *, runs_backward: bool = True
    ) -> Result:
        """Call a program with copies of a case's arguments, which share objects with the state as the originals do."""
        subject.restore()
        subject.set_variables(case.input.state)
        return self._reference.run_after_preceding_calls(program, subject, case.input, runs_backward=runs_backward)

    def run_original(self, case: ReferenceCase) -> Result:
        """Call the original function once more on a case."""
        with sandbox_runs():
            return self._reference.repeat(case)

    def choose_inputs(
        self, program: Program, watched_conditions: Sequence[WatchedCondition]
    ) -> tuple[list[ReferenceCase], bool | None]:
        """Return inputs that give the conditions all required results, and whether all these results occurred.

        The second value is ``None`` if all required results occurred and no condition requires both results.
        Inputs with empty tensors are used only for conditions on sizes: their results have no values to compare.
        """
        if not watched_conditions:
            return self.usual_inputs(), None
        if not self.has_chosen_inputs(watched_conditions):
            self._choices.append((watched_conditions, self._choose_inputs(program, watched_conditions)))
        return next(choice for chosen_conditions, choice in self._choices if chosen_conditions == watched_conditions)

    def has_chosen_inputs(self, watched_conditions: Sequence[WatchedCondition]) -> bool:
        """Return whether :meth:`choose_inputs` needs no further runs for conditions."""
        return not watched_conditions or any(
            chosen_conditions == watched_conditions for chosen_conditions, _ in self._choices
        )

    def _choose_inputs(
        self, program: Program, watched_conditions: Sequence[WatchedCondition]
    ) -> tuple[list[ReferenceCase], bool | None]:
        chosen_inputs = self.usual_inputs()
        groups: list[tuple[Change, list[Condition]]] = []
        for change, condition in watched_conditions:
            conditions = next((conditions for known_change, conditions in groups if known_change == change), None)
            if conditions is None:
                groups.append((change, [condition]))
            elif condition not in conditions:
                conditions.append(condition)
        missing_results = {
            (group, index, result)
            for group, (_, conditions) in enumerate(groups)
            for index, condition in enumerate(conditions)
            for result in condition.required_results or (None,)
        }
        for uses_edge_cases in (False, True):
            if not missing_results:
                break
            cases = self.edge_cases() if uses_edge_cases else self.cases
            needed_numbers: set[int] = set()
            for group, (change, conditions) in enumerate(groups):
                if not any(missing_group == group for missing_group, _, _ in missing_results):
                    continue
                texts = {**program.texts, **change.texts}
                are_on_sizes = [bool(_SIZE_WORDS.search(_code_of(condition, texts))) for condition in conditions]
                with self._open_recorder(program, change, conditions) as results_for:
                    for number, case in enumerate(cases):
                        if not any(missing_group == group for missing_group, _, _ in missing_results):
                            break
                        has_values = _empty_tensor_count(case.input.arguments) <= _empty_tensor_count(
                            self.entry.arguments
                        )
                        new_results = {
                            (group, index, result)
                            for index, result in results_for(case)
                            if has_values or are_on_sizes[index]
                        }
                        needed_numbers |= {number} if new_results & missing_results else set()
                        missing_results -= new_results
            additional_cases = (cases[number] for number in sorted(needed_numbers))
            chosen_inputs += [case for case in additional_cases if not any(case is other for other in chosen_inputs)]
        if missing_results:
            return chosen_inputs, False
        return chosen_inputs, True if any(
            len(condition.required_results) > 1 for _, condition in watched_conditions
        ) else None

    @contextlib.contextmanager
    def _open_recorder(
        self, program: Program, change: Change, conditions: list[Condition]
    ) -> Iterator[Callable[[ReferenceCase], set[tuple[int, bool | None]]]]:
        """Yield a function that runs the uncompiled changed program on a case, and returns the results of conditions.

        Each result comes with the position of its condition in ``conditions``.
        """
        texts = {**program.texts, **change.texts}
        by_source: dict[str, dict[int, Condition]] = defaultdict(dict)
        for number, condition in enumerate(conditions):
            by_source[condition.source][number] = condition
        instrumented_texts = {
            source: instrument_text(texts[source], conditions_by_number)
            for source, conditions_by_number in by_source.items()
        }
        with sandbox_runs(), disable_torch_compile(), record_test_results() as results:  # the change may compile a part
            subject = Subject(self.entry.function, self.entry.arguments)  # copied before the change
            needs_backward: list[bool] = []

            def results_in_run(case: ReferenceCase, *, runs_backward: bool) -> set[tuple[int, bool | None]]:
                results.clear()
                with contextlib.suppress(LineLimitError), limit_lines():
                    self.run(subject.function, subject, case, runs_backward=runs_backward)
                return {(number, result) for number, results_of_test in results.items() for result in results_of_test}

            def results_for(case: ReferenceCase) -> set[tuple[int, bool | None]]:
                if not needs_backward:  # a condition may be part of a backward pass
                    results_without_backward = results_in_run(case, runs_backward=False)
                    results_with_backward = results_in_run(case, runs_backward=True)
                    needs_backward.append(results_with_backward != results_without_backward)
                    return results_with_backward
                return results_in_run(case, runs_backward=needs_backward[0])

            with (
                replace_functions(program, {**change.texts, **instrumented_texts}, subject.functions()) as application,
                application.add_definitions(globals_of(subject.function)),
            ):
                subject.keep_definitions(application.defined_names)
                yield results_for


def _code_of(condition: Condition, texts: Mapping[str, str]) -> str:
    lines = [line.encode() for line in texts[condition.source].split("\n")[condition.line - 1 : condition.end_line]]
    lines[-1] = lines[-1][: condition.end_column]
    lines[0] = lines[0][condition.column :]
    return b"\n".join(lines).decode()


def _empty_tensor_count(arguments: Arguments) -> int:
    return sum(tensor.numel() == 0 for _, tensor in named_tensors(arguments.values(), ""))


def _drop_refused_kinds(cases: list[ReferenceCase]) -> list[ReferenceCase]:
    """Drop each kind of input that the function refuses for some values, because it is not meant for that kind.

    If it also refuses the same values without that kind of tensors, the kind is not the reason. Three errors do not
    show that the function is not meant for such tensors, so a change must keep them:

    - the error of a test of several elements, for which ``torch.where`` would return a result
    - the error of an in-place operation that cannot store its result, such as ``x += 0.5`` for integers or for a leaf
      that requires gradients, in a branch that a change would always run
    - the error of a check of sizes in the code itself, if a change would let an operation fail first
    """
    refused_plain_inputs = {
        case.input.example.what
        for case in cases
        if not case.input.different_kind and case.expected_result.error is not None
    }
    refused_kinds = {
        case.input.different_kind
        for case in cases
        if case.input.different_kind
        and case.expected_result.error is not None
        and case.input.example.what.removesuffix(f", {case.input.different_kind}") not in refused_plain_inputs
        and not case.input.has_ordinary_values
        and not _error_depends_on_values(case.input, case.expected_result.error)
    }
    return [case for case in cases if case.input.different_kind not in refused_kinds or _checks_size_itself(case)]


def _checks_size_itself(case: ReferenceCase) -> bool:
    error = case.expected_result.error
    return case.input.has_different_size and error is not None and not is_raised_by_operation(error)


def _error_depends_on_values(input_: Input, error: Exception) -> bool:
    if not isinstance(error, RuntimeError):
        return False
    is_in_place = any(text in str(error) for text in _ERRORS_IN_PLACE)
    # A program rarely adds to booleans.
    return (is_in_place and not input_.compares_errors_only) or str(error).startswith(_ERROR_OF_TEST)


def _size_in_bytes(result: Result) -> int:
    by_id = {id(tensor): tensor for _, tensor in named_tensors((result.state, result.arguments), "")}
    return sum(tensor.numel() * tensor.element_size() for tensor in by_id.values())


def _stays_finite(derived_input: Input, original_arguments: Arguments) -> bool:
    """Return whether an input adds neither NaN nor infinity, which would spread if both branches are computed."""
    return _all_finite(derived_input.arguments) or not _all_finite(original_arguments)


def _all_finite(arguments: Arguments) -> bool:
    tensors = (value for value in arguments.values() if isinstance(value, torch.Tensor))
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors if tensor.is_floating_point())


def _kind_of_edge_case(case: ReferenceCase) -> str:
    """Return the kind of an edge input: the part of its description that similar inputs share."""
    description = case.input.example.what
    for kind in _KINDS_OF_EDGE_CASES:
        if description.startswith(kind) or description.endswith(kind):
            return kind
    # A program may never store NaN in its state.
    has_nan = description.endswith(_NAN_SUFFIX) and not case.input.state
    return description if has_nan else description.partition(" =")[0]

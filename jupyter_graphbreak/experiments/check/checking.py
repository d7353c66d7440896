"""Compare a compiled call with the eager call, and try changes that may make a wrong result right."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from msgspec import structs

from jupyter_graphbreak._torch_compat.compiled import force_eager_on_thread
from jupyter_graphbreak._torch_compat.configuration import use_eager_random_numbers
from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak._torch_compat.tried_settings import precision_changes
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.experiments.check.closeness import (
    LARGE_NOISE,
    SMALL_NOISE,
    CastToDouble,
    DoublePrecisionMemory,
    DoublePrecisionResults,
    difference_beyond_rounding,
    flatten,
)
from jupyter_graphbreak.experiments.check.graph_comparison import GraphComparison, gradients_of
from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
from jupyter_graphbreak.experiments.cost.timing import clock_for
from jupyter_graphbreak.experiments.cost.variants import tensors_of
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.effects import seed_all
from jupyter_graphbreak.experiments.trial.entry import backend_name, compile_separately
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.experiments.trial.subject import Subject, current_setup
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, measure_run, require_time
from jupyter_graphbreak.experiments.trial.values import describe_difference, largest_number, varying_paths
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.recording.recorder import cell_of_shell
from jupyter_graphbreak.records.attributes import is_instance
from jupyter_graphbreak.report.cost import EAGER_RETURNS_TEXT, UNAFFECTED_RESULT_TEXT, Check, Divergence, NumericsTrial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.schema import Report

CompilationStep = Literal["eager", "aot_eager", "backend"]
_MAX_DIFFERENCES = 8
#: The exception that Dynamo raises if an operator raises an error during tracing.
_OPERATOR_ERROR = "TorchRuntimeError"
#: The number of calls after which a program that changes its state is compared again.
_REPEATED_CALLS = 3
#: The simpler backends that leave out a compilation step, by the step that introduces a difference.
_SIMPLER_BACKENDS: dict[CompilationStep, tuple[str, ...]] = {
    "backend": ("aot_eager",),
    "aot_eager": ("eager",),
    "eager": (),
}
#: The time limit in seconds for timing a call.
_MAX_TIMING_S = 0.3
#: The minimum number of runs for timing a call.
_MIN_TIMED_CALLS = 5
#: The maximum number of runs for timing a call.
_MAX_TIMED_CALLS = 100


@dataclass(frozen=True)
class CheckResult:
    """The check of an entry, and the report of the run on copies in which the entry was compiled.

    If the eager and the compiled call both raise an exception, so there is no result to compare, ``error_name`` is
    the name of the eager call's exception.
    """

    check: Check
    report: Report
    error_name: str | None = None


@dataclass
class _Observation:
    """The outcome of a call: the result, the arguments and the state afterwards, and the gradients, by name.

    ``eps`` is the largest rounding error of the dtypes in the compiled graphs; see :func:`eps_of`.
    """

    values: dict[str, Any] = field(default_factory=dict)
    gradients: dict[str, Any] = field(default_factory=dict)
    error_name: str | None = None
    backward_error_name: str | None = None
    eps: float = 0.0


def group_instances(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Group the entries of a run that share compiled code: modules of one class, or functions with the same code."""
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(_sharing_key(entry), []).append(entry)
    return list(groups.values())


def _sharing_key(entry: Entry) -> Any:
    """Return the key that an entry shares with the entries whose compiled code it may use."""
    method = entry.function.forward if isinstance(entry.function, torch.nn.Module) else entry.function
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    if code is None:
        return id(entry)
    owner = type(getattr(method, "__self__", None))
    definition = code.co_filename, code.co_firstlineno, code.co_qualname
    return owner, definition, backend_name(entry.backend), entry.dynamic, entry.modes.records_gradients


def check_instances(
    entries: Sequence[Entry], run_report: Report, *, find_cell: FindCell = cell_of_shell
) -> CheckResult:
    """Compare the entries of a group with eager code: each entry alone, and each after the earlier ones have run."""
    results: list[CheckResult] = []
    for number, entry in enumerate(entries, start=1):
        result = check_entry(entry, run_report, find_cell=find_cell, earlier_entries=entries[: number - 1])
        check = structs.replace(result.check, instances=len(entries))
        if not check.equal and number > 1:
            differences = [f"instance {number} of {len(entries)}: {text}" for text in check.differences]
            check = structs.replace(check, differences=differences)
        results.append(replace(result, check=check))
        if not check.equal:
            return results[-1]
    return next((result for result in results if result.error_name is None), results[0])


def check_entry(
    entry: Entry,
    run_report: Report | None = None,
    *,
    find_cell: FindCell = cell_of_shell,
    earlier_entries: Sequence[Entry] = (),
) -> CheckResult:
    """Compare the values and gradients of an entry's compiled call with those of its eager call, both on copies.

    Both calls draw the same random numbers. A call that changes its state, such as a training step, is compared again
    after further calls. The check uses the graph ids of ``run_report``, by default those of the compiled call on
    copies. If ``earlier_entries`` are modules, the entry may use their compiled code. Copies of functions share no
    code.
    """
    with entry.set_up(), sandbox_runs(), use_eager_random_numbers():
        compiled_call = _CompiledCall(entry, entry.backend)
        with compile_separately(compiled_call.subject.function):
            with recorder.record(find_cell) as recording:
                actual = compiled_call.observe()
            report_on_copies = build_report(recording.records)
            expected = _observe_eager(entry)
            differences = _differences(entry, expected, actual)
            call_count = 1
            if not differences and compiled_call.changes_state:
                with contextlib.suppress(TimeUpError):  # the first call has been compared
                    differences = _differences_after_repeated_calls(entry, compiled_call)
                    call_count = _REPEATED_CALLS if differences else 1
            is_due_to_earlier_entries = False
            if not differences and earlier_entries and isinstance(entry.function, torch.nn.Module):
                differences = _differences_after_earlier_entries(earlier_entries, entry, compiled_call.graphs.eps)
                is_due_to_earlier_entries = bool(differences)
            first_divergence, step = None, None
            with contextlib.suppress(TimeUpError):  # whether the results are equal is already known
                correspondence = Correspondence(
                    report_on_copies, run_report if run_report is not None else report_on_copies, entry.frame_id
                )
                first_divergence = _first_divergence(compiled_call, correspondence)
            if first_divergence is not None and not differences:
                differences = [f"graph {first_divergence.graph} computes a different value, {UNAFFECTED_RESULT_TEXT}"]
            unchanged_us = None
            with contextlib.suppress(TimeUpError):
                unchanged_us = compiled_call.fastest_us() if differences else None
        restored_by: list[NumericsTrial] = []
        with contextlib.suppress(TimeUpError):
            step = _first_wrong_step(entry, call_count) if differences and not is_due_to_earlier_entries else None
            if step is not None:
                restored_by += _try_changes(entry, step, first_divergence, unchanged_us, call_count)
    check = Check(
        function=entry.name,
        backend=backend_name(entry.backend),
        equal=not differences,
        differences=differences[:_MAX_DIFFERENCES],
        first=first_divergence,
        step=step,
        restored_by=restored_by,
        gradients=any(gradient is not None for gradient in expected.gradients.values()),
    )
    return CheckResult(check, report_on_copies, error_name=expected.error_name if check.equal else None)


class _CompiledCall:
    """An entry that is compiled once, and always called from the same state.

    ``changes_state`` tells whether the last observed call changed the state.
    """

    def __init__(self, entry: Entry, backend: str | Callable[..., Any]) -> None:
        self.subject = Subject(entry.function, entry.arguments)
        self.graphs = GraphComparison(backend, self.subject)
        self.changes_state = False
        self._program = entry.compile(self.subject.function, self.graphs)

    def observe(self, call_count: int = 1) -> _Observation:
        self.subject.restore()
        try:
            observation = _observe(self._program, self.subject, call_count=call_count)
            observation.eps = self.graphs.eps
            state_after = self.subject.state()
        finally:
            self.subject.restore()  # frees the gradients
        self.changes_state = describe_difference(self.subject.initial_state, state_after) is not None
        return observation

    def run_graphs(self) -> None:
        """Call the entry only to run its graphs, and discard the result."""
        self.subject.restore()
        _call(self._program, self.subject)

    def fastest_us(self) -> float | None:
        """Return the time in microseconds of the fastest of several calls, or ``None`` if a call raises."""
        clock = clock_for(tensors_of(self.subject, self.subject.arguments or Arguments()))
        end = time.monotonic() + _MAX_TIMING_S
        times: list[float] = []
        while len(times) < _MIN_TIMED_CALLS or (time.monotonic() < end and len(times) < _MAX_TIMED_CALLS):
            require_time("call")
            self.subject.restore()
            arguments = self.subject.copy_arguments(self.subject.arguments or Arguments())
            seed_all(0)
            with self.subject.activate(), self.subject.prevent_effects():
                marks = [clock.mark()]
                try:
                    self._program(*arguments.args, **arguments.kwargs)
                except Exception:  # noqa: BLE001 - the differences already include the exception
                    return None
                marks.append(clock.mark())
            times.append(clock.times_us(marks)[-1])
        return min(times)


def _observe_eager(entry: Entry, call_count: int = 1) -> _Observation:
    subject = Subject(entry.function, entry.arguments)
    subject.restore()
    subject.memory.collect_garbage()  # frees the gradients of earlier subjects
    with force_eager_on_thread():
        return _observe(subject.function, subject, call_count=call_count)


def _observe_in_double(entry: Entry, call_count: int, *, noise_size: int, eps: float) -> _Observation | None:
    """Return the outcome of eager calls in double precision, or ``None`` if a call fails."""
    shared_memory = current_setup().memory
    shared_memory.collect_garbage()  # frees the gradients of earlier subjects
    try:
        observation = _observe_with_own_memory(entry, call_count, DoublePrecisionMemory(noise_size=noise_size, eps=eps))
    except Exception:  # noqa: BLE001 - copying may call the user's code
        return None
    finally:
        shared_memory.collect_garbage()  # reference cycles may keep the tensors in double precision
        shared_memory.restore()
    return observation if observation.error_name is None else None


def _observe_with_own_memory(entry: Entry, call_count: int, memory: DoublePrecisionMemory) -> _Observation:
    subject = Subject(entry.function, entry.arguments, own_memory=memory)
    subject.modes = replace(subject.modes, dtype=torch.float64)
    try:
        arguments = memory.convert_other_tensors(subject)
        current_setup().memory.discard_working_copies()
        with force_eager_on_thread(), CastToDouble():
            return _observe(subject.function, subject, arguments, call_count=call_count)
    finally:
        subject.restore()


def _call(
    program: Callable[..., Any], subject: Subject, arguments: Arguments | None = None
) -> tuple[Any, Arguments, str | None]:
    """Call a program, and return its result, its arguments after the call, and the name of the exception it raised."""
    require_time("call")
    arguments = arguments or subject.copy_arguments(subject.arguments or Arguments())
    seed_all(0)
    with subject.activate(), subject.prevent_effects():
        try:
            with measure_run("call"):
                return program(*arguments.args, **arguments.kwargs), arguments, None
        except Exception as error:  # noqa: BLE001 - the exception is the finding
            return None, arguments, type(error).__name__


def _observe(
    program: Callable[..., Any], subject: Subject, arguments: Arguments | None = None, *, call_count: int = 1
) -> _Observation:
    """Make several calls, each with copies of the same arguments, and return the outcome of the last call."""
    for _ in range(call_count - 1):
        copies = subject.copy_arguments(arguments) if arguments is not None else None
        error_name = _call(program, subject, copies)[2]
        if error_name is not None:
            return _Observation(error_name=error_name)
    value, arguments, error_name = _call(program, subject, arguments)
    if error_name is not None:
        return _Observation(error_name=error_name)
    memo = subject.unchanged_memo()
    named_arguments = arguments.by_name(subject.function)
    observation = _Observation({"the result": subject.snapshot(value, memo)})
    observation.values |= {f"{name} afterwards": subject.snapshot(item, memo) for name, item in named_arguments.items()}
    observation.values |= {f"{name} afterwards": item for name, item in subject.state(memo).items()}
    inputs = dict(_inputs_with_gradients(named_arguments, subject))
    try:
        with subject.activate(), subject.prevent_effects(), measure_run("backward"):
            gradients = gradients_of(value, list(inputs.values()))
    except Exception as error:  # noqa: BLE001 - the exception is the finding, for example about a freed autograd graph
        observation.backward_error_name = type(error).__name__
        return observation
    for name, item in inputs.items():
        gradient = gradients.pop(0) if gradients else None
        observation.gradients[f"the gradient of {name}"] = subject.snapshot(gradient, {})
        if item.grad is not None:
            observation.gradients[f"{name}.grad"] = subject.snapshot(item.grad, {})
    return observation


def _inputs_with_gradients(named_arguments: dict[str, Any], subject: Subject) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the leaf tensors that require gradients, each after its name."""
    pending = [*named_arguments.items(), *([("self", subject.owner)] if subject.owner is not None else [])]
    for name, value in pending:
        if is_instance(value, torch.Tensor) and value.requires_grad and value.is_leaf:
            yield name, value
        elif is_instance(value, torch.nn.Module):
            yield from ((part, parameter) for part, parameter in value.named_parameters() if parameter.requires_grad)
        elif is_instance(value, list | tuple):
            pending += [(f"{name}[{number}]", item) for number, item in enumerate(value)]
        elif is_instance(value, dict):
            pending += [(f"{name}[{key!r}]", item) for key, item in value.items()]


def _differences_after_repeated_calls(entry: Entry, compiled_call: _CompiledCall) -> list[str]:
    """Return the differences between compiled and eager code in the last of several calls that change the state."""
    differences = _differences(
        entry, _observe_eager(entry, _REPEATED_CALLS), compiled_call.observe(_REPEATED_CALLS), _REPEATED_CALLS
    )
    return [f"after {_REPEATED_CALLS} calls, {text}" for text in differences]


def _differences_after_earlier_entries(earlier_entries: Sequence[Entry], entry: Entry, eps: float) -> list[str]:
    """Return the differences between eager code and an entry that may use the compiled code of earlier entries."""
    subject = Subject(entry.function, entry.arguments)
    # All entries share this backend.
    backend = entry.backend if callable(entry.backend) else clone_backend(entry.backend)
    with compile_separately(subject.function):
        for earlier_entry in earlier_entries:
            earlier_subject = Subject(earlier_entry.function, earlier_entry.arguments)
            _call(earlier_entry.compile(earlier_subject.function, backend), earlier_subject)
        actual = _observe(entry.compile(subject.function, backend), subject)
        actual.eps = eps
    differences = _differences(entry, _observe_eager(entry), actual)
    return [f"with code that was compiled for an earlier instance, {text}" for text in differences]


def _differences(entry: Entry, expected: _Observation, actual: _Observation, call_count: int = 1) -> list[str]:
    """Return the differences between a compiled and an eager call that exceed rounding."""
    if not any(_compare_observations(expected, actual, ())):
        return []
    # Further runs take memory and time, so they take place only if there is a difference to explain.
    ignored_paths = varying_paths(expected.values, _observe_eager(entry, call_count).values)
    if ignored_paths and not any(_compare_observations(expected, actual, (), ignored_paths)):
        return []
    exact_observations: list[_Observation] = []
    for noise_size in (0, SMALL_NOISE, LARGE_NOISE):
        observation = _observe_in_double(entry, call_count, noise_size=noise_size, eps=actual.eps)
        if observation is None:
            break
        exact_observations.append(observation)
        if noise_size and not any(_compare_observations(expected, actual, exact_observations, ignored_paths)):
            return []
    return list(
        _compare_observations(
            expected, actual, exact_observations if len(exact_observations) > 1 else (), ignored_paths
        )
    )


def _compare_observations(
    expected: _Observation,
    actual: _Observation,
    exact_observations: Sequence[_Observation],
    ignored_paths: frozenset[str] = frozenset(),
) -> Iterator[str]:
    """Yield the differences, except in values that differ between any two runs, such as the time of day."""
    if expected.error_name is not None and actual.error_name == _OPERATOR_ERROR:
        return
    if expected.error_name != actual.error_name:
        eager_returns = expected.error_name is None
        eager_outcome = (
            EAGER_RETURNS_TEXT if eager_returns else f", but eager code {_describe_outcome(expected.error_name)}"
        )
        yield f"{_describe_outcome(actual.error_name)}{eager_outcome}"
        return
    kinds = ["values", "gradients"]
    if expected.backward_error_name != actual.backward_error_name:
        compiled, eager = _describe_outcome(actual.backward_error_name), _describe_outcome(expected.backward_error_name)
        yield f"the backward pass {compiled}, but in eager code it {eager}"
        kinds.remove("gradients")
    for kind in kinds:
        expected_parts, actual_parts = getattr(expected, kind), getattr(actual, kind)
        doubles = [getattr(observation, kind) for observation in exact_observations]
        largest = largest_number(flatten(doubles[0])) if doubles else 0.0
        for name in expected_parts:
            has_doubles = bool(doubles) and all(name in double for double in doubles)
            reference = None
            if has_doubles:
                results = (double[name] for double in doubles)
                reference = DoublePrecisionResults(largest, *results)._replace(eps=actual.eps)
            text = difference_beyond_rounding(
                expected_parts[name],
                actual_parts.get(name),
                reference,
                are_gradients=kind == "gradients",
                ignored_paths=ignored_paths,
                root=name,
            )
            if text is not None:
                yield f"{name}: {text}"


def _describe_outcome(error_name: str | None) -> str:
    return f"raises {error_name}" if error_name is not None else "returns"


def _first_divergence(compiled_call: _CompiledCall, correspondence: Correspondence) -> Divergence | None:
    """Make further compiled calls, and return the first graph and operation whose values differ from eager values."""
    graphs = compiled_call.graphs
    _compare_graphs(compiled_call)
    if graphs.wrong_graph is None:
        return None
    frame = next(
        (frame for frame in correspondence.report_on_copies.frames if frame.id == graphs.wrong_graph.compile_id), None
    )
    copied_graph_id = frame.graphs[0] if frame is not None and frame.graphs else None
    graph_id = correspondence.original_graph(copied_graph_id)
    if copied_graph_id is None or graph_id is None:
        return None
    name = graphs.first_wrong_operation()
    graph = next(graph for graph in correspondence.run_report.graphs if graph.id == graph_id)
    op = next((op for op in graph.ops if op.name == name), None)
    return Divergence(graph_id, op.location if op is not None else None, op.name if op is not None else name)


def _compare_graphs(compiled_call: _CompiledCall) -> None:
    graphs = compiled_call.graphs
    for graphs.compared_results in ("values", "gradients"):
        compiled_call.run_graphs()
        if graphs.wrong_graph is not None:
            break
    graphs.compared_results = "nothing"


def _first_wrong_step(entry: Entry, call_count: int) -> CompilationStep:
    """Return the first compilation step that introduces a difference, after a number of calls."""
    steps: tuple[CompilationStep, ...] = ("eager", "aot_eager")
    for step in steps:
        if step == backend_name(entry.backend):
            return step
        compiled_call = _CompiledCall(entry, step)
        with compile_separately(compiled_call.subject.function):
            if _differences(entry, _observe_eager(entry, call_count), compiled_call.observe(call_count), call_count):
                return step
            _compare_graphs(compiled_call)
            if compiled_call.graphs.wrong_graph is not None:
                return step
    return "backend"


def _try_changes(
    entry: Entry,
    step: CompilationStep,
    first_divergence: Divergence | None,
    unchanged_us: float | None,
    call_count: int,
) -> Iterator[NumericsTrial]:
    """Try as many changes as time allows, one at a time, that may make a wrong result right.

    ``step`` is the compilation step that introduces the difference, ``unchanged_us`` the time that a compiled call
    takes without a change, and ``call_count`` the number of calls after which the results are compared.
    """
    changes: list[tuple[str, Callable[[], AbstractContextManager[Any]], Entry]] = []
    if step == "backend" and backend_name(entry.backend) == "inductor":
        operation = first_divergence.op if first_divergence is not None else None
        uses_cuda = any(
            tensor.is_cuda for tensor in tensors_of(Subject(entry.function, entry.arguments), entry.arguments)
        )
        possible_changes = precision_changes(operation, uses_cuda=uses_cuda)
        changes = [(change.code, change.apply, entry) for change in possible_changes]
    if entry.guard_filter is not None:
        unfiltered_entry = replace(entry, guard_filter=None)
        changes.append(('options={"guard_filter_fn": None}', contextlib.nullcontext, unfiltered_entry))
    for name in _SIMPLER_BACKENDS[step]:
        changes.append((f'backend="{name}"', contextlib.nullcontext, replace(entry, backend=name)))
    for code, make_context, changed_entry in changes:
        try:
            with make_context():
                compiled_call = _CompiledCall(changed_entry, changed_entry.backend)
                with compile_separately(compiled_call.subject.function):
                    expected, actual = _observe_eager(entry, call_count), compiled_call.observe(call_count)
                    is_equal = not _differences(entry, expected, actual, call_count)
                    _compare_graphs(compiled_call)
                    is_equal = is_equal and compiled_call.graphs.wrong_graph is None
                    changed_us = compiled_call.fastest_us() if is_equal and unchanged_us is not None else None
        except TimeUpError:  # the check is complete without further changes
            return
        except Exception:  # noqa: BLE001 - PyTorch may fail with the change
            is_equal, changed_us = False, None
        ratio = round(changed_us / unchanged_us, 2) if changed_us is not None and unchanged_us else None
        yield NumericsTrial(code, is_equal, ratio)

"""Find the values that the lines of an entry compute, and the operations that produce NaN and Inf."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.compiled import force_eager_on_thread
from jupyter_graphbreak._torch_compat.configuration import use_eager_random_numbers
from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak.analysis.build import build_with_files
from jupyter_graphbreak.experiments.check.graph_comparison import gradients_of
from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
from jupyter_graphbreak.experiments.cost.variants import tensors_of
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.effects import seed_all
from jupyter_graphbreak.experiments.trial.entry import backend_name, compile_separately
from jupyter_graphbreak.experiments.trial.named_objects import RESULT_PATH, named_tensors
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, measure_run, require_time
from jupyter_graphbreak.experiments.values.ranges import range_of
from jupyter_graphbreak.experiments.values.recorder import (
    EagerRecordingMode,
    GraphOpKey,
    RecordingBackend,
    ValueRecorder,
)
from jupyter_graphbreak.recording import recorder as run_recorder
from jupyter_graphbreak.recording.recorder import cell_of_shell
from jupyter_graphbreak.report.schema import Device
from jupyter_graphbreak.report.values import EntryValues, LineValues, NonFinite, NonFiniteCounts, NonFiniteInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import torch

    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.experiments.values.recorder import NonfiniteOrigin, RecordedValue
    from jupyter_graphbreak.experiments.values.requested_lines import RequestedLine
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.schema import Report

#: The maximum number of lines, or of operations of requested lines, in a report.
_MAX_LINES = 60
#: The maximum number of inputs to list because they contain NaN or Inf.
_MAX_NONFINITE_INPUTS = 10


class ValuesWithReport(NamedTuple):
    """The values of an entry, and the report of the run on copies in which the entry was compiled."""

    values: EntryValues
    report: Report


class _Operation(NamedTuple):
    """An operation with its location and its graph in the report of the run."""

    location: Location | None
    op: str
    graph: str | None


def values_of_entry(
    entry: Entry,
    run_report: Report | None = None,
    *,
    lines: Sequence[RequestedLine] = (),
    call_number: int = 1,
    call_count: int = 1,
    find_cell: FindCell = cell_of_shell,
) -> ValuesWithReport:
    """Run the operations of an entry's graphs one by one on copies, and record their values.

    The eager function and the code of the entry's backend also run, to find out whether they produce NaN or Inf. The
    ids of the result are those of ``run_report``, by default the report of the run on copies. Only the last operation
    of each line is listed or, if ``lines`` are given, all operations of these lines. ``call_number`` is the number of
    the call among all calls of the entry in the run, starting at 1.
    """
    with entry.set_up(), sandbox_runs(), use_eager_random_numbers():
        recorder = ValueRecorder()
        backend = RecordingBackend(recorder)
        subject = Subject(entry.function, entry.arguments)
        program = entry.compile(subject.function, backend)
        nonfinite_inputs = _nonfinite_inputs(subject)
        with compile_separately(subject.function), run_recorder.record(find_cell) as recording:
            recording.record_device(Device("auto", default_device_name()))
            results = [_nonfinite_counts("graphs", program, subject)]
        report_on_copies, files = build_with_files(recording.records)
        recorder.release_objects()
        eager_recorder = ValueRecorder()
        with contextlib.suppress(TimeUpError):  # the values of the graphs are known
            results.append(_eager_counts(entry, eager_recorder))
            eager_recorder.release_objects()
            if backend_name(entry.backend) != "eager":
                results.append(_compiled_counts(entry))
    correspondence = Correspondence(
        report_on_copies, run_report if run_report is not None else report_on_copies, entry.frame_id
    )
    operations = _operations_by_node(report_on_copies, correspondence)
    locate = correspondence.locator(files, find_cell)

    def graph_operation(key: Any) -> _Operation:
        return operations.get(key, _Operation(None, key.name, None))

    def eager_operation(key: Any) -> _Operation:
        location = locate([key.line])
        return _Operation(replace(location, code=None) if location is not None else None, key.op, None)

    graph_lines = {_line_of(operation) for operation in operations.values()}
    values, origins = _values_and_origins(recorder, graph_operation)
    eager_values, eager_origins = _values_and_origins(eager_recorder, eager_operation)
    line_order = {_line_of(operation): number for number, (operation, _) in reversed(list(enumerate(eager_values)))}
    values += [item for item in eager_values if _line_of(item[0]) not in graph_lines]
    origins += [item for item in eager_origins if _line_of(item[0]) not in graph_lines]
    line_values, left_out = _select_values(values, line_order, correspondence.run_report, lines)
    is_eager_known = any(counts.by == "eager" and counts.raised is None for counts in results)
    entry_values = EntryValues(
        function=entry.name,
        backend=backend_name(entry.backend),
        call=call_number,
        calls=call_count,
        first=list(_first_nonfinite(origins, eager_origins if is_eager_known else None, line_order)),
        given=nonfinite_inputs,
        results=results,
        lines=line_values,
        left_out=left_out,
        operations=backend.operation_count,
    )
    return ValuesWithReport(entry_values, report_on_copies)


def _values_and_origins(
    recorder: ValueRecorder, operation_of: Callable[[Any], _Operation]
) -> tuple[list[tuple[_Operation, RecordedValue]], list[tuple[_Operation, NonfiniteOrigin]]]:
    """Return the recorded values, and the recorded origins of NaN and Inf, each with its operation."""
    values = [(operation_of(key), value) for key, value in recorder.values.items()]
    return values, [(operation_of(origin.key), origin) for origin in recorder.origins.values()]


def _nonfinite_inputs(subject: Subject) -> list[NonFiniteInput]:
    """Return the tensors in the arguments and in the state that contain NaN or Inf before the call."""
    subject.restore()
    inputs = []
    visited_ids: set[int] = set()
    roots = [*(subject.arguments or Arguments()).by_name(subject.function).items(), *subject.roots()]
    for name, root in roots:
        for path, tensor in named_tensors(root, name, visited_ids):
            numbers = range_of(tensor)
            if numbers.nan or numbers.inf:
                inputs.append(NonFiniteInput(path, numbers.nan, numbers.inf))
    return inputs[:_MAX_NONFINITE_INPUTS]


def _nonfinite_counts(
    computed_by: Literal["graphs", "eager", "backend"], program: Callable[..., Any], subject: Subject
) -> NonFiniteCounts:
    """Call a program, run a backward pass from its results, and count NaN and infinite elements of both."""
    require_time("call")
    subject.restore()
    arguments = subject.copy_arguments(subject.arguments or Arguments())
    seed_all(0)
    error_name = None
    results: list[torch.Tensor] = []
    gradients: list[torch.Tensor | None] = []
    with subject.activate(), subject.prevent_effects():
        try:
            with measure_run("call"):
                value = program(*arguments.args, **arguments.kwargs)
            results = [tensor for _, tensor in named_tensors(value, RESULT_PATH)]
            # The backward pass fails, for example, if the call has already freed the autograd graph.
            with contextlib.suppress(RuntimeError), measure_run("backward"):
                gradients = gradients_of(value, list(tensors_of(subject, arguments)))
        except Exception as error:  # noqa: BLE001 - the exception is part of the finding
            error_name = type(error).__name__
    (nan, inf), (gradient_nan, gradient_inf) = _nonfinite_sums(results), _nonfinite_sums(gradients)
    return NonFiniteCounts(computed_by, nan, inf, gradient_nan, gradient_inf, error_name)


def _nonfinite_sums(tensors: Iterable[torch.Tensor | None]) -> tuple[int, int]:
    ranges = [range_of(tensor) for tensor in tensors if tensor is not None]
    return sum(numbers.nan for numbers in ranges), sum(numbers.inf for numbers in ranges)


def _eager_counts(entry: Entry, recorder: ValueRecorder) -> NonFiniteCounts:
    subject = Subject(entry.function, entry.arguments)

    def program(*args: Any, **kwargs: Any) -> Any:
        with EagerRecordingMode(recorder):
            return subject.function(*args, **kwargs)

    with force_eager_on_thread():
        return _nonfinite_counts("eager", program, subject)


def _compiled_counts(entry: Entry) -> NonFiniteCounts:
    subject = Subject(entry.function, entry.arguments)
    program = entry.compile(subject.function, clone_backend(entry.backend))
    with compile_separately(subject.function):
        return _nonfinite_counts("backend", program, subject)


def _operations_by_node(report: Report, correspondence: Correspondence) -> dict[GraphOpKey, _Operation]:
    """Return the operations of the graphs, with their locations and graphs in the report of the run."""
    graphs_of_run = {graph.id: graph for graph in correspondence.run_report.graphs}
    operations = {}
    for graph in report.graphs:
        graph_of_run = graphs_of_run.get(correspondence.original_graph(graph.id) or "")
        for number, op in enumerate(graph.ops):
            location = (
                graph_of_run.ops[number].location
                if graph_of_run is not None
                else correspondence.original_location(op.location)
            )
            ident = graph_of_run.id if graph_of_run is not None else None
            operations[GraphOpKey(graph.frame.partition("#")[0], op.name)] = _Operation(location, op.target, ident)
    return operations


def _line_of(operation: _Operation) -> tuple[str, int] | None:
    return (operation.location.source, operation.location.line) if operation.location is not None else None


def _select_values(
    values: list[tuple[_Operation, RecordedValue]],
    line_order: Mapping[tuple[str, int] | None, int],
    run_report: Report,
    lines: Sequence[RequestedLine],
) -> tuple[list[LineValues], int]:
    """Return the values to list, in the order in which the lines ran, and the number of values that are left out."""
    sources = {source.id: source for source in run_report.sources}
    requested_values: list[tuple[_Operation, RecordedValue]] = []
    last_of_line: dict[Any, tuple[_Operation, RecordedValue]] = {}
    for operation, value in values:
        location = operation.location
        if location is None:
            continue
        if not lines:
            last_of_line[_line_of(operation), operation.graph] = operation, value
        elif any(line.matches(location, sources.get(location.source)) for line in lines):
            requested_values.append((operation, value))
    candidates = requested_values if lines else list(last_of_line.values())
    # If there are too many, the user's own lines are more useful than those of libraries.
    most_useful = sorted(candidates, key=lambda item: _is_in_library(item[0], sources))[:_MAX_LINES]
    most_useful.sort(key=lambda item: line_order.get(_line_of(item[0]), len(line_order)))
    line_values = [
        LineValues(
            operation.location, operation.op, operation.graph, value.forward, value.backward, value.execution_count
        )
        for operation, value in most_useful
        if operation.location is not None
    ]
    return line_values, len(candidates) - len(line_values)


def _is_in_library(operation: _Operation, sources: Mapping[str, Source]) -> bool:
    source = sources.get(operation.location.source) if operation.location is not None else None
    return source is None or source.kind == "library"


def _first_nonfinite(
    origins: list[tuple[_Operation, NonfiniteOrigin]],
    eager_origins: list[tuple[_Operation, NonfiniteOrigin]] | None,
    line_order: Mapping[tuple[str, int] | None, int],
) -> Iterable[NonFinite]:
    """Yield the first operation that produces NaN and the first one that produces Inf, forward and backward.

    ``eager_origins`` is ``None`` if it is unknown where eager code produces NaN and Inf.
    """
    forward = [item for item in origins if item[1].direction == "forward"]
    forward.sort(key=lambda item: line_order.get(_line_of(item[0]), len(line_order)))
    items_by_kind: dict[tuple[str, str], list[tuple[_Operation, NonfiniteOrigin]]] = {}
    for item in [*forward, *(item for item in origins if item[1].direction == "backward")]:
        items_by_kind.setdefault((item[1].direction, item[1].kind), []).append(item)
    for key, ((operation, origin), *other_items) in items_by_kind.items():
        place_in_eager: Literal["same", "elsewhere", "none"] | None = None
        if eager_origins is not None:
            lines = [_line_of(item[0]) for item in eager_origins if (item[1].direction, item[1].kind) == key]
            place_in_eager = "none" if not lines else "same" if _line_of(operation) in lines else "elsewhere"
        count = origin.value_range.nan if origin.kind == "nan" else origin.value_range.inf
        yield NonFinite(
            origin.direction, origin.kind, operation.op, operation.graph, operation.location, count,
            origin.value_range.elements, origin.value_range.dtype, origin.execution, len(other_items), place_in_eager,
        )  # fmt: skip

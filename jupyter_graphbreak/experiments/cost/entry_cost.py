"""Measure an entry in its steady state: its times eager, compiled and with remedies, its memory and its guards."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
import statistics
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import torch
from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.compiled import (
    CompileArguments,
    compilation_count,
    compile_arguments,
    compiled_callable,
    force_eager_on_thread,
)
from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.guard_trees import collect_guards
from jupyter_graphbreak._torch_compat.tensor_values import disable_gradients_and_overrides
from jupyter_graphbreak.analysis.build import build_with_files
from jupyter_graphbreak.experiments.cost.alternatives import measure_alternatives
from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
from jupyter_graphbreak.experiments.cost.fusion import unfused_kernels
from jupyter_graphbreak.experiments.cost.growth import memory_growth
from jupyter_graphbreak.experiments.cost.guards import time_guards
from jupyter_graphbreak.experiments.cost.memory import measure_memory, with_compiled_lines
from jupyter_graphbreak.experiments.cost.memory_changes import try_memory_changes
from jupyter_graphbreak.experiments.cost.operations import slow_operations
from jupyter_graphbreak.experiments.cost.parts import (
    NO_OVERHEAD,
    Overhead,
    TimeOwners,
    divide_into_parts,
    graph_to_break_us,
    graphs_time_share,
    mark_us,
)
from jupyter_graphbreak.experiments.cost.regions import measure_regions
from jupyter_graphbreak.experiments.cost.startup import cache_changes, second_start
from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
from jupyter_graphbreak.experiments.cost.timing import (
    Budget,
    CudaClock,
    ProcessorClock,
    gain_us,
    spread_of_calls,
    time_in_turn,
)
from jupyter_graphbreak.experiments.cost.variants import SEED_COUNT, Variant
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry, callable_name, compile_separately
from jupyter_graphbreak.experiments.trial.library_parts import restore_library_objects
from jupyter_graphbreak.experiments.trial.memory import memory_limit
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time, require_time
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.recording.recorder import cell_of_shell
from jupyter_graphbreak.report.cost import Coverage, DeviceWork, EntryCost, RemediedCost
from jupyter_graphbreak.report.schema import Device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jupyter_graphbreak._torch_compat.profile_ranges import Activity, ProfileRange
    from jupyter_graphbreak.experiments.cost.timing import CallTime
    from jupyter_graphbreak.experiments.trial.entry import RemedyContext
    from jupyter_graphbreak.records.records import Record
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.cost import CostPart, MemoryCost, Spread, Startup
    from jupyter_graphbreak.report.schema import Report

_T = TypeVar("_T")
#: The time for measuring each variant, in seconds.
VARIANT_S = 1.0
_PROFILED_CALLS = 15
#: The time in seconds after which no further remedy is compiled.
_MAX_COMPILE_S = 60.0
#: Time limits are shares of the time spent before, or of this many seconds if less time was spent.
MIN_BASIS_S = 10.0
#: Functions of the CUDA runtime, the CUDA driver and HIP that launch kernels or graphs, or synchronize.
_KERNEL_LAUNCH = re.compile(r"(cuda|cu|hip|hipModule|hipExtModule|hipExt)Launch(Cooperative)?Kernel(ExC|Ex)?(_\w+)?")
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch(_\w+)?")
_SYNCHRONIZATION = re.compile(
    r"(cuda|hip)(Device|Stream|Event)Synchronize|cu(Ctx|Stream|Event)Synchronize|(cuda|hip)Memcpy"
)


def lookup_us_by_frame(profiles: Iterable[Sequence[ProfileRange]]) -> dict[str, float]:
    """Return the median time in microseconds that it takes to select the code of each frame, by compile id."""
    times_by_frame: defaultdict[str, list[float]] = defaultdict(list)
    for ranges in profiles:
        lookups_and_regions = [range_ for range_ in ranges if range_.kind in {"lookup", "region"}]
        for lookup, region in itertools.pairwise(lookups_and_regions):
            if (lookup.kind, region.kind) == ("lookup", "region"):
                times_by_frame[region.name].append(lookup.end_us - lookup.start_us)
    return {name: statistics.median(times) for name, times in times_by_frame.items()}


def count_operations_outside_graphs(ranges: Sequence[ProfileRange]) -> int:
    """Count the top-level operations outside graphs and their backward passes, except those that print a tensor."""
    count = 0
    end_by_thread: dict[int, float] = {}  # by thread, the end of the graph or operation that the thread is in
    for range_ in ranges:
        if range_.start_us < end_by_thread.get(range_.thread, 0.0):
            continue
        if range_.kind in {"graph", "backward", "printing", "operation"}:
            end_by_thread[range_.thread] = range_.end_us
            count += range_.kind == "operation"
    return count


def device_work(activities: Sequence[Activity]) -> DeviceWork:
    """Return the work that a call causes on its device."""
    names = [activity.name for activity in activities]
    allocated_bytes = itertools.accumulate(
        (activity.nbytes for activity in activities if activity.memory_device not in {"", "cpu"}), initial=0
    )
    return DeviceWork(
        launches=sum(_KERNEL_LAUNCH.fullmatch(name) is not None for name in names),
        graph_launches=sum(_GRAPH_LAUNCH.fullmatch(name) is not None for name in names),
        synchronizations=sum(_SYNCHRONIZATION.fullmatch(name) is not None for name in names),
        peak_bytes=max(allocated_bytes),
    )


class MeasuredEntry(NamedTuple):
    """The cost of an entry, the report of the run on copies in which it was compiled, and its start-up times.

    ``startup`` is ``None`` if no run preceded the measurement, or if the backend uses no caches.
    """

    cost: EntryCost
    report: Report
    startup: Startup | None = None


def measure_entry(
    entry: Entry,
    remedy_contexts: Mapping[tuple[str, ...], RemedyContext] | None = None,
    run_report: Report | None = None,
    *,
    budget: Budget | None = None,
    deadline: float = float("inf"),
    find_cell: FindCell = cell_of_shell,
) -> MeasuredEntry:
    """Measure an entry on copies, so that the user's objects do not change.

    A call with remedies runs in the context that applies them. The ids of graphs, breaks and frames are those of
    ``run_report``, by default those of the run on copies. The budget is the time for measuring, without compiling, by
    default one second for each variant. After the deadline, a :func:`time.monotonic` time, no further remedy is
    compiled, and few calls are made.
    """
    start = time.monotonic()
    with entry.set_up(), sandbox_runs(), contextlib.ExitStack() as exit_stack:
        variants = _variants_of(entry, remedy_contexts or {})
        for variant in (variants.compiled, variants.break_only, *variants.remedied.values()):
            exit_stack.enter_context(compile_separately(variant.subject.function))
        restore_objects = exit_stack.enter_context(restore_library_objects(variants.compiled.subject.changeable_parts))
        variants.eager.warm_up()
        restore_objects()  # so that the compiled call starts from the same state as in the run
        with recorder.record(find_cell) as recording, collect_guards() as guards:
            recording.record_device(Device("auto", default_device_name()))
            is_settled = variants.compiled.warm_up()
        report_on_copies, files = build_with_files(recording.records)
        variants = variants._replace(
            remedied=dict(_settled_variants(variants.remedied, deadline)) if is_settled else {}
        )
        variants.break_only.warm_up()
        compilations_before = compilation_count()
        calls = _timed_calls(variants, budget, deadline)
        is_settled = is_settled and compilations_before == compilation_count()
        profiles = _profile_calls(variants.compiled, deadline) if is_settled else []
        correspondence = Correspondence(
            report_on_copies, run_report if run_report is not None else report_on_copies, entry.frame_id
        )
        frame = (
            entry.frame_id if run_report is not None else next((frame.id for frame in report_on_copies.frames), None)
        )
        compiled_time, parts = _divide_time(variants.compiled, calls, profiles, report_on_copies)
        cost = EntryCost(
            function=entry.name,
            frame=frame,
            settled=is_settled,
            eager=spread_of_calls(calls.eager),
            compiled=compiled_time,
            parts=[_with_original_ids(part, correspondence) for part in parts],
            coverage=_coverage(variants.eager, profiles, graphs_time_share(parts)),
            break_even_calls=_break_even_calls(gain_us(spread_of_calls(calls.eager), compiled_time), correspondence),
        )
        cost = _with_remedies_and_device_work(cost, variants, calls)
        if is_settled:
            locate = correspondence.locator(files, find_cell)
            us_by_graph = {part.graph or "": part.time.median_us for part in parts if part.kind == "graph"}
            used_frame_ids = {mark.name for call in calls.compiled for mark in call.marks if mark.kind == "entered"}
            steady_state = SteadyState(
                entry, variants.eager, variants.compiled, correspondence, locate, us_by_graph, guards, used_frame_ids
            )
            cost = with_further_measurements(cost, steady_state, elapsed_s=time.monotonic() - start, deadline=deadline)
        startup = _second_start(entry, recording.records, correspondence, deadline) if run_report is not None else None
    return MeasuredEntry(cost, report_on_copies, startup)


class _Variants(NamedTuple):
    """The variants of an entry that are timed in turn, and a program in which nothing runs between two graphs."""

    eager: Variant
    compiled: Variant
    break_only: Variant
    remedied: dict[tuple[str, ...], Variant]


class _TimedCalls(NamedTuple):
    """The timed calls of each variant."""

    eager: list[CallTime]
    compiled: list[CallTime]
    break_only: list[CallTime]
    remedied: list[list[CallTime]]


def _variants_of(entry: Entry, remedy_contexts: Mapping[tuple[str, ...], RemedyContext]) -> _Variants:
    eager = Variant(entry, compiled=False, context=force_eager_on_thread)
    compiled = Variant(entry, compiled=True, records_marks=True)
    remedied_variants = dict(_remedied_variants(remedy_contexts, compiled))
    empty_break = Entry("", None, _function_with_empty_break, Arguments(torch.zeros(4)), "eager")
    return _Variants(eager, compiled, Variant(empty_break, compiled=True, records_marks=True), remedied_variants)


def _timed_calls(variants: _Variants, budget: Budget | None, deadline: float) -> _TimedCalls:
    runs = [
        variants.eager.time_call,
        variants.compiled.time_call_with_marks,
        variants.break_only.time_call_with_marks,
        *(variant.time_call for variant in variants.remedied.values()),
    ]
    eager, compiled, break_only, *remedied = time_in_turn(
        runs, budget or Budget(seconds=VARIANT_S * len(runs)), deadline=deadline
    )
    return _TimedCalls(eager, compiled, break_only, remedied)


def _divide_time(
    compiled: Variant, calls: _TimedCalls, profiles: list[list[ProfileRange]], report: Report
) -> tuple[Spread, list[CostPart]]:
    """Return the time of a compiled call, and the parts of this time, with the ids of the run on copies."""
    overhead = NO_OVERHEAD
    if isinstance(compiled.clock, ProcessorClock):
        overhead = Overhead(mark_us(calls.compiled), graph_to_break_us(calls.break_only))
    return divide_into_parts(
        calls.compiled, TimeOwners(report, compiled.timer.compile_ids, lookup_us_by_frame(profiles), overhead)
    )


def _with_remedies_and_device_work(cost: EntryCost, variants: _Variants, calls: _TimedCalls) -> EntryCost:
    """Return the cost with the times of the variants with remedies, and with the work of each variant on its device."""

    def work_of(variant: Variant) -> DeviceWork | None:
        return _device_work(variant) if cost.settled else None

    return replace(
        cost,
        eager_device_work=work_of(variants.eager),
        device_work=work_of(variants.compiled),
        remedied=[
            RemediedCost(list(ids), spread_of_calls(timed_calls), work_of(variant))
            for (ids, variant), timed_calls in zip(variants.remedied.items(), calls.remedied, strict=True)
        ],
    )


def _remedied_variants(
    remedy_contexts: Mapping[tuple[str, ...], RemedyContext], compiled: Variant
) -> Iterator[tuple[tuple[str, ...], Variant]]:
    """Yield a variant for each remedy that can be applied, while the memory suffices."""
    max_variants = memory_limit() // max(compiled.nbytes(), 1)
    for ids, remedy_context in itertools.islice(remedy_contexts.items(), max_variants):
        variant = None
        with contextlib.suppress(Exception), remedy_context() as changed_entry:  # a remedy that fails is not timed
            variant = Variant(changed_entry, compiled=not changed_entry.compiles_inner_function, context=remedy_context)
        if variant is not None:
            yield ids, variant


def _settled_variants(
    variants: Mapping[tuple[str, ...], Variant], deadline: float
) -> Iterator[tuple[tuple[str, ...], Variant]]:
    """Yield the variants that reach a steady state, until time runs out; variants that fail are skipped."""
    deadline = min(deadline, time.monotonic() + _MAX_COMPILE_S)
    longest = 0.0
    for ids, variant in variants.items():
        start = time.monotonic()
        if start + longest > deadline:
            return
        with contextlib.suppress(Exception):
            if variant.warm_up():
                yield ids, variant
        longest = max(longest, time.monotonic() - start)


def _profile_calls(compiled: Variant, deadline: float) -> list[list[ProfileRange]]:
    """Return profiles of a few calls, fewer if time runs out, and none if the user's profiler is active."""
    seeds = SEED_COUNT if compiled.is_random else 1
    profiles: list[list[ProfileRange]] = []
    try:
        for number in range(_PROFILED_CALLS + seeds):
            if time.monotonic() > deadline:
                break
            profiles.append(compiled.profile_ranges(number % seeds))
    except RuntimeError:
        return []
    return profiles[seeds:]


def _device_work(variant: Variant) -> DeviceWork | None:
    """Return the work of a call on its CUDA device; ``None`` if it uses none, or if the user's profiler is active."""
    if not isinstance(variant.clock, CudaClock):
        return None
    with contextlib.suppress(RuntimeError):
        return device_work(variant.device_activities())
    return None


def _second_start(
    entry: Entry, records: Sequence[Record], correspondence: Correspondence, deadline: float
) -> Startup | None:
    """Return the times of a second start, and the settings that avoid its cache bypasses, if it has any."""
    startup = second_start(records, correspondence)
    if startup is None or all(graph.cache != "bypass" for graph in startup.graphs):
        return startup
    with limit_time(min(deadline, time.monotonic() + max(startup.first_s, MIN_BASIS_S))):
        changes = result_or_none(lambda: cache_changes(entry, startup, records))
    return replace(startup, changes=changes or [])


class FurtherMeasurement(NamedTuple):
    """A measurement, the field of the cost that it fills or extends, and the time that it may take.

    ``required_attribute`` names an attribute of the entry's cost or of the steady state that must be neither empty nor
    ``None``. ``time_share`` is a share of the time spent before the first measurement of the table, to which time left
    by earlier measurements is added; ``compile_time_share`` adds a share of the time that compiling took in the run.
    """

    field: Literal["guards", "memory", "ops", "alternatives", "regions", "unfused"]
    required_attribute: str
    time_share: float
    measure: Callable[[SteadyState, EntryCost], Any]
    compile_time_share: float = 0.0


def _memory_cost(cost: EntryCost) -> MemoryCost:
    """Return the memory cost of an entry; an earlier measurement of the table has filled it in."""
    if cost.memory is None:
        raise LookupError
    return cost.memory


#: All measurements that follow the timing of an entry, in their order.
MEASUREMENTS = (
    FurtherMeasurement(
        "guards", "frame_guards", 0.3,
        lambda state, _: state.compiled.run_between_calls(
            functools.partial(
                time_guards, state.frame_guards, state.used_frame_ids, state.correspondence.original_frame, state.locate
            )
        ),
    ),
    FurtherMeasurement("memory", "entry", 0.1, lambda state, _: measure_memory(state)),
    FurtherMeasurement("ops", "us_by_graph", 0.2, lambda state, _: slow_operations(state)),
    FurtherMeasurement("unfused", "us_by_graph", 0.1, lambda state, _: unfused_kernels(state)),
    FurtherMeasurement(
        "alternatives", "entry", 0.2,
        lambda state, cost: measure_alternatives(state, cost.compiled, cost.guards or []),
    ),
    FurtherMeasurement(
        "memory", "memory", 0.1,
        lambda state, cost: replace(_memory_cost(cost), growth=memory_growth(state, _memory_cost(cost))),
    ),
    FurtherMeasurement("memory", "memory", 0.1, lambda state, cost: with_compiled_lines(_memory_cost(cost), state)),
    FurtherMeasurement("regions", "entry", 0.3, lambda state, _: measure_regions(state), compile_time_share=1.0),
    FurtherMeasurement(
        "memory", "memory", 0.5,
        lambda state, cost: replace(_memory_cost(cost), changes=try_memory_changes(state, _memory_cost(cost))),
    ),
)  # fmt: skip


def with_further_measurements(
    cost: EntryCost, steady_state: SteadyState, *, elapsed_s: float, deadline: float
) -> EntryCost:
    """Make all measurements in the table, and return the cost of an entry with their results."""
    row_deadline, compile_s = time.monotonic(), steady_state.correspondence.compile_seconds()
    for row in MEASUREMENTS:
        row_deadline += row.time_share * max(elapsed_s, MIN_BASIS_S) + row.compile_time_share * compile_s
        if getattr(steady_state, row.required_attribute, None) or getattr(cost, row.required_attribute, None):
            with limit_time(min(deadline, row_deadline)):
                value = result_or_none(functools.partial(row.measure, steady_state, cost))
            if value is not None:
                cost = replace(cost, **{row.field: value})
    return cost


def result_or_none(measure: Callable[[], _T]) -> _T | None:
    """Return the result of a measurement; ``None`` if it fails or takes too long."""
    try:
        require_time()
        return measure()
    except (Exception, TimeUpError):  # noqa: BLE001 - for example, a backward pass from all results may fail
        return None


_break_graph: Callable[[], None] = torch.compiler.disable(lambda: None)


def _function_with_empty_break(x: torch.Tensor) -> torch.Tensor:
    """Break the graph with a call that does nothing; the time of this function shows Dynamo's overhead for a break."""
    y = x + 1
    _break_graph()
    return y + 1


def _coverage(eager: Variant, profiles: list[list[ProfileRange]], graphs_share: float | None) -> Coverage | None:
    """Return how many top-level operations of a call ran compiled, and how many eagerly; ``None`` without profiles.

    Operations of the eager call are treated as compiled unless they run outside of graphs in the compiled call.
    """
    if not profiles:
        return None
    try:
        ranges = eager.profile_ranges()
    except RuntimeError:
        return None
    outside_count = count_operations_outside_graphs(profiles[0])
    return Coverage(max(0, count_operations_outside_graphs(ranges) - outside_count), outside_count, graphs_share)


def _with_original_ids(part: CostPart, correspondence: Correspondence) -> CostPart:
    """Return a part with the ids of the original run."""
    graph, break_ = correspondence.original_graph(part.graph), correspondence.original_break(part.break_)
    return replace(part, graph=graph, break_=break_, frame=correspondence.original_frame(part.frame))


def _break_even_calls(saved_us: float | None, correspondence: Correspondence) -> int | None:
    """Return the number of calls whose saved time exceeds the compile time; ``None`` if either is zero or unknown."""
    compile_s = correspondence.compile_seconds()
    return max(1, math.ceil(compile_s * 1e6 / saved_us)) if saved_us is not None and compile_s > 0 else None


def entry_of(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Entry:
    """Return the entry for a call to a function, with the backend that compiled the function, or else ``inductor``."""
    function = compiled_callable(fn)
    options = (compile_arguments(fn) if function is not None else None) or CompileArguments("inductor")
    function = fn if function is None else function
    arguments = Arguments(*args, **kwargs).to_positional(function)
    return Entry(callable_name(function), None, function, arguments, *options)


@disable_gradients_and_overrides()
def device_of(entry: Entry) -> str:
    """Return the device of a call: the first device of its tensors that is not the CPU, or else ``cpu``."""
    return next((str(tensor.device) for tensor in entry.tensors() if tensor.device.type != "cpu"), "cpu")

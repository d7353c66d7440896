"""Measure the steady state of an entry: as it is, compiled, with remedies, and where the time goes."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.compiled import compilation_count, compiled_callable, compiled_with
from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.experiments.cost.clock import CudaClock, ProcessorClock
from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
from jupyter_graphbreak.experiments.cost.parts import (
    NO_OVERHEAD,
    Overhead,
    Owners,
    leaving_us,
    mark_us,
    parts_of,
    renamed,
    time_share,
)
from jupyter_graphbreak.experiments.cost.timing import Budget, gain_us, spread_of, time_in_turn
from jupyter_graphbreak.experiments.cost.variants import SEEDS, Variant
from jupyter_graphbreak.experiments.trial.entry import Entry, compiling_anew
from jupyter_graphbreak.experiments.trial.inputs import Arguments
from jupyter_graphbreak.experiments.trial.memory import memory_limit
from jupyter_graphbreak.experiments.trial.outcome import untouched
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.report.cost import Coverage, DeviceWork, EntryCost, RemediedCost
from jupyter_graphbreak.report.schema import Device

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak._torch_compat.profile_ranges import Activity, Range


def lookups_us(profiles: Iterable[Sequence[Range]]) -> dict[str, float]:
    """Return how long it took to choose the code of each frame, by its compile id: the median of some calls."""
    seen: defaultdict[str, list[float]] = defaultdict(list)
    for ranges in profiles:
        kept = [read for read in ranges if read.kind in {"lookup", "region"}]
        for lookup, region in itertools.pairwise(kept):
            if (lookup.kind, region.kind) == ("lookup", "region"):
                seen[region.name].append(lookup.end_us - lookup.start_us)
    return {name: statistics.median(times) for name, times in seen.items()}


def operations_outside(ranges: Sequence[Range]) -> int:
    """Count the operations that ran neither in a graph nor in one's backward pass, each with all that it is made of.

    Of ranges in which no graph ran it is the number of all operations. Those of which a tensor is printed do not count.
    """
    count = 0
    hidden: dict[int, float] = {}  # until when a thread is inside a graph or an operation
    for read in ranges:
        if read.start_us < hidden.get(read.thread, 0.0):
            continue
        if read.kind in {"graph", "backward", "printing", "operation"}:
            hidden[read.thread] = read.end_us
            count += read.kind == "operation"
    return count


#: Functions of the CUDA runtime and driver, and of HIP, by what they do.
_LAUNCH = re.compile(r"(cuda|cu|hip|hipModule|hipExtModule|hipExt)Launch(Cooperative)?Kernel(ExC|Ex)?(_\w+)?")
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch(_\w+)?")
_SYNCHRONISE = re.compile(
    r"(cuda|hip)(Device|Stream|Event)Synchronize|cu(Ctx|Stream|Event)Synchronize|(cuda|hip)Memcpy"
)


def device_work(activities: Sequence[Activity]) -> DeviceWork:
    """Return what a call had the device do.

    Parameters
    ----------
    activities : sequence of Activity
        In the order in which they happened.
    """
    names = [activity.name for activity in activities]
    taken = itertools.accumulate((seen.nbytes for seen in activities if seen.memory not in {"", "cpu"}), initial=0)
    return DeviceWork(
        launches=sum(_LAUNCH.fullmatch(name) is not None for name in names),
        graph_launches=sum(_GRAPH_LAUNCH.fullmatch(name) is not None for name in names),
        synchronisations=sum(_SYNCHRONISE.fullmatch(name) is not None for name in names),
        peak_bytes=max(taken),
    )


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from jupyter_graphbreak._torch_compat.profile_ranges import Range
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.cost import CostPart
    from jupyter_graphbreak.report.schema import Report

    #: Applies remedies while its context is open, and hands out the entry with them.
    Remedied = Callable[[], AbstractContextManager[Entry]]

#: Profiled calls, the first of which is slow.
_PROFILES = 15
#: Seconds after which no further remedy is compiled to be measured.
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Measured:
    """What an entry costs, and the report of the run on copies in which it was compiled."""

    cost: EntryCost
    report: Report


def measure_entry(
    entry: Entry,
    remedied: Mapping[tuple[str, ...], Remedied] | None = None,
    run: Report | None = None,
    *,
    budget: Budget | None = None,
    end: float = float("inf"),
    find_cell: FindCell = lambda _: None,
) -> Measured:
    """Measure an entry on copies: nothing of the user's changes.

    Parameters
    ----------
    entry : Entry
    remedied : mapping
        The ids of remedies, and what applies them; entered around each call of that variant.
    run : Report or None
        The report whose graphs, breaks and frames the parts name; without it those of the report that is made here.
    budget : Budget or None
        How long measuring may take, compiling aside; without it a second for each variant.
    end : float
        When to stop, in seconds of :func:`time.monotonic`: no further remedy is measured then, and calls are few.
    find_cell : callable
        Given the file name of a code object, the cell it comes from.

    Returns
    -------
    Measured

    Raises
    ------
    Exception
        Whatever the call itself raises.
    """
    with entry.set_up(), untouched(), contextlib.ExitStack() as opened:
        eager = Variant(entry, compiled=False)
        compiled = Variant(entry, compiled=True, marked=True)
        others = dict(_changed(remedied or {}, compiled))
        empty = Variant(Entry("", None, _empty_break, Arguments(torch.zeros(4)), "eager"), compiled=True, marked=True)
        for variant in (compiled, empty, *others.values()):
            opened.enter_context(compiling_anew(variant.subject.call))
        eager.warm_up()
        with recorder.record(find_cell) as recording:
            recording.describe_device(Device("auto", default_device_name()))
            settled = compiled.warm_up()
        own = build_report(recording.records)
        others = dict(_warm(others, end)) if settled else {}
        empty.warm_up()
        begun = compilation_count()
        runs = [eager.run, compiled.run_in_parts, empty.run_in_parts, *(variant.run for variant in others.values())]
        calls = time_in_turn(runs, budget or Budget(seconds=len(runs)), end=end)
        settled = settled and begun == compilation_count()
        ranges = _profiles(compiled, end) if settled else []
        coverage = _operations(eager, ranges)
        work = [_device_work(variant) if settled else None for variant in (eager, compiled, *others.values())]
    on_processor = isinstance(compiled.clock, ProcessorClock)
    ours = Overhead(mark_us(calls[1]), leaving_us(calls[2])) if on_processor else NO_OVERHEAD
    whole, parts = parts_of(calls[1], Owners(own, compiled.timer.compile_ids, lookups_us(ranges), ours))
    eager_time = spread_of(calls[0])
    found = Correspondence(own, run if run is not None else own, entry.frame)
    share = time_share(parts)
    cost = EntryCost(
        function=entry.function,
        frame=entry.frame if run is not None else next((frame.id for frame in own.frames), None),
        settled=settled,
        eager=eager_time,
        compiled=whole,
        remedied=[
            RemediedCost(list(ids), spread_of(made), done)
            for ids, made, done in zip(others, calls[3:], work[2:], strict=True)
        ],
        parts=_named(parts, found),
        coverage=Coverage(*coverage, share) if coverage is not None else None,
        break_even_calls=_break_even(gain_us(eager_time, whole), found),
        eager_device_work=work[0],
        device_work=work[1],
    )
    return Measured(cost, own)


def _changed(
    remedied: Mapping[tuple[str, ...], Remedied], compiled: Variant
) -> Iterator[tuple[tuple[str, ...], Variant]]:
    """Yield a variant for each remedy that can be applied, as many as there is memory for."""
    size = sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in compiled.tensors()}.values())
    room = memory_limit() // max(size, 1)
    for ids, applied in itertools.islice(remedied.items(), room):
        variant = None
        with contextlib.suppress(Exception), applied() as changed:  # it has no time then
            variant = Variant(changed, compiled=not changed.compiles_itself, applied=applied)
        if variant is not None:
            yield ids, variant


def _warm(variants: Mapping[tuple[str, ...], Variant], end: float) -> Iterator[tuple[tuple[str, ...], Variant]]:
    """Yield the variants that settle, until it gets late; what fails has no time."""
    end = min(end, time.monotonic() + _PATIENCE_S)
    longest = 0.0
    for ids, variant in variants.items():
        begun = time.monotonic()
        if begun + longest > end:
            return
        with contextlib.suppress(Exception):
            if variant.warm_up():
                yield ids, variant
        longest = max(longest, time.monotonic() - begun)


def _profiles(compiled: Variant, end: float) -> list[list[Range]]:
    """Return profiles of some calls, as many as there is time for; none where a profiler of the user's is at work."""
    seeds = SEEDS if compiled.random else 1
    profiles: list[list[Range]] = []
    try:
        for number in range(_PROFILES + seeds):
            if time.monotonic() > end:
                break
            profiles.append(compiled.profiled(number % seeds))
    except RuntimeError:
        return []
    return profiles[seeds:]


def _device_work(variant: Variant) -> DeviceWork | None:
    """Return what a call has its CUDA device do; ``None`` without one, or where a profiler of the user's is at work."""
    if not isinstance(variant.clock, CudaClock):
        return None
    with contextlib.suppress(RuntimeError):
        return device_work(variant.device_activities())
    return None


_nothing: Callable[[], None] = torch.compiler.disable(lambda: None)


def _empty_break(x: torch.Tensor) -> torch.Tensor:
    """Break for nothing, which shows what Dynamo does at any break."""
    y = x + 1
    _nothing()
    return y + 1


def _operations(eager: Variant, compiled: list[list[Range]]) -> tuple[int, int] | None:
    """Return how many operations of a call ran compiled, and how many eagerly.

    An operation is one that Python calls, with all that it is made of. Those that ran compiled are those of the eager
    call that are not to be seen outside of graphs.
    """
    if not compiled:
        return None
    try:
        ranges = eager.profiled()
    except RuntimeError:
        return None
    outside = operations_outside(compiled[0])
    return max(0, operations_outside(ranges) - outside), outside


def _named(parts: list[CostPart], found: Correspondence) -> list[CostPart]:
    names: dict[str, Callable[[str | None], str | None]] = {
        "graph": found.graph,
        "break": found.break_,
        "frame": found.frame,
    }
    return renamed(parts, lambda kind, ident: names[kind](ident))


def _break_even(gain: float | None, found: Correspondence) -> int | None:
    """Return after how many calls what was gained makes up for what compiling took."""
    frames = found.frames()
    spent = sum(frame.compile_s or 0.0 for frame in found.run.frames if frame.id in frames)
    return max(1, math.ceil(spent * 1e6 / gain)) if gain is not None and spent > 0 else None


def entry_of(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Entry:
    """Return the entry that calling a function would be: with the backend it was compiled with, ``inductor`` if none.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; compiled or not.
    *args, **kwargs
        What to call it with.
    """
    call = compiled_callable(fn)
    backend, dynamic = (compiled_with(fn) if call is not None else None) or ("inductor", None)
    call = fn if call is None else call
    arguments = Arguments(*args, **kwargs).bound(call)
    return Entry(_name(call), None, call, arguments, backend, dynamic)


def device_of(entry: Entry) -> str:
    """Return the device that a call works on: that of its first tensor which is not the processor's."""
    return next((str(tensor.device) for tensor in entry.tensors() if tensor.device.type != "cpu"), "cpu")


def backend_name(backend: str | Callable[..., Any]) -> str:
    """Return how a person calls a backend."""
    if isinstance(backend, str):
        return backend
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None)
    return str(name or type(backend).__name__)


def _name(fn: Any) -> str:
    fn = getattr(fn, "func", fn)  # of a partial
    name = getattr(fn, "__qualname__" if hasattr(fn, "__code__") else "__name__", type(fn).__name__)
    return str(name).rpartition("<locals>.")[2]

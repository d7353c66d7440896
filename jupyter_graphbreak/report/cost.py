"""Data about measured costs and savings of compiling, and about the comparison of compiled and eager results."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from jupyter_graphbreak.report.location import HeadKind, Location


class Spread(msgspec.Struct, frozen=True):
    """A median with its quartiles, in microseconds, over a number of runs.

    ``processor_us`` is the median of the total processor time, if it was measured.
    """

    median_us: float
    low_us: float
    high_us: float
    runs: int
    processor_us: float | None = None


def may_be_equal(one: Spread, other: Spread) -> bool:
    """Return whether two medians may be equal, so that their difference is too small to measure.

    The uncertainty of a median is about 1.57 times the interquartile range divided by the square root of the number of
    runs (the notches of a box plot). If the ranges of two medians do not overlap, the medians differ at a confidence
    level of about 95%.
    """
    uncertainty = sum(1.57 * (time.high_us - time.low_us) / math.sqrt(time.runs) for time in (one, other))
    return abs(one.median_us - other.median_us) <= uncertainty


def are_apart(one: Spread, other: Spread) -> bool:
    """Return whether the middle halves of two measurements with few runs do not overlap."""
    return one.high_us < other.low_us or other.high_us < one.low_us


class DeviceWork(msgspec.Struct, frozen=True):
    """The work of a CUDA device in one call.

    Parameters
    ----------
    launches, graph_launches : int
        The number of launches of single kernels, and of CUDA graphs.
    synchronizations : int
        The number of times that the processor waits for the device.
    peak_bytes : int
        The peak of the memory that the call allocated, without memory allocated before it.
    """

    launches: int
    graph_launches: int
    synchronizations: int = msgspec.field(name="synchronisations")
    peak_bytes: int


class RemediedCost(msgspec.Struct, frozen=True):
    """The time of a call with some remedies applied, and the work of its CUDA device, if it uses one."""

    remedies: list[str]
    time: Spread
    device_work: DeviceWork | None = None


class CostPart(msgspec.Struct, frozen=True):
    """A part of the time of a compiled call.

    Parameters
    ----------
    kind : {"graph", "outside", "guards"}
        A graph; Python code outside graphs; choosing, entering and leaving compiled code.
    graph, break_, frame : str or None
        The ids of the graph, break and frame that it belongs to, if known.
    """

    kind: Literal["graph", "outside", "guards"]
    time: Spread
    graph: str | None = None
    break_: str | None = msgspec.field(default=None, name="break")
    frame: str | None = None


class Coverage(msgspec.Struct, frozen=True):
    """The number of a call's tensor operations that ran compiled and eagerly, and the share of its time in graphs."""

    compiled_ops: int
    eager_ops: int
    time_share: float | None = None


class MemoryLine(msgspec.Struct, frozen=True):
    """The number of bytes that the operations of one source line keep for the backward pass.

    If several lines need the same memory, the first one keeps it. ``compiled_bytes`` is ``None`` if it is not known for
    which lines compiled graphs keep memory.
    """

    location: Location
    eager_bytes: int
    compiled_bytes: int | None = None


class MemoryGrowth(msgspec.Struct, frozen=True):
    """The memory that each of several calls in a row keeps, which is a leak if further calls keep as much.

    Parameters
    ----------
    calls : int
        The number of calls.
    compiled_bytes, eager_bytes : int
        The bytes that each call keeps after its backward pass, if it has one; ``eager_bytes`` is ``None`` if they were
        not measured.
    without_backward_bytes : int or None
        The bytes that each compiled call keeps if no backward pass follows, if these are more.
    holder : str or None
        The expression that refers to the tensors that stay, such as ``self.history``, if it was found.
    location : Location or None
        The line that allocates most of it in eager calls.
    """

    calls: int
    compiled_bytes: int
    eager_bytes: int | None = None
    without_backward_bytes: int | None = None
    holder: str | None = None
    location: Location | None = None


class MemoryChange(msgspec.Struct, frozen=True):
    """A change of a setting or of the program that was tried because it may save memory.

    Parameters
    ----------
    change : str
        The code of the change.
    peak_bytes, saved_bytes : int
        The peak of a compiled call with its backward pass, and what it keeps for it, as in :class:`MemoryCost`.
    equal : bool
        Whether results, gradients, output and the state after the call, such as buffers and counters of modules,
        agree with those of the compiled call without the change.
    time_ratio : float or None
        The time of a call and its backward pass with the change, divided by the time without it.
    """

    change: str
    peak_bytes: int
    saved_bytes: int
    equal: bool
    time_ratio: float | None = None


class MemoryCost(msgspec.Struct, frozen=True):
    """The memory that one call allocates, including its backward pass if there is one.

    Parameters
    ----------
    eager_peak_bytes, compiled_peak_bytes : int
        The peak, without memory allocated before the call.
    eager_saved_bytes, compiled_saved_bytes : int
        The most bytes that are kept for the backward pass at one time, without parameters and inputs.
    lines : list of MemoryLine
        The source lines that keep them, the most bytes first.
    growth : MemoryGrowth or None
        The memory that each call keeps for good, if it keeps any.
    changes : list of MemoryChange
        The changes that were tried, one at a time, because much is kept for the backward pass.
    """

    eager_peak_bytes: int
    compiled_peak_bytes: int
    eager_saved_bytes: int
    compiled_saved_bytes: int
    lines: list[MemoryLine] = []
    growth: MemoryGrowth | None = None
    changes: list[MemoryChange] = []


class GuardCost(msgspec.Struct, frozen=True):
    """The time of the guards on one object, and on the objects reached through it, in each call.

    Parameters
    ----------
    frame : str or None
        The frame whose code the guards protect.
    guard : str
        The guard as Python code, or if there are several, how Dynamo reaches the object.
    location : Location or None
        The line that makes Dynamo guard the object.
    count : int
        The number of guards.
    """

    frame: str | None
    guard: str
    location: Location | None
    time: Spread
    count: int = 1


class OpCost(msgspec.Struct, frozen=True):
    """An operation that is slower compiled than eager.

    Parameters
    ----------
    graph : str
        The graph.
    op : str
        The function that it calls.
    eager, compiled : Spread
        The time of the operation alone, with the inputs of the run.
    """

    graph: str
    op: str
    location: Location | None
    eager: Spread
    compiled: Spread


#: The reason why two kernels are not fused. ``library``: a library computes one of them; ``reduction``: the second one
#: needs the finished reduction; ``between``: other kernels must run between them; ``sizes``: they loop over different
#: sizes; ``order``: they use memory in different orders; ``device``: they run on different devices.
WhyNotFused = Literal["library", "reduction", "between", "sizes", "order", "device"]


class UnfusedKernels(msgspec.Struct, frozen=True):
    """Two kernels that inductor does not fuse although the second one uses the result of the first.

    Parameters
    ----------
    graph : str
        The graph.
    reason : WhyNotFused
        The reason why they are not fused.
    nbytes : int
        The bytes that the second one reads although the first one reads or writes them.
    count : int
        The number of pairs of the same lines, which count as one; the reason is that of the largest pair.
    op : str or None
        The operation that a library computes, such as ``aten.cumsum.default``.
    first, second : Location or None
        Their lines.
    """

    graph: str
    reason: WhyNotFused
    nbytes: int
    count: int = 1
    op: str | None = None
    first: Location | None = None
    second: Location | None = None


class Alternative(msgspec.Struct, frozen=True):
    """The time of a call with one change, next to the time without it; they were measured alternately.

    Parameters
    ----------
    kind : {"branch", "guards"}
        ``branch``: the compiled code takes the branch that uncompiled code takes. ``guards``: Dynamo leaves guards out.
    change : str
        The function, such as ``is_compiling``, that returns its uncompiled result, or the PyTorch function that selects
        the guards to keep.
    location : Location or None
        The test of the branch.
    """

    kind: Literal["branch", "guards"]
    change: str
    location: Location | None
    time: Spread
    before: Spread


#: The unit of compilation. ``whole``: the whole model; ``blocks``: each block in place; ``nested``: the whole model,
#: with each block as a nested region.
Way = Literal["whole", "blocks", "nested"]


class BlockDifference(msgspec.Struct, frozen=True):
    """A guard that prevents a block from using the code compiled for an earlier block.

    Parameters
    ----------
    compilation : int
        The number of the compilation that it caused, counted from 0 over all blocks: 1 for the second compilation.
    guard : str
        The guard that failed, as PyTorch shows it.
    location : Location or None
        The line that created the guard.
    head : {"loop", "condition"} or None
        As in :class:`~jupyter_graphbreak.report.schema.GuardFailure`.
    """

    compilation: int
    guard: str
    location: Location | None = None
    head: HeadKind | None = None


class CompiledWay(msgspec.Struct, frozen=True):
    """One way to compile an entry that repeats blocks.

    Parameters
    ----------
    start_s : float or None
        The seconds of compiling, with the backward pass, if nothing is in PyTorch's caches on disk; ``None`` if it was
        not measured because most blocks are compiled separately.
    compilations, graphs : int
        The number of frames that were compiled, and of their graphs.
    regions : int or None
        The number of nested regions that several blocks share, if blocks are nested regions.
    equal : bool
        Whether results and gradients agree with those of the whole model.
    time_ratio : float or None
        The time of a call and its backward pass, divided by that of the whole; ``None`` if it was not measured.
    differences : list of BlockDifference
        The differences because of which blocks are compiled separately, if each is compiled in place.
    limit_hit : bool
        Whether some blocks run eagerly because Dynamo's recompile limit was reached.
    """

    way: Way
    start_s: float | None
    compilations: int
    graphs: int
    regions: int | None = None
    equal: bool = True
    time_ratio: float | None = None
    differences: list[BlockDifference] = []
    limit_hit: bool = False


class RegionCost(msgspec.Struct, frozen=True):
    """The ways to compile an entry that repeats blocks; the first is to compile the whole entry.

    Parameters
    ----------
    block : str
        The name of the class of the blocks.
    count : int
        The number of blocks.
    container : str or None
        The place of the container of all blocks, such as ``self.layers``, if they have one.
    compiles_in_place : bool
        Whether ``block.compile()`` compiles a block: it does nothing if ``forward`` is PyTorch's own.
    """

    block: str
    count: int
    container: str | None
    ways: list[CompiledWay] = []
    compiles_in_place: bool = True


class EntryCost(msgspec.Struct, frozen=True):
    """The steady state of one entry: eager, compiled, and with remedies.

    Parameters
    ----------
    frame : str or None
        The frame of the entry.
    settled : bool
        Whether nothing was compiled while it was measured.
    parts : list of CostPart
        The parts that add up to ``compiled``.
    break_even_calls : int or None
        The number of calls after which compiling has paid off; ``None`` if it never does, or if that is unknown.
    in_run : Spread or None
        The time of the run's own calls in a loop, after the last call in which something was compiled.
    eager_device_work, device_work : DeviceWork or None
        The work of the CUDA device in an eager and in a compiled call, if they use one.
    memory : MemoryCost or None
        The memory of an eager and of a compiled call, if it was measured.
    guards : list of GuardCost or None
        The most expensive guards of a call, the most expensive first. The part ``guards`` also has the time to enter
        and leave the compiled code.
    ops : list of OpCost or None
        The operations of slow graphs that are slower compiled than eager, those that lose most time first.
    alternatives : list of Alternative
        Changes of the compiled code that were measured.
    regions : RegionCost or None
        Other ways to compile the entry, if it repeats blocks and compiling it takes long.
    unfused : list of UnfusedKernels
        Kernels of slow graphs that inductor does not fuse, those that pass most memory first.
    """

    function: str
    frame: str | None
    settled: bool
    eager: Spread
    compiled: Spread
    remedied: list[RemediedCost] = []
    parts: list[CostPart] = []
    coverage: Coverage | None = None
    break_even_calls: int | None = None
    in_run: Spread | None = None
    eager_device_work: DeviceWork | None = None
    device_work: DeviceWork | None = None
    memory: MemoryCost | None = None
    guards: list[GuardCost] | None = None
    ops: list[OpCost] | None = None
    alternatives: list[Alternative] = []
    regions: RegionCost | None = None
    unfused: list[UnfusedKernels] = []


class Cost(msgspec.Struct, frozen=True):
    """The cost of the entries of a run, measured on copies."""

    device: str
    backend: str
    entries: list[EntryCost] = []


class GraphStartup(msgspec.Struct, frozen=True):
    """The compilation of one graph at a second start, which uses the caches on disk that the first start filled.

    Parameters
    ----------
    tracing_s, backend_s : float
        The seconds in Dynamo, and in the backend, which includes the caches.
    cache : {"hit", "miss", "bypass", "off"}
        The state of AOTAutograd's cache. ``bypass``: it cannot keep the graph, so every start compiles it.
    reason : str or None
        The reason why the graph is not in the cache, or why only its code is not in inductor's cache.
    location : Location or None
        The operation that makes PyTorch bypass the cache.
    """

    graph: str
    tracing_s: float
    backend_s: float
    cache: Literal["hit", "miss", "bypass", "off"]
    reason: str | None = None
    location: Location | None = None


class CacheChange(msgspec.Struct, frozen=True):
    """A change of PyTorch's settings with which a second start found every graph of an entry in AOTAutograd's cache.

    Parameters
    ----------
    code : str
        The statements that make the change.
    graphs : list of str
        The graphs for which the cache is bypassed without it.
    second_s : float
        The seconds of compiling at a second start with it.
    """

    code: str
    graphs: list[str]
    second_s: float


class Startup(msgspec.Struct, frozen=True):
    """The seconds spent compiling in the run itself and at a second start, without importing PyTorch."""

    first_s: float
    second_s: float
    graphs: list[GraphStartup] = []
    changes: list[CacheChange] = []


class Divergence(msgspec.Struct, frozen=True):
    """The first operation with a different result when compiled."""

    graph: str
    location: Location | None = None
    op: str | None = None


class NumericsTrial(msgspec.Struct, frozen=True):
    """A change of a setting or of the backend that was tried because a compiled result was wrong.

    Parameters
    ----------
    change : str
        The code of the change.
    equal : bool
        Whether the compiled result agrees with the eager one after the change.
    time_ratio : float or None
        The time of a compiled call with the change, divided by the time without it.
    """

    change: str
    equal: bool
    time_ratio: float | None = None


#: The end of the text of a difference that is inside a graph only.
UNAFFECTED = "which does not affect the result"


class Check(msgspec.Struct, frozen=True):
    """The comparison of the compiled run of a function with the eager run.

    Parameters
    ----------
    equal : bool
        Whether they agree, up to rounding errors, whose size a run in float64 shows.
    step : {"eager", "aot_eager", "backend"} or None
        The step of compiling that introduces the difference.
    restored_by : list of NumericsTrial
        The changes that were tried one at a time to make the result right.
    instances : int
        The number of compared modules of one class, or functions with the same code. Each one is compared alone, and a
        module also after those before it were compiled. The differences are those of the first wrong one.
    calls : int
        The number of calls of the function in the run. One of them is compared: the first, or the first in its modes.
    """

    function: str
    backend: str
    equal: bool
    differences: list[str] = []
    first: Divergence | None = None
    step: Literal["eager", "aot_eager", "backend"] | None = None
    restored_by: list[NumericsTrial] = []
    instances: int = 1
    calls: int = 1

    @property
    def is_result_wrong(self) -> bool:
        """Whether the result differs, not only a value inside a graph."""
        is_unaffected = bool(self.differences) and all(text.endswith(UNAFFECTED) for text in self.differences)
        return not self.equal and not is_unaffected

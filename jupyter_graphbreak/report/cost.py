"""Data about the measured cost of compiled calls, and about the comparison of compiled and eager results."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from jupyter_graphbreak.report.location import HeadKind, Location


class Spread(msgspec.Struct, frozen=True):
    """The median and the quartiles of several runs' times, in microseconds.

    ``processor_us`` is the median of the processor time of all threads, if it was measured.
    """

    median_us: float
    low_us: float
    high_us: float
    runs: int
    processor_us: float | None = None


def may_be_equal(one: Spread, other: Spread) -> bool:
    """Return whether two medians may be equal because their difference is too small to measure.

    The uncertainty of a median is about 1.57 times the interquartile range divided by the square root of the number of
    runs (the notches of a box plot). If the ranges of two medians do not overlap, the medians differ at a confidence
    level of about 95%.
    """
    uncertainty = sum(1.57 * (time.high_us - time.low_us) / math.sqrt(time.runs) for time in (one, other))
    return abs(one.median_us - other.median_us) <= uncertainty


def have_separate_quartiles(one: Spread, other: Spread) -> bool:
    """Return whether the middle halves of two measurements do not overlap. This test suits measurements of few runs."""
    return one.high_us < other.low_us or other.high_us < one.low_us


class DeviceWork(msgspec.Struct, frozen=True):
    """The work of a CUDA device in one call.

    Parameters
    ----------
    launches, graph_launches : int
        The number of launches of individual kernels, and the number of CUDA graph launches.
    synchronizations : int
        How often the processor waits for the device.
    peak_bytes : int
        The peak of the memory that the call allocates, without memory that was allocated before it.
    """

    launches: int
    graph_launches: int
    synchronizations: int = msgspec.field(name="synchronisations")
    peak_bytes: int


class RemediedCost(msgspec.Struct, frozen=True):
    """The time of a call with the given remedies applied, and the work of its CUDA device, if it uses one."""

    remedies: list[str]
    time: Spread
    device_work: DeviceWork | None = None


class CostPart(msgspec.Struct, frozen=True):
    """A part of the time of a compiled call.

    Parameters
    ----------
    kind : {"graph", "outside", "guards"}
        ``graph``: the time in a graph. ``outside``: the time in Python code outside graphs. ``guards``: the time for
        choosing, entering and leaving compiled code.
    graph, break_, frame : str or None
        The ids of the graph, break and frame that the part belongs to, if known.
    """

    kind: Literal["graph", "outside", "guards"]
    time: Spread
    graph: str | None = None
    break_: str | None = msgspec.field(default=None, name="break")
    frame: str | None = None


class Coverage(msgspec.Struct, frozen=True):
    """The numbers of a call's tensor operations that ran compiled and eagerly, and the share of its time in graphs."""

    compiled_ops: int
    eager_ops: int
    time_share: float | None = None


class MemoryLine(msgspec.Struct, frozen=True):
    """The number of bytes that the operations of one source line keep for the backward pass.

    Memory that several lines need is attributed to the first of them. ``compiled_bytes`` is ``None`` if it is unknown
    which lines' memory the compiled graphs keep.
    """

    location: Location
    eager_bytes: int
    compiled_bytes: int | None = None


class MemoryGrowth(msgspec.Struct, frozen=True):
    """The memory that each of several calls in a row keeps. It is a leak if further calls keep as much.

    Parameters
    ----------
    calls : int
        The number of calls.
    compiled_bytes, eager_bytes : int
        The memory in bytes that each call keeps after its backward pass, if it has one; ``eager_bytes`` is ``None`` if
        it was not measured.
    without_backward_bytes : int or None
        The memory in bytes that each compiled call keeps if no backward pass follows, if this is more.
    holder : str or None
        The expression that refers to the tensors that stay, such as ``self.history``, if it was found.
    location : Location or None
        The line that allocates most of this memory in eager calls.
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
        The peak memory of a compiled call with its backward pass, and the memory that it keeps for the backward pass,
        as in :class:`MemoryCost`.
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
        The most memory in bytes that is kept for the backward pass at one time, without parameters and inputs.
    lines : list of MemoryLine
        The source lines that keep this memory, those with the most bytes first.
    growth : MemoryGrowth or None
        The memory that each call keeps after its end, if it keeps any.
    changes : list of MemoryChange
        The changes that were tried, one at a time, because much memory is kept for the backward pass.
    """

    eager_peak_bytes: int
    compiled_peak_bytes: int
    eager_saved_bytes: int
    compiled_saved_bytes: int
    lines: list[MemoryLine] = []
    growth: MemoryGrowth | None = None
    changes: list[MemoryChange] = []


class GuardCost(msgspec.Struct, frozen=True):
    """The time that each call spends on the guards on one object and on the objects reached through it.

    Parameters
    ----------
    frame : str or None
        The frame whose code the guards protect.
    guard : str
        The guard as Python code; if there are several, the expression through which Dynamo reaches the object.
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
        The id of the graph.
    op : str
        The function that the operation calls.
    eager, compiled : Spread
        The time of the operation alone, with the inputs of the run.
    """

    graph: str
    op: str
    location: Location | None
    eager: Spread
    compiled: Spread


#: The reason why two kernels are not fused. ``library``: a library provides one. ``reduction``: the second one
#: needs the finished result of a reduction. ``between``: other kernels must run between them. ``sizes``: they loop over
#: different sizes. ``order``: they access memory in different orders. ``device``: they run on different devices.
WhyNotFused = Literal["library", "reduction", "between", "sizes", "order", "device"]


class UnfusedKernels(msgspec.Struct, frozen=True):
    """Two kernels that Inductor does not fuse although the second one uses the result of the first.

    Parameters
    ----------
    graph : str
        The id of the graph.
    reason : WhyNotFused
        The reason why they are not fused.
    nbytes : int
        The number of bytes that the second kernel reads although the first one reads or writes them.
    count : int
        The number of pairs with the same lines, which are listed as one; the reason is that of the largest pair.
    op : str or None
        The operation that a library computes, such as ``aten.cumsum.default``.
    first, second : Location or None
        The source lines of the two kernels.
    """

    graph: str
    reason: WhyNotFused
    nbytes: int
    count: int = 1
    op: str | None = None
    first: Location | None = None
    second: Location | None = None


class Alternative(msgspec.Struct, frozen=True):
    """The time of a call with one change, and the time without it; the two were measured alternately.

    Parameters
    ----------
    kind : {"branch", "guards"}
        ``branch``: the compiled code takes the branch that uncompiled code takes. ``guards``: Dynamo leaves out guards.
    change : str
        The function, such as ``is_compiling``, that was made to return the same result as in uncompiled code; or the
        PyTorch function that selects the guards.
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
        The index of the compilation that it caused, among the compilations of all blocks: 1 for the second one.
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
        The compile time in seconds, including the backward pass, if PyTorch's caches on disk are empty; ``None`` if it
        was not measured because most blocks are compiled separately.
    compilations, graphs : int
        The number of frames that were compiled, and of their graphs.
    regions : int or None
        The number of nested regions, each of which several blocks may share; ``None`` if blocks are not nested regions.
    equal : bool
        Whether results and gradients agree with those of the whole model.
    time_ratio : float or None
        The time of a call and its backward pass, divided by the time with the whole model compiled; ``None`` if it was
        not measured.
    differences : list of BlockDifference
        The guards because of which blocks are compiled separately, if each block is compiled in place.
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
        The class name of the blocks.
    count : int
        The number of blocks.
    container : str or None
        The expression for the container of all blocks, such as ``self.layers``, if they have a common one.
    compiles_in_place : bool
        Whether ``block.compile()`` has an effect: it has none if the block's ``forward`` is PyTorch's own.
    """

    block: str
    count: int
    container: str | None
    ways: list[CompiledWay] = []
    compiles_in_place: bool = True


class EntryCost(msgspec.Struct, frozen=True):
    """The cost of one entry in its steady state: eager, compiled, and compiled with remedies.

    Parameters
    ----------
    frame : str or None
        The id of the entry's frame.
    settled : bool
        Whether nothing was compiled during the measurement.
    parts : list of CostPart
        The parts of the time of a compiled call, which add up to ``compiled``.
    break_even_calls : int or None
        The number of calls after which compiling has paid off; ``None`` if it never does, or if that is unknown.
    in_run : Spread or None
        The time of the run's own calls in a loop, after the last call in which something was compiled.
    eager_device_work, device_work : DeviceWork or None
        The work of the CUDA device in an eager and in a compiled call, if they use one.
    memory : MemoryCost or None
        The memory of an eager and of a compiled call, if it was measured.
    guards : list of GuardCost or None
        The most expensive guards of a call, most expensive first. The part ``guards`` of ``parts`` also contains
        the time for entering and leaving the compiled code.
    ops : list of OpCost or None
        The operations of slow graphs that are slower compiled than eager, those that lose the most time first.
    alternatives : list of Alternative
        The changes of the compiled code that were tried and measured.
    regions : RegionCost or None
        Other ways to compile the entry, if it repeats blocks and compiling it takes long.
    unfused : list of UnfusedKernels
        The kernels of slow graphs that Inductor does not fuse, those that pass the most data first.
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
        The time in seconds spent in Dynamo, and in the backend including the caches.
    cache : {"hit", "miss", "bypass", "off"}
        The state of AOTAutograd's cache. ``hit``: it has the graph. ``miss``: it lacks the graph. ``bypass``: it cannot
        keep the graph, so every start compiles it. ``off``: it is not used.
    reason : str or None
        The reason why AOTAutograd's cache lacks the graph, or why Inductor's cache lacks its code.
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
    """A change of PyTorch's settings that let a second start find all graphs of an entry in AOTAutograd's cache.

    Parameters
    ----------
    code : str
        The statements of the change.
    graphs : list of str
        The ids of the graphs for which the cache is bypassed without the change.
    second_s : float
        The time in seconds spent compiling at a second start with the change.
    """

    code: str
    graphs: list[str]
    second_s: float


class Startup(msgspec.Struct, frozen=True):
    """The time in seconds spent compiling in the run itself and at a second start; importing PyTorch does not count."""

    first_s: float
    second_s: float
    graphs: list[GraphStartup] = []
    changes: list[CacheChange] = []


class Divergence(msgspec.Struct, frozen=True):
    """The first operation whose result differs when compiled."""

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


#: The end of the sentence about a difference inside a graph that does not reach the result.
UNAFFECTED_RESULT_TEXT = "which does not affect the result"
#: The end of the sentence about a compiled call that raises an error.
EAGER_RETURNS_TEXT = ", but eager code returns"


class Check(msgspec.Struct, frozen=True):
    """The comparison of the compiled run of a function with the eager run.

    Parameters
    ----------
    equal : bool
        Whether the results agree, up to rounding errors, whose size a run in float64 shows.
    step : {"eager", "aot_eager", "backend"} or None
        The step of compiling that introduces the difference.
    restored_by : list of NumericsTrial
        The changes that were tried one at a time to make the result right.
    instances : int
        The number of compared modules of one class, or functions with the same code. Each one is compared alone; a
        module is also compared after the modules before it were compiled. The differences are those of the first
        module or function whose result is wrong.
    calls : int
        The number of calls to the function in the run. Only one of them is compared: the first call, or the first call
        in the same modes, such as without gradients.
    gradients: bool
        Whether gradients were compared: a call without gradients has none.
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
    gradients: bool = True

    @property
    def is_result_wrong(self) -> bool:
        """Whether the result differs, not only a value inside a graph."""
        is_unaffected = bool(self.differences) and all(
            text.endswith(UNAFFECTED_RESULT_TEXT) for text in self.differences
        )
        return not self.equal and not is_unaffected

    @property
    def is_error(self) -> bool:
        """Whether the compiled call raises an error, while the eager call returns."""
        return any(text.endswith(EAGER_RETURNS_TEXT) for text in self.differences)

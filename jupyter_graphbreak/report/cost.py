"""What compiling costs and yields, measured, and whether its result is right: inert data about timed runs."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from jupyter_graphbreak.report.location import Location


class Spread(msgspec.Struct, frozen=True):
    """A median with the quartiles around it, in microseconds, of a number of runs.

    ``processor_us`` is the median of what all processors together worked for it, where that was measured.
    """

    median_us: float
    low_us: float
    high_us: float
    runs: int
    processor_us: float | None = None


def overlap(one: Spread, other: Spread) -> bool:
    """Whether two medians may well be the same, so that no difference between them can be measured.

    A median of some runs is known to within about 1.57 times the distance of the quartiles by the root of their number
    (the notches of a box plot): with a probability of 95% two medians differ where these ranges do not overlap.
    """
    reach = sum(1.57 * (time.high_us - time.low_us) / math.sqrt(time.runs) for time in (one, other))
    return abs(one.median_us - other.median_us) <= reach


class DeviceWork(msgspec.Struct, frozen=True):
    """What one call has a CUDA device do.

    Parameters
    ----------
    launches, graph_launches : int
        Kernels that are launched one by one, and CUDA graphs.
    synchronisations : int
        How often the processor waits for the device.
    peak_bytes : int
        The most memory that the call held of what it took, beside what was held before it.
    """

    launches: int
    graph_launches: int
    synchronisations: int
    peak_bytes: int


class RemediedCost(msgspec.Struct, frozen=True):
    """The time of a call with some remedies applied, and what it has a CUDA device do, where it works on one."""

    remedies: list[str]
    time: Spread
    device_work: DeviceWork | None = None


class CostPart(msgspec.Struct, frozen=True):
    """A part of the time of a compiled call.

    Parameters
    ----------
    kind : {"graph", "outside", "guards"}
        A graph; Python that runs outside of graphs; the choice of compiled code, the way into it
        and out of it.
    graph, break_, frame : str or None
        The ids of what it belongs to, where that is known.
    """

    kind: Literal["graph", "outside", "guards"]
    time: Spread
    graph: str | None = None
    break_: str | None = msgspec.field(default=None, name="break")
    frame: str | None = None


class Coverage(msgspec.Struct, frozen=True):
    """How many of a call's tensor operations ran compiled, how many eagerly; which share of its time in graphs."""

    compiled_ops: int
    eager_ops: int
    time_share: float | None = None


class EntryCost(msgspec.Struct, frozen=True):
    """The steady state of one entry: eager, compiled, and with remedies.

    Parameters
    ----------
    frame : str or None
        The frame that the entry is.
    settled : bool
        Whether nothing was compiled any more while it was measured.
    parts : list of CostPart
        They add up to ``compiled``.
    break_even_calls : int or None
        After how many calls compiling has paid; ``None`` where it never does or that is not known.
    in_run : Spread or None
        The calls that the run itself made, after the last in which something was compiled; where they are a loop.
    eager_device_work, device_work : DeviceWork or None
        What an eager and a compiled call have a CUDA device do, where they work on one.
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


class Cost(msgspec.Struct, frozen=True):
    """What the entries of a run cost, measured on copies."""

    device: str
    backend: str
    entries: list[EntryCost] = []


class Divergence(msgspec.Struct, frozen=True):
    """The first operation whose result is another one when it is compiled."""

    graph: str
    location: Location | None = None
    op: str | None = None


class Check(msgspec.Struct, frozen=True):
    """The compiled run of a function against the eager one.

    Parameters
    ----------
    equal : bool
        Whether they agree as far as float64 references allow.
    step : {"eager", "aot_eager", "backend"} or None
        Which step of compiling brings the difference in.
    """

    function: str
    backend: str
    equal: bool
    differences: list[str] = []
    first: Divergence | None = None
    step: Literal["eager", "aot_eager", "backend"] | None = None

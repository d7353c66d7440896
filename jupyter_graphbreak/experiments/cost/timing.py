"""Time several variants of a call in turn, and say what the times were."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.experiments.trial.time_limit import seconds_left
from jupyter_graphbreak.report.cost import Spread, overlap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Each variant runs at least so often, however long it takes, and at most so often, however short.
MIN_RUNS = 7
MAX_RUNS = 300
#: So often each variant runs even when it is late, and when the time is up.
_MIN_RUNS_LATE = 3
_MIN_RUNS_AT_END = 1


@dataclass(frozen=True)
class Budget:
    """How much time measuring may take: ``seconds`` for all variants together, ``runs`` of each at the most.

    Where the machine does other things most of the time, it takes twice as long.
    """

    seconds: float = 2.0
    runs: int = MAX_RUNS


@dataclass(frozen=True)
class Mark:
    """Something that happened in a call, so many microseconds after its beginning.

    Parameters
    ----------
    kind : str
        ``graph``, ``graph ends``; ``graph is noted``, when our own work after it is done; ``backward``, ``backward
        ends``: a graph's backward pass; ``entered``, ``marked``, ``resumes``, ``left``: as
        :data:`~jupyter_graphbreak._torch_compat.hooks.code_marks.Moment` says.
    name : str
        The number of the graph, or the compile id of the frame.
    """

    kind: str
    name: str
    us: float


@dataclass(frozen=True)
class CallTime:
    """What one call took, what happened in it, and how often the process had to yield a processor meanwhile.

    ``processor_us`` is the time that all processors worked for it.
    """

    total_us: float
    marks: Sequence[Mark] = ()
    yields: int = 0
    processor_us: float | None = None

    def with_total(self, total_us: float) -> CallTime:
        """Return this call without what was done in it for us: it takes less time, also of a processor."""
        ours = self.total_us - total_us
        worked = max(0.0, self.processor_us - ours) if self.processor_us is not None else None
        return CallTime(total_us, self.marks, self.yields, worked)


def time_in_turn(
    variants: Sequence[Callable[[], CallTime]],
    budget: Budget | None = None,
    clock: Callable[[], float] = time.monotonic,
    *,
    end: float = float("inf"),
) -> list[list[CallTime]]:
    """Run variants in turn until the budget is spent, so that a drift of the machine favours none of them.

    Who goes first changes from round to round. Garbage is collected before, and not while they run.

    Parameters
    ----------
    variants : sequence of callable
        Each prepares a call, makes it, and returns what it took.
    budget : Budget
    clock : callable
        Returns seconds.
    end : float
        From when on a few runs must do.

    Returns
    -------
    list of list of CallTime
        The calls of each variant that tell: those in which nothing else had the processor, if they are enough.
    """
    budget = Budget() if budget is None else budget
    spent = clock() + budget.seconds
    calls: list[list[CallTime]] = [[] for _ in variants]
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for done in range(max(budget.runs, MIN_RUNS)):
            now = clock()
            late = now - spent
            if done >= _MIN_RUNS_LATE and now >= end:
                break
            if done >= _MIN_RUNS_AT_END and seconds_left() <= 0:
                break
            if done >= MIN_RUNS and (late >= budget.seconds or (late >= 0 and all(map(_is_enough, calls)))):
                break
            for place in range(len(variants)):
                number = (done + place) % len(variants)
                calls[number].append(variants[number]())
    finally:
        if collecting:
            gc.enable()
    return [undisturbed(made) for made in calls]


def undisturbed(calls: list[CallTime]) -> list[CallTime]:
    """Return the calls in which nothing else had the processor; where these are too few, those with the least of it."""
    most = sorted(call.yields for call in calls)[:MIN_RUNS][-1]
    return [call for call in calls if call.yields <= most]


def _is_enough(calls: list[CallTime]) -> bool:
    return sum(call.yields == 0 for call in calls) >= MIN_RUNS


def yields() -> int:
    """Return how often this process has had to yield a processor so far; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def spread_of(calls: Sequence[CallTime]) -> Spread:
    """Return what calls took."""
    made = spread([call.total_us for call in calls])
    worked = [call.processor_us for call in calls if call.processor_us is not None]
    return replace(made, processor_us=round(statistics.median(worked), 2)) if worked else made


def spread(times_us: Sequence[float]) -> Spread:
    """Return the median of times with the quartiles around it."""
    low, median, high = quartiles(times_us)
    return Spread(round(median, 2), round(low, 2), round(high, 2), len(times_us))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles of values, the median in the middle."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def gain_us(slow: Spread, fast: Spread) -> float | None:
    """Return how many microseconds a call is shorter, ``None`` where no gain can be measured."""
    gain = slow.median_us - fast.median_us
    return gain if gain > 0 and not overlap(slow, fast) else None

"""Time several variants of a call in turn, and summarize the times."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.compiled import compilation_count
from jupyter_graphbreak._torch_compat.hooks.entries import watch_call_boundaries
from jupyter_graphbreak.experiments.trial.time_limit import seconds_left
from jupyter_graphbreak.records.additions import WatchFailed
from jupyter_graphbreak.report.cost import Spread, may_be_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType

    from jupyter_graphbreak.records.additions import Addition

#: The minimum number of runs of each variant, unless a deadline passes.
MIN_RUNS = 7
#: The default maximum number of runs of each variant.
MAX_RUNS = 300
#: The minimum number of runs of each variant if the deadline passes.
_MIN_RUNS_AFTER_DEADLINE = 3
#: The minimum number of runs of each variant if the time limit is reached.
_MIN_RUNS_AFTER_TIME_LIMIT = 1

#: The time in seconds for comparing two calls.
_RATIO_S = 2.0
#: The minimum number of pairs of calls for comparing two calls.
_MIN_PAIRS = 7
#: The maximum number of pairs of calls for comparing two calls.
_MAX_PAIRS = 40
#: A ratio is reported if its uncertainty is at most this share of the ratio, or half of the ratio's distance from 1.
_CLEAR_SHARE = 0.1
_MIN_US = 0.1


@dataclass(frozen=True)
class Budget:
    """The time for measuring: ``seconds`` for all variants together, and at most ``max_runs`` runs of each variant.

    On a busy machine, measuring takes up to twice as long.
    """

    seconds: float
    max_runs: int = MAX_RUNS


class Clock(Protocol):
    """Records moments during a call, and converts them to times afterwards."""

    def mark(self) -> Any:
        """Return the current moment."""

    def times_us(self, marks: Sequence[Any]) -> list[float]:
        """Return the time in microseconds from the first moment to each moment."""


class ProcessorClock:
    """The clock for a call that has done all of its work when it returns."""

    def mark(self) -> int:
        """Return the current moment."""
        return time.perf_counter_ns()

    def times_us(self, marks: Sequence[int]) -> list[float]:
        """Return the time in microseconds from the first moment to each moment."""
        return [(mark - marks[0]) / 1e3 for mark in marks]


class CudaClock:
    """The clock for a call that queues work on a CUDA device; ``cuda`` is ``torch.cuda``, or imitates it.

    A moment is an event on the device's stream, so the time between two moments includes the time that the device
    waited for the processor. The processor waits for the device only after all moments are recorded.
    """

    def __init__(self, cuda: Any = torch.cuda) -> None:
        self._cuda = cuda

    def mark(self) -> Any:
        """Return the current moment."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def times_us(self, marks: Sequence[Any]) -> list[float]:
        """Wait for the device, and return the time in microseconds from the first moment to each moment."""
        self._cuda.synchronize()
        return [0.0, *(marks[0].elapsed_time(mark) * 1e3 for mark in marks[1:])]


def clock_for(tensors: Iterable[torch.Tensor]) -> Clock:
    """Return the clock for a call that uses these tensors."""
    return CudaClock() if any(tensor.is_cuda for tensor in tensors) else ProcessorClock()


@dataclass(frozen=True)
class Mark:
    """A recorded moment of a call, with the time in microseconds since the call began.

    ``graph``, ``graph ends``: a graph begins and ends; ``graph is noted``: the timer has done its own work after a
    graph; ``backward``, ``backward ends``: a graph's backward pass begins and ends; ``entered``, ``marked``,
    ``resumes``, ``left``: see :data:`~jupyter_graphbreak._torch_compat.profile_ranges.Moment`. The name is the number
    of the graph, or the compile id of the frame.
    """

    kind: str
    name: str
    us: float


@dataclass(frozen=True)
class CallTime:
    """The time of one call, its marks, and how often the process had to yield a processor during the call.

    ``processor_us`` is the time that all processors together worked for the process during the call.
    """

    total_us: float
    marks: Sequence[Mark] = ()
    yield_count: int = 0
    processor_us: float | None = None

    def without_waiting(self, waited_us: float) -> CallTime:
        """Return this call without the time that it waited for a processor.

        The call may have waited at any moment, so all stretches between marks are shortened by the same factor. If the
        waiting counted, a long call, which nearly always waits on a busy machine, would be compared with short calls
        that did not wait.
        """
        if not 0.0 < waited_us < self.total_us:
            return self
        share = 1.0 - waited_us / self.total_us
        marks = [dataclasses.replace(mark, us=mark.us * share) for mark in self.marks]
        return CallTime(self.total_us * share, marks, self.yield_count, self.processor_us)

    def with_total(self, total_us: float) -> CallTime:
        """Return this call with a smaller total time, and with the processor time reduced by the same amount."""
        overhead = self.total_us - total_us
        processor_us = max(0.0, self.processor_us - overhead) if self.processor_us is not None else None
        return CallTime(total_us, self.marks, self.yield_count, processor_us)


def time_in_turn(
    variants: Sequence[Callable[[], CallTime]],
    budget: Budget,
    clock: Callable[[], float] = time.monotonic,
    *,
    deadline: float = float("inf"),
) -> list[list[CallTime]]:
    """Run variants in turn until the budget is spent, so that changes in the machine's speed affect them equally.

    Each round begins with a different variant. No garbage is collected during the runs. After the deadline, there
    are only a few more runs. Return the least disturbed calls of each variant; see :func:`undisturbed_calls`.
    """
    now = clock()
    budget_end = now + budget.seconds
    calls: list[list[CallTime]] = [[] for _ in variants]
    with disable_automatic_collection():
        for round_number in range(max(budget.max_runs, MIN_RUNS)):
            last_start, now = now, clock()
            overtime = now - budget_end
            if round_number >= _MIN_RUNS_AFTER_DEADLINE and now >= deadline:
                break
            if round_number >= _MIN_RUNS_AFTER_TIME_LIMIT and seconds_left() <= now - last_start:
                break
            undisturbed_counts = [sum(call.yield_count == 0 for call in variant_calls) for variant_calls in calls]
            is_enough = overtime >= 0 and min(undisturbed_counts) >= MIN_RUNS
            if round_number >= MIN_RUNS and (overtime >= budget.seconds or is_enough):
                break
            for offset in range(len(variants)):
                number = (round_number + offset) % len(variants)
                calls[number].append(variants[number]())
    return [undisturbed_calls(variant_calls) for variant_calls in calls]


@contextlib.contextmanager
def disable_automatic_collection() -> Iterator[None]:
    """Turn off automatic garbage collection while the context is open."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def undisturbed_calls(calls: list[CallTime]) -> list[CallTime]:
    """Return the calls in which no other process took the processor; if they are too few, the least disturbed calls."""
    max_yields = sorted(call.yield_count for call in calls)[:MIN_RUNS][-1]
    return [call for call in calls if call.yield_count <= max_yields]


def ratio_in_turn(time_changed: Callable[[], CallTime], time_unchanged: Callable[[], CallTime]) -> float | None:
    """Return the ratio of the changed call's time to the unchanged call's; ``None`` if the measurement is unclear."""
    pairs: list[float] = []
    end = time.monotonic() + _RATIO_S
    while len(pairs) < _MIN_PAIRS or (time.monotonic() < end and len(pairs) < _MAX_PAIRS):
        if pairs and seconds_left() <= 0:
            break
        # The second call of a pair may be faster, so the two take turns going first.
        if len(pairs) % 2:
            changed_call, unchanged_call = time_changed(), time_unchanged()
        else:
            unchanged_call, changed_call = time_unchanged(), time_changed()
        pairs.append(changed_call.total_us / max(unchanged_call.total_us, _MIN_US))
    return clear_ratio(pairs)


def clear_ratio(ratios: Sequence[float]) -> float | None:
    """Return the median of measured ratios; ``None`` if there are too few ratios, or if they are too far apart."""
    if len(ratios) < _MIN_PAIRS:
        return None
    low, ratio, high = quartiles(ratios)
    uncertainty = 1.57 * (high - low) / math.sqrt(len(ratios))
    return round(ratio, 2) if uncertainty <= max(_CLEAR_SHARE * ratio, abs(ratio - 1) / 2) else None


def yields_so_far() -> int:
    """Return how often this process has had to yield a processor so far; 0 if the system does not report it."""
    try:
        import resource
    except ImportError:  # on Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def waiting_us_so_far() -> float:
    """Return the time in microseconds that this thread has waited for a processor so far; 0 if it is unknown."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e3
    except (OSError, ValueError, IndexError):
        return 0.0


def spread_of_calls(calls: Sequence[CallTime]) -> Spread:
    """Return the spread of the call times, and the median of the calls' processor times."""
    times = spread_of_times([call.total_us for call in calls])
    processor_times = [call.processor_us for call in calls if call.processor_us is not None]
    return replace(times, processor_us=round(statistics.median(processor_times), 2)) if processor_times else times


def spread_of_times(times_us: Sequence[float]) -> Spread:
    """Return the median and the quartiles of times."""
    low, median, high = quartiles(times_us)
    return Spread(round(median, 2), round(low, 2), round(high, 2), len(times_us))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile of values."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def gain_us(slow: Spread, fast: Spread) -> float | None:
    """Return the time in microseconds that the fast call saves; ``None`` if no gain is measurable."""
    gain = slow.median_us - fast.median_us
    return gain if gain > 0 and not may_be_equal(slow, fast) else None


#: The minimum number of calls for which a time is reported.
_MIN_CALLS = 5
#: The maximum number of calls to keep: the last ones of a loop.
_MAX_CALLS = 10_000


class _CallStart(NamedTuple):
    """The start of a call: the number of compilations before it, and the moment at which it began."""

    compilation_count: int | None
    mark: Any


class WarmCalls:
    """Times the calls that compile nothing."""

    def __init__(self) -> None:
        self._clock: Clock = (
            CudaClock() if torch.cuda.is_available() and torch.cuda.is_initialized() else ProcessorClock()
        )
        self._open_calls: dict[FrameType, _CallStart] = {}
        self.faults: list[str] = []
        self._finished_calls: defaultdict[int, list[tuple[Any, Any]]] = defaultdict(list)

    def record_boundary(self, frame: FrameType, callable_id: int) -> None:
        """Record that a call begins or ends."""
        start = self._open_calls.pop(frame, None)
        if start is None:
            self._open_calls[frame] = _CallStart(compilation_count(), self._clock.mark())
            return
        end = self._clock.mark()
        if start.compilation_count == compilation_count():
            finished_calls = self._finished_calls[callable_id]
            finished_calls.append((start.mark, end))
            del finished_calls[:-_MAX_CALLS]
        else:
            self._finished_calls[callable_id].clear()  # earlier calls were not in the steady state

    def keep_fault(self, addition: Addition) -> None:
        """Keep the message about an internal error."""
        if isinstance(addition, WatchFailed):
            self.faults.append(addition.sentence)

    def discard_open_calls(self) -> None:
        """Forget the calls that have not ended."""
        self._open_calls.clear()

    def spread_of(self, callable_id: int | None) -> Spread | None:
        """Return the times of a callable's calls; ``None`` if there were too few."""
        finished_calls = self._finished_calls.get(callable_id, []) if callable_id is not None else []
        if len(finished_calls) < _MIN_CALLS:
            return None
        return spread_of_times([self._clock.times_us(pair)[-1] for pair in finished_calls])


@contextlib.contextmanager
def time_calls() -> Iterator[WarmCalls]:
    """Time the calls of compiled callables while the context is open."""
    warm = WarmCalls()
    try:
        with watch_call_boundaries(warm.record_boundary, warm.keep_fault, lambda _: None):
            yield warm
    finally:
        warm.discard_open_calls()

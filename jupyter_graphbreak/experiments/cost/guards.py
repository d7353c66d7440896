"""Time the guards of compiled frames, to find the objects whose guards take the most time."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.cost.timing import spread_of_times
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, require_time
from jupyter_graphbreak.report.cost import GuardCost

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from jupyter_graphbreak._torch_compat.guard_trees import FrameGuards, GuardNode
    from jupyter_graphbreak.experiments.trial.effect_locations import Locate

#: The maximum number of objects to list.
_MAX_GUARDS = 10
#: The minimum share of the time of a frame's guards for an object to be listed.
_NOTABLE_SHARE = 0.02
#: If one part of an object takes more than this share of the object's time, the parts are listed separately.
_DOMINANT_SHARE = 0.5
#: The number of batches in which all guards are timed together, and the time of one batch.
_BATCHES, _BATCH_NS = 15, 300_000
#: The number of batches in which a single guard is timed, and the time of one batch.
_SINGLE_BATCHES, _SINGLE_BATCH_NS = 5, 5_000
#: All guards are timed after each of at most ``_MAX_CALLS`` calls, within a time limit in nanoseconds. Of these times,
#: at least ``_MIN_TIMES`` are kept.
_MAX_CALLS, _AFTER_CALLS_NS = 200, 300_000_000
_MIN_TIMES = 5
#: The maximum factor by which a call slows down the next check; factors of 1.2 to 2.7 were measured on an idle machine.
_MAX_SLOWDOWN = 3.0
#: The maximum number of guards that are timed one by one.
_MAX_TIMED = 5_000


def time_guards(
    frames: Sequence[FrameGuards],
    used_frame_ids: Collection[str],
    frame_id: Callable[[str], str | None],
    locate: Locate,
    function: Callable[[], object] | None = None,
) -> list[GuardCost]:
    """Return the objects whose guards take the most time, most expensive first.

    All guards of a frame are timed together, after a call that has filled the processor's caches with other data. If
    calls change something, so the guards may fail afterwards, ``function`` is ``None``. The time is divided among
    the objects in proportion to the times of individual guards; the time to reach objects is divided evenly.
    """
    costs: list[GuardCost] = []
    for frame in frames:
        if frame.compile_id not in used_frame_ids or not frame.check():
            continue
        try:
            all_guards_us = (
                _times_after(function, frame.check)
                if function is not None
                else _times_us(frame.check, _BATCHES, _BATCH_NS)
            )
            shares = _GuardShares(frame.tree(), statistics.median(all_guards_us))
        except TimeUpError:  # the times of the frames so far are kept
            break
        frame.check()  # individual checks record the tensors that they have checked; this discards the records
        for group, share in shares.groups():
            if share < _NOTABLE_SHARE:
                continue
            guards = [code for node in group for code, _ in node.guards]
            stack = next((frame.stacks[node.source] for node in group if node.source in frame.stacks), ())
            # A guard's comment shows the line of code that led to the guard.
            text = guards[0].partition("  # ")[0].strip() if len(guards) == 1 else group[0].source
            time_of_group = spread_of_times([share * us for us in all_guards_us])
            costs.append(GuardCost(frame_id(frame.compile_id), text, locate(stack), time_of_group, len(guards)))
    return sorted(costs, key=lambda cost: -cost.time.median_us)[:_MAX_GUARDS]


class _GuardShares:
    """Computes each object's share of the time that the guards of a frame take."""

    def __init__(self, root: GuardNode, all_guards_us: float) -> None:
        self._root = root
        nodes = list(_walk_nodes(root))
        checks = [check for node in nodes for _, check in node.guards if check is not None][:_MAX_TIMED]
        times = {}
        for check in checks:
            require_time()
            times[id(check)] = min(_times_us(check, _SINGLE_BATCHES, _SINGLE_BATCH_NS))
        # Calling a check from Python takes about as long as the fastest check; this time is subtracted.
        call_us = min(times.values(), default=0.0)
        own_us = {
            id(node): sum(times.get(id(check), call_us) - call_us for _, check in node.guards if check is not None)
            for node in nodes
        }
        reaching_us = max(0.0, all_guards_us - sum(own_us.values())) / max(1, len(nodes))
        self._own_us: Mapping[int, float] = {ident: us + reaching_us for ident, us in own_us.items()}
        self._total_us = sum(self._own_us.values()) or 1.0

    def groups(self) -> Iterator[tuple[list[GuardNode], float]]:
        """Yield groups, each an object with its parts, and each group's share of the time.

        If one part takes most of an object's time, the object and its parts are separate groups.
        """
        pending = [self._root]
        while pending:
            node = pending.pop()
            nodes = list(_walk_nodes(node))
            share = self._share(nodes)
            # The root and the dict of globals are not objects of the program.
            is_split = node is self._root or node.source == "G"
            if is_split or any(self._share(_walk_nodes(child)) > _DOMINANT_SHARE * share for child in node.children):
                pending += node.children
                nodes, share = [node], self._share([node])
            if any(node.guards for node in nodes):
                yield nodes, share

    def _share(self, nodes: Iterator[GuardNode] | list[GuardNode]) -> float:
        return sum(self._own_us[id(node)] for node in nodes) / self._total_us


def _walk_nodes(root: GuardNode) -> Iterator[GuardNode]:
    """Yield an object's node, and those of all its parts."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += node.children


def _times_after(function: Callable[[], object], check: Callable[[], object]) -> list[float]:
    """Return the times in microseconds of a check after each of several calls: the fastest quarter of them.

    On a busy machine, other processes also replace the data in the processor's caches, so the times are capped.
    """
    max_us = _MAX_SLOWDOWN * statistics.median(_times_us(check, _SINGLE_BATCHES, _BATCH_NS))
    times: list[float] = []
    end = time.perf_counter_ns() + _AFTER_CALLS_NS
    while len(times) < _BATCHES or (len(times) < _MAX_CALLS and time.perf_counter_ns() < end):
        require_time()
        function()
        start = time.perf_counter_ns()
        check()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return [min(us, max_us) for us in sorted(times)[: max(_MIN_TIMES, len(times) // 4)]]


def _times_us(check: Callable[[], object], batch_count: int, batch_ns: int) -> list[float]:
    """Return a check's average time in microseconds for each of several batches."""
    check()
    start = time.perf_counter_ns()
    check()
    count = max(2, batch_ns // max(1, time.perf_counter_ns() - start))
    times = []
    for _ in range(batch_count):
        start = time.perf_counter_ns()
        for _ in itertools.repeat(None, count):
            check()
        times.append((time.perf_counter_ns() - start) / count / 1e3)
    return times

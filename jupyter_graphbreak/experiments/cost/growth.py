"""Measure the memory that each of several calls keeps, and find its holder and the line that allocates it."""

from __future__ import annotations

import contextlib
import gc
import inspect
import re
import weakref
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.compiled import prevent_compilation
from jupyter_graphbreak._torch_compat.operations import AllocationTracker
from jupyter_graphbreak._torch_compat.profile_ranges import mark_range
from jupyter_graphbreak.experiments.cost.memory import memory_activities, stack_in_call
from jupyter_graphbreak.experiments.cost.timing import disable_automatic_collection
from jupyter_graphbreak.experiments.trial.memory import memory_limit
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, require_time
from jupyter_graphbreak.report.cost import MemoryGrowth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from jupyter_graphbreak._torch_compat.profile_ranges import Activity
    from jupyter_graphbreak.experiments.cost.memory import Stack
    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.experiments.cost.variants import Variant
    from jupyter_graphbreak.report.cost import MemoryCost

#: The number of consecutive calls. Memory that the first call keeps is ignored, because that call may fill a cache.
_CALL_COUNT = 6
#: The profiler's range in which a call runs.
_CALL_RANGE = "graphbreak call in a row"
#: The profiler's range in which garbage is collected after the last call.
_END_RANGE = "graphbreak end of calls"
_INDEX = re.compile(r"\[\d+\]")


def memory_growth(steady_state: SteadyState, memory: MemoryCost) -> MemoryGrowth | None:
    """Return how much memory each call keeps; ``None`` if calls keep none, or if measuring needs too much memory."""
    if _CALL_COUNT * memory.compiled_peak_bytes > memory_limit():
        return None
    compiled = steady_state.compiled
    has_backward = True
    try:
        kept_memory = _memory_kept_by_calls(compiled, backward=True)
    except RuntimeError:  # the calls share an autograd graph, and the first backward pass frees a part of it
        has_backward = False
        kept_memory = _memory_kept_by_calls(compiled, backward=False)
    if kept_memory.nbytes:
        gc.collect()  # garbage of earlier measurements
        kept_memory = _memory_kept_by_calls(compiled, backward=has_backward, collect_old_garbage=True)
    if not kept_memory.nbytes:
        return None
    growth = MemoryGrowth(_CALL_COUNT, kept_memory.nbytes, holder=kept_memory.holder)
    with contextlib.suppress(TimeUpError):  # the findings so far are kept
        kept_eagerly = _memory_kept_by_calls(steady_state.eager, backward=has_backward)
        line = next((line for stack in kept_eagerly.stacks if (line := steady_state.locate(stack)) is not None), None)
        growth = replace(growth, eager_bytes=kept_eagerly.nbytes, location=line)
        kept_without_backward = _memory_kept_by_calls(compiled, backward=False) if has_backward else kept_memory
        if kept_without_backward.nbytes > kept_memory.nbytes:
            growth = replace(growth, without_backward_bytes=kept_without_backward.nbytes)
    return growth


@dataclass(frozen=True)
class _KeptMemory:
    """The number of bytes that each of consecutive calls keeps on average; 0 if some calls keep nothing.

    ``holder`` is the expression that refers to most of the kept tensors. ``stacks`` are those of the eager operations
    that allocated the kept tensors, those with the most bytes first.
    """

    nbytes: int
    holder: str | None
    stacks: list[Stack]


def _memory_kept_by_calls(variant: Variant, *, backward: bool, collect_old_garbage: bool = False) -> _KeptMemory:
    """Make several calls in a row, and return the memory that they keep.

    ``collect_old_garbage`` also collects Python's oldest generation after the last call, which may take longer than a
    call.
    """
    number = 0
    allocations = AllocationTracker(lambda: (number, stack_in_call(inspect.currentframe())))
    holder: str | None = None
    bytes_by_stack: Counter[Stack] = Counter()

    def observe(function: Callable[[], None]) -> list[Activity]:
        def make_calls() -> None:
            nonlocal number, holder
            first_state: dict[int, weakref.ref[torch.Tensor]] = {}
            for number in range(_CALL_COUNT):
                require_time()
                with mark_range(_CALL_RANGE), contextlib.nullcontext() if variant.is_compiled else allocations:
                    function()
                    gc.collect(1)  # memory that only a reference cycle keeps alive is not a leak
                if not number:
                    first_state |= {id(tensor): weakref.ref(tensor) for _, tensor in variant.named_state()}
            with mark_range(_END_RANGE):
                gc.collect(2 if collect_old_garbage else 1)
            state = [(path, tensor, first_state.get(id(tensor))) for path, tensor in variant.named_state()]
            holder = common_holder(path for path, tensor, ref in state if ref is None or ref() is not tensor)
            for (call_number, stack), nbytes in allocations.live_allocations():
                if call_number < number:  # the last call may keep memory that the next one would free
                    bytes_by_stack[stack] += nbytes

        with disable_automatic_collection(), prevent_compilation():
            return memory_activities(make_calls, variant)

    nbytes = bytes_per_call(variant.observe_consecutive_calls(observe, backward=backward))
    return _KeptMemory(nbytes, holder, [stack for stack, _ in bytes_by_stack.most_common()])


def bytes_per_call(activities: Iterable[Activity]) -> int:
    """Return how many bytes each call after the first one keeps on average; 0 if some of these calls keep nothing."""
    bytes_by_range: list[int] = []
    for activity in activities:
        if activity.name in {_CALL_RANGE, _END_RANGE}:
            bytes_by_range.append(0)
        elif bytes_by_range:
            bytes_by_range[-1] += activity.nbytes
    _, *calls, end = bytes_by_range
    return max(0, sum(calls) + end) // len(calls) if min(calls) > 0 else 0


def common_holder(paths: Iterable[str]) -> str | None:
    """Return the innermost container of most paths, such as ``cache`` for ``cache[3][0]`` and ``cache[4][0]``."""
    holders: Counter[str] = Counter()
    for path in paths:
        holders.update({path[: index.start()] for index in _INDEX.finditer(path)} or {path})
    return max(holders, key=lambda holder: (holders[holder], len(holder)), default=None)

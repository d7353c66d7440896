"""Measurements of an entry besides time, as a table: each row fills one field of the entry's cost."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from jupyter_graphbreak.experiments.cost.alternatives import measure_alternatives
from jupyter_graphbreak.experiments.cost.fusion import unfused_kernels
from jupyter_graphbreak.experiments.cost.growth import memory_growth
from jupyter_graphbreak.experiments.cost.guards import time_guards
from jupyter_graphbreak.experiments.cost.memory import measure_memory, with_compiled_lines
from jupyter_graphbreak.experiments.cost.memory_changes import tried_changes
from jupyter_graphbreak.experiments.cost.operations import slow_operations
from jupyter_graphbreak.experiments.cost.regions import measure_regions
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time, require_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.report.cost import EntryCost, MemoryCost

_T = TypeVar("_T")
#: Further measurements may take this many seconds, however little time was spent before.
MIN_S = 10.0


class FurtherMeasurement(NamedTuple):
    """A measurement, the field of the cost that it fills, and the time that it may take.

    Parameters
    ----------
    fills : str
        The field of the entry's cost that it fills or extends.
    needs : str
        A field of the entry's cost, or of the steady state, that must be neither empty nor ``None``.
    share : float
        The time that it may take, as a share of the time spent before the first measurement. Time left by earlier
        measurements is added.
    measure : callable
        Returns the new value of the field.
    compile_share : float
        Additional time that it may take, as a share of the time that compiling took in the run.
    """

    fills: Literal["guards", "memory", "ops", "alternatives", "regions", "unfused"]
    needs: str
    share: float
    measure: Callable[[SteadyState, EntryCost], Any]
    compile_share: float = 0.0


def _memory(cost: EntryCost) -> MemoryCost:
    """Return the memory cost of an entry, which an earlier row has measured."""
    if cost.memory is None:
        raise LookupError
    return cost.memory


#: All measurements, in the order in which they are made.
MEASUREMENTS = (
    FurtherMeasurement(
        "guards", "frame_guards", 0.3,
        lambda state, _: state.compiled.between_calls(
            functools.partial(
                time_guards, state.frame_guards, state.used_frames, state.correspondence.frame, state.locate
            )
        ),
    ),
    FurtherMeasurement("memory", "entry", 0.1, lambda state, _: measure_memory(state)),
    FurtherMeasurement("ops", "graph_us", 0.2, lambda state, _: slow_operations(state)),
    FurtherMeasurement("unfused", "graph_us", 0.1, lambda state, _: unfused_kernels(state)),
    FurtherMeasurement(
        "alternatives", "entry", 0.2,
        lambda state, cost: measure_alternatives(state, cost.compiled, cost.guards or []),
    ),
    FurtherMeasurement(
        "memory", "memory", 0.1,
        lambda state, cost: replace(_memory(cost), growth=memory_growth(state, _memory(cost))),
    ),
    FurtherMeasurement("memory", "memory", 0.1, lambda state, cost: with_compiled_lines(_memory(cost), state)),
    FurtherMeasurement("regions", "entry", 0.3, lambda state, _: measure_regions(state), compile_share=1.0),
    FurtherMeasurement(
        "memory", "memory", 0.5,
        lambda state, cost: replace(_memory(cost), changes=tried_changes(state, _memory(cost))),
    ),
)  # fmt: skip


def with_further_measurements(cost: EntryCost, steady_state: SteadyState, *, seconds: float, end: float) -> EntryCost:
    """Return the cost of an entry with all measurements of the table.

    Parameters
    ----------
    cost : EntryCost
        The times of the entry.
    steady_state : SteadyState
        The entry.
    seconds : float
        The seconds that were spent before these measurements.
    end : float
        The deadline, in seconds of :func:`time.monotonic`.
    """
    deadline, compile_s = time.monotonic(), steady_state.correspondence.compile_seconds()
    for row in MEASUREMENTS:
        deadline += row.share * max(seconds, MIN_S) + row.compile_share * compile_s
        if getattr(steady_state, row.needs, None) or getattr(cost, row.needs, None):
            with limit_time(min(end, deadline)):
                value = result_or_none(functools.partial(row.measure, steady_state, cost))
            if value is not None:
                cost = replace(cost, **{row.fills: value})
    return cost


def result_or_none(measure: Callable[[], _T]) -> _T | None:
    """Return the result of a measurement; ``None`` if it fails or takes too long."""
    try:
        require_time()
        return measure()
    except (Exception, TimeUpError):  # noqa: BLE001 - a backward pass from all results may fail, for example
        return None

"""A table of the measurements that follow the timing of an entry; each of them fills one field of the entry's cost."""

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
from jupyter_graphbreak.experiments.cost.memory_changes import try_memory_changes
from jupyter_graphbreak.experiments.cost.operations import slow_operations
from jupyter_graphbreak.experiments.cost.regions import measure_regions
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time, require_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.report.cost import EntryCost, MemoryCost

_T = TypeVar("_T")
#: Time limits are shares of the time spent before, or of this many seconds if less time was spent.
MIN_BASIS_S = 10.0


class FurtherMeasurement(NamedTuple):
    """A measurement, the field of the cost that it fills, and the time that it may take.

    Parameters
    ----------
    field : str
        The field of the entry's cost that the measurement fills or extends.
    required_attribute : str
        An attribute of the entry's cost or of the steady state that must be neither empty nor ``None``.
    time_share : float
        The time that the measurement may take, as a share of the time spent before the first measurement of the table.
        Time left by earlier measurements is added.
    measure : callable
        Returns the new value of the field.
    compile_time_share : float
        Additional time that the measurement may take, as a share of the time that compiling took in the run.
    """

    field: Literal["guards", "memory", "ops", "alternatives", "regions", "unfused"]
    required_attribute: str
    time_share: float
    measure: Callable[[SteadyState, EntryCost], Any]
    compile_time_share: float = 0.0


def _measured_memory(cost: EntryCost) -> MemoryCost:
    """Return the memory cost of an entry, which an earlier measurement of the table has filled in."""
    if cost.memory is None:
        raise LookupError
    return cost.memory


#: All measurements, in the order in which they are made.
MEASUREMENTS = (
    FurtherMeasurement(
        "guards", "frame_guards", 0.3,
        lambda state, _: state.compiled.run_between_calls(
            functools.partial(
                time_guards, state.frame_guards, state.used_frames, state.correspondence.original_frame, state.locate
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
        lambda state, cost: replace(_measured_memory(cost), growth=memory_growth(state, _measured_memory(cost))),
    ),
    FurtherMeasurement("memory", "memory", 0.1, lambda state, cost: with_compiled_lines(_measured_memory(cost), state)),
    FurtherMeasurement("regions", "entry", 0.3, lambda state, _: measure_regions(state), compile_time_share=1.0),
    FurtherMeasurement(
        "memory", "memory", 0.5,
        lambda state, cost: replace(_measured_memory(cost), changes=try_memory_changes(state, _measured_memory(cost))),
    ),
)  # fmt: skip


def with_further_measurements(cost: EntryCost, steady_state: SteadyState, *, seconds: float, end: float) -> EntryCost:
    """Make all measurements of the table, and return the cost of an entry with them.

    Parameters
    ----------
    cost : EntryCost
        The cost of the entry without them.
    seconds : float
        The time in seconds that was spent before these measurements.
    end : float
        The deadline, in seconds of :func:`time.monotonic`.
    """
    deadline, compile_s = time.monotonic(), steady_state.correspondence.compile_seconds()
    for row in MEASUREMENTS:
        deadline += row.time_share * max(seconds, MIN_BASIS_S) + row.compile_time_share * compile_s
        if getattr(steady_state, row.required_attribute, None) or getattr(cost, row.required_attribute, None):
            with limit_time(min(end, deadline)):
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

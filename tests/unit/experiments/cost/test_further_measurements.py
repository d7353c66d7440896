"""The table of further measurements: a row requires an attribute, fills a field and has a share of the time."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from jupyter_graphbreak.experiments.cost import entry_cost
from jupyter_graphbreak.experiments.cost.entry_cost import (
    MEASUREMENTS,
    MIN_BASIS_S,
    FurtherMeasurement,
    with_further_measurements,
)
from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
from jupyter_graphbreak.experiments.trial.time_limit import require_time, seconds_left
from jupyter_graphbreak.report.cost import EntryCost, MemoryCost, Spread

TIME = Spread(1.0, 1.0, 1.0, 9)
COST = EntryCost("f", "0/0", settled=True, eager=TIME, compiled=TIME)
MEMORY = MemoryCost(4, 3, 2, 1)


class SlowProgram:
    """A stand-in for the reports of a program that took 40 seconds to compile."""

    def compile_seconds(self) -> float:
        return 40.0


def measure(monkeypatch: pytest.MonkeyPatch, rows: list[FurtherMeasurement], *, seconds: float = 100.0) -> EntryCost:
    monkeypatch.setattr(entry_cost, "MEASUREMENTS", rows)
    steady_state = cast("Any", SteadyState)(
        "the entry", eager=None, compiled=None, correspondence=SlowProgram(), locate=None
    )
    return with_further_measurements(COST, steady_state, elapsed_s=seconds, deadline=time.monotonic() + 1000.0)


def test_rows_fill_their_fields_in_order_and_can_read_earlier_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        FurtherMeasurement("memory", "entry", 1.0, lambda *_: MEMORY),
        FurtherMeasurement("ops", "memory", 1.0, lambda _, cost: [cost.memory]),
        FurtherMeasurement("guards", "frame_guards", 1.0, lambda *_: pytest.fail("there are no guards")),
    ]
    cost = measure(monkeypatch, rows)
    assert cost.memory == MEMORY
    assert cast("Any", cost.ops) == [MEMORY]
    assert cost.guards is None


def test_a_row_that_fails_or_is_out_of_time_leaves_only_its_own_field_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        FurtherMeasurement("guards", "entry", 1.0, lambda *_: 1 // 0),
        FurtherMeasurement("ops", "entry", -2.0, lambda *_: require_time()),
        FurtherMeasurement("memory", "entry", 2.0, lambda *_: MEMORY),
    ]
    assert measure(monkeypatch, rows) == EntryCost("f", "0/0", settled=True, eager=TIME, compiled=TIME, memory=MEMORY)


def test_unused_time_of_a_row_goes_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds_available: list[float] = []
    rows = [
        FurtherMeasurement("memory", "entry", share, lambda *_: seconds_available.append(seconds_left()))
        for share in (0.5, 1.0)
    ]
    measure(monkeypatch, rows)
    assert seconds_available == [pytest.approx(50.0, abs=5.0), pytest.approx(150.0, abs=5.0)]
    seconds_available.clear()
    measure(monkeypatch, rows, seconds=0.0)  # little time was spent before
    assert seconds_available == [pytest.approx(0.5 * MIN_BASIS_S, abs=4.0), pytest.approx(1.5 * MIN_BASIS_S, abs=4.0)]
    seconds_available.clear()
    compiling_row = FurtherMeasurement(
        "memory", "entry", 0.0, lambda *_: seconds_available.append(seconds_left()), compile_time_share=2.0
    )
    measure(monkeypatch, [compiling_row])
    assert seconds_available == [pytest.approx(80.0, abs=5.0)]


def test_every_row_fills_a_field_of_the_cost_and_needs_an_existing_field() -> None:
    fields = {*EntryCost.__struct_fields__, *SteadyState.__dataclass_fields__}
    assert {row.field for row in MEASUREMENTS} <= {*EntryCost.__struct_fields__}
    assert {row.required_attribute for row in MEASUREMENTS} <= fields
    assert all(row.time_share + row.compile_time_share > 0 for row in MEASUREMENTS)

"""The table of measurements: what each row required_attribute, field and costs."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from jupyter_graphbreak.experiments.cost import further_measurements
from jupyter_graphbreak.experiments.cost.further_measurements import (
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


class Compiled:
    """The reports of a program that was compiled for some seconds."""

    def compile_seconds(self) -> float:
        return 40.0


def measured(monkeypatch: pytest.MonkeyPatch, rows: list[FurtherMeasurement], *, seconds: float = 100.0) -> EntryCost:
    monkeypatch.setattr(further_measurements, "MEASUREMENTS", rows)
    at = cast("Any", SteadyState)("the entry", eager=None, compiled=None, correspondence=Compiled(), locate=None)
    return with_further_measurements(COST, at, seconds=seconds, end=time.monotonic() + 1000.0)


def test_rows_fill_their_fields_in_order_and_later_ones_see_what_earlier_ones_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        FurtherMeasurement("memory", "entry", 1.0, lambda *_: MEMORY),
        FurtherMeasurement("ops", "memory", 1.0, lambda _, cost: [cost.memory]),
        FurtherMeasurement("guards", "frame_guards", 1.0, lambda *_: pytest.fail("there are no guards")),
    ]
    cost = measured(monkeypatch, rows)
    assert cost.memory == MEMORY
    assert cast("Any", cost.ops) == [MEMORY]
    assert cost.guards is None


def test_a_row_that_fails_or_is_out_of_time_costs_its_own_field_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        FurtherMeasurement("guards", "entry", 1.0, lambda *_: 1 // 0),
        FurtherMeasurement("ops", "entry", -2.0, lambda *_: require_time()),
        FurtherMeasurement("memory", "entry", 2.0, lambda *_: MEMORY),
    ]
    assert measured(monkeypatch, rows) == EntryCost("f", "0/0", settled=True, eager=TIME, compiled=TIME, memory=MEMORY)


def test_unused_time_of_a_row_goes_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []
    rows = [
        FurtherMeasurement("memory", "entry", share, lambda *_: left.append(seconds_left())) for share in (0.5, 1.0)
    ]
    measured(monkeypatch, rows)
    assert left == [pytest.approx(50.0, abs=5.0), pytest.approx(150.0, abs=5.0)]
    left.clear()
    measured(monkeypatch, rows, seconds=0.0)  # little was spent before
    assert left == [pytest.approx(0.5 * MIN_BASIS_S, abs=4.0), pytest.approx(1.5 * MIN_BASIS_S, abs=4.0)]
    left.clear()
    compiles = FurtherMeasurement(
        "memory", "entry", 0.0, lambda *_: left.append(seconds_left()), compile_time_share=2.0
    )
    measured(monkeypatch, [compiles])
    assert left == [pytest.approx(80.0, abs=5.0)]


def test_every_row_fills_a_field_of_the_cost_and_needs_one_that_exists() -> None:
    known = {*EntryCost.__struct_fields__, *SteadyState.__dataclass_fields__}
    assert {row.field for row in MEASUREMENTS} <= {*EntryCost.__struct_fields__}
    assert {row.required_attribute for row in MEASUREMENTS} <= known
    assert all(row.time_share + row.compile_time_share > 0 for row in MEASUREMENTS)

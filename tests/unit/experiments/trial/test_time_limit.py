"""Limits on the time of trials: by work, by the clock, and by the shortest run of a kind."""

from __future__ import annotations

import time

import pytest

from jupyter_graphbreak.experiments.trial.time_limit import (
    TimeBudget,
    TimeUpError,
    limit_time,
    measure_run,
    require_time,
)


@pytest.mark.parametrize(
    ("work", "elapsed", "is_over"),
    [
        pytest.param(3.0, 3.0, False, id="time is left"),
        pytest.param(3.0, 40.0, False, id="other programs used the processor"),
        pytest.param(11.0, 11.0, True, id="it worked for too long"),
        pytest.param(0.0, 51.0, True, id="it only waited"),
    ],
)
def test_time_budget_counts_work_rather_than_the_load_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, work: float, elapsed: float, is_over: bool
) -> None:
    clock = {"work": 100.0, "elapsed": 1000.0}
    monkeypatch.setattr(time, "thread_time", lambda: clock["work"])
    monkeypatch.setattr(time, "monotonic", lambda: clock["elapsed"])
    time_budget = TimeBudget(10.0)
    clock["work"] += work
    clock["elapsed"] += elapsed
    assert time_budget.is_over is is_over
    assert time_budget.is_wall_clock_over is (elapsed > 50)


def test_a_run_starts_only_if_there_is_time_for_the_shortest_one_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with limit_time(1010.0):
        for seconds in (4.0, 2.0, 3.0):
            with measure_run("call"):
                now[0] += seconds
        require_time("backward")
        with pytest.raises(TimeUpError), limit_time(1100.0), measure_run("call"):
            pytest.fail("one second is left")
    with limit_time(1010.0), measure_run("call"):
        pass  # the shortest calls belong to one limit, and this is a new one

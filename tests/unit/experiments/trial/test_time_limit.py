"""The time that trials spend on runs and on further inputs."""

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
    ("worked", "passed", "is_over"),
    [
        pytest.param(3.0, 3.0, False, id="there is time"),
        pytest.param(3.0, 40.0, False, id="other programs had the processor"),
        pytest.param(11.0, 11.0, True, id="it worked for too long"),
        pytest.param(0.0, 51.0, True, id="it only waits"),
    ],
)
def test_time_budget_counts_work_rather_than_the_load_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, worked: float, passed: float, is_over: bool
) -> None:
    clock = {"worked": 100.0, "passed": 1000.0}
    monkeypatch.setattr(time, "thread_time", lambda: clock["worked"])
    monkeypatch.setattr(time, "monotonic", lambda: clock["passed"])
    time_budget = TimeBudget(10.0)
    clock["worked"] += worked
    clock["passed"] += passed
    assert time_budget.is_over is is_over
    assert time_budget.is_wall_clock_over is (passed > 50)


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
        """Another function is called under this limit."""

"""The calls that a run makes are timed in the run, once they no longer compile anything."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.cost.timing import time_calls
from jupyter_graphbreak.report.cost import EntryCost
from jupyter_graphbreak.results import Report


def entry_of(report: Report) -> EntryCost:
    assert report.cost is not None
    (entry,) = report.cost.entries
    return entry


def busy_wait() -> None:
    end = time.perf_counter() + 2e-3
    while time.perf_counter() < end:
        pass


wait_uncompiled: Callable[[], None] = torch.compiler.disable(busy_wait)


def step(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    wait_uncompiled()
    return y.sin()


def test_a_loop_is_timed_in_the_run() -> None:
    torch.compiler.reset()
    compiled = torch.compile(step, backend="eager")
    with jupyter_graphbreak.capture(cost=True) as run:
        for _ in range(12):
            compiled(torch.ones(4))
    in_run = entry_of(run.report).in_run
    assert in_run is not None
    assert in_run.runs == 11
    assert 2000 <= in_run.low_us < 20_000


def test_modules_are_timed_separately() -> None:
    torch.compiler.reset()
    modules = [torch.compile(torch.nn.Linear(4, size), backend="eager", dynamic=False) for size in (3, 5)]
    with jupyter_graphbreak.capture(cost=True) as run:
        for number, module in enumerate(modules):
            for _ in range(10 + number):
                module(torch.ones(1, 4))
    assert run.report.cost is not None
    assert [entry.in_run and entry.in_run.runs for entry in run.report.cost.entries] == [9, 10]


@pytest.mark.exhaustive
def test_calls_before_a_recompile_do_not_count() -> None:
    torch.compiler.reset()
    compiled = torch.compile(step, backend="eager", dynamic=False)
    with jupyter_graphbreak.capture(cost=True) as run:
        for size in [4] * 8 + [5] * 7:
            compiled(torch.ones(size))
    in_run = entry_of(run.report).in_run
    assert in_run is not None
    assert in_run.runs == 6


@pytest.mark.exhaustive
def test_the_times_of_few_calls_are_not_reported() -> None:
    torch.compiler.reset()
    compiled = torch.compile(step, backend="eager")
    with jupyter_graphbreak.capture(cost=True) as run:
        for _ in range(3):
            compiled(torch.ones(4))
    assert entry_of(run.report).in_run is None


def test_failing_and_nested_calls_behave_as_without_timing() -> None:
    torch.compiler.reset()

    def raise_key_error(x: torch.Tensor) -> torch.Tensor:
        raise KeyError(x.shape)

    inner = torch.compile(step, backend="eager")
    double_inner: Callable[[torch.Tensor], torch.Tensor] = torch.compiler.disable(lambda x: inner(x) * 2)
    outer = torch.compile(double_inner, backend="eager")
    x = torch.ones(2)
    original = torch._dynamo.eval_frame._maybe_set_eval_frame
    with time_calls() as warm_calls:
        for _ in range(2):
            with pytest.raises(KeyError):
                torch.compile(raise_key_error, backend="eager")(x)
        assert torch.equal(outer(x), step(x) * 2)
    assert torch._dynamo.eval_frame._maybe_set_eval_frame is original
    assert not warm_calls._open_calls

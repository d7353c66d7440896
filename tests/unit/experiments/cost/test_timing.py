"""Variants run in turn, disturbed calls are ignored, and medians differ only if their spreads show it."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable

import pytest

from jupyter_graphbreak.experiments.cost.timing import (
    MIN_RUNS,
    Budget,
    CallTime,
    Mark,
    clear_ratio,
    gain_us,
    ratio_in_turn,
    spread_of_calls,
    spread_of_times,
    time_in_turn,
    undisturbed_calls,
    waiting_us_so_far,
)
from jupyter_graphbreak.report.cost import Spread, may_be_equal


def call_that_logs(log: list[str], name: str) -> Callable[[], CallTime]:
    def run() -> CallTime:
        assert not gc.isenabled()
        log.append(name)
        return CallTime(10_000.0)

    return run


def test_variants_take_turns_and_each_round_starts_with_the_next_variant() -> None:
    log: list[str] = []
    times = time_in_turn([call_that_logs(log, "a"), call_that_logs(log, "b"), call_that_logs(log, "c")], Budget(0.0, 1))
    assert "".join(log[:9]) == "abcbcacab"
    assert [len(calls) for calls in times] == [MIN_RUNS] * 3
    assert gc.isenabled()


def test_the_budget_ends_the_rounds() -> None:
    seconds = itertools.count()
    (calls,) = time_in_turn([call_that_logs([], "a")], Budget(20, 100), clock=lambda: next(seconds))
    assert MIN_RUNS < len(calls) < 35
    (calls,) = time_in_turn([call_that_logs([], "a")], Budget(1e9, 12))
    assert len(calls) == 12


def test_disturbed_calls_count_only_if_the_others_are_too_few() -> None:
    undisturbed_call, disturbed_once, disturbed_twice = CallTime(1.0), CallTime(9.0, (), 1), CallTime(19.0, (), 2)
    assert (
        undisturbed_calls([disturbed_twice, disturbed_once, *[undisturbed_call] * MIN_RUNS])
        == [undisturbed_call] * MIN_RUNS
    )
    assert undisturbed_calls([undisturbed_call, *[disturbed_once] * MIN_RUNS, disturbed_twice]) == [
        undisturbed_call,
        *[disturbed_once] * MIN_RUNS,
    ]


def test_waiting_for_a_processor_is_not_part_of_a_call() -> None:
    marks = [Mark("graph", "0", 200.0), Mark("graph ends", "0", 600.0)]
    call = CallTime(1000.0, marks, 1, 700.0)
    shorter = call.without_waiting(250.0)
    assert shorter == CallTime(750.0, [Mark("graph", "0", 150.0), Mark("graph ends", "0", 450.0)], 1, 700.0)
    assert call.without_waiting(0.0) is call
    assert call.without_waiting(2000.0) is call  # the two clocks disagree


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports waiting times")
def test_the_time_without_a_processor_is_measured() -> None:
    def compete() -> None:
        os.sched_setaffinity(0, {processor})
        while True:
            pass

    processor = min(os.sched_getaffinity(0))
    before_affinity = os.sched_getaffinity(0)
    competitor = multiprocessing.get_context("fork").Process(target=compete, daemon=True)
    competitor.start()
    try:
        os.sched_setaffinity(0, {processor})
        start, waiting_us_before, thread_s_before = time.perf_counter(), waiting_us_so_far(), time.thread_time()
        while time.thread_time() - thread_s_before < 0.2:
            pass
        wall_us, waiting_us = (time.perf_counter() - start) * 1e6, waiting_us_so_far() - waiting_us_before
    finally:
        os.sched_setaffinity(0, before_affinity)
        competitor.kill()
        competitor.join()
    assert wall_us - waiting_us == pytest.approx(0.2e6, rel=0.2)


def test_a_busy_machine_gets_twice_the_time() -> None:
    seconds = itertools.count()
    (calls,) = time_in_turn([lambda: CallTime(9.0e6, (), 3)], Budget(20, 100), clock=lambda: next(seconds))
    assert 35 < len(calls) < 50


def test_a_spread_is_the_median_and_the_quartiles() -> None:
    assert spread_of_times([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert spread_of_times([4.0]) == Spread(4.0, 4.0, 4.0, 1)


def test_processor_time_is_reported_if_it_was_measured() -> None:
    calls = [CallTime(10.0, processor_us=us) for us in (4.0, 6.0, 50.0)]
    assert spread_of_calls(calls) == Spread(10.0, 10.0, 10.0, 3, 6.0)
    assert spread_of_calls([CallTime(10.0)]).processor_us is None


@pytest.mark.parametrize(("median", "runs", "same"), [(110.0, 10, True), (110.0, 1000, False), (101.0, 10_000, True)])
def test_medians_differ_only_if_many_runs_show_a_clear_difference(median: float, runs: int, *, same: bool) -> None:
    first, second = Spread(100.0, 90.0, 130.0, runs), Spread(median, 90.0, 130.0, runs)
    assert may_be_equal(first, second) is may_be_equal(second, first) is same
    assert gain_us(second, first) == (None if same else median - 100.0)
    assert gain_us(first, second) is None


@pytest.mark.parametrize(
    ("ratios", "ratio"),
    [
        ([1.2] * 9, 1.2),
        ([1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.0], 1.0),
        ([2.0, 3.0, 2.4, 2.8, 2.2, 2.6, 2.5], 2.5),  # not exact, but certainly longer
        ([0.5, 1.6, 1.1, 0.7, 2.0, 0.9, 1.3], None),  # may be shorter or longer
        ([1.2] * 6, None),  # too few
    ],
)
def test_a_ratio_that_is_unclear_is_left_out(ratios: list[float], ratio: float | None) -> None:
    assert clear_ratio(ratios) == ratio


def test_calls_are_compared_in_pairs_and_the_first_call_alternates() -> None:
    order: list[str] = []

    def call(name: str, us: float) -> Callable[[], CallTime]:
        def run() -> CallTime:
            order.append(name)
            return CallTime(us)

        return run

    assert ratio_in_turn(call("changed", 30.0), call("unchanged", 20.0)) == 1.5
    assert order[:4] == ["unchanged", "changed", "changed", "unchanged"]
    assert order.count("changed") == order.count("unchanged")

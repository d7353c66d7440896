"""The objects whose guards take longest are named in the right order, with their lines and plausible times."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from jupyter_graphbreak._torch_compat.guard_trees import FrameGuards, GuardNode
from jupyter_graphbreak.experiments.cost import alternatives
from jupyter_graphbreak.experiments.cost.entry_cost import measure_entry
from jupyter_graphbreak.experiments.cost.guards import time_guards
from jupyter_graphbreak.experiments.cost.timing import Budget
from jupyter_graphbreak.experiments.cost.variants import Variant
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry
from jupyter_graphbreak.records.records import StackFrame
from jupyter_graphbreak.report.cost import GuardCost, Spread
from jupyter_graphbreak.report.location import Location


def guards_of(fn: Callable[..., object], *args: object) -> list[GuardCost]:
    entry = Entry("fn", None, fn, Arguments(*args), "eager")
    guards = measure_entry(entry, budget=Budget(seconds=0.0, max_runs=7)).cost.guards
    assert guards is not None
    return guards


def total(x: torch.Tensor, many: dict[str, int], few: dict[str, int]) -> torch.Tensor:
    number = sum(few.values())
    for value in many.values():
        number += value
    return x + number


def test_the_most_expensive_object_comes_first_with_its_line() -> None:
    guards = guards_of(
        total, torch.rand(4), {f"m{key}": key for key in range(200)}, {f"f{key}": 1 for key in range(40)}
    )
    first, second = guards[:2]
    assert (first.guard, second.guard) == ("L['many']", "L['few']")
    assert first.count > 3 * second.count
    assert first.time.median_us > 2 * second.time.median_us
    assert all(
        guard.location is not None and guard.location.line - total.__code__.co_firstlineno == line
        for guard, line in ((first, 2), (second, 1))
    )
    assert first.frame is not None


def make_node(source: str, us: float, children: list[GuardNode] | None = None) -> GuardNode:
    def check() -> None:
        end = time.perf_counter() + us * 1e-6
        while time.perf_counter() < end:
            pass

    return GuardNode(source, [(f"{source} == 0  # a.py:1 in f", check)], children or [])


def check_all(tree: GuardNode) -> bool:
    for _, check in tree.guards:
        if check is not None:
            check()
    return all(map(check_all, tree.children))


def test_times_are_within_a_factor_of_two() -> None:
    parts = [make_node("x.a", 30), make_node("x.b", 30), make_node("x.c", 30)]
    tree = make_node("L", 5, [make_node("x", 5, parts), make_node("y", 0, [make_node("y.z", 40)])])
    frame = FrameGuards("0/0", lambda: check_all(tree), lambda: tree, {"x.b": [StackFrame("a.py", 7, "f")]})

    def locate(stack: object) -> Location | None:
        return Location("s1", 7, 7) if stack else None

    x, y = time_guards([frame], {"0/0"}, lambda ident: f"run {ident}", locate)[:2]
    assert (x.guard, x.count, x.frame, x.location) == ("x", 4, "run 0/0", Location("s1", 7, 7))
    assert (y.guard, y.count, y.location) == ("y.z == 0", 1, None)
    assert 95 / 2 < x.time.low_us < 95 * 2
    assert 40 / 2 < y.time.low_us < 40 * 2


@pytest.mark.parametrize(("used_frame_ids", "guards_hold"), [(set(), True), ({"0/0"}, False)])
def test_frames_that_are_unused_or_whose_guards_fail_have_no_times(used_frame_ids: set[str], guards_hold: bool) -> None:
    frame = FrameGuards("0/0", lambda: guards_hold, lambda: make_node("L", 5), {})
    assert time_guards([frame], used_frame_ids, lambda ident: ident, lambda _: None) == []


def many_numbers(x: torch.Tensor, numbers: dict[str, int]) -> torch.Tensor:
    return x + sum(numbers.values())


def test_the_call_is_timed_without_the_guards_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    guard_filters: list[Callable[..., object] | None] = []

    def times_of(_: Variant, other: Variant) -> tuple[Spread, Spread]:
        guard_filters.append(other.entry.guard_filter)
        assert other.warm_up()
        us = 20.0 if guard_filters[-1] is torch.compiler.keep_tensor_guards_unsafe else 100.0
        return Spread(us, us, us, 9), Spread(100.0, 100.0, 100.0, 9)

    monkeypatch.setattr(alternatives, "_time_both", times_of)
    entry = Entry("fn", None, many_numbers, Arguments(torch.rand(4), {f"n{key}": key for key in range(800)}), "eager")
    (alternative,) = measure_entry(entry, budget=Budget(seconds=0.0, max_runs=7)).cost.alternatives
    assert guard_filters == [
        torch.compiler.skip_guard_on_all_nn_modules_unsafe,
        torch.compiler.keep_tensor_guards_unsafe,
    ]
    assert (alternative.kind, alternative.change) == ("guards", "torch.compiler.keep_tensor_guards_unsafe")

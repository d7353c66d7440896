"""Copied functions and the methods they call see the same globals. Variables with the same name stay separate."""

from __future__ import annotations

from collections.abc import Callable

import torch

from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.memory import StorageRecorder
from jupyter_graphbreak.experiments.trial.outcome import run, sandbox_runs
from jupyter_graphbreak.experiments.trial.subject import Subject, share_run_setup

TICKS: list[int] = []
TOTAL = 0


def add_one() -> None:
    global TOTAL  # noqa: PLW0603 - the test needs an assigned global
    TOTAL += 1


def note() -> None:
    TICKS.append(1)


class Meter:
    def note(self) -> None:
        note()

    def add_one(self) -> None:
        add_one()

    def tick(self) -> None:
        TICKS.append(1)

    @property
    def total(self) -> int:
        add_one()
        return TOTAL


METER = Meter()


def count(x: torch.Tensor) -> torch.Tensor:
    METER.tick()
    return x * len(TICKS)


def note_directly_and_through_meter(x: torch.Tensor) -> torch.Tensor:
    note()
    METER.note()
    return x * len(TICKS)


def total(x: torch.Tensor) -> torch.Tensor:
    METER.add_one()
    return x * METER.total + TOTAL


def results_of_entry(fn: Callable[..., torch.Tensor]) -> list[float]:
    """Record a function as an entry, call the function once, and return the results of two runs of the entry."""
    x = torch.ones(())
    entry = Subject(fn, Arguments(x), StorageRecorder())
    fn(x)
    assert entry.arguments is not None
    with sandbox_runs(), share_run_setup(entry.modes, name_snapshot=entry.name_snapshot()):
        subject = Subject(entry.function, entry.arguments)
        results = []
        for _ in range(2):
            subject.restore()
            results.append(float(run(subject.function, subject, entry.arguments).value))
    return results


def test_a_function_reads_the_list_that_a_method_changes() -> None:
    TICKS.clear()
    assert results_of_entry(count) == [1.0, 1.0]
    assert TICKS == [1]


def test_a_function_reads_the_global_that_its_methods_assign() -> None:
    globals()["TOTAL"] = 0
    assert results_of_entry(total) == [4.0, 4.0]
    assert TOTAL == 2


def test_a_function_that_a_method_also_calls_changes_only_copies() -> None:
    TICKS.clear()
    subject = Subject(note_directly_and_through_meter, Arguments(torch.ones(())))
    with subject.activate():
        assert subject.function(torch.ones(())) == 2
    assert TICKS == []


def test_variables_with_the_same_name_are_restored_and_compared_separately() -> None:
    def counter() -> Callable[[], int]:
        items: list[int] = []

        def add() -> int:
            items.append(1)
            return len(items)

        return add

    first, second = counter(), counter()

    def use_both_counters(x: torch.Tensor) -> torch.Tensor:
        return x * (10 * first() + second())

    subject = Subject(use_both_counters, Arguments(torch.ones(())))
    for _ in range(2):
        subject.restore()
        assert subject.function(torch.ones(())) == 11
    assert [value for name, value in subject.state().items() if name.startswith("items")] == [[1], [1]]

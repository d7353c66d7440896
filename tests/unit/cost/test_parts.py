"""The time of a call is shared as a profile of it says; clocks of a device are read when it is done."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_graphbreak._torch_compat.profile_ranges import Range
from jupyter_graphbreak.cost.clock import CudaClock
from jupyter_graphbreak.cost.parts import NOBODY, Entering, Owner, Shares, parts_of, time_share
from jupyter_graphbreak.cost.timeline import Piece, Timeline, operations_outside, read_timeline
from jupyter_graphbreak.cost.timing import CallTime, GraphRun


def test_a_profile_is_read_as_graphs_and_what_is_between_them() -> None:
    ranges = [
        Range("call", "", 0, 100),
        Range("lookup", "", 5, 10),
        Range("region", "0/0", 10, 90),
        Range("graph", "0", 20, 30),
        Range("forward", "", 21, 29, link=7),
        Range("operation", "aten::add", 22, 23),
        Range("operation", "aten::item", 35, 37),
        Range("operation", "aten::_local_scalar_dense", 36, 37),
        Range("lookup", "", 50, 54),
        Range("region", "1/0", 54, 88),
        Range("graph", "1", 60, 70),
        Range("backward", "", 75, 80, link=7),
        Range("graph", "9", 200, 210),
    ]
    assert read_timeline(ranges) == Timeline(
        [0, 1],
        [
            Piece("python", 0, 5),
            Piece("guards", 0, 5, "0/0"),
            Piece("python", 0, 10, "0/0"),
            Piece("python", 1, 20, "0/0", begun=True),
            Piece("guards", 1, 4, "1/0"),
            Piece("python", 1, 6, "1/0"),
            Piece("python", 2, 5, "1/0", begun=True),
            Piece("backward", 2, 5, graph=0),
            Piece("python", 2, 8, "1/0", begun=True),
            Piece("python", 2, 2, "0/0", begun=True),
            Piece("python", 2, 10, begun=True),
        ],
    )
    assert operations_outside(ranges) == 1
    assert read_timeline([]) == Timeline()


BREAK, GRAPH = Owner("outside", None, "b1"), Owner("graph", "A", None, "0/0")
NEXT = Owner("guards", "B", "b1", "1/0")


def owner(piece: Piece) -> Owner | None:
    if piece.kind == "guards":
        return NEXT
    return BREAK if piece.begun else None


def between(us: float) -> Timeline:
    return Timeline(
        [0, 1], [Piece("python", 1, us, "0/0", begun=True), Piece("guards", 1, 4, "1/0"), Piece("python", 1, 9, "1/0")]
    )


@pytest.mark.parametrize(
    ("us", "seen", "shared"),
    [
        (70.0, 65.0, {NEXT: 14.0, BREAK: 56.0}),  # the profiler slowed it: the rest after what is known
        (70.0, 57.0, {NEXT: 20.0, BREAK: 50.0}),  # it saw less than is left: the remainder is Dynamo's
        (156.0, 57.0, {NEXT: 56.0, BREAK: 100.0}),  # more than Dynamo can take: it is noise, and everyone's
        (7.0, 65.0, {NEXT: 7.0, BREAK: 0.0}),
    ],
)
def test_the_time_between_graphs_is_shared(us: float, seen: float, shared: dict[Owner, float]) -> None:
    shares = Shares([between(seen)] * 3, owner, Entering(10.0, 7.0))
    assert shares.split((0, 1), us) == pytest.approx(shared)
    assert shares.split((1, None), us) == {NOBODY: us}


def test_on_a_device_everything_has_its_proportion() -> None:
    assert Shares([between(12.0)], owner, None).split((0, 1), 4.0) == pytest.approx({NEXT: 1.0, BREAK: 3.0})


def test_parts_add_up_to_the_median_call() -> None:
    calls = [CallTime(total, [GraphRun(0, 10.0, total - 30.0)]) for total in (100.0, 104.0, 110.0, 300.0, 90.0)]
    parts = parts_of(calls, lambda _: GRAPH, Shares([], owner, None))
    assert sum(part.time.median_us for part in parts) == pytest.approx(104.0)
    assert [(part.kind, part.graph) for part in parts] == [("outside", None), ("graph", "A")]
    assert time_share(parts) == pytest.approx(1 - 40 / 104, abs=0.001)


class Described:
    """A device on which nothing runs: it says when events that were put on it come to pass."""

    def __init__(self, *times_ms: float) -> None:
        self.times = list(times_ms)
        self.waited = 0

    def synchronize(self) -> None:
        self.waited += 1

    def Event(self, *, enable_timing: bool) -> Any:  # noqa: N802 - as torch.cuda has it
        assert enable_timing
        device = self

        class Event:
            time = float("nan")

            def record(self) -> None:
                assert not device.waited
                self.time = device.times.pop(0)

            def elapsed_time(self, later: Event) -> float:
                assert device.waited
                return later.time - self.time

        return Event()


def test_a_device_is_waited_for_once_when_all_moments_are_marked() -> None:
    device = Described(5.0, 6.0, 8.5)
    clock = CudaClock(device)
    marks = [clock.mark() for _ in range(3)]
    assert clock.times_us(marks) == [0.0, 1000.0, 3500.0]
    assert device.waited == 1

"""The times between marks belong to graphs, breaks or guards; device clocks are read after the work is done."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.profile_ranges import ProfileRange
from jupyter_graphbreak.experiments.cost.entry_cost import count_operations_outside_graphs, lookup_us_by_frame
from jupyter_graphbreak.experiments.cost.parts import (
    NO_OWNER,
    Overhead,
    TimeOwner,
    TimeOwners,
    divide_into_parts,
    graph_to_break_us,
    graphs_time_share,
    mark_us,
)
from jupyter_graphbreak.experiments.cost.timing import CallTime, CudaClock, Mark
from jupyter_graphbreak.report.schema import Frame, Resume, Skipped
from tests.support.sample_reports import two_breaks


def test_a_profile_contains_lookup_times_and_operations_outside_graphs() -> None:
    ranges = [
        ProfileRange("call", "", 0, 100),
        ProfileRange("lookup", "", 5, 10),
        ProfileRange("region", "0/0", 10, 90),
        ProfileRange("graph", "0", 20, 30),
        ProfileRange("forward", "", 21, 29),
        ProfileRange("operation", "aten::add", 22, 23),
        ProfileRange("operation", "aten::item", 35, 37),
        ProfileRange("operation", "aten::_local_scalar_dense", 36, 37),
        ProfileRange("lookup", "", 50, 54),
        ProfileRange("region", "1/0", 54, 88),
        ProfileRange("graph", "1", 60, 70),
        ProfileRange("backward", "", 75, 80),
    ]
    assert count_operations_outside_graphs(ranges) == 1
    assert count_operations_outside_graphs([]) == 0
    assert lookup_us_by_frame([ranges, ranges[:4]]) == {"0/0": 5.0, "1/0": 4.0}


GRAPH, INNER_GRAPH = TimeOwner("graph", "A", None, "0/0"), TimeOwner("graph", "B", None, "1/0")
ENTRY_GUARDS, RESUME_GUARDS = TimeOwner("guards", "A", None, "0/0"), TimeOwner("guards", "B", "b1", "1/0")
FIRST_BREAK, SECOND_BREAK = TimeOwner("outside", None, "b1"), TimeOwner("outside", None, "b2")
CALLEE_GUARDS = TimeOwner("guards", "C", "b2", "2/0")


def call_of(*marks: tuple[str, str, float], total: float) -> CallTime:
    return CallTime(total, [Mark(*mark) for mark in marks])


CALL_WITH_BREAKS = call_of(
    ("entered", "0/0", 20.0),
    ("marked", "0/0", 21.0),
    ("graph", "0", 26.5),
    ("graph ends", "0", 36.5),
    ("graph is noted", "0", 40.0),
    ("resumes", "0/0", 50.5),
    ("entered", "1/0", 56.5),
    ("marked", "1/0", 57.5),
    ("graph", "1", 60.0),
    ("graph ends", "1", 67.0),
    ("graph is noted", "1", 67.0),
    ("backward", "0", 68.0),
    ("backward ends", "0", 71.0),
    ("entered", "2/0", 81.5),
    ("left", "2/0", 91.5),
    ("left", "1/0", 102.5),
    ("left", "0/0", 105.5),
    total=110.0,
)


def test_the_time_between_marks_is_assigned_to_its_owner() -> None:
    owners = TimeOwners(two_breaks(), ["0/0", "1/0"], {"2/0": 4.0}, Overhead(mark_us=1.0, graph_to_break_us=3.0))
    assert owners.times_by_owner(CALL_WITH_BREAKS) == pytest.approx(
        {
            ENTRY_GUARDS: 19.5 + 5.0 + 3.0,
            GRAPH: 10.0 + 3.0,
            FIRST_BREAK: 7.0,
            RESUME_GUARDS: 5.0 + 2.0,
            INNER_GRAPH: 7.0,
            CALLEE_GUARDS: 4.0,
            SECOND_BREAK: 1.0 + 6.0 + 9.0 + 10.0,
            NO_OWNER: 2.0 + 4.0,
        }
    )


def test_time_in_an_eager_resume_function_belongs_to_the_break_that_makes_it_eager() -> None:
    frames = [
        Frame("0/0", "f", None, "entry", "compiled", breaks=["b1"]),
        Frame("1/0", "f", None, "resume", "skipped", resume="r1", caller="0/0", breaks=["b2"]),
    ]
    report = replace(
        two_breaks(),
        frames=frames,
        graphs=[],
        resumes=[Resume("r1", "resume_in_f", "f", None, "b1", ["1/0"])],
        skipped=[Skipped("k1", "1/0", "f", None, "graph break in a loop", "b2")],
    )
    marks = [("entered", "0/0", 1.0), ("resumes", "0/0", 3.0), ("left", "0/0", 9.0)]
    times = TimeOwners(report).times_by_owner(call_of(*marks, total=9.0))
    assert (times[TimeOwner("outside", None, "b1")], times[TimeOwner("outside", None, "b2")]) == (2.0, 6.0)


def test_a_frame_that_an_exception_leaves_is_closed() -> None:
    marks = [("entered", "0/0", 5.0), ("entered", "1/0", 6.0), ("left", "0/0", 7.0)]
    times = TimeOwners(two_breaks()).times_by_owner(call_of(*marks, total=10.0))
    assert times[NO_OWNER] == 3.0


def test_the_overhead_of_marks_is_measured_in_the_calls() -> None:
    assert mark_us([CALL_WITH_BREAKS]) == 1.0
    assert graph_to_break_us([CALL_WITH_BREAKS]) == 10.0
    assert (mark_us([]), graph_to_break_us([])) == (0.0, 0.0)


def test_parts_come_from_typical_calls_and_add_up() -> None:
    calls = [
        call_of(("graph", "0", 10.0), ("graph ends", "0", total - 20.0), total=total)
        for total in (104.0, 98.0, 112.0, 300.0, 90.0, 102.0)
    ]
    total, parts = divide_into_parts(calls, TimeOwners(two_breaks(), ["0/0"]))
    assert (total.median_us, total.runs) == (103.0, 6)
    assert [(part.kind, part.graph) for part in parts] == [("outside", None), ("graph", "A")]
    assert [part.time.median_us for part in parts] == [30.0, 73.0]
    assert parts[1].time.runs == 2
    assert graphs_time_share(parts) == pytest.approx(73 / 103, abs=0.001)
    total, parts = divide_into_parts(calls[2:], TimeOwners(two_breaks(), ["0/0"]))  # calls with a wide spread
    assert sum(part.time.median_us for part in parts) == total.median_us == 107.0


def test_overhead_is_subtracted_from_the_call() -> None:
    owners = TimeOwners(two_breaks(), ["0/0", "1/0"], {}, Overhead(mark_us=1.0))
    call = CallTime(CALL_WITH_BREAKS.total_us, CALL_WITH_BREAKS.marks, 0, 100.0)
    total, parts = divide_into_parts([call], owners)
    # Two marks, the work after a graph, and half a mark at each end of a stretch are subtracted.
    assert total.median_us == pytest.approx(110.0 - 2.0 - 3.5 - 7.0)
    assert total.processor_us == pytest.approx(100.0 - 2.0 - 3.5 - 7.0)
    assert sum(part.time.median_us for part in parts) == pytest.approx(total.median_us)


class SimulatedDevice:
    """A simulated device whose events have given times."""

    def __init__(self, *times_ms: float) -> None:
        self.times = list(times_ms)
        self.synchronizations = 0

    def synchronize(self) -> None:
        self.synchronizations += 1

    def Event(self, *, enable_timing: bool) -> Any:  # noqa: N802 - torch.cuda has this name
        assert enable_timing
        device = self

        class Event:
            time = float("nan")

            def record(self) -> None:
                assert not device.synchronizations
                self.time = device.times.pop(0)

            def elapsed_time(self, later: Event) -> float:
                assert device.synchronizations
                return later.time - self.time

        return Event()


def test_the_device_is_synchronized_once_after_all_marks() -> None:
    device = SimulatedDevice(5.0, 6.0, 8.5)
    clock = CudaClock(device)
    marks = [clock.mark() for _ in range(3)]
    assert clock.times_us(marks) == [0.0, 1000.0, 3500.0]
    assert device.synchronizations == 1

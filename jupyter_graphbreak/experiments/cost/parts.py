"""Divide the time of a compiled call among its graphs, its guards, and the breaks between the graphs."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple

from jupyter_graphbreak.experiments.cost.timing import Mark, quartiles, spread_of_calls
from jupyter_graphbreak.report.cost import CostPart, Spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.cost.timing import CallTime
    from jupyter_graphbreak.report.schema import Frame, Report


class TimeOwner(NamedTuple):
    """The owner of a stretch of time: a graph, a frame's guards, or code outside of graphs, with ids of a report."""

    kind: Literal["graph", "guards", "outside"]
    graph: str | None = None
    break_: str | None = None
    frame: str | None = None


#: The owner of time that belongs to no graph, guard or break of the report, such as a return from a resume function.
NO_OWNER = TimeOwner("outside")
#: Marks recorded by the code that Dynamo generates. The time that other marks take is negligible.
_CODE_MARKS = {"entered", "marked", "resumes", "left"}


class Overhead(NamedTuple):
    """The time to record a mark, which is not part of the call, and Dynamo's own time between a graph and a break."""

    mark_us: float = 0.0
    graph_to_break_us: float = 0.0


NO_OVERHEAD = Overhead()
#: The maximum relative distance of a typical call from the median. If no call is that near, the nearest one is typical.
_TYPICAL_DISTANCE = 0.04
_ROUNDING_US = 1e-3


def mark_us(calls: Iterable[CallTime]) -> float:
    """Return the time in microseconds that generated code takes to record a mark."""
    return _median_between(calls, "entered", "marked")


def graph_to_break_us(calls: Iterable[CallTime]) -> float:
    """Return Dynamo's own time in microseconds between a graph and a break, from calls with only these two."""
    return max(0.0, _median_between(calls, "graph is noted", "resumes") - mark_us(calls) / 2)


def _median_between(calls: Iterable[CallTime], kind: str, later_kind: str) -> float:
    """Return the median time in microseconds between consecutive marks of two kinds; 0 if there are none."""
    pairs = (pair for call in calls for pair in itertools.pairwise(call.marks))
    durations = [
        later_mark.us - mark.us for mark, later_mark in pairs if (mark.kind, later_mark.kind) == (kind, later_kind)
    ]
    return statistics.median(durations) if durations else 0.0


def divide_into_parts(calls: Sequence[CallTime], owners: TimeOwners) -> tuple[Spread, list[CostPart]]:
    """Return the time of a call, and the parts of a typical call in the order in which they first ran.

    A part is the sum of the stretches between marks that belong to its owner. All parts together take the time of the
    call without the time for recording marks. Typical calls are those nearest to the median. Each part is the mean over
    the typical calls.
    """
    times_by_call = [owners.times_by_owner(call) for call in calls]
    totals = [sum(times.values()) for times in times_by_call]
    call_time = spread_of_calls([call.with_total(total) for call, total in zip(calls, totals, strict=True)])
    deviations = [abs(total - statistics.median(totals)) for total in totals]
    max_deviation = max(min(deviations), _TYPICAL_DISTANCE * call_time.median_us) + _ROUNDING_US
    typical_numbers = [number for number in range(len(calls)) if deviations[number] <= max_deviation]
    parts = []
    for owner in dict.fromkeys(owner for times in times_by_call for owner in times):
        times = [times_by_call[number].get(owner, 0.0) for number in typical_numbers]
        low, _, high = quartiles(times)
        mean = statistics.fmean(times)  # unlike medians, means add up, and include parts of only a few calls
        if mean <= 0:
            continue
        time = Spread(round(mean, 2), round(min(low, mean), 2), round(max(high, mean), 2), len(times))
        parts.append(CostPart(owner.kind, time, owner.graph, owner.break_, owner.frame))
    return call_time, parts


def graphs_time_share(parts: Sequence[CostPart]) -> float | None:
    """Return the graphs' share of the time; ``None`` if no time was measured."""
    total_us = sum(part.time.median_us for part in parts)
    graphs_us = sum(part.time.median_us for part in parts if part.kind == "graph")
    return round(graphs_us / total_us, 4) if total_us > 0 else None


class TimeOwners:
    """Assigns each stretch of a call to its owner, using the report of the run in which the call was compiled.

    ``compile_ids`` contains the id of each graph's frame, in the order in which the graphs were compiled. The time to
    select a frame's code is subtracted from the time of the code before the frame.
    """

    def __init__(
        self,
        report: Report,
        compile_ids: Sequence[str] = (),
        lookup_us_by_frame: Mapping[str, float] | None = None,
        overhead: Overhead = NO_OVERHEAD,
    ) -> None:
        self._overhead = overhead
        self._frames = {frame.id: frame for frame in report.frames}
        self._first_frame = next(iter(report.frames), None)
        self._breaks = {graph.id: graph.break_ for graph in report.graphs}
        self._break_by_resume = {resume.id: resume.break_ for resume in report.resumes}
        self._skipped_frames = {skipped.frame: skipped.break_ for skipped in report.skipped}
        self._break_of_skipped_resume = dict(self._find_breaks_of_skipped_resumes(report))
        self._break_of_eager_call = self._find_break_of_eager_call(report)
        self._lookup_us_by_frame = lookup_us_by_frame or {}
        execution_counts: Counter[str] = Counter()
        self._graphs: list[TimeOwner] = []
        for ident in compile_ids:
            self._graphs.append(self._graph_owner(ident, execution_counts[ident]))
            execution_counts[ident] += 1

    def times_by_owner(self, call: CallTime) -> dict[TimeOwner, float]:
        """Return the time in microseconds that one call spends in each owner."""
        times: defaultdict[TimeOwner, float] = defaultdict(float)
        open_frame_ids: list[str] = []  # entered, but not left yet
        frames_with_resumes: set[str] = set()  # the open frames that have called their resume functions
        previous_mark = Mark("begins", "", 0.0)
        for mark in (*call.marks, Mark("ends", "", call.total_us)):
            marks_us = sum(edge.kind in _CODE_MARKS for edge in (previous_mark, mark)) * self._overhead.mark_us / 2
            us = max(0.0, mark.us - previous_mark.us - marks_us)
            has_resumed = bool(open_frame_ids) and open_frame_ids[-1] in frames_with_resumes
            for owner, part in self._divide_stretch(previous_mark, mark, us, open_frame_ids, has_resumed=has_resumed):
                times[owner] += part
            match mark.kind:
                case "entered":
                    open_frame_ids.append(mark.name)
                    frames_with_resumes.discard(mark.name)
                case "resumes":
                    frames_with_resumes.add(mark.name)
                case "left" if mark.name in open_frame_ids:
                    while open_frame_ids.pop() != mark.name:
                        pass
            previous_mark = mark
        return times

    def _divide_stretch(
        self, mark_before: Mark, mark_after: Mark, us: float, open_frame_ids: list[str], *, has_resumed: bool
    ) -> Iterator[tuple[TimeOwner, float]]:
        """Yield the owners of the stretch between two marks, each with its share of the time."""
        match mark_before.kind, mark_after.kind:
            case ("graph ends", "graph is noted") | ("entered", "marked"):
                return
            case ("graph", "graph ends") | ("backward", "backward ends"):
                yield self._graphs[int(mark_before.name)], us
            case _, "graph" if open_frame_ids:
                yield self._guards_owner(open_frame_ids[-1]), us
            case _, "entered":
                guards_us = us
                is_entry = self._first_frame is not None and self._first_frame.id == mark_after.name
                if mark_before.kind != "resumes" and not (mark_before.kind == "begins" and is_entry):
                    guards_us = min(us, self._lookup_us_by_frame.get(mark_after.name, 0.0))
                yield self._guards_owner(mark_after.name), guards_us
                yield self._eager_owner(open_frame_ids, has_resumed=has_resumed), us - guards_us
            case "graph is noted", "resumes" | "left" if open_frame_ids:
                leaving_us = min(us, self._overhead.graph_to_break_us)
                yield self._guards_owner(open_frame_ids[-1]), leaving_us
                yield self._eager_owner(open_frame_ids, has_resumed=has_resumed), us - leaving_us
            case "left", "left" if self._is_resume(mark_before.name):  # a resumed frame returns, and then its caller
                yield NO_OWNER, us
            case _:
                yield self._eager_owner(open_frame_ids, has_resumed=has_resumed), us

    def _is_resume(self, frame: str) -> bool:
        return frame in self._frames and self._frames[frame].role == "resume"

    def _graph_owner(self, compile_id: str, ordinal: int) -> TimeOwner:
        """Return the owner of a graph's time, by the graph's position among the graphs of its frame."""
        frame = self._frames.get(compile_id)
        letters = frame.graphs if frame is not None else []
        return TimeOwner("graph", letters[ordinal] if ordinal < len(letters) else None, None, compile_id)

    def _guards_owner(self, compile_id: str) -> TimeOwner:
        frame = self._frames.get(compile_id)
        graphs = frame.graphs if frame is not None else []
        return TimeOwner("guards", next(iter(graphs), None), self._causing_break(frame), compile_id)

    def _eager_owner(self, open_frame_ids: list[str], *, has_resumed: bool) -> TimeOwner:
        """Return the owner of the time that Python takes in the innermost open frame.

        If the frame has called a resume function that a break makes run eagerly, the time belongs to that break.
        """
        if not open_frame_ids:
            return TimeOwner("outside", None, self._break_of_eager_call)
        frame = self._frames.get(open_frame_ids[-1])
        break_id = self._break_ending_frame(frame) or self._causing_break(frame) if frame is not None else None
        if has_resumed and break_id is not None:
            break_id = self._break_of_skipped_resume.get(break_id, break_id)
        return TimeOwner("outside", None, break_id)

    def _find_breaks_of_skipped_resumes(self, report: Report) -> Iterator[tuple[str, str]]:
        """Yield each break whose resume functions all run eagerly, with the break that causes it for the first one."""
        frames_by_break: dict[str, list[str]] = {}
        for resume in report.resumes:
            frames_by_break.setdefault(resume.break_ or "", []).extend(resume.frames)
        for ident, frames in frames_by_break.items():
            breaks = [self._skipped_frames.get(frame) for frame in frames]
            if breaks and breaks[0] is not None and all(breaks):
                yield ident, breaks[0]

    def _find_break_of_eager_call(self, report: Report) -> str | None:
        """Return the break that makes the called function run eagerly, if there is one."""
        first = self._first_frame
        if first is not None and first.outcome != "skipped":
            return None
        break_ = self._skipped_frames.get(first.id) if first is not None else None
        return break_ or next((skipped.break_ for skipped in report.skipped if skipped.break_ is not None), None)

    def _break_ending_frame(self, frame: Frame) -> str | None:
        """Return the break that ended a frame's graph or made Dynamo skip the frame; ``None`` if none did."""
        ending_break = next((self._breaks[graph] for graph in frame.graphs if self._breaks.get(graph)), None)
        return ending_break or (frame.breaks[-1] if frame.breaks else self._skipped_frames.get(frame.id))

    def _causing_break(self, frame: Frame | None) -> str | None:
        """Return the break that makes Dynamo compile a frame separately; ``None`` if none does."""
        visited_frame_ids: set[str] = set()
        while frame is not None and frame.id not in visited_frame_ids:
            visited_frame_ids.add(frame.id)
            if frame.resume is not None and self._break_by_resume.get(frame.resume) is not None:
                return self._break_by_resume[frame.resume]
            frame = self._frames.get(frame.caller or "")
            if frame is not None and (break_ := self._break_ending_frame(frame)) is not None:
                return break_
        return None

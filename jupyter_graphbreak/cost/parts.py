"""Share the time of a compiled call among its graphs, the breaks between them, and guards."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.cost.timing import central, quartiles
from jupyter_graphbreak.report.cost import CostPart, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jupyter_graphbreak.cost.timeline import Piece, Timeline
    from jupyter_graphbreak.cost.timing import CallTime
    from jupyter_graphbreak.report.schema import Frame, Report


class Owner(NamedTuple):
    """Whose time it is, as ids of a report."""

    kind: str
    graph: str | None = None
    break_: str | None = None
    frame: str | None = None


#: Time that belongs to nothing that the report has: Dynamo's own, before the first graph and after the last.
NOBODY = Owner("outside")
_Gap = tuple[int | None, int | None]  # the graphs before and after it


class Entering(NamedTuple):
    """What Dynamo does between two graphs, guards aside; and what leaving a graph takes under the profiler."""

    us: float
    left_profiled_us: float


class Shares:
    """How the time between two graphs is shared, found in profiles of some calls.

    A profiler slows what it looks at, operations most: where it saw less than was timed without it, that is right, and
    the remainder is what Dynamo does; where it saw more, it gives the proportions only.

    Parameters
    ----------
    timelines : sequence of Timeline
    owner : callable
        Returns whose time a piece is, ``None`` where it is that of entering a graph.
    entering : Entering or None
        What Dynamo does between two graphs. ``None`` where times are those of a device, on which this does not show:
        guards then have a proportion, too.
    """

    def __init__(
        self, timelines: Sequence[Timeline], owner: Callable[[Piece], Owner | None], entering: Entering | None
    ) -> None:
        self._on_processor = entering is not None
        fixed: defaultdict[_Gap, list[defaultdict[Owner, float]]] = defaultdict(list)
        others: defaultdict[_Gap, list[defaultdict[Owner, float]]] = defaultdict(list)
        for timeline in timelines:
            for gap, pieces in _gaps(timeline):
                fixed[gap].append(defaultdict(float))
                others[gap].append(defaultdict(float))
                for number, piece in enumerate(pieces):
                    found, us = owner(piece), piece.us
                    if found is None:
                        continue
                    if found.kind != "guards" or entering is None:
                        if entering is not None and number == 0 and piece.kind == "python" and piece.gap:
                            us = max(0.0, us - entering.left_profiled_us)
                        others[gap][-1][found] += us
                        continue
                    if found.break_ is not None:  # without a graph in the frame, none is left again
                        us += entering.us if found.graph is not None else entering.us / 2
                    fixed[gap][-1][found] += us
        self._fixed = {gap: _medians(seen) for gap, seen in fixed.items()}
        self._others = {gap: _medians(seen) for gap, seen in others.items()}

    def split(self, gap: _Gap, us: float) -> dict[Owner, float]:
        """Share the time of a gap."""
        fixed, others = self._fixed.get(gap, {}), self._others.get(gap, {})
        known, whole = sum(fixed.values()), sum(others.values())
        if known + whole <= 0:
            return {NOBODY: us}
        if self._on_processor and 0 < whole <= us - known:
            # The profiler saw no more than that: what remains is Dynamo's, unless it is so much that it must be noise.
            entering = min(us - whole, 2 * known)
            scale = us / (entering + whole)
            into = entering / known if known > 0 else 0.0
            return _scaled(fixed, into * scale) | _scaled(others, scale)
        into = min(1.0, us / known) if known > 0 else 0.0
        rest = us - known * into
        return _scaled(fixed, into) | (_scaled(others, rest / whole) if whole > 0 else {NOBODY: rest})


def _scaled(times: dict[Owner, float], factor: float) -> dict[Owner, float]:
    return {owner: time * factor for owner, time in times.items()}


def _gaps(timeline: Timeline) -> list[tuple[_Gap, list[Piece]]]:
    """Return the stretches between the graphs of a call, with what ran in them."""
    graphs = [None, *timeline.graphs, None]
    return [
        ((before, after), [piece for piece in timeline.pieces if piece.gap == number])
        for number, (before, after) in enumerate(itertools.pairwise(graphs))
    ]


def _medians(seen: Sequence[dict[Owner, float]]) -> dict[Owner, float]:
    owners = dict.fromkeys(owner for times in seen for owner in times)
    return {owner: statistics.median(times.get(owner, 0.0) for times in seen) for owner in owners}


def parts_of(calls: Sequence[CallTime], graph: Callable[[int], Owner], shares: Shares) -> list[CostPart]:
    """Return the parts of a call, in the order in which they first ran; they add up to the median of all calls.

    Parameters
    ----------
    calls : sequence of CallTime
    graph : callable
        Returns the owner of a graph's time, given its number.
    shares : Shares
        Of the time between graphs.
    """
    by_owner: dict[Owner, list[float]] = {}
    for number, call in enumerate(calls):
        for owner, us in _call_parts(call, graph, shares).items():
            times = by_owner.setdefault(owner, [0.0] * len(calls))
            times[number] = us
    totals = [call.total_us for call in calls]
    typical = central(totals)
    # Where calls take different ways, a part that most of them lack is still a part; elsewhere a median is less noisy.
    one_way = len({tuple(run.graph for run in call.runs) for call in calls}) == 1
    middles = {
        owner: quartiles(times)[1] if one_way else statistics.fmean(times[number] for number in typical)
        for owner, times in by_owner.items()
    }
    together = sum(middles.values())
    scale = quartiles(totals)[1] / together if together > 0 else 1.0
    parts = []
    for owner, times in by_owner.items():
        low, _, high = quartiles(times)
        middle = scale * middles[owner]
        if middle <= 0:
            continue
        time = Spread(round(middle, 2), round(min(low, middle), 2), round(max(high, middle), 2), len(times))
        kind = owner.kind
        parts.append(
            CostPart(
                kind="graph" if kind == "graph" else "guards" if kind == "guards" else "outside",
                time=time,
                graph=owner.graph,
                break_=owner.break_,
                frame=owner.frame,
            )
        )
    return parts


def _call_parts(call: CallTime, graph: Callable[[int], Owner], shares: Shares) -> dict[Owner, float]:
    found: defaultdict[Owner, float] = defaultdict(float)
    before: int | None = None
    cursor = 0.0
    for run in call.runs:
        for owner, us in shares.split((before, run.graph), max(0.0, run.start_us - cursor)).items():
            found[owner] += us
        found[graph(run.graph)] += run.end_us - run.start_us
        before, cursor = run.graph, run.end_us
    for owner, us in shares.split((before, None), max(0.0, call.total_us - cursor)).items():
        found[owner] += us
    return found


def time_share(parts: Sequence[CostPart]) -> float | None:
    """Return which share of the time is that of graphs."""
    whole = sum(part.time.median_us for part in parts)
    graphs = sum(part.time.median_us for part in parts if part.kind == "graph")
    return round(graphs / whole, 4) if whole > 0 else None


class Owners:
    """Says whose time a piece of a call is, after the report of the run in which the call was compiled.

    Parameters
    ----------
    report : Report
    """

    def __init__(self, report: Report) -> None:
        self._frames = {frame.id: frame for frame in report.frames}
        self._breaks = {graph.id: graph.break_ for graph in report.graphs}
        self._of_resume = {resume.id: resume.break_ for resume in report.resumes}
        self._skipped_frames = {skipped.frame: skipped.break_ for skipped in report.skipped}
        self._eager = self._whole_call(report)

    def graph(self, compile_id: str, ordinal: int = 0) -> Owner:
        """Return the owner of a graph: the frame's, by the order in which they were compiled."""
        frame = self._frames.get(compile_id)
        letters = frame.graphs if frame is not None else []
        return Owner("graph", letters[ordinal] if ordinal < len(letters) else None, None, compile_id)

    def piece(self, piece: Piece, graph: Callable[[int], Owner]) -> Owner | None:
        """Return the owner of a piece between graphs, ``None`` if it is a part of entering a graph."""
        frame = self._frames.get(piece.frame or "")
        match piece.kind:
            case "guards":
                cause = self._cause(frame)
                graphs = frame.graphs if frame is not None else []
                return Owner("guards", next(iter(graphs), None), cause, piece.frame)
            case "backward" if piece.graph is not None:
                return graph(piece.graph)
        if frame is None:
            broken = self._eager if piece.frame is None else None
        elif not piece.begun and frame.graphs:
            return None
        else:
            broken = self._own(frame) or self._cause(frame)
        return Owner("outside", None, broken) if broken is not None else NOBODY

    def _whole_call(self, report: Report) -> str | None:
        """Return the break because of which what was called runs eagerly itself, if it does."""
        first = next(iter(report.frames), None)
        if first is not None and first.outcome != "skipped":
            return None
        own = self._skipped_frames.get(first.id) if first is not None else None
        return own or next((skipped.break_ for skipped in report.skipped if skipped.break_ is not None), None)

    def _own(self, frame: Frame) -> str | None:
        """Return the break at which a frame's graph ended, or at which it was given up."""
        ending = next((self._breaks[graph] for graph in frame.graphs if self._breaks.get(graph)), None)
        return ending or (frame.breaks[-1] if frame.breaks else self._skipped_frames.get(frame.id))

    def _cause(self, frame: Frame | None) -> str | None:
        """Return the break because of which a frame is one of its own."""
        seen: set[str] = set()
        while frame is not None and frame.id not in seen:
            seen.add(frame.id)
            if frame.resume is not None and self._of_resume.get(frame.resume) is not None:
                return self._of_resume[frame.resume]
            frame = self._frames.get(frame.caller or "")
            if frame is not None and (own := self._own(frame)) is not None:
                return own
        return None


def renamed(parts: Sequence[CostPart], name: Callable[[str, str | None], str | None]) -> list[CostPart]:
    """Return parts with other ids: ``name`` is given the kind of an id ("graph", "break", "frame") and the id."""
    return [
        CostPart(part.kind, part.time, name("graph", part.graph), name("break", part.break_), name("frame", part.frame))
        for part in parts
    ]

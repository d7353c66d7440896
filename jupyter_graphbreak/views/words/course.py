"""The course of a run: its calls, each with its graphs, its breaks and what ran eagerly, in order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from jupyter_graphbreak.report.eager import counted_functions
from jupyter_graphbreak.views.words.lines import break_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jupyter_graphbreak.report.schema import Break, Frame, Graph, Report, Skipped

#: At most this many calls around a step are named.
_MAX_NAMES = 8
#: Maximum depth of calls that is followed; a recursion may be deeper.
_MAX_CALLS = 200


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run.

    Parameters
    ----------
    kind : {"graph", "break", "eager", "error"}
        ``graph``: a graph was captured; ``break``: a break ended a graph or prevented one; ``eager``: a function runs
        eagerly; ``error``: compilation raised.
    graph, frame, skipped
        The parts of the report that the step is about.
    number : int or None
        The number of the break.
    """

    kind: Literal["graph", "break", "eager", "error"]
    graph: Graph | None = None
    frame: Frame | None = None
    skipped: Skipped | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A step with the names of the calls around it, outermost first."""

    step: Step
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call with several steps; ``names`` are the functions, outermost first."""

    names: list[str]
    steps: list[Item] = field(default_factory=list)


Item: TypeAlias = Step | Call


def course(report: Report) -> list[Segment]:
    """Return the steps of a run in order. A break that several frames report appears once, where it occurred."""
    segments: list[Segment] = []
    pending: list[tuple[Item, tuple[str, ...]]] = [(item, ()) for item in reversed(_Course(report).items())]
    while pending:
        item, calls = pending.pop()
        if isinstance(item, Step):
            segments.append(Segment(item, calls))
        else:
            pending += [(inner, (*calls, *item.names)[:_MAX_NAMES]) for inner in reversed(item.steps)]
    return segments


class _Course:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._numbers = break_numbers(report)
        self._graphs = {graph.id: graph for graph in report.graphs}
        places = {frame.id: place for place, frame in enumerate(report.frames)}
        self._home_frame = {break_.id: _home_frame(places, break_) for break_ in report.breaks}
        self._eager_of_frame: dict[str, list[Skipped]] = {}
        self._eager_of_break: dict[str | None, list[Skipped]] = {}
        for skipped in counted_functions(report, report.skipped):
            if skipped.frame is not None:
                self._eager_of_frame.setdefault(skipped.frame, []).append(skipped)
            else:
                self._eager_of_break.setdefault(skipped.break_, []).append(skipped)
        known = {frame.id for frame in report.frames}
        self._called: dict[str | None, list[Frame]] = {}
        for frame in report.frames:
            self._called.setdefault(frame.caller if frame.caller in known else None, []).append(frame)
        self._seen: set[str] = set()

    def items(self) -> list[Item]:
        """Return the calls of the run; steps outside any call come last."""
        items = [item for frame in self._called.get(None, ()) for item in self._items_of(frame, 0)]
        # Frames that call each other in a cycle have no outermost frame.
        items += [item for frame in self._report.frames for item in self._items_of(frame, 0)]
        for rest in (*self._eager_of_frame.values(), *self._eager_of_break.values()):
            items += [Step("eager", skipped=skipped) for skipped in rest]
        return items

    def _items_of(self, frame: Frame, depth: int) -> list[Item]:
        """Return the items of a frame: a call, a single step, or nothing. Resume functions belong to the same call."""
        pending = deque([(frame, depth)])
        items: list[Item] = []
        while pending:
            current, level = pending.popleft()
            if current.id in self._seen:
                continue
            self._seen.add(current.id)
            items += self._own_steps(current)
            for called in self._called.get(current.id, ()):
                if called.role == "resume" or level >= _MAX_CALLS:
                    pending.append((called, level))
                elif called.id not in self._seen:
                    items += self._items_of(called, level + 1)
        if len(items) > 1 and frame.role != "resume":
            return [Call([frame.function], items)]
        if items and isinstance(items[0], Call):
            return [Call([frame.function, *items[0].names], items[0].steps)]
        return items

    def _own_steps(self, frame: Frame) -> Iterator[Step]:
        for name in frame.graphs:
            if name in self._graphs:
                yield Step("graph", graph=self._graphs[name], frame=frame)
        for ident in frame.breaks:
            if self._home_frame.get(ident) == frame.id:
                yield Step("break", frame=frame, number=self._numbers.get(ident))
            # Functions that Dynamo never traced run eagerly from the first frame that meets the break.
            yield from (Step("eager", skipped=skipped) for skipped in self._eager_of_break.pop(ident, ()))
        if frame.outcome == "error":
            yield Step("error", frame=frame)
        yield from (Step("eager", skipped=skipped, frame=frame) for skipped in self._eager_of_frame.pop(frame.id, ()))


def _home_frame(places: Mapping[str, int], break_: Break) -> str | None:
    """Return the frame in which a break occurred: the last one that reports it, because callers report first."""
    frames = [event.frame for event in break_.occurrences if event.frame in places]
    return max(frames, key=lambda ident: places[ident or ""], default=None)

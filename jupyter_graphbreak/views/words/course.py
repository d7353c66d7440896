"""The run as it went: calls, and within each its graphs, its breaks and what ran eagerly, in order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from jupyter_graphbreak.views.words.lines import break_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jupyter_graphbreak.report.schema import Break, Frame, Graph, Report, Resume, Skipped

#: Boxes within boxes; what calls further down did stands in the innermost of these.
_DEEPEST = 4
#: Calls within calls that are followed; a recursion may be deeper.
_MOST_CALLS = 200


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened.

    Parameters
    ----------
    kind : {"graph", "break", "eager", "error"}
        ``graph``: a graph was captured; ``break``: a break ended it, or kept it from beginning; ``eager``: a function
        runs eagerly; ``error``: compilation raised.
    graph, frame, resume, skipped
        What it was, where the kind has such a thing; ``resume`` is the resume function that the graph was captured
        from.
    number : int or None
        The number of the break.
    """

    kind: Literal["graph", "break", "eager", "error"]
    graph: Graph | None = None
    frame: Frame | None = None
    resume: Resume | None = None
    skipped: Skipped | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call within which several things happened; ``names`` are the functions from the outermost in."""

    names: list[str]
    steps: list[Item] = field(default_factory=list)


Item: TypeAlias = Step | Call


def course(report: Report) -> list[Item]:
    """Return what happened, nested by call. A break that several frames report is there once, where it stands."""
    return _shallow(_Course(report).items(), 0)


def _shallow(items: list[Item], depth: int) -> list[Item]:
    shown: list[Item] = []
    for item in items:
        if isinstance(item, Step):
            shown.append(item)
        elif depth < _DEEPEST:
            shown.append(Call(item.names, _shallow(item.steps, depth + 1)))
        else:
            shown += _shallow(item.steps, depth)
    return shown


def first_steps(items: list[Item], limit: int) -> tuple[list[Item], int]:
    """Return the beginning of a course, and how many steps that leaves out."""
    shown: list[Item] = []
    left_out = 0
    for item in items:
        if isinstance(item, Step):
            if limit > 0:
                shown.append(item)
            else:
                left_out += 1
            limit -= 1
            continue
        within, more = first_steps(item.steps, max(limit, 0))
        limit -= _length(within) + more
        left_out += more
        shown += [Call(item.names, within)] if within else []
    return shown, left_out


def _length(items: list[Item]) -> int:
    return sum(1 if isinstance(item, Step) else _length(item.steps) for item in items)


class _Course:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._numbers = break_numbers(report)
        self._graphs = {graph.id: graph for graph in report.graphs}
        self._resumes = {resume.id: resume for resume in report.resumes}
        places = {frame.id: place for place, frame in enumerate(report.frames)}
        self._home = {listed.id: _home(places, listed) for listed in report.breaks}
        self._eager_of_frame: dict[str, list[Skipped]] = {}
        self._eager_of_break: dict[str | None, list[Skipped]] = {}
        for skipped in report.skipped:
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
        """Return the calls of the run; what belongs to no call comes last."""
        items = [item for frame in self._called.get(None, ()) for item in self._of(frame, 0)]
        # Frames that call each other in a circle have no outermost one.
        items += [item for frame in self._report.frames for item in self._of(frame, 0)]
        for rest in (*self._eager_of_frame.values(), *self._eager_of_break.values()):
            items += [Step("eager", skipped=skipped) for skipped in rest]
        return items

    def _of(self, frame: Frame, depth: int) -> list[Item]:
        """Return what a frame is in its caller: a call, a single step, or nothing; a resumed frame has no box."""
        pending = deque([(frame, depth)])
        items: list[Item] = []
        while pending:
            current, level = pending.popleft()
            if current.id in self._seen:
                continue
            self._seen.add(current.id)
            items += self._own(current)
            for called in self._called.get(current.id, ()):
                if called.role == "resume" or level >= _MOST_CALLS:
                    pending.append((called, level))
                elif called.id not in self._seen:
                    items += self._of(called, level + 1)
        if len(items) > 1 and frame.role != "resume":
            return [Call([frame.function], items)]
        if items and isinstance(items[0], Call):
            return [Call([frame.function, *items[0].names], items[0].steps)]
        return items

    def _own(self, frame: Frame) -> Iterator[Step]:
        for name in frame.graphs:
            if name in self._graphs:
                yield Step("graph", graph=self._graphs[name], frame=frame, resume=self._resumes.get(frame.resume or ""))
        for ident in frame.breaks:
            if self._home.get(ident) == frame.id:
                yield Step("break", frame=frame, number=self._numbers.get(ident))
            # Functions that Dynamo never began run eagerly from the first frame on that meets the break.
            yield from (Step("eager", skipped=skipped) for skipped in self._eager_of_break.pop(ident, ()))
        if frame.outcome == "error":
            yield Step("error", frame=frame)
        yield from (Step("eager", skipped=skipped, frame=frame) for skipped in self._eager_of_frame.pop(frame.id, ()))


def _home(places: Mapping[str, int], listed: Break) -> str | None:
    """Return the frame that a break stands in: the last of those that report it, the callers come before."""
    frames = [event.frame for event in listed.occurrences if event.frame in places]
    return max(frames, key=lambda ident: places[ident or ""], default=None)

"""What one of two runs may have run from code that PyTorch held from earlier, so that it left no trace in that run.

A function that PyTorch holds is not compiled again when it is called, and its breaks and graphs are not reported again.
That they are missing does not mean that they are gone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.report.figures import Summary, Timing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_graphbreak.report.schema import Break, Frame, Report, Skipped

Line = tuple[str, int]  # the id of a source, and a line of it
#: Frames with these outcomes were traced to their end.
_TRACED = {"compiled", "empty"}


class _Function(NamedTuple):
    """A function that is the same code in both runs."""

    source: str
    function: str
    line: int


class Reuse:
    """What of one run the other may have had from earlier.

    Parameters
    ----------
    run : Report
        The run that compiled something.
    other : Report
        The run that may have used code from earlier instead; it comes before or after.
    only_here : list of Break
        The breaks of the run that the other does not report. ``hidden`` are those that it may have met all the same.
    lines : mapping
        For each line of the run that the other has as well, as its source and number, the line there.
    """

    def __init__(self, run: Report, other: Report, only_here: list[Break], lines: Mapping[Line, Line]) -> None:
        self._run = run
        self._lines = lines
        self._frames = {frame.id: frame for frame in run.frames}
        self._refused: defaultdict[str, list[Skipped]] = defaultdict(list)
        for skipped in run.skipped:
            if skipped.break_ is not None and skipped.frame is None:
                self._refused[skipped.break_].append(skipped)
        self._cells = {source.id for source in run.sources if source.kind == "cell"}
        self._texts = [segment.text for source in other.sources if source.kind == "cell" for segment in source.segments]
        self._names = _names(run)
        names_of_other = _names(other)
        others = [(_identity(frame, names_of_other), frame) for frame in other.frames]
        begun = {function for function, _ in others}
        refused = {_identity(skipped, names_of_other) for skipped in other.skipped}
        #: What the other run may have had from earlier, whether or not it compiled a further version of it.
        self._held = (
            {_identity(frame, self._names) for frame in run.frames} - begun
            if other.held is None
            else {_Function(held.source, held.function, held.line) for held in other.held}
        )
        self._silent = self._held - begun - refused
        #: What the other run compiled from nothing.
        self._afresh = [frame for function, frame in others if function not in self._held]
        self.hidden = [found for found in only_here if self._may_be_met(found)]
        self._hidden = set(map(id, self.hidden))
        gone = [part for found in only_here if id(found) not in self._hidden for part in self._parts(found)]
        self._gone = {_identity(part, self._names) for part in gone}

    @property
    def functions(self) -> list[Frame | Skipped]:
        """The functions that the other run did not compile, each once, those of hidden breaks first."""
        of_breaks = [
            part for found in self.hidden for part in self._parts(found) if _identity(part, self._names) in self._held
        ]
        silent = [frame for frame in self._run.frames if self._is_left_out(frame)]
        listed: dict[_Function, Frame | Skipped] = {}
        for part in [*of_breaks, *silent]:
            listed.setdefault(_identity(part, self._names), part)
        return list(listed.values())

    @property
    def hides_something(self) -> bool:
        """Whether there is anything of the run that the other did not compile because PyTorch held it."""
        parts: list[Frame | Skipped] = [*self._run.frames, *self._run.skipped]
        return bool(self.hidden) or any(map(self._is_left_out, parts))

    def figures(self) -> tuple[Summary, Timing]:
        """Return the figures of what the other run compiled as well."""
        run = self._run
        left_out = {frame.id for frame in run.frames if self._is_left_out(frame)}
        frames = [frame for frame in run.frames if frame.id not in left_out]
        graphs = [graph for graph in run.graphs if graph.frame not in left_out]
        breaks = [found for found in run.breaks if id(found) not in self._hidden]
        spent = [frame.compile_s for frame in frames if frame.compile_s is not None]
        return (
            Summary(
                frames=len(frames),
                graphs=len(graphs),
                ops=sum(len(graph.ops) for graph in graphs),
                breaks=len(breaks),
                events=sum(event.frame not in left_out for found in breaks for event in found.occurrences),
                resumes=sum(bool(set(resume.frames) - left_out) for resume in run.resumes),
                skipped=sum(not self._is_left_out(skipped) for skipped in run.skipped),
                recompiles=sum(not {again.frame, again.of} & left_out for again in run.recompiles),
                errors=sum(frame.outcome == "error" for frame in frames),
            ),
            Timing(compile_s=sum(spent) if spent else None),
        )

    def _is_left_out(self, part: Frame | Skipped) -> bool:
        """Whether the other run had a function from earlier, as far as one can see, and did not compile it."""
        function = _identity(part, self._names)
        return function in self._silent and function not in self._gone

    def _may_be_met(self, found: Break) -> bool:
        """Whether the other run may have met a break unseen, in code that it had from earlier."""
        parts = self._parts(found)
        held = any(_identity(part, self._names) in self._held for part in parts)
        return held and not self._was_traced(parts) and not self._is_not_called(found)

    def _parts(self, found: Break) -> list[Frame | Skipped]:
        """Return the frames in which a break was met, and the functions that PyTorch did not begin because of it."""
        idents = dict.fromkeys(occurrence.frame for occurrence in found.occurrences if occurrence.frame is not None)
        refused = self._refused.get(found.id, ())
        return [*(self._frames[ident] for ident in idents if ident in self._frames), *refused]

    def _was_traced(self, parts: list[Frame | Skipped]) -> bool:
        """Whether the other run traced anew, to its end, what led to a break, and so would have met it."""
        begins = {self._lines.get(line) for part in parts if (line := _first_line(part)) is not None}
        functions = {part.function for part in parts}
        again = [frame for frame in self._afresh if frame.function in functions and _first_line(frame) in begins]
        return bool(again) and all(frame.outcome in _TRACED for frame in again)

    def _is_not_called(self, found: Break) -> bool:
        """Whether the other run's cells lack a call that led to a break: the text before its first bracket."""
        called = {
            place.code.partition("(")[0].strip()
            for occurrence in found.occurrences
            for place in occurrence.stack
            if place.source in self._cells and place.code is not None and "(" in place.code
        }
        calls = [re.compile(rf"(?<!\w){re.escape(name)}\s*\(") for name in called if name]
        return bool(self._texts) and any(not any(call.search(text) for text in self._texts) for call in calls)


def _names(report: Report) -> dict[str, str]:
    """Return what each source is known by as long as nobody edits it."""
    return {source.id: source.path or source.name for source in reversed(report.sources)}


def _identity(part: Frame | Skipped, names: Mapping[str, str]) -> _Function:
    """Return what a function is known by as long as nobody edits it."""
    place = part.location
    if place is None or place.source not in names:
        return _Function("?", part.function, place.line if place is not None else 0)
    return _Function(names[place.source], part.function, place.line)


def _first_line(part: Frame | Skipped) -> Line | None:
    return (part.location.source, part.location.line) if part.location is not None else None

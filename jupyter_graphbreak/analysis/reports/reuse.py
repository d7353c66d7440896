"""Find the code that one of two runs may have reused from earlier, so that this run has no record of it.

PyTorch does not compile a function again if it still holds the compiled code, so the function's breaks and graphs are
not reported again. Their absence does not mean that they are gone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.report.figures import Summary, Timing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_graphbreak.report.schema import Break, Frame, Report, Skipped

Line = tuple[str, int]  # source id, line number
#: Outcomes of frames that were traced to the end.
_TRACED = {"compiled", "empty"}


class _Function(NamedTuple):
    """Identifies a function whose code is the same in both runs."""

    source: str
    function: str
    line: int


class Reuse:
    """The parts of one run that the other run may have reused from earlier.

    Parameters
    ----------
    run : Report
        The run that compiled something.
    other : Report
        The earlier or later run that may have reused code instead.
    only_here : list of Break
        The breaks of the run that the other does not report.
    lines : mapping
        The corresponding lines of the other run, by the lines of the run.

    Attributes
    ----------
    hidden : list of Break
        Those of ``only_here`` that may have occurred unseen in the other run.
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
        other_frames = [(_identity(frame, names_of_other), frame) for frame in other.frames]
        begun = {function for function, _ in other_frames}
        refused = {_identity(skipped, names_of_other) for skipped in other.skipped}
        #: Functions that the other run may have reused, even if it compiled a further version of them.
        self._held = (
            {_identity(frame, self._names) for frame in run.frames} - begun
            if other.held is None
            else {_Function(held.source, held.function, held.line) for held in other.held}
        )
        self._reused = self._held - begun - refused
        #: Frames that the other run compiled from scratch.
        self._compiled_afresh = [frame for function, frame in other_frames if function not in self._held]
        self.hidden = [break_ for break_ in only_here if self._may_be_hidden(break_)]
        self._hidden = set(map(id, self.hidden))
        gone = [part for break_ in only_here if id(break_) not in self._hidden for part in self._parts(break_)]
        self._gone = {_identity(part, self._names) for part in gone}

    @property
    def functions(self) -> list[Frame | Skipped]:
        """The functions that the other run did not compile, each once, those with hidden breaks first."""
        of_breaks = [
            part for break_ in self.hidden for part in self._parts(break_) if _identity(part, self._names) in self._held
        ]
        silent = [frame for frame in self._run.frames if self._is_left_out(frame)]
        unique: dict[_Function, Frame | Skipped] = {}
        for part in [*of_breaks, *silent]:
            unique.setdefault(_identity(part, self._names), part)
        return list(unique.values())

    @property
    def hides_something(self) -> bool:
        """Whether the other run may have reused any part of the run."""
        parts: list[Frame | Skipped] = [*self._run.frames, *self._run.skipped]
        return bool(self.hidden) or any(map(self._is_left_out, parts))

    def figures(self) -> tuple[Summary, Timing]:
        """Return the figures of the part of the run that the other run compiled as well."""
        run = self._run
        left_out = {frame.id for frame in run.frames if self._is_left_out(frame)}
        frames = [frame for frame in run.frames if frame.id not in left_out]
        graphs = [graph for graph in run.graphs if graph.frame not in left_out]
        breaks = [break_ for break_ in run.breaks if id(break_) not in self._hidden]
        spent = [frame.compile_s for frame in frames if frame.compile_s is not None]
        return (
            Summary(
                frames=len(frames),
                graphs=len(graphs),
                ops=sum(len(graph.ops) for graph in graphs),
                breaks=len(breaks),
                events=sum(event.frame not in left_out for break_ in breaks for event in break_.occurrences),
                resumes=sum(bool(set(resume.frames) - left_out) for resume in run.resumes),
                skipped=sum(not self._is_left_out(skipped) for skipped in run.skipped),
                recompiles=sum(not {recompile.frame, recompile.of} & left_out for recompile in run.recompiles),
                errors=sum(frame.outcome == "error" for frame in frames),
            ),
            Timing(compile_s=sum(spent) if spent else None),
        )

    def _is_left_out(self, part: Frame | Skipped) -> bool:
        """Return whether the other run seems to have reused a function instead of compiling it."""
        function = _identity(part, self._names)
        return function in self._reused and function not in self._gone

    def _may_be_hidden(self, break_: Break) -> bool:
        """Return whether a break may have occurred unseen in the other run, in reused code."""
        parts = self._parts(break_)
        held = any(_identity(part, self._names) in self._held for part in parts)
        return held and not self._was_traced(parts) and not self._is_not_called(break_)

    def _parts(self, break_: Break) -> list[Frame | Skipped]:
        """Return the frames in which a break occurred, and the functions that PyTorch did not begin because of it."""
        idents = dict.fromkeys(occurrence.frame for occurrence in break_.occurrences if occurrence.frame is not None)
        refused = self._refused.get(break_.id, ())
        return [*(self._frames[ident] for ident in idents if ident in self._frames), *refused]

    def _was_traced(self, parts: list[Frame | Skipped]) -> bool:
        """Return whether the other run traced the code that led to a break to the end, so it would have reported it."""
        begins = {self._lines.get(line) for part in parts if (line := _first_line(part)) is not None}
        functions = {part.function for part in parts}
        compiled = [
            frame for frame in self._compiled_afresh if frame.function in functions and _first_line(frame) in begins
        ]
        return bool(compiled) and all(frame.outcome in _TRACED for frame in compiled)

    def _is_not_called(self, break_: Break) -> bool:
        """Return whether the other run's cells lack a call that led to a break, by the text before its bracket."""
        called = {
            place.code.partition("(")[0].strip()
            for occurrence in break_.occurrences
            for place in occurrence.stack
            if place.source in self._cells and place.code is not None and "(" in place.code
        }
        calls = [re.compile(rf"(?<!\w){re.escape(name)}\s*\(") for name in called if name]
        return bool(self._texts) and any(not any(call.search(text) for text in self._texts) for call in calls)


def _names(report: Report) -> dict[str, str]:
    """Return for each source a name that stays the same as long as the source is not edited."""
    return {source.id: source.path or source.name for source in reversed(report.sources)}


def _identity(part: Frame | Skipped, names: Mapping[str, str]) -> _Function:
    """Return the identity of a function, which stays the same as long as the function is not edited."""
    place = part.location
    if place is None or place.source not in names:
        return _Function("?", part.function, place.line if place is not None else 0)
    return _Function(names[place.source], part.function, place.line)


def _first_line(part: Frame | Skipped) -> Line | None:
    return (part.location.source, part.location.line) if part.location is not None else None

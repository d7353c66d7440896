"""Short names of the things in a report, for the ids and links of its markup.

An element's id is the report's prefix and a *reference*: ``b1`` is the break with the number 1, ``g0`` the first graph,
``f``, ``r``, ``k``, ``y`` and ``c`` stand for frames, resume functions, skipped functions, recompiles and scopes,
``l0-14`` is line 14 of the first source. ``data-in`` of an element lists the references of what lights up with it. The
front end (``labextension/src/view/selection.ts``) reads both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.views.words.lines import break_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.report.schema import Break, Frame, Graph, Report, Resume, Scope, Skipped
    from jupyter_graphbreak.views.words.lines import Line
    from jupyter_graphbreak.views.words.recompilation import Recompilation


class References:
    """The references of one report; the empty string for what is not in it."""

    def __init__(self, report: Report) -> None:
        self._sources = {source.id: index for index, source in enumerate(report.sources)}
        self._breaks = break_numbers(report)
        self._graphs = _numbered("g", report.graphs)
        self._frames = _numbered("f", report.frames)
        self._resumes = _numbered("r", report.resumes)
        self._skipped = _numbered("k", report.skipped)
        self._scopes = _numbered("c", report.scopes)
        self._resumes_by_id = {resume.id: resume for resume in report.resumes}

    def graph(self, ident: str) -> str:
        """Return the reference of a graph."""
        return self._graphs.get(ident, "")

    def frame(self, ident: str | None) -> str:
        """Return the reference of a frame."""
        return self._frames.get(ident or "", "")

    def skipped(self, ident: str) -> str:
        """Return the reference of a skipped function."""
        return self._skipped.get(ident, "")

    def scope(self, ident: str | None) -> str:
        """Return the reference of a scope."""
        return self._scopes.get(ident or "", "")

    def break_(self, ident: str | None) -> str:
        """Return the reference of a break."""
        return f"b{self._breaks[ident]}" if ident in self._breaks else ""

    def line(self, place: Location | None) -> str:
        """Return the reference of a line, whether or not the report holds the line."""
        if place is None or place.source not in self._sources:
            return ""
        return f"l{self._sources[place.source]}-{place.line}"

    # What lights up with them.

    def around_line(self, line: Line) -> str:
        """Return the references of what happened on a line and of what is around it."""
        return _join(
            (f"b{mark.number}" for mark in line.breaks),
            (f"b{number}" for number in line.leads_to),
            map(self.graph, line.graphs),
            [self.scope(line.scope.id) if line.scope else ""],
            [self.skipped(line.eager.id) if line.eager else ""],
        )

    def around_break(self, listed: Break) -> str:
        """Return the references of its line, of where it goes on after it, and of what runs eagerly because of it."""
        resumes = [self._resumes_by_id[ident] for ident in listed.resumes if ident in self._resumes_by_id]
        return _join(
            [self.line(listed.location)],
            (self._resumes[resume.id] for resume in resumes),
            (self.line(resume.location) for resume in resumes),
            (self.graph(ident) for resume in resumes for ident in resume.graphs),
            map(self.skipped, listed.skipped),
            [self.scope(listed.scope)],
        )

    def around_graph(self, graph: Graph) -> str:
        """Return the references of the first line of a graph and of its frame."""
        first = [Location(line.source, line.line, line.line) for line in graph.lines[:1]]
        return _join(map(self.line, first), [self.frame(graph.frame)])

    def around_frame(self, frame: Frame) -> str:
        """Return the references of what a frame holds."""
        return _join([self.line(frame.location)], map(self.graph, frame.graphs), map(self.break_, frame.breaks))

    def around_resume(self, resume: Resume) -> str:
        """Return the references of the break that made it, and of what it became."""
        return _join(
            [self.line(resume.location), self.break_(resume.break_)],
            map(self.frame, resume.frames),
            map(self.graph, resume.graphs),
        )

    def around_skipped(self, skipped: Skipped) -> str:
        """Return the references of the function, its frame and the break because of which it runs eagerly."""
        return _join([self.line(skipped.location), self.frame(skipped.frame), self.break_(skipped.break_)])

    def around_recompilation(self, again: Recompilation) -> str:
        """Return the references of the function, its frames and the line of the guard that did not hold."""
        return _join([self.line(again.location)], map(self.frame, again.frames), [self.line(again.guard_at)])

    def around_scope(self, scope: Scope) -> str:
        """Return the references of its first line and of the breaks that it governs."""
        return _join([self.line(scope.location)], map(self.break_, scope.breaks))


def _numbered(letter: str, things: Iterable[Graph | Frame | Resume | Skipped | Scope]) -> dict[str, str]:
    return {thing.id: f"{letter}{index}" for index, thing in enumerate(things)}


def _join(*groups: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(reference for group in groups for reference in group if reference))

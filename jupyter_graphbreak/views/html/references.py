"""Make short names of the parts of a report, for the ids and links of its markup.

An element's id is the prefix of the report followed by a *reference*: ``b1`` is break 1, ``g0`` the first graph, and
``l0-14`` line 14 of the first source. The letters of frames, resume functions, skipped functions, recompiled functions,
path differences and scopes are ``f``, ``r``, ``k``, ``y``, ``p`` and ``c``. The attribute ``data-in`` lists the
references of related elements, which are highlighted together. The front end
(``labextension/src/view/selection.ts``) reads both.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.views.html.highlight import escape_html
from jupyter_graphbreak.views.words.lines import break_numbers, graph_colors
from jupyter_graphbreak.views.words.locations import function_of
from jupyter_graphbreak.views.words.paths import decision_location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jupyter_graphbreak.report.schema import Break, Frame, Graph, PathDifference, Report, Resume, Scope, Skipped
    from jupyter_graphbreak.views.words.lines import Line
    from jupyter_graphbreak.views.words.recompilation import Recompilation

#: The maximum number of related elements of each kind to highlight together with an element.
_MAX_RELATED_ELEMENTS = 100


class References:
    """The references of one report; a reference to a part that the report lacks is an empty string."""

    def __init__(self, report: Report) -> None:
        self._sources = {source.id: index for index, source in enumerate(report.sources)}
        self._breaks = break_numbers(report)
        self._graphs = _numbered_references("g", report.graphs)
        self._frames = _numbered_references("f", report.frames)
        self._resumes = _numbered_references("r", report.resumes)
        self._skipped_functions = _numbered_references("k", report.skipped)
        self._scopes = _numbered_references("c", report.scopes)
        self._resumes_by_id = {resume.id: resume for resume in report.resumes}

    def graph(self, ident: str) -> str:
        """Return the reference of a graph."""
        return self._graphs.get(ident, "")

    def frame(self, ident: str | None) -> str:
        """Return the reference of a frame."""
        return self._frames.get(ident or "", "")

    def skipped_function(self, ident: str) -> str:
        """Return the reference of a skipped function."""
        return self._skipped_functions.get(ident, "")

    def scope(self, ident: str | None) -> str:
        """Return the reference of a scope."""
        return self._scopes.get(ident or "", "")

    def break_(self, ident: str | None) -> str:
        """Return the reference of a break."""
        return f"b{self._breaks[ident]}" if ident in self._breaks else ""

    def line(self, location: Location | None) -> str:
        """Return the reference of a line, whether or not the report contains the line."""
        if location is None or location.source not in self._sources:
            return ""
        return f"l{self._sources[location.source]}-{location.line}"

    # References of related elements.

    def related_to_line(self, line: Line) -> str:
        """Return the references of the annotations of a line."""
        return _join_references(
            (f"b{mark.number}" for mark in line.breaks),
            (f"b{number}" for number in line.leads_to),
            map(self.graph, line.graphs),
            [self.scope(line.scope.id) if line.scope else ""],
            [self.skipped_function(line.eager.id) if line.eager else ""],
        )

    def related_to_break(self, break_: Break) -> str:
        """Return the references of a break's line, resume functions with their graphs, eager functions and scope."""
        first = itertools.islice(break_.resumes, _MAX_RELATED_ELEMENTS)
        resumes = [self._resumes_by_id[ident] for ident in first if ident in self._resumes_by_id]
        return _join_references(
            [self.line(break_.location)],
            (self._resumes[resume.id] for resume in resumes),
            (self.line(resume.location) for resume in resumes),
            (self.graph(ident) for resume in resumes for ident in resume.graphs),
            map(self.skipped_function, break_.skipped),
            [self.scope(break_.scope)],
        )

    def related_to_graph(self, graph: Graph) -> str:
        """Return the references of a graph's first line and of its frame."""
        first = [Location(line.source, line.line, line.line) for line in graph.lines[:1]]
        return _join_references(map(self.line, first), [self.frame(graph.frame)])

    def related_to_frame(self, frame: Frame) -> str:
        """Return the references of the line, graphs and breaks of a frame."""
        return _join_references(
            [self.line(frame.location)], map(self.graph, frame.graphs), map(self.break_, frame.breaks)
        )

    def related_to_resume(self, resume: Resume) -> str:
        """Return the references of the break, frames and graphs of a resume function."""
        return _join_references(
            [self.line(resume.location), self.break_(resume.break_)],
            map(self.frame, resume.frames),
            map(self.graph, resume.graphs),
        )

    def related_to_skipped_function(self, skipped: Skipped) -> str:
        """Return the references of an eager function's line and frame, and of the break that makes it run eagerly."""
        return _join_references([self.line(skipped.location), self.frame(skipped.frame), self.break_(skipped.break_)])

    def related_to_recompilation(self, recompilation: Recompilation) -> str:
        """Return the references of a recompiled function's line and frames, and of the lines of its failed guards."""
        guards = (self.line(location) for guard in recompilation.guards for location in guard.locations)
        return _join_references([self.line(recompilation.location)], map(self.frame, recompilation.frames), guards)

    def related_to_path(self, path: PathDifference) -> str:
        """Return the references of the line that decides a path, and of the lines that run only compiled or eagerly."""
        return _join_references([self.line(decision_location(path))], map(self.line, [*path.lines, *path.skipped]))

    def related_to_scope(self, scope: Scope) -> str:
        """Return the references for a scope's first line and its breaks."""
        return _join_references([self.line(scope.location)], map(self.break_, scope.breaks))


class Links:
    """Makes the markup of links to the parts of a report. A template would be too slow for so many links.

    The prefix is that of all ids in the report's markup.
    """

    def __init__(
        self, report: Report, prefix: str, references: References, has_line: Callable[[Location], bool]
    ) -> None:
        self._report = report
        self._prefix = prefix
        self._references = references
        self._has_line = has_line
        self._colors = graph_colors(report)
        self._sources = {source.id: "" if index == 0 else source.name for index, source in enumerate(report.sources)}
        # Most locations occur several times.
        self.line = cache(self._line)
        self.function = cache(self._function)
        self.location_text = cache(self._location_text)

    def source_name(self, location: Location) -> str:
        """Return the name of the source of a location; empty for the first source, which is the cell that ran."""
        return self._sources.get(location.source, location.source)

    def line_reference(self, location: Location) -> str:
        """Return the reference of a line; empty if the report does not contain the line."""
        return self._references.line(location) if self._has_line(location) else ""

    def line_and_source(self, location: Location) -> Markup:
        """Return a location as a link, without its function: "line 14", "line 660, modeling_bart.py"."""
        return self.line(location) + self._source_suffix(location)

    def full_location(self, location: Location) -> Markup:
        """Return a location as a link, with its function: "line 14 in step"."""
        function = self.function(location)
        function_markup = Markup(f" in <code>{escape_html(function)}</code>") if function else ""  # noqa: S704 - the text is escaped
        return self.line(location) + function_markup + self._source_suffix(location)

    def graph(self, ident: str) -> Markup:
        """Return the letter of a graph as a link."""
        css_class = f"gb-letter gb-c{self._colors.get(ident, 0)}"
        return self._link(self._references.graph(ident), ident, f'class="{css_class}" ')

    def frame(self, ident: str) -> Markup:
        """Return the id of a frame, as a link if the report contains the frame."""
        reference = self._references.frame(ident)
        return self._link(reference, ident) if reference else Markup(escape_html(ident))  # noqa: S704 - the text is escaped

    def break_(self, number: int) -> Markup:
        """Return the number of a break as a link."""
        return self._link(f"b{number}", f"✂{number}", 'class="gb-cut" ')

    def _line(self, location: Location) -> Markup:
        """Return the line of a location, as a link if the report contains the line."""
        reference, text = self.line_reference(location), f"line {location.line}"
        return self._link(reference, text) if reference else Markup(text)  # noqa: S704 - the line is a number

    def _function(self, location: Location) -> str:
        """Return the function that contains a location, with its class; empty for top-level code."""
        name = function_of(self._report, location)
        return "" if name == "<module>" else name

    def _location_text(self, location: Location) -> str:
        """Return a location as text, without a link."""
        lines = (
            f"lines {location.line} to {location.end_line}"
            if location.end_line > location.line
            else f"line {location.line}"
        )
        function, source = self.function(location), self.source_name(location)
        return lines + (f" in {function}" if function else "") + (f", {source}" if source else "")

    def _source_suffix(self, location: Location) -> Markup:
        name = self.source_name(location)
        return Markup(f", {escape_html(name)}" if name else "")  # noqa: S704 - the text is escaped

    def _link(self, reference: str, text: str, attributes: str = "") -> Markup:
        return Markup(  # noqa: S704 - the text is escaped
            f'<a {attributes}href="#{self._prefix}{reference}">{escape_html(text)}</a>'
        )


def _numbered_references(letter: str, parts: Iterable[Graph | Frame | Resume | Skipped | Scope]) -> dict[str, str]:
    return {part.id: f"{letter}{index}" for index, part in enumerate(parts)}


def _join_references(*groups: Iterable[str]) -> str:
    # Read each group only up to the limit.
    first = (reference for group in groups for reference in itertools.islice(group, _MAX_RELATED_ELEMENTS))
    return " ".join(dict.fromkeys(reference for reference in first if reference))

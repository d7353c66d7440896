"""Source lines with what happened on them: which graphs they went into, where these broke, what ran eagerly.

Every view lists sources; what is to be said about a line is worked out here, once, from the report alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.report.location import Location, Segment, Source
    from jupyter_graphbreak.report.schema import Break, Report, Scope, Skipped

#: How many colours the views have for graphs; after the last they start anew, told apart by their letters.
COLOURS = 8


@dataclass(frozen=True, slots=True)
class BreakMark:
    """The part of one line that a break stands on.

    Parameters
    ----------
    id : str
        The id of the break.
    number : int
        The number under which people see it everywhere.
    start, end : int
        Columns of the line, 0-based, ``end`` exclusive.
    last : bool
        Whether the expression ends on this line; notes about the break belong below it.
    """

    id: str
    number: int
    start: int
    end: int
    last: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a source.

    Parameters
    ----------
    number : int
        As the editor counts it.
    graphs : tuple of str
        Letters of the graphs that hold operations of this line, in the order of the report.
    breaks : tuple of BreakMark
        From left to right.
    leads_to : tuple of int
        Numbers of the breaks further down a call on this line.
    scope : Scope or None
        The innermost scope around the line.
    eager : Skipped or None
        The function, or the rest of a function, around the line that runs eagerly.
    """

    number: int
    text: str
    graphs: tuple[str, ...] = ()
    breaks: tuple[BreakMark, ...] = ()
    leads_to: tuple[int, ...] = ()
    scope: Scope | None = None
    eager: Skipped | None = None

    @property
    def marked(self) -> bool:
        """Whether anything happened on it."""
        return bool(self.graphs or self.breaks or self.leads_to or self.eager)


def ordered_breaks(report: Report) -> list[Break]:
    """Return the breaks as a person reads them: what to fix first. An older report has them as they happened."""
    places = {ident: place for place, ident in enumerate(report.order)}
    return sorted(report.breaks, key=lambda listed: places.get(listed.id, len(places)))


def break_numbers(report: Report) -> dict[str, int]:
    """Return the number of each break, by its id: 1 for the first that a person reads."""
    return {listed.id: number for number, listed in enumerate(ordered_breaks(report), start=1)}


def graph_colours(report: Report) -> dict[str, int]:
    """Return the colour of each graph, by its id: a number from 0 to ``COLOURS - 1``."""
    return {graph.id: index % COLOURS for index, graph in enumerate(report.graphs)}


def listing(report: Report, source: Source) -> list[Line]:
    """Return the lines of a source that the report holds, each with what happened on it.

    Where the report holds only some functions of a file, the numbers of the lines have gaps. Of the line of a break
    that is in none of them there is at least the code of the break.
    """
    lines = {number: Line(number, code) for number, code in _breaks_with_code(report, source)}
    lines.update((line.number, line) for segment in source.segments for line in _plain_lines(segment))
    graphs = _graphs_by_line(report, source)
    breaks = _marks_by_line(report, source, lines)
    leads_to = _calls_by_line(report, source)
    scopes = _scopes_by_line(report, source)
    eager = _eager_by_line(report, source, lines)
    return [
        replace(
            lines[number],
            graphs=tuple(graphs.get(number, ())),
            breaks=tuple(sorted(breaks.get(number, ()), key=lambda mark: (mark.start, mark.number))),
            leads_to=tuple(leads_to.get(number, ())),
            scope=scopes.get(number),
            eager=eager.get(number),
        )
        for number in sorted(lines)
    ]


def _plain_lines(segment: Segment) -> Iterator[Line]:
    # Not splitlines(): editors and Python's own numbering end a line at "\n" only.
    for number, text in enumerate(segment.text.split("\n"), start=segment.first_line):
        yield Line(number, text.removesuffix("\r"))


def _breaks_with_code(report: Report, source: Source) -> Iterator[tuple[int, str]]:
    for listed in report.breaks:
        place = listed.location
        if place is not None and place.source == source.id and place.code:
            yield place.line, place.code.partition("\n")[0]


def _graphs_by_line(report: Report, source: Source) -> dict[int, list[str]]:
    by_line: dict[int, list[str]] = {}
    for graph in report.graphs:
        own = {line.line for line in graph.lines if line.source == source.id}
        # Lines of libraries are not in ``lines``; where such a source is listed all the same, its operations tell.
        own.update(op.location.line for op in graph.ops if op.location and op.location.source == source.id)
        for number in own:
            by_line.setdefault(number, []).append(graph.id)
    return by_line


def _marks_by_line(report: Report, source: Source, lines: dict[int, Line]) -> dict[int, list[BreakMark]]:
    by_line: dict[int, list[BreakMark]] = {}
    for number, listed in enumerate(ordered_breaks(report), start=1):
        place = listed.location
        if place is None or place.source != source.id:
            continue
        for at in range(place.line, place.end_line + 1):
            if at in lines:
                start, end = _columns(place, at, lines[at].text)
                by_line.setdefault(at, []).append(BreakMark(listed.id, number, start, end, last=at == place.end_line))
    return by_line


def _columns(place: Location, number: int, text: str) -> tuple[int, int]:
    """Return the part of one line that belongs to a range; without columns all but the indentation."""
    stripped = text.rstrip()
    start, end = len(stripped) - len(stripped.lstrip()), len(stripped)
    if place.column is not None and number == place.line:
        start = min(place.column, len(text))
    if place.end_column is not None and number == place.end_line:
        end = min(place.end_column, len(text))
    return start, max(start, end)


def _calls_by_line(report: Report, source: Source) -> dict[int, list[int]]:
    by_line: dict[int, list[int]] = {}
    for number, listed in enumerate(ordered_breaks(report), start=1):
        stacks = [listed.stack, *(occurrence.stack for occurrence in listed.occurrences)]
        passed = {place.line for stack in stacks for place in stack if place.source == source.id}
        if listed.location is not None and listed.location.source == source.id:
            passed -= set(range(listed.location.line, listed.location.end_line + 1))
        for line in passed:
            by_line.setdefault(line, []).append(number)
    return by_line


def _scopes_by_line(report: Report, source: Source) -> dict[int, Scope]:
    regions = [
        (scope.location.end_line - scope.location.line, scope.location, scope)
        for scope in report.scopes
        if scope.location is not None and scope.location.source == source.id
    ]
    # The largest first, so that what lies within them takes their place.
    regions.sort(key=lambda region: -region[0])
    return {line: scope for _, place, scope in regions for line in range(place.line, place.end_line + 1)}


def _eager_by_line(report: Report, source: Source, lines: dict[int, Line]) -> dict[int, Skipped]:
    places = ((skipped.location, skipped) for skipped in report.skipped)
    here = [(place, skipped) for place, skipped in places if place is not None and place.source == source.id]
    return {line: skipped for place, skipped in here for line in lines if place.line <= line <= place.end_line}

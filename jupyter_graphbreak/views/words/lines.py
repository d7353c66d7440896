"""Annotate source lines with their graphs and breaks, and with the functions around them that run eagerly.

All views that show sources use these lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from jupyter_graphbreak.views.words.lookup import per_report
from jupyter_graphbreak.views.words.paths import decision_location, ordered_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyter_graphbreak.report.location import Location, Segment, Source
    from jupyter_graphbreak.report.schema import Break, PathDifference, Report, Scope, Skipped

#: The number of graph colours. Colours repeat; the letters distinguish graphs of the same colour.
COLOR_COUNT = 8
#: The maximum number of breaks that are marked on one line; the others are counted.
_MAX_MARKS = 50
#: The maximum number of lines that are marked at the beginning of a long expression; its last line is marked as well.
_MAX_MARKED_LINES = 200
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class BreakMark:
    """The part of one line that a break covers, and whether it is the last line of the expression, above the notes."""

    id: str
    number: int
    start: int
    end: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a source."""

    number: int
    text: str
    #: Letters of the graphs that contain operations of this line, in the order of the report.
    graphs: tuple[str, ...] = ()
    #: The marked breaks, from left to right; ``further_break_count`` counts those beyond the limit.
    breaks: tuple[BreakMark, ...] = ()
    further_break_count: int = 0
    #: Numbers of the breaks that occur further down in a call on this line.
    leads_to: tuple[int, ...] = ()
    #: The innermost scope around the line.
    scope: Scope | None = None
    #: The eager function, or the eager rest of a function, that contains the line.
    eager: Skipped | None = None
    #: The first path difference whose test is on the line.
    path: PathDifference | None = None

    @property
    def is_annotated(self) -> bool:
        """Whether the line has an annotation other than its scope."""
        return bool(self.graphs or self.breaks or self.leads_to or self.eager or self.path)


@per_report
def ordered_breaks(report: Report) -> list[Break]:
    """Return the breaks in the order in which to fix them; breaks that ``report.order`` lacks come last."""
    positions = {ident: position for position, ident in enumerate(report.order)}
    return sorted(report.breaks, key=lambda break_: positions.get(break_.id, len(positions)))


@per_report
def break_numbers(report: Report) -> dict[str, int]:
    """Return the number of each break by its id, counted from 1 in the order in which to fix the breaks."""
    return {break_.id: number for number, break_ in enumerate(ordered_breaks(report), start=1)}


def graph_colors(report: Report) -> dict[str, int]:
    """Return the index of each graph's colour, by the id of the graph: a number from 0 to ``COLOR_COUNT - 1``."""
    return {graph.id: index % COLOR_COUNT for index, graph in enumerate(report.graphs)}


def annotated_lines(report: Report, source: Source) -> list[Line]:
    """Return the annotated lines of a source.

    If the report contains only some functions of a file, there are gaps between the line numbers. If it lacks the text
    of a line with a break, the first line of the code of the break is used.
    """
    annotations = _annotations_by_source(report).get(source.id, _Annotations())
    locations = [location for _, location, _ in annotations.breaks]
    lines = {
        location.line: Line(location.line, location.code.partition("\n")[0]) for location in locations if location.code
    }
    lines.update((line.number, line) for segment in source.segments for line in _plain_lines(segment))
    numbers = sorted(lines)
    breaks = _marks_by_line(annotations, lines)
    scopes = _scopes_by_line(annotations, numbers)
    eager = _first_region_by_line(reversed(annotations.eager), numbers)
    paths = _paths_by_line(report)
    return [
        replace(
            lines[number],
            graphs=tuple(annotations.graphs.get(number, ())),
            breaks=tuple(sorted(breaks.get(number, _NO_MARKS).marks, key=lambda mark: (mark.start, mark.number))),
            further_break_count=breaks.get(number, _NO_MARKS).further_count,
            leads_to=tuple(annotations.calls.get(number, ())),
            scope=scopes.get(number),
            eager=eager.get(number),
            path=paths.get((source.id, number)),
        )
        for number in numbers
    ]


@dataclass(slots=True)
class _Annotations:
    """The annotations of one source.

    Breaks have a number, a location and an id. Graphs are letters, by line, as keys in order. Calls are numbers of
    breaks that occur further down in a call, by its line.
    """

    breaks: list[tuple[int, Location, str]] = field(default_factory=list)
    graphs: dict[int, dict[str, None]] = field(default_factory=dict)
    calls: dict[int, list[int]] = field(default_factory=dict)
    scopes: list[tuple[Location, Scope]] = field(default_factory=list)
    eager: list[tuple[Location, Skipped]] = field(default_factory=list)


@per_report
def _annotations_by_source(report: Report) -> dict[str, _Annotations]:
    """Return the annotations of each source, by the id of the source, computed in one pass over the report."""
    by_source: defaultdict[str, _Annotations] = defaultdict(_Annotations)
    for number, break_ in enumerate(ordered_breaks(report), start=1):
        location = break_.location
        if location is not None:
            by_source[location.source].breaks.append((number, location, break_.id))
        source_of_break = location.source if location is not None else None
        first, last = (location.line, location.end_line) if location is not None else (0, -1)
        stacks = [break_.stack, *(occurrence.stack for occurrence in break_.occurrences)]
        for source, line in dict.fromkeys((call.source, call.line) for stack in stacks for call in stack):
            if source != source_of_break or not first <= line <= last:
                by_source[source].calls.setdefault(line, []).append(number)
    for graph in report.graphs:
        # ``graph.lines`` leaves out lines of libraries; if the library is shown, its operations have their locations.
        lines = {(line.source, line.line) for line in graph.lines}
        lines.update((op.location.source, op.location.line) for op in graph.ops if op.location is not None)
        for source, line in lines:
            by_source[source].graphs.setdefault(line, {})[graph.id] = None
    for scope in report.scopes:
        if scope.location is not None:
            by_source[scope.location.source].scopes.append((scope.location, scope))
    for skipped in report.skipped:
        if skipped.location is not None:
            by_source[skipped.location.source].eager.append((skipped.location, skipped))
    return dict(by_source)


@per_report
def _paths_by_line(report: Report) -> dict[tuple[str, int], PathDifference]:
    """Return the first path difference whose test is on a line, by the source id and the line."""
    tests_and_paths = ((decision_location(path), path) for path in reversed(ordered_paths(report)))
    return {(test.source, test.line): path for test, path in tests_and_paths if test is not None}


def _plain_lines(segment: Segment) -> Iterator[Line]:
    # Not splitlines(): it also splits at characters such as form feeds, which end no line in editors and in Python.
    for number, text in enumerate(segment.text.split("\n"), start=segment.first_line):
        yield Line(number, text.removesuffix("\r"))


@dataclass(slots=True)
class _LineMarks:
    """The marked breaks of a line, and the number of breaks beyond the limit."""

    marks: list[BreakMark] = field(default_factory=list)
    further_count: int = 0


_NO_MARKS = _LineMarks()


def _marks_by_line(annotations: _Annotations, lines: dict[int, Line]) -> dict[int, _LineMarks]:
    by_line: dict[int, _LineMarks] = {}
    for number, location, ident in annotations.breaks:
        # Of a very long expression, only the beginning and the last line are marked.
        for number_of_line in (
            *range(location.line, min(location.end_line, location.line + _MAX_MARKED_LINES)),
            location.end_line,
        ):
            if number_of_line not in lines:
                continue
            marks_on_line = by_line.setdefault(number_of_line, _LineMarks())
            if len(marks_on_line.marks) >= _MAX_MARKS:
                marks_on_line.further_count += 1
                continue
            start, end = _columns_on_line(location, number_of_line, lines[number_of_line].text)
            is_last = number_of_line == location.end_line
            marks_on_line.marks.append(BreakMark(ident, number, start, end, is_last))
    return by_line


def _columns_on_line(location: Location, number: int, text: str) -> tuple[int, int]:
    """Return the columns that a location covers on one line; if they are unknown, all except the indentation."""
    stripped_text = text.rstrip()
    start, end = len(stripped_text) - len(stripped_text.lstrip()), len(stripped_text)
    if location.column is not None and number == location.line:
        start = min(location.column, len(text))
    if location.end_column is not None and number == location.end_line:
        end = min(location.end_column, len(text))
    return start, max(start, end)


def _scopes_by_line(annotations: _Annotations, numbers: list[int]) -> dict[int, Scope]:
    # Smaller scopes come first; of two scopes with the same size, the later one is inside the other and comes first.
    regions = annotations.scopes[::-1]
    regions.sort(key=lambda region: region[0].end_line - region[0].line)
    return _first_region_by_line(regions, numbers)


def _first_region_by_line(regions: Iterable[tuple[Location, _T]], numbers: list[int]) -> dict[int, _T]:
    """Return, for each line of a sorted list, the first region that contains it, in nearly linear time."""
    next_free = list(range(len(numbers) + 1))  # for each index, a later one without a region, or itself if it has none
    first_regions: dict[int, _T] = {}
    for location, region in regions:
        index = _find_next_free(next_free, bisect_left(numbers, location.line))
        while index < len(numbers) and numbers[index] <= location.end_line:
            first_regions[numbers[index]] = region
            next_free[index] = index + 1
            index = _find_next_free(next_free, index)
    return first_regions


def _find_next_free(next_free: list[int], index: int) -> int:
    end = index
    while next_free[end] != end:
        end = next_free[end]
    while next_free[index] != end:
        next_free[index], index = end, next_free[index]
    return end

"""Prepare source lines for the markup: gutters, coloured code, notes below lines, and folded lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.html.highlight import ColoredRange, colored_ranges, marked_code
from jupyter_graphbreak.views.html.references import References
from jupyter_graphbreak.views.words.aftermath import aftermath_in_function
from jupyter_graphbreak.views.words.lines import annotated_lines, graph_colors
from jupyter_graphbreak.views.words.paths import path_note
from jupyter_graphbreak.views.words.permission import scope_label
from jupyter_graphbreak.views.words.plain_text import join_words, without_backticks
from jupyter_graphbreak.views.words.reason import title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from markupsafe import Markup

    from jupyter_graphbreak.report.location import Source
    from jupyter_graphbreak.report.schema import Report, Scope
    from jupyter_graphbreak.views.words.lines import BreakMark, Line

#: The reader's sources with at most this many lines are shown without folding.
_MAX_UNFOLDED_LINES = 40
#: The minimum number of lines to fold in the reader's sources.
_MIN_FOLDED_LINES = 6
_MIN_FOLDED_LIBRARY_LINES = 3
#: The number of lines that stay visible around a break in the reader's sources.
_LINES_NEAR_BREAK = 3
#: The number of lines that stay visible around a break in a library.
_LINES_NEAR_LIBRARY_BREAK = 1
#: The number of lines that stay visible around a call that leads to a break.
_LINES_NEAR_CALL = 1
#: The number of graph letters that fit in the gutter of one line.
_MAX_LETTERS = 3
#: The number of graph letters that fit in the title of folded lines.
_MAX_TITLE_GRAPHS = 6
_DEFINITION = re.compile(r"\s*(?:@|(?:async\s+)?def\b|class\b)")
_MAX_NOTE_INDENT = 60
#: The maximum number of a line's breaks to number in its gutter.
_MAX_SIGNS = 20
#: The maximum number of a line's breaks to explain in notes below it.
_MAX_NOTES = 20


@dataclass(frozen=True, slots=True)
class LineNote:
    """A note about a break, shown below its line."""

    number: int
    text: str
    indent: str
    carets: str


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source line, ready for the markup. Spaces in the gutters align the columns without a style sheet.

    ``letters`` are those of the line's graphs, each with its colour; ``further_letter_count`` counts the graphs that do
    not fit. ``blank_gutters`` are those of the notes below the line. ``label`` says what the reader should know about
    the line: the scope that begins on it, the function that begins on it and runs eagerly, or the effect of a call
    whose result differs when compiled.
    """

    line: Line
    reference: str
    related_references: str
    number: str
    signs: str
    letters: list[tuple[str, int]]
    further_letter_count: int
    padding: str
    code: Markup
    classes: str
    label: str
    scope_class: str
    notes: list[LineNote]
    blank_gutters: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows, folded under a title if they are far from any break."""

    rows: list[SourceRow]
    is_folded: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class SourceListing:
    """A source with the rows of its shown lines; ``more_rows`` builds those of other lines on demand.

    ``line_numbers`` are those of all lines that the report contains; ``left_out_count`` of them are not shown.
    """

    index: int
    source: Source
    line_numbers: set[int]
    chunks: list[Chunk]
    left_out_count: int
    more_rows: Callable[[int, int], list[SourceRow]]
    is_open: bool


def list_sources(report: Report, limit: int) -> list[SourceListing]:
    """Return the sources with at most ``limit`` shown lines in total; libraries without breaks come last."""
    sources = []
    factory = _RowFactory(report)
    for index, source in enumerate(report.sources):
        rows = factory.rows_of_source(index, source)
        if not rows.lines:
            continue
        shown_rows = rows.rows_between(0, limit)
        sources.append(
            SourceListing(
                index=index,
                source=source,
                line_numbers={line.number for line in rows.lines},
                chunks=list(_split_into_chunks(shown_rows, source)),
                left_out_count=len(rows.lines) - len(shown_rows),
                more_rows=partial(_remaining_rows, rows, len(shown_rows)),
                is_open=source.kind != "library" or any(line.breaks for line in rows.lines),
            )
        )
        limit -= len(shown_rows)
    return sorted(sources, key=lambda listing: not listing.is_open)


def _remaining_rows(rows: _SourceRows, shown_count: int, start: int, stop: int) -> list[SourceRow]:
    return rows.rows_between(shown_count + start, shown_count + stop)


def scope_class(scope: Scope | None) -> str:
    """Return the CSS class of a scope."""
    return "" if scope is None else "gb-forbid" if scope.value else "gb-allow"


class _GutterWidths:
    """The widths of the three gutters of a source, in characters."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.number = max((len(str(line.number)) for line in lines), default=1) + 1
        self.signs = max((len(_break_signs(line)) for line in lines), default=0) + 1
        self.letters = max((_letters_width(line.graphs) for line in lines), default=1)


@dataclass(frozen=True, slots=True)
class _SourceRows:
    """The lines of a source, and a function that builds a row from a line and the scope of the line before it."""

    lines: list[Line]
    make_row: Callable[[Line, Scope | None], SourceRow]

    def rows_between(self, start: int, stop: int) -> list[SourceRow]:
        """Return the rows for a range of lines."""
        lines = self.lines[start:stop]
        scopes_before = [self.lines[start - 1].scope if start > 0 else None, *(line.scope for line in lines)]
        return list(map(self.make_row, lines, scopes_before))


class _RowFactory:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._references = References(report)
        self._colors = graph_colors(report)
        self._breaks = {break_.id: break_ for break_ in report.breaks}

    def rows_of_source(self, index: int, source: Source) -> _SourceRows:
        lines = annotated_lines(self._report, source)
        width = _GutterWidths(lines)
        colors = _ColoredRanges(source)

        def row(line: Line, scope_before: Scope | None) -> SourceRow:
            labels = [scope_label(line.scope)] if line.scope is not None and line.scope is not scope_before else []
            if line.eager and line.eager.location and line.eager.location.line == line.number:
                labels.append("runs eagerly")
            if line.path is not None:
                labels.append(path_note(line.path))
            return self._row(line, f"l{index}-{line.number}", colors.on_line(line.number), width, ", ".join(labels))

        return _SourceRows(lines, row)

    def _row(
        self, line: Line, reference: str, colors: list[ColoredRange], width: _GutterWidths, label: str
    ) -> SourceRow:
        shown_letters, more = _letters_in_gutter(line.graphs)
        classes = " gb-broken" if line.breaks else ""
        if line.eager:
            classes += " gb-hatch"
        elif line.graphs and not line.breaks:
            classes += f" gb-c{self._colors[line.graphs[0]]}"
        return SourceRow(
            line=line,
            reference=reference,
            related_references=self._references.related_to_line(line),
            number=str(line.number).rjust(width.number),
            signs=_break_signs(line).rjust(width.signs) + " ",
            letters=[(letter, self._colors[letter]) for letter in shown_letters],
            further_letter_count=more,
            padding=" " * (width.letters - _letters_width(line.graphs) + 1),
            code=marked_code(line.text, colors, [(mark.start, mark.end) for mark in line.breaks]),
            classes=classes,
            label=label,
            scope_class=scope_class(line.scope),
            notes=[self._note(line, mark) for mark in line.breaks if mark.is_last][:_MAX_NOTES],
            blank_gutters=(" " * width.number, " " * (width.signs + 1), " " * (width.letters + 1)),
        )

    def _note(self, line: Line, mark: BreakMark) -> LineNote:
        break_ = self._breaks[mark.id]
        aftermath_text = aftermath_in_function(self._report, break_)
        text = without_backticks(title_of(break_))
        if aftermath_text:
            text += f": {aftermath_text}" if break_.outcome == "error" else f" → {aftermath_text}"
        # The indentation has the same tabs as the line, so that the note is below its expression at any tab width.
        text_before = line.text[: min(mark.start, _MAX_NOTE_INDENT)]
        indent = "".join("\t" if char == "\t" else " " for char in text_before)
        return LineNote(mark.number, text, indent, "^" * min(mark.end - mark.start, _MAX_NOTE_INDENT))


def _break_signs(line: Line) -> str:
    signs = [f"✂{mark.number}" for mark in line.breaks]
    hidden_count = line.further_break_count + max(len(signs) - _MAX_SIGNS, 0)
    return "".join([*signs[:_MAX_SIGNS], *([f"+{hidden_count}"] if hidden_count else [])])


def _letters_in_gutter(graphs: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """Return the letters that fit in a gutter, and the number of those that do not."""
    shown_graphs = graphs if len(graphs) <= _MAX_LETTERS else graphs[: _MAX_LETTERS - 1]
    return shown_graphs, len(graphs) - len(shown_graphs)


def _letters_width(graphs: tuple[str, ...]) -> int:
    shown_letters, more = _letters_in_gutter(graphs)
    return sum(map(len, shown_letters)) + (len(f"+{more}") if more else 0)


class _ColoredRanges:
    """Computes the coloured ranges of source lines, only on demand because most lines are never shown."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._first_lines = [segment.first_line for segment in source.segments]
        self._lines_of_segment = cache(self._compute_segment)

    def on_line(self, number: int) -> list[ColoredRange]:
        """Return the coloured ranges of a line, given the line number."""
        index = bisect_right(self._first_lines, number) - 1
        if index < 0:
            return []
        lines, line_index = self._lines_of_segment(index), number - self._first_lines[index]
        return lines[line_index] if line_index < len(lines) else []

    def _compute_segment(self, index: int) -> list[list[ColoredRange]]:
        segment = self._source.segments[index]
        lines = colored_ranges(segment.text)
        if self._source.kind == "cell" and segment.first_line == 1 and segment.text.startswith("%%"):
            lines[0] = [(0, len(segment.text.partition("\n")[0]), "c")]
        return lines


def _split_into_chunks(rows: Sequence[SourceRow], source: Source) -> Iterator[Chunk]:
    """Split rows into chunks; rows far from any break are folded."""
    is_library = source.kind == "library"
    is_whole = len(rows) <= _MAX_UNFOLDED_LINES and not is_library
    distance = _LINES_NEAR_LIBRARY_BREAK if is_library else _LINES_NEAR_BREAK
    min_folded = _MIN_FOLDED_LIBRARY_LINES if is_library else _MIN_FOLDED_LINES
    visible = set(range(len(rows))) if is_whole else set(_indexes_near_breaks(rows, distance))
    start = 0
    while start < len(rows):
        is_folded = start not in visible
        end = start + 1
        while (
            end < len(rows)
            and (end not in visible) == is_folded
            and (is_folded or _is_next_line(rows[end], rows[end - 1]))
        ):
            end += 1
        part = list(rows[start:end])
        if is_folded and len(part) >= min_folded:
            yield Chunk(part, is_folded=True, title=_fold_title(part))
        else:
            yield Chunk(part)
        start = end


def _is_next_line(row: SourceRow, before: SourceRow) -> bool:
    return row.line.number == before.line.number + 1


def _indexes_near_breaks(rows: Sequence[SourceRow], distance: int) -> Iterator[int]:
    for index, row in enumerate(rows):
        if index == 0 or (_DEFINITION.match(row.line.text) and not _is_next_line(row, rows[index - 1])):
            # The first line of a function stays visible for orientation.
            yield index
        if row.line.breaks:
            yield from range(index - distance, index + distance + 1)
        elif row.line.leads_to:
            yield from range(index - _LINES_NEAR_CALL, index + _LINES_NEAR_CALL + 1)


def _fold_title(rows: Sequence[SourceRow]) -> str:
    graphs = list(dict.fromkeys(graph for row in rows for graph in row.line.graphs))
    title = f"lines {rows[0].line.number} to {rows[-1].line.number}"
    if graphs:
        title += f": graph{'s' if len(graphs) > 1 else ''} {join_words(graphs, ', ', _MAX_TITLE_GRAPHS)}"
    return title

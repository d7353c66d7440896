"""The report as HTML: a snippet for the output of a cell, and a page of its own.

This is the only place where the report becomes markup. Front ends that run scripts get the same markup and add
behaviour to it: ``labextension/src/view.ts`` finds things by the ids and the ``data-in`` attributes written here. An
element's id is the report's prefix and a *reference* (``b1`` a break, ``g0`` a graph, ``l0-14`` line 14 of the first
source, ...); ``data-in`` lists the references of what is to light up with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from jupyter_graphbreak.report import (
    Advice,
    Break,
    Diagnostic,
    Frame,
    Graph,
    Location,
    Recompile,
    Report,
    Resume,
    Scope,
    Skipped,
    Source,
)
from jupyter_graphbreak.views.course import Step, course
from jupyter_graphbreak.views.highlight import Run, marked_code, token_runs
from jupyter_graphbreak.views.listing import Line, break_numbers, graph_colours, listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import jinja2

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each list the static markup shows; the rest is counted there."""

    breaks: int = 20
    open: int = 3
    graphs: int = 20
    ops: int = 12
    inputs: int = 12
    code: int = 16
    rows: int = 40
    steps: int = 40
    lines: int = 400


_STATIC = Limits()


@dataclass(frozen=True, slots=True)
class Note:
    """A note below a line: the break that stands on it."""

    number: int
    text: str
    indent: str
    carets: str


@dataclass(frozen=True, slots=True)
class Row:
    """A line of source as the template writes it."""

    line: Line
    number: str
    code: Markup
    cuts: str
    letters: list[tuple[str, int]]
    more_letters: int
    padding: str
    ref: str
    within: str
    classes: str
    label: str
    scope_class: str
    notes: list[Note]
    blank: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows, folded away under a title where nothing broke on them."""

    rows: list[Row]
    folded: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A source as the template writes it."""

    index: int
    source: Source
    chunks: list[Chunk]
    left_out: int
    open: bool


@dataclass(slots=True)
class StackNode:
    """Places that follow each other in every stack that came here, and where the stacks part after them."""

    places: list[Location] = field(default_factory=list)
    children: list[StackNode] = field(default_factory=list)


def render_html(report: Report) -> str:
    """Return the report as a snippet with its own style sheet: the top of each list, and how much more there is."""
    return str(_macros(View(report)).report())


def render_rest(report: Report) -> dict[str, list[str]]:
    """Return what :func:`render_html` leaves out, as markup, by the name of the list that it continues.

    A front end asks for it when its reader wants to see more.
    """
    view = View(report)
    macros, limits = _macros(view), view.limits
    rest = {
        "breaks": [
            macros.break_item(number, found, open=False)
            for number, found in enumerate(report.breaks, start=1)
            if number > limits.breaks
        ],
        "graphs": [
            macros.graph_item(index, graph) for index, graph in enumerate(report.graphs) if index >= limits.graphs
        ],
        "notes": [macros.note_item(found) for found in report.diagnostics[limits.rows :]],
    }
    for name, macro, items in (
        ("frames", macros.frame_row, report.frames),
        ("resumes", macros.resume_row, report.resumes),
        ("skipped", macros.skipped_row, report.skipped),
        ("recompiles", macros.recompile_row, report.recompiles),
        ("scopes", macros.scope_row, report.scopes),
    ):
        rest[name] = [macro(index, item) for index, item in enumerate(items) if index >= limits.rows]
    for index, graph in enumerate(report.graphs):
        rest[f"ops-{index}"] = [macros.op_row(op) for op in graph.ops[limits.ops :]]
        if view.code_length(graph) > limits.code:
            rest[f"code-{index}"] = [macros.code_lines(graph.code, limits.code)]
    for index, rows in view.left_out.items():
        rest[f"l{index}"] = [macros.source_lines(rows[start : start + 100]) for start in range(0, len(rows), 100)]
    return {name: [str(item) for item in items] for name, items in rest.items() if items}


def render_page(report: Report) -> str:
    """Return the report as one page that needs no other file: everything, with search and keyboard."""
    from jupyter_graphbreak.views.text import render_text

    view = View(report)
    script = _HERE / "static" / "page.js"
    return str(
        _macros(view).page(
            Markup(render_html(report)),
            f"compile_explain: {view.main_source}",
            _inert(json.dumps(render_text(report))),
            _inert(json.dumps(render_rest(report))),
            # Built by the project's front end from its own sources; it holds no text of the report.
            Markup(script.read_text(encoding="utf-8")) if script.is_file() else "",
        )
    )


def _inert(data: str) -> Markup:
    """Return JSON that cannot end the script element around it."""
    return Markup(data.replace("<", "\\u003c"))


class References:
    """Short names of the things in a report, for ids and links; empty for what is not in it."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._sources = {source.id: index for index, source in enumerate(report.sources)}
        self._breaks = break_numbers(report)
        self._graphs = {graph.id: f"g{index}" for index, graph in enumerate(report.graphs)}
        self._frames = {frame.id: f"f{index}" for index, frame in enumerate(report.frames)}
        self._resumes = {resume.id: f"r{index}" for index, resume in enumerate(report.resumes)}
        self._skipped = {skipped.id: f"k{index}" for index, skipped in enumerate(report.skipped)}
        self._scopes = {scope.id: f"c{index}" for index, scope in enumerate(report.scopes)}
        self._resumes_by_id = {resume.id: resume for resume in report.resumes}

    def graph(self, id: str) -> str:
        """Return the reference of a graph."""
        return self._graphs.get(id, "")

    def frame(self, id: str | None) -> str:
        """Return the reference of a frame."""
        return self._frames.get(id or "", "")

    def skipped(self, id: str) -> str:
        """Return the reference of a skipped function."""
        return self._skipped.get(id, "")

    def scope(self, id: str | None) -> str:
        """Return the reference of a scope."""
        return self._scopes.get(id or "", "")

    def break_(self, id: str | None) -> str:
        """Return the reference of a break."""
        return f"b{self._breaks[id]}" if id in self._breaks else ""

    def line(self, place: Location | None) -> str:
        """Return the reference of a line."""
        if place is None or place.source not in self._sources:
            return ""
        return f"l{self._sources[place.source]}-{place.line}"

    def around_break(self, found: Break) -> str:
        """Return the references of its line, of where it goes on after it, and of what it left to Python."""
        resumes = [self._resumes_by_id[id] for id in found.resumes if id in self._resumes_by_id]
        return _join(
            [self.line(found.location)],
            (self._resumes[resume.id] for resume in resumes),
            (self.line(resume.location) for resume in resumes),
            (self.graph(id) for resume in resumes for id in resume.graphs),
            (self.skipped(id) for id in found.skipped),
            [self.scope(found.scope)],
        )

    def around_graph(self, graph: Graph) -> str:
        """Return the references of the first line of a graph and of its frame."""
        lines = [Location(each.source, each.line, each.line) for each in graph.lines[:1]]
        return _join(map(self.line, lines), [self.frame(graph.frame)])

    def around_frame(self, frame: Frame) -> str:
        """Return the references of what a frame holds."""
        return _join(map(self.graph, frame.graphs), map(self.break_, frame.breaks), [self.line(frame.location)])

    def around_resume(self, resume: Resume) -> str:
        """Return the references of the break that made it, and of what it became."""
        return _join(
            [self.break_(resume.break_), self.line(resume.location)],
            map(self.frame, resume.frames),
            map(self.graph, resume.graphs),
        )

    def around_skipped(self, skipped: Skipped) -> str:
        """Return the references of the function, its frame and the break that left it to Python."""
        return _join([self.line(skipped.location), self.frame(skipped.frame), self.break_(skipped.break_)])

    def around_recompile(self, again: Recompile) -> str:
        """Return the references of the function, its frames and the lines of the guards that did not hold."""
        return _join(
            [self.frame(again.frame), self.frame(again.of), self.line(again.location)],
            (self.line(reason.location) for reason in again.reasons),
        )

    def around_scope(self, scope: Scope) -> str:
        """Return the references of the breaks that it governs."""
        return _join(map(self.break_, scope.breaks))


def _join(*groups: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(ref for group in groups for ref in group if ref))


class View:
    """What the template asks about a report."""

    limits = _STATIC

    def __init__(self, report: Report) -> None:
        self.report = report
        self.numbers = break_numbers(report)
        self.colours = graph_colours(report)
        self.refs = References(report)
        self.steps: list[Step] = course(report)
        self._sources = {source.id: source for source in report.sources}
        self._resumes = {resume.id: resume for resume in report.resumes}
        self._skipped = {skipped.id: skipped for skipped in report.skipped}
        self._scopes = {scope.id: scope for scope in report.scopes}
        #: Rows beyond the limit, by the index of their source; filled by :attr:`listed`.
        self._left_out: dict[int, list[Row]] = {}

    @cached_property
    def prefix(self) -> str:
        """What ids start with, so that several reports can stand on one page."""
        return f"gb{hashlib.sha256(self.report.to_json()).hexdigest()[:7]}-"

    @property
    def css(self) -> Markup:
        """The style sheet."""
        return Markup(_style())

    @property
    def report_json(self) -> Markup:
        """The report as JSON, to stand in a script element."""
        return _inert(self.report.to_json().decode())

    @property
    def main_source(self) -> str:
        """The name of the cell, or of the file where there is no cell."""
        return self.report.sources[0].name if self.report.sources else "this run"

    @property
    def device(self) -> str:
        """The device as people call it."""
        device = self.report.device
        return f"{device.used} {device.name}" if device.name else device.used

    @property
    def device_note(self) -> str:
        """Why the device is the one it is, where that needs saying."""
        device = self.report.device
        if not device.note:
            return ""
        asked = "" if device.requested in ("auto", device.used) else f"{device.requested} was asked for; "
        return f"{asked}ran on {device.used}: {device.note}"

    @property
    def alerts(self) -> list[Diagnostic]:
        """The diagnostics that may not be passed over."""
        return [found for found in self.report.diagnostics if found.level != "info"][:3]

    # Sources and their lines.

    @cached_property
    def listed(self) -> list[Listed]:
        """The sources, up to the limit of lines."""
        found: list[Listed] = []
        room = self.limits.lines
        for index, source in enumerate(self.report.sources):
            lines = listing(self.report, source)
            width = _Widths(lines)
            scopes = [None, *(line.scope for line in lines)]
            runs = _runs(source)
            rows = [
                self._row(index, line, runs.get(line.number, []), width, new_scope=line.scope is not before)
                for line, before in zip(lines, scopes, strict=False)
            ]
            # A library opens by itself only where it holds a break.
            opened = source.kind != "library" or any(line.breaks for line in lines)
            shown = rows[: max(room, 0)]
            self._left_out[index] = rows[len(shown) :]
            room -= len(shown)
            if not rows:
                continue
            found.append(Listed(index, source, list(_chunks(shown)), len(rows) - len(shown), opened))
        # Libraries in which nothing broke come last.
        return sorted(found, key=lambda listed: not listed.open)

    @property
    def left_out(self) -> dict[int, list[Row]]:
        """The rows beyond the limit of lines, by the index of their source."""
        assert self.listed is not None
        return {index: rows for index, rows in self._left_out.items() if rows}

    def _row(self, index: int, line: Line, runs: list[Run], width: _Widths, *, new_scope: bool) -> Row:
        shown = line.graphs if len(line.graphs) <= 3 else line.graphs[:2]
        more = len(line.graphs) - len(shown)
        used = sum(map(len, shown)) + (len(f"+{more}") if more else 0)
        classes = " gb-broken" if line.breaks else ""
        if line.eager:
            classes += " gb-hatch"
        elif line.graphs and not line.breaks:
            classes += f" gb-c{self.colours[line.graphs[0]]}"
        ref = f"l{index}-{line.number}"
        within = _join(
            (f"b{mark.number}" for mark in line.breaks),
            (f"b{number}" for number in line.leads_to),
            map(self.refs.graph, line.graphs),
            [self.refs.scope(line.scope.id) if line.scope else ""],
            [self.refs.skipped(line.eager.id) if line.eager else ""],
        )
        label = [self.scope_label(line.scope)] if line.scope and new_scope else []
        if line.eager and line.eager.location and line.eager.location.line == line.number:
            label.append("runs eagerly")
        return Row(
            line,
            str(line.number).rjust(width.number),
            marked_code(line.text, runs, [(mark.start, mark.end) for mark in line.breaks]),
            "".join(f"✂{mark.number}" for mark in line.breaks).rjust(width.cuts) + " ",
            [(id, self.colours[id]) for id in shown],
            more,
            " " * (width.letters - used + 1),
            ref,
            within,
            classes,
            ", ".join(label),
            self.scope_class(line.scope) if line.scope else "",
            [self._note(line, mark.number, mark.start, mark.end) for mark in line.breaks if mark.last],
            (" " * width.number, " " * (width.cuts + 1), " " * (width.letters + 1)),
        )

    def _note(self, line: Line, number: int, start: int, end: int) -> Note:
        found = self.report.breaks[number - 1]
        text = found.gb_type.replace("`", "")
        if found.outcome == "error":
            text += ": an error"
        elif resumed := next((resume for resume in self.resumes_of(found) if resume.frames and resume.location), None):
            text += f" → resumes at {resumed.location.line}" if resumed.location else ""
            text += f" ({resumed.graphs[0]})" if resumed.graphs else ""
        indent = min(start, 60)
        # Tabs stay tabs, so that the note stands below its expression however wide the reader has them.
        spaces = "".join("\t" if char == "\t" else " " for char in line.text[:indent])
        return Note(number, text, spaces, "^" * min(end - start, 60))

    def line_ref(self, place: Location) -> str:
        """Return the reference of a line where the report holds the line, else the empty string."""
        return self.refs.line(place) if (place.source, place.line) in self._known_lines else ""

    @cached_property
    def _known_lines(self) -> set[tuple[str, int]]:
        return {
            (source.id, segment.first_line + offset)
            for source in self.report.sources
            for segment in source.segments
            for offset in range(segment.text.count("\n") + 1)
        }

    def source_name(self, place: Location) -> str:
        """Return the name of the source of a place, or the empty string for the cell itself."""
        source = self._sources.get(place.source)
        if source is None:
            return place.source
        return "" if source is self.report.sources[0] else source.name

    def is_library(self, place: Location) -> bool:
        """Return whether a place is in a library."""
        source = self._sources.get(place.source)
        return source is not None and source.kind == "library"

    def code_length(self, graph: Graph) -> int:
        """Return how many lines the code of a graph has."""
        return graph.code.rstrip("\n").count("\n") + 1

    def python(self, code: str, first: int, last: int | None) -> Markup:
        """Return some lines of the code of a graph, coloured."""
        text = "\n".join(code.rstrip("\n").split("\n")[first:last])
        lines = zip(text.split("\n"), token_runs(text), strict=True)
        return Markup("\n").join(marked_code(line, runs) for line, runs in lines)

    # Breaks and what belongs to them.

    def resumes_of(self, found: Break) -> list[Resume]:
        """Return the resume functions that a break made, those that ran first."""
        resumes = [self._resumes[id] for id in found.resumes if id in self._resumes]
        return sorted(resumes, key=lambda resume: not resume.frames)[:6]

    def left_to_python(self, found: Break) -> str:
        """Return the names of the functions that a break left to Python, each with how often."""
        names = Counter(self._skipped[id].function for id in found.skipped if id in self._skipped)
        told = [f"{name} ({number} times)" if number > 1 else name for name, number in names.items()]
        return ", ".join(told[:6]) + (f" and {len(told) - 6} more" if len(told) > 6 else "")

    def why(self, found: Break) -> str:
        """Return the first paragraph of what PyTorch says; the rest is :meth:`why_in_detail`."""
        return (found.explanation or "").partition("\n")[0]

    def why_in_detail(self, found: Break) -> str:
        """Return what PyTorch says after the first paragraph."""
        return (found.explanation or "").partition("\n")[2].strip("\n")

    def frames_of(self, found: Break) -> list[str]:
        """Return the ids of the frames that met a break."""
        return list(dict.fromkeys(met.frame for met in found.occurrences if met.frame is not None))

    def advice_of(self, found: Break) -> list[Advice]:
        """Return what to do, the best first; PyTorch's hints where there is nothing else."""
        given = {advice.text for advice in found.advice}
        return [*found.advice, *(Advice(hint) for hint in found.hints if hint not in given)]

    def more_about(self, found: Break) -> str:
        """Return what the folded part of a break holds, in words."""
        others = len(self.advice_of(found)) - 1
        lines = len({(place.source, place.line) for stack in _stacks(found) for place in stack})
        parts = [
            f"{others} other way{'s' if others > 1 else ''}" if others > 0 else "",
            f"stack of {lines} line{'s' if lines > 1 else ''}" if lines else "",
            "detail" if found.context or self.why_in_detail(found) else "",
        ]
        return ", ".join(part for part in parts if part).capitalize() or "More"

    def stacks_of(self, found: Break) -> list[StackNode]:
        """Return the stacks on which a break was met, as a tree from the outermost frames in."""
        return stack_tree(_stacks(found))

    def scope_of(self, found: Break) -> Scope | None:
        """Return the scope that governs a break."""
        return self._scopes.get(found.scope or "")

    def scope_chain(self, found: Break) -> list[Scope]:
        """Return the scope that governs a break, and those around it."""
        chain: list[Scope] = []
        scope = self.scope_of(found)
        while scope is not None and scope not in chain:
            chain.append(scope)
            scope = self._scopes.get(scope.parent or "")
        return chain

    def depth(self, scope: Scope) -> int:
        """Return how many scopes are around a scope."""
        depth, seen = 0, {scope.id}
        while (parent := self._scopes.get(scope.parent or "")) is not None and parent.id not in seen:
            seen.add(parent.id)
            scope, depth = parent, depth + 1
        return depth

    def scope_label(self, scope: Scope) -> str:
        """Return what a scope says, in words."""
        return "breaks are errors" if scope.value else "breaks allowed"

    def scope_class(self, scope: Scope) -> str:
        """Return the class of the style sheet for a scope."""
        return "gb-forbid" if scope.value else "gb-allow"

    # Words.

    def times(self, number: int) -> str:
        """Return how often, in words."""
        return "once" if number == 1 else f"{number} times"

    def role(self, frame: Frame) -> str:
        """Return what a frame is, in words."""
        resume = self._resumes.get(frame.resume or "")
        if resume is not None and resume.location is not None:
            return f"resume at {resume.location.line}"
        return frame.role

    def span(self, graph: Graph) -> str:
        """Return the lines of the cell, or of the first other source, that a graph covers."""
        own = [line for line in graph.lines if line.source == graph.lines[0].source] if graph.lines else []
        if not own:
            return ""
        first, last = min(line.line for line in own), max(line.line for line in own)
        return f"line {first}" if first == last else f"lines {first}–{last}"


class _Widths:
    """Columns of the gutter of a listing."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.number = max((len(str(line.number)) for line in lines), default=1) + 1
        self.cuts = max((sum(1 + len(str(mark.number)) for mark in line.breaks) for line in lines), default=0) + 1
        self.letters = max((_letters_width(line.graphs) for line in lines), default=1)


def _letters_width(graphs: tuple[str, ...]) -> int:
    if len(graphs) <= 3:
        return sum(map(len, graphs))
    return sum(map(len, graphs[:2])) + len(f"+{len(graphs) - 2}")


def _runs(source: Source) -> dict[int, list[Run]]:
    found: dict[int, list[Run]] = {}
    for segment in source.segments:
        found.update(enumerate(token_runs(segment.text), start=segment.first_line))
        if source.kind == "cell" and segment.first_line == 1 and segment.text.startswith("%%"):
            found[1] = [(0, len(segment.text.partition("\n")[0]), "c")]
    return found


#: A source of at most this many lines is shown whole.
_WHOLE = 40
#: Fewer lines than this are not worth folding.
_WORTH_FOLDING = 6


def _chunks(rows: Sequence[Row]) -> Iterator[Chunk]:
    """Yield the rows in order, those far from any break folded."""
    kept = set(range(len(rows))) if len(rows) <= _WHOLE else set(_near_breaks(rows))
    start = 0
    while start < len(rows):
        folded = start not in kept
        end = start + 1
        while (
            end < len(rows) and (end not in kept) == folded and rows[end].line.number == rows[end - 1].line.number + 1
        ):
            end += 1
        part = list(rows[start:end])
        if folded and len(part) >= _WORTH_FOLDING:
            yield Chunk(part, folded=True, title=_fold_title(part))
        else:
            yield Chunk(part)
        start = end


def _near_breaks(rows: Sequence[Row]) -> Iterator[int]:
    before = -1
    for index, row in enumerate(rows):
        if row.line.number != before + 1:
            # The first line of a function says where one is.
            yield index
        before = row.line.number
        if row.line.breaks:
            yield from range(index - 3, index + 4)
        elif row.line.leads_to:
            yield from range(index - 1, index + 2)


def _fold_title(rows: Sequence[Row]) -> str:
    graphs = list(dict.fromkeys(id for row in rows for id in row.line.graphs))
    title = f"lines {rows[0].line.number}–{rows[-1].line.number}"
    if graphs:
        title += f": graph{'s' if len(graphs) > 1 else ''} {', '.join(graphs[:6])}"
        title += f" and {len(graphs) - 6} more" if len(graphs) > 6 else ""
    return title


def _stacks(found: Break) -> list[list[Location]]:
    return [stack for stack in (found.stack, *(met.stack for met in found.occurrences)) if stack]


def stack_tree(stacks: Iterable[Sequence[Location]]) -> list[StackNode]:
    """Return stacks merged where they start alike; a stack that others begin with is not told again."""
    roots: list[StackNode] = []
    by_start: dict[tuple[str, int], list[Sequence[Location]]] = {}
    for stack in stacks:
        if stack:
            by_start.setdefault(_spot(stack[0]), []).append(stack)
    for group in by_start.values():
        shared = 1
        # As far as every stack of the group goes the same way, so that a deep recursion makes no deep tree.
        while all(len(stack) > shared for stack in group) and len({_spot(stack[shared]) for stack in group}) == 1:
            shared += 1
        roots.append(StackNode(list(group[0][:shared]), stack_tree(stack[shared:] for stack in group)))
    return roots


def _spot(place: Location) -> tuple[str, int]:
    return place.source, place.line


# Jinja.


@cache
def _style() -> str:
    text = (_HERE / "templates" / "report.css").read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    # Strings stay as they are.
    return re.sub(r'("[^"]*")|\s*([{};,])\s*', lambda found: found[1] or found[2], text).strip()


def _ticks(text: str) -> Markup:
    """Return text in which what stands in backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts)
    )


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _seconds(value: float) -> str:
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.0f} ms" if value < 0.1 else f"{value:.2f} s" if value < 60 else f"{value / 60:.1f} min"


def _is_web(url: str | None) -> bool:
    return url is not None and url.startswith(("https://", "http://"))


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(ticks=_ticks, short=_short, first_line=_first_line, seconds=_seconds, is_web=_is_web)
    return environment


def _macros(view: View) -> Any:
    # Jinja makes a module's macros attributes at run time; there is no type for them.
    return _environment().get_template("report.html.j2").make_module({"v": view})

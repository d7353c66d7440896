"""What the template asks about a report."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from markupsafe import Markup

from jupyter_graphbreak.views.html.environment import Part, style_sheet
from jupyter_graphbreak.views.html.highlight import coloured, escaped
from jupyter_graphbreak.views.html.references import Links, References
from jupyter_graphbreak.views.html.source_lines import Listed, list_sources, scope_class
from jupyter_graphbreak.views.rows.sections import about, measurements
from jupyter_graphbreak.views.words import lookup, remedies
from jupyter_graphbreak.views.words.aftermath import nearest_first, surely_ran, without_frame
from jupyter_graphbreak.views.words.bounds import shown_part
from jupyter_graphbreak.views.words.course import Call, course, first_steps
from jupyter_graphbreak.views.words.guidance import cost_of, guidance
from jupyter_graphbreak.views.words.lines import break_numbers, graph_colours, ordered_breaks
from jupyter_graphbreak.views.words.permission import permission, scope_label, scope_name, stricter
from jupyter_graphbreak.views.words.recompilation import at_limit, limit_was_spent, no_breaks_but, recompilations
from jupyter_graphbreak.views.words.where import StackNode, brief_code, stack_tree

if TYPE_CHECKING:
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import (
        Advice,
        Break,
        CompiledCall,
        Diagnostic,
        Frame,
        Graph,
        Op,
        Report,
        Resume,
        Scope,
        Skipped,
        Tensor,
        TensorMeta,
    )
    from jupyter_graphbreak.views.rows.schema import Row, Section


class OpRows:
    """Makes the rows."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._places: dict[tuple[str, int], tuple[str, str]] = {}

    def row(self, op: Op) -> str:
        """Return the row of an operation as markup."""
        attribute, place = self._place(op.location) if op.location is not None else ("", "")
        output = escaped(tensor_text(op.output)) if op.output is not None else ""
        return (
            f"<tr{attribute}><td><code>{escaped(op.name)}</code></td><td><code>{escaped(op.target)}</code></td>"
            f"<td>{place}</td><td>{output}</td></tr>"
        )

    def _place(self, location: Location) -> tuple[str, str]:
        key = location.source, location.line
        if key not in self._places:
            reference = self._links.line_reference(location)
            attribute = f' data-in="{reference}"' if reference else ""
            self._places[key] = attribute, self._links.spot(location)
        return self._places[key]


def tensor_text(meta: Tensor | TensorMeta) -> str:
    """Return what is known of a tensor, in a line: "float32 [64, 64] cuda:0"."""
    parts = [meta.dtype.replace("torch.", "")]
    if meta.shape is not None:
        parts.append(f"[{', '.join(map(str, meta.shape))}]")
    return " ".join([*parts, *([meta.device] if meta.device else [])])


#: Names of functions or of resumed places that one break lists.
_MOST_NAMES = 6
#: Of what was compiled for a report so many have the statement that compiles them.
_MOST_COMPILABLE = 4
#: Lines of source that one item of what is left out holds.
LINES_AT_ONCE = 100
#: Fewer minor breaks are not worth folding.
_WORTH_FOLDING = 3
#: Scopes around a scope that indent it.
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each list the static markup shows; the rest is counted there. ``open`` breaks are unfolded."""

    breaks: int = 20
    open: int = 3
    graphs: int = 20
    ops: int = 8
    inputs: int = 6
    code: int = 8
    rows: int = 40
    steps: int = 40
    lines: int = 400
    alerts: int = 3
    remedies: int = 20


class View:
    """What the template asks about a report."""

    limits = Limits()
    scope_label = staticmethod(scope_label)
    scope_name = staticmethod(scope_name)
    scope_class = staticmethod(scope_class)
    without_frame = staticmethod(without_frame)
    brief_code = staticmethod(brief_code)
    cost_of = staticmethod(cost_of)
    tensor_text = staticmethod(tensor_text)

    def __init__(self, report: Report) -> None:
        report = shown_part(report)
        self.report = report
        self.numbers = break_numbers(report)
        self.colours = graph_colours(report)
        self.refs = References(report)
        self.recompilations = recompilations(report)
        self.breaks, self.minor = _parted(ordered_breaks(report))
        self.course, self.further_steps = first_steps(course(report), self.limits.steps)
        self._sources = lookup.sources(report)
        self._resumes = lookup.resumes(report)
        self._skipped = lookup.skipped(report)

    @cached_property
    def prefix(self) -> str:
        """What ids start with, so that several reports can stand on one page."""
        digest = hashlib.sha256(self.report.to_json()).digest()
        return f"g{base64.b32encode(digest)[:5].decode().lower()}-"

    @property
    def css(self) -> Markup:
        """The style sheet, as far as the report needs it."""
        report = self.report
        parts: dict[Part, bool] = {
            "remedies": report.remedies is not None or bool(report.compiled),
            "cost": report.cost is not None,
        }
        return style_sheet(*(part for part, is_needed in parts.items() if is_needed))

    # The head.

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
        asked = "" if device.requested in {"auto", device.used} else f"{device.requested} was asked for; "
        return f"{asked}ran on {device.used}: {device.note}"

    @property
    def verdict_class(self) -> str:
        """The class of the style sheet for how bad it is: good only where everything was compiled."""
        report = self.report
        if report.breaks or report.error or limit_was_spent(report):
            return "gb-bad"
        return "gb-good" if report.graphs and not report.skipped else ""

    @property
    def no_breaks_but(self) -> str:
        """What to say in place of "no breaks" if that is not the whole truth."""
        return no_breaks_but(self.report)

    @property
    def about(self) -> list[Row]:
        """Sentences about the run as a whole."""
        return about(self.report)[: self.limits.rows]

    @property
    def measurements(self) -> list[Section]:
        """What further questions to the program found, in sentences."""
        return measurements(self.report)

    @property
    def compilable(self) -> list[tuple[int, CompiledCall]]:
        """The first of these that the code could compile itself, each with its place in the report's list."""
        listed = list(enumerate(self.report.compiled or []))
        return [(place, call) for place, call in listed if call.code is not None][:_MOST_COMPILABLE]

    @property
    def praise(self) -> str:
        """What to say where there is no break."""
        if not self.report.graphs:
            return "Nothing was captured."
        if limit_was_spent(self.report):
            return f"No graph break, but {at_limit(self.report)}: see Recompiles."
        graphs = "one graph" if len(self.report.graphs) == 1 else "each function in one graph"
        return f"No graph break: {graphs}."

    @property
    def alerts(self) -> list[Diagnostic]:
        """The diagnostics that may not be passed over."""
        return [note for note in self.report.diagnostics if note.level != "info"][: self.limits.alerts]

    @staticmethod
    def is_call(item: object) -> bool:
        """Whether an item of the course is a call with steps of its own."""
        return isinstance(item, Call)

    # Places.

    @cached_property
    def listed(self) -> list[Listed]:
        """The sources, up to the limit of lines."""
        return list_sources(self.report, self.limits.lines)

    @cached_property
    def _known_lines(self) -> set[tuple[str, int]]:
        return {(listed.source.id, number) for listed in self.listed for number in listed.numbers}

    @cached_property
    def links(self) -> Links:
        """What makes links to the things in the report, and names places."""
        lines = self._known_lines
        return Links(self.report, self.prefix, self.refs, lambda place: (place.source, place.line) in lines)

    def is_library(self, place: Location) -> bool:
        """Return whether a place is in a library."""
        source = self._sources.get(place.source)
        return source is not None and source.kind == "library"

    @staticmethod
    def chunks_left(listed: Listed) -> int:
        """Return how many chunks of lines of a source are beyond the limit."""
        return -(-listed.left_out // LINES_AT_ONCE)

    # Breaks.

    @staticmethod
    def why(listed: Break) -> str:
        """Return the first paragraph of what PyTorch says; the rest is :meth:`why_in_detail`."""
        return (listed.explanation or "").partition("\n")[0]

    @staticmethod
    def why_in_detail(listed: Break) -> str:
        """Return what PyTorch says after the first paragraph."""
        return (listed.explanation or "").partition("\n")[2].strip("\n")

    def resumes_of(self, listed: Break) -> list[Resume]:
        """Return the resume functions that a break made: those that ran first, of its own function before others."""
        resumes = [self._resumes[ident] for ident in listed.resumes if ident in self._resumes]
        return sorted(nearest_first(listed, resumes), key=lambda resume: not surely_ran(resume))[:_MOST_NAMES]

    def eager_functions(self, listed: Break) -> str:
        """Return the names of the functions that run eagerly because of a break, each with how often."""
        names = Counter(self._skipped[ident].function for ident in listed.skipped if ident in self._skipped)
        shown = [f"{name} ({number} times)" if number > 1 else name for name, number in names.items()]
        more = len(shown) - _MOST_NAMES
        return ", ".join(shown[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")

    def way_out(self, listed: Break) -> str:
        """Return what would have the functions compiled that run eagerly because of a break."""
        skipped = (self._skipped[ident] for ident in listed.skipped if ident in self._skipped)
        return next((function.way_out for function in skipped if function.way_out), "")

    def permission(self, listed: Break) -> str:
        """Return whether the break was allowed and who said so, in words."""
        return permission(self.report, listed)

    @staticmethod
    def frames_of(listed: Break) -> list[str]:
        """Return the ids of the frames that report a break."""
        return list(dict.fromkeys(event.frame for event in listed.occurrences if event.frame is not None))

    def advice_of(self, listed: Break) -> list[Advice]:
        """Return what to do, the best first; PyTorch's hints where there is nothing else."""
        return guidance(self.report, listed)

    def best_remedy(self, listed: Break) -> Remedy | None:
        """Return the first thing to do where that was tried and works."""
        tried = remedies.tried_for(self.report, listed)
        working = tried.working if tried is not None else []
        return next((remedy for remedy in working if listed.id in remedy.breaks), None)

    @cached_property
    def _places_of_remedies(self) -> dict[str, int]:
        return {remedy.id: index for index, remedy in enumerate(self.report.remedies or [])}

    def place_of(self, remedy: Remedy) -> int:
        """Return the place of a remedy in the report's list, by which the front end knows it."""
        return self._places_of_remedies[remedy.id]

    @property
    def untried(self) -> bool:
        """Whether there is something to remedy and nobody asked for it."""
        return self.report.remedies is None and bool(self.report.breaks)

    @staticmethod
    def stacks_of(listed: Break) -> list[StackNode]:
        """Return the stacks that lead to a break, as a tree from the outermost frames in."""
        return stack_tree(_stacks(listed))

    @staticmethod
    def more_about(listed: Break, others: list[Advice], detail: str) -> str:
        """Return what the folded part of a break holds, in words."""
        lines = len({(place.source, place.line) for stack in _stacks(listed) for place in stack})
        parts = [
            f"{len(others)} other way{'s' if len(others) > 1 else ''}" if others else "",
            f"stack of {lines} line{'s' if lines > 1 else ''}" if lines else "",
            "detail" if detail else "",
        ]
        return ", ".join(part for part in parts if part).capitalize() or "More"

    # Graphs, frames, scopes.

    def span(self, graph: Graph) -> str:
        """Return the lines of the cell, or of the first other source, that a graph covers; else where its code is."""
        own = [line.line for line in graph.lines if line.source == graph.lines[0].source]
        if not own:
            frame = lookup.frames(self.report).get(graph.frame)
            return self._spot(frame.location) if frame is not None and frame.location is not None else ""
        first, last = min(own), max(own)
        return f"line {first}" if first == last else f"lines {first} to {last}"

    def _spot(self, place: Location) -> str:
        name = self.links.source_name(place)
        return f"{name}:{place.line}" if name else f"line {place.line}"

    @cached_property
    def _op_rows(self) -> OpRows:
        return OpRows(self.links)

    def op_rows(self, ops: list[Op]) -> Markup:
        """Return operations as rows of a table."""
        return Markup("".join(map(self._op_rows.row, ops)))  # noqa: S704 - markup of ours

    def code_length(self, graph: Graph) -> int:
        """Return how many lines the code of a graph has."""
        return graph.code.rstrip("\n").count("\n") + 1

    def python(self, code: str, first: int, last: int | None) -> Markup:
        """Return some lines of the code of a graph, coloured."""
        return coloured("\n".join(code.rstrip("\n").split("\n")[first:last]))

    def role(self, frame: Frame) -> str:
        """Return what a frame is, in words."""
        resume = self._resumes.get(frame.resume or "")
        if resume is not None and resume.location is not None:
            return f"resume at {resume.location.line}"
        return frame.role

    def short_reason(self, skipped: Skipped) -> str:
        """Return why a function runs eagerly in a word or two, or else where it stands."""
        if skipped.kind != "other" or skipped.location is None:
            return skipped.kind
        return self._spot(skipped.location)

    def callees(self, skipped: Skipped) -> list[str]:
        """Return the ids of frames of functions that a skipped function calls and that are compiled all the same."""
        return [ident for ident in skipped.callees if self.refs.frame(ident)]

    def depth(self, scope: Scope) -> int:
        """Return how many scopes are around a scope."""
        scopes, depth = lookup.scopes(self.report), 0
        while depth < _DEEPEST and (around := scopes.get(scope.parent or "")) is not None:
            scope, depth = around, depth + 1
        return depth

    @property
    def stricter(self) -> list[list[str | int]]:
        """What stricter settings would have made of the run: sentences in parts, some of them numbers of breaks."""
        return stricter(self.report)


def _parted(breaks: list[Break]) -> tuple[list[Break], list[Break]]:
    """Part the minor breaks, which come last, from the others; a few stay with them."""
    minor = sum(listed.minor for listed in breaks)
    at = len(breaks) - (minor if minor >= _WORTH_FOLDING and minor < len(breaks) else 0)
    return breaks[:at], breaks[at:]


def _stacks(listed: Break) -> list[list[Location]]:
    return [stack for stack in (listed.stack, *(event.stack for event in listed.occurrences)) if stack]

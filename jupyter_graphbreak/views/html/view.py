"""What the template asks about a report."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from markupsafe import Markup

from jupyter_graphbreak.report.schema import Advice
from jupyter_graphbreak.views.html.environment import style_sheet
from jupyter_graphbreak.views.html.highlight import marked_code, token_runs
from jupyter_graphbreak.views.html.references import References
from jupyter_graphbreak.views.html.rows import Listed, list_sources, scope_class, scope_label
from jupyter_graphbreak.views.words.course import course
from jupyter_graphbreak.views.words.lines import break_numbers, graph_colours
from jupyter_graphbreak.views.words.permission import allowed
from jupyter_graphbreak.views.words.resumption import surely_ran, without_frame
from jupyter_graphbreak.views.words.stacks import StackNode, stack_tree

if TYPE_CHECKING:
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Break, Diagnostic, Frame, Graph, Report, Resume, Scope, Skipped

#: Names of functions or of resumed places that one break lists.
_MOST_NAMES = 6


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each list the static markup shows; the rest is counted there. ``open`` breaks are unfolded."""

    breaks: int = 20
    open: int = 3
    graphs: int = 20
    ops: int = 12
    inputs: int = 12
    code: int = 16
    rows: int = 40
    steps: int = 40
    lines: int = 400
    alerts: int = 3


class View:
    """What the template asks about a report."""

    limits = Limits()
    scope_label = staticmethod(scope_label)
    scope_class = staticmethod(scope_class)
    without_frame = staticmethod(without_frame)

    def __init__(self, report: Report) -> None:
        self.report = report
        self.numbers = break_numbers(report)
        self.colours = graph_colours(report)
        self.refs = References(report)
        self.steps = course(report)
        self._sources = {source.id: source for source in report.sources}
        self._resumes = {resume.id: resume for resume in report.resumes}
        self._skipped = {skipped.id: skipped for skipped in report.skipped}
        self._scopes = {scope.id: scope for scope in report.scopes}

    @cached_property
    def prefix(self) -> str:
        """What ids start with, so that several reports can stand on one page."""
        digest = hashlib.sha256(self.report.to_json()).digest()
        return f"g{base64.b32encode(digest)[:5].decode().lower()}-"

    @property
    def css(self) -> Markup:
        """The style sheet."""
        return style_sheet()

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
    def alerts(self) -> list[Diagnostic]:
        """The diagnostics that may not be passed over."""
        return [found for found in self.report.diagnostics if found.level != "info"][: self.limits.alerts]

    # Places.

    @cached_property
    def listed(self) -> list[Listed]:
        """The sources, up to the limit of lines."""
        return list_sources(self.report, self.limits.lines)

    @cached_property
    def _known_lines(self) -> set[tuple[str, int]]:
        return {
            (listed.source.id, row.line.number)
            for listed in self.listed
            for rows in (*(chunk.rows for chunk in listed.chunks), listed.left_out)
            for row in rows
        }

    def line_ref(self, place: Location) -> str:
        """Return the reference of a line where the report holds the line, else the empty string."""
        return self.refs.line(place) if (place.source, place.line) in self._known_lines else ""

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

    # Breaks.

    def why(self, found: Break) -> str:
        """Return the first paragraph of what PyTorch says; the rest is :meth:`why_in_detail`."""
        return (found.explanation or "").partition("\n")[0]

    def why_in_detail(self, found: Break) -> str:
        """Return what PyTorch says after the first paragraph."""
        return (found.explanation or "").partition("\n")[2].strip("\n")

    def resumes_of(self, found: Break) -> list[Resume]:
        """Return the resume functions that a break made, those that ran first."""
        resumes = [self._resumes[each] for each in found.resumes if each in self._resumes]
        return sorted(resumes, key=lambda resume: not surely_ran(resume))[:_MOST_NAMES]

    def left_to_python(self, found: Break) -> str:
        """Return the names of the functions that a break left to Python, each with how often."""
        names = Counter(self._skipped[each].function for each in found.skipped if each in self._skipped)
        told = [f"{name} ({number} times)" if number > 1 else name for name, number in names.items()]
        more = len(told) - _MOST_NAMES
        return ", ".join(told[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")

    def way_out(self, found: Break) -> str:
        """Return what would have the functions compiled that a break left to Python."""
        return next(
            (way for each in found.skipped if each in self._skipped and (way := self._skipped[each].way_out)), ""
        )

    def who_said(self, found: Break) -> str:
        """Return whether the break was allowed and who said so, in words."""
        return allowed(self.report, found.setting)

    def frames_of(self, found: Break) -> list[str]:
        """Return the ids of the frames that met a break."""
        return list(dict.fromkeys(met.frame for met in found.occurrences if met.frame is not None))

    def advice_of(self, found: Break) -> list[Advice]:
        """Return what to do, the best first; PyTorch's hints where there is nothing else."""
        given = {advice.text for advice in found.advice}
        return [*found.advice, *(Advice(hint) for hint in found.hints if hint not in given)]

    def stacks_of(self, found: Break) -> list[StackNode]:
        """Return the stacks on which a break was met, as a tree from the outermost frames in."""
        return stack_tree(_stacks(found))

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

    # Graphs, frames, scopes.

    def span(self, graph: Graph) -> str:
        """Return the lines of the cell, or of the first other source, that a graph covers; else where its code is."""
        own = [line.line for line in graph.lines if line.source == graph.lines[0].source]
        if not own:
            frame = next((frame for frame in self.report.frames if frame.id == graph.frame), None)
            return self._spot(frame.location) if frame is not None and frame.location is not None else ""
        first, last = min(own), max(own)
        return f"line {first}" if first == last else f"lines {first} to {last}"

    def _spot(self, place: Location) -> str:
        name = self.source_name(place)
        return f"{name}:{place.line}" if name else f"line {place.line}"

    def code_length(self, graph: Graph) -> int:
        """Return how many lines the code of a graph has."""
        return graph.code.rstrip("\n").count("\n") + 1

    def python(self, code: str, first: int, last: int | None) -> Markup:
        """Return some lines of the code of a graph, coloured."""
        text = "\n".join(code.rstrip("\n").split("\n")[first:last])
        lines = zip(text.split("\n"), token_runs(text), strict=True)
        return Markup("\n").join(marked_code(line, runs) for line, runs in lines)

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
        return [each for each in skipped.callees if self.refs.frame(each)]

    def depth(self, scope: Scope) -> int:
        """Return how many scopes are around a scope."""
        around = {scope.id}
        while (parent := self._scopes.get(scope.parent or "")) is not None and parent.id not in around:
            around.add(parent.id)
            scope = parent
        return len(around) - 1

    @property
    def stricter(self) -> list[tuple[str, list[int]]]:
        """What a stricter setting would have made an error: the setting, and the numbers of the breaks."""
        what_if = self.report.what_if
        cases = [("error_on_graph_break(True)", what_if.error_on_graph_break)]
        cases += [("fullgraph=True", [what_if.fullgraph] if what_if.fullgraph is not None else [])]
        told = [(name, [self.numbers[each] for each in breaks if each in self.numbers]) for name, breaks in cases]
        return [(name, numbers) for name, numbers in told if numbers]


def _stacks(found: Break) -> list[list[Location]]:
    return [stack for stack in (found.stack, *(met.stack for met in found.occurrences)) if stack]

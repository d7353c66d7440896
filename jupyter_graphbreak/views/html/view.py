"""The data that the template of a report reads, and the steps of a run."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup

from jupyter_graphbreak.report.relevance import functions_worth_counting
from jupyter_graphbreak.report.remedies import INTERRUPTED_REASON
from jupyter_graphbreak.views.html.environment import OptionalPart, style_sheet
from jupyter_graphbreak.views.html.highlight import escape_html, highlight_python
from jupyter_graphbreak.views.html.references import Links, References
from jupyter_graphbreak.views.html.source_lines import SourceListing, list_sources, scope_class
from jupyter_graphbreak.views.rows.sections import about_rows, measurement_sections
from jupyter_graphbreak.views.words import lookup, remedies
from jupyter_graphbreak.views.words.aftermath import has_run, nearest_first
from jupyter_graphbreak.views.words.bounds import shown_part
from jupyter_graphbreak.views.words.groups import Group, best_remedy, break_groups
from jupyter_graphbreak.views.words.lines import break_numbers, graph_colors, ordered_breaks
from jupyter_graphbreak.views.words.locations import StackNode, stack_tree
from jupyter_graphbreak.views.words.paths import ordered_paths
from jupyter_graphbreak.views.words.plain_text import (
    count_text,
    join_words,
    number_ranges,
    times_text,
    without_backticks,
)
from jupyter_graphbreak.views.words.reason import title_of
from jupyter_graphbreak.views.words.recompilation import listed_recompilations
from jupyter_graphbreak.views.words.verdict import RunVerdict, figures, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
        PathDifference,
        Report,
        Resume,
        Scope,
        Skipped,
        Tensor,
        TensorMeta,
    )
    from jupyter_graphbreak.views.rows.schema import Row, Section


class OpRows:
    """Renders operations as table rows."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._location_markup_cache: dict[tuple[str, int], tuple[str, str]] = {}

    def row(self, op: Op) -> str:
        """Return the row of an operation as markup."""
        attribute, location_markup = self._location_markup(op.location) if op.location is not None else ("", "")
        output = escape_html(tensor_text(op.output)) if op.output is not None else ""
        return (
            f"<tr{attribute}><td><code>{escape_html(op.name)}</code></td><td><code>{escape_html(op.target)}</code></td>"
            f"<td>{location_markup}</td><td>{output}</td></tr>"
        )

    def _location_markup(self, location: Location) -> tuple[str, str]:
        """Return the attribute that refers to the line of a location, and the location as a link."""
        key = location.source, location.line
        if key not in self._location_markup_cache:
            reference = self._links.line_reference(location)
            attribute = f' data-in="{reference}"' if reference else ""
            self._location_markup_cache[key] = attribute, self._links.line_and_source(location)
        return self._location_markup_cache[key]


def tensor_text(meta: Tensor | TensorMeta) -> str:
    """Describe a tensor in one line: "float32 [64, 64] cuda:0"."""
    parts = [meta.dtype.replace("torch.", "")]
    if meta.shape is not None:
        parts.append(f"[{', '.join(map(str, meta.shape))}]")
    return " ".join([*parts, *([meta.device] if meta.device else [])])


#: The maximum number of names in one list: a break's eager functions or resume functions, or the calls of one step.
_MAX_NAMES = 8
#: The maximum number of calls to show with the statement that compiles them, if they were compiled for the report.
_MAX_COMPILABLE_CALLS = 4
#: The number of source lines that the front end loads at once.
LINES_AT_ONCE = 100
#: Fewer minor breaks than this are not worth folding.
_MIN_FOLDED_BREAKS = 3
#: The maximum nesting depth of scopes that indentation shows.
_MAX_SCOPE_DEPTH = 20


@dataclass(frozen=True, slots=True)
class MarkupLimits:
    """The maximum number of entries that the static markup shows, for each list.

    Breaks are expanded if there are at most ``expanded_breaks`` of them. The code of a graph is shown if it has at most
    ``code`` lines.
    """

    breaks: int = 20
    expanded_breaks: int = 3
    graphs: int = 10
    ops: int = 5
    inputs: int = 6
    code: int = 8
    rows: int = 40
    steps: int = 200
    group_breaks: int = 10
    lines: int = 200
    alerts: int = 3
    remedies: int = 20


class View:
    """The data that the template reads from a report."""

    limits = MarkupLimits()
    scope_class = staticmethod(scope_class)
    tensor_text = staticmethod(tensor_text)

    def __init__(self, report: Report) -> None:
        report = shown_part(report)
        self.report = report
        self.numbers = break_numbers(report)
        self.colours = graph_colors(report)
        self.refs = References(report)
        self.recompilations = listed_recompilations(report)
        self.groups, self.minor = _split_minor(break_groups(report))
        steps = run_steps(report)
        self.steps, self.further_step_count = steps[: self.limits.steps], max(0, len(steps) - self.limits.steps)

    @cached_property
    def prefix(self) -> str:
        """The prefix of all ids in the markup; it differs between reports, so a page can contain several."""
        digest = hashlib.sha256(self.report.to_json()).digest()
        return f"g{base64.b32encode(digest)[:5].decode().lower()}-"

    @property
    def css(self) -> Markup:
        """The style sheet, with the rules that the report needs."""
        report = self.report
        parts: dict[OptionalPart, bool] = {
            "remedies": report.remedies is not None or bool(report.compiled) or bool(report.reproducers),
            "cost": report.cost is not None,
            "groups": bool(self.minor) or not all(group.is_single for group in self.groups),
            "scopes": bool(report.scopes),
        }
        return style_sheet(*(part for part, is_needed in parts.items() if is_needed))

    # The head.

    @cached_property
    def verdict(self) -> RunVerdict:
        """The verdict on the run."""
        return verdict(self.report)

    @property
    def figures(self) -> str:
        """The figures of the run in one line."""
        return " | ".join(figures(self.report))

    @property
    def device_note(self) -> str:
        """The device that was used and the reason for it; empty if the report states no reason."""
        device = self.report.device
        if not device.note:
            return ""
        request = "" if device.requested in {"auto", device.used} else f"{device.requested} was requested; "
        return f"{request}ran on {device.used}: {device.note}"

    @property
    def about_rows(self) -> list[Row]:
        """Rows about the run as a whole."""
        return about_rows(self.report)[: self.limits.rows]

    @property
    def paths(self) -> list[PathDifference]:
        """The calls whose result differs while compiling; those that decide which lines run come first."""
        return ordered_paths(self.report)

    @property
    def measurement_sections(self) -> list[Section]:
        """The sections with the results of experiments, as sentences."""
        return measurement_sections(self.report)

    @property
    def calls_to_compile(self) -> list[tuple[int, CompiledCall]]:
        """The first calls for which the report has a statement that compiles them, with their indexes in the report."""
        calls = enumerate(self.report.compiled or [])
        return [(index, call) for index, call in calls if call.code is not None][:_MAX_COMPILABLE_CALLS]

    @property
    def alerts(self) -> list[Diagnostic]:
        """The first warnings and errors, which are shown at the top."""
        return [note for note in self.report.diagnostics if note.level != "info"][: self.limits.alerts]

    def step_text(self, nested_step: NestedStep) -> str:
        """Describe a step of the run, with the calls that lead to it."""
        step = nested_step.step
        path = " > ".join(nested_step.calls)
        if step.graph is not None:
            again_text = ", compiled again" if step.frame is not None and step.frame.recompile_of else ""
            ops_text = count_text(len(step.graph.ops), "op")
            words = f"graph {step.graph.id}, {ops_text}, {self.span_text(step.graph)}{again_text}"
        elif step.skipped_function is not None:
            words = f"{step.skipped_function.function} runs eagerly: {self.short_reason(step.skipped_function)}"
        elif step.number is not None:
            break_ = ordered_breaks(self.report)[step.number - 1]
            words = f"break {step.number}: {without_backticks(title_of(break_))}"
        else:
            words = f"error in {step.frame.function if step.frame is not None else 'the run'}: not compiled"
        return f"{path}: {words}" if path else words

    # Locations.

    @cached_property
    def listings(self) -> list[SourceListing]:
        """The sources with their lines, up to a total number of lines."""
        return list_sources(self.report, self.limits.lines)

    @cached_property
    def _known_lines(self) -> set[tuple[str, int]]:
        return {(listing.source.id, number) for listing in self.listings for number in listing.line_numbers}

    @cached_property
    def links(self) -> Links:
        """The links to parts of the report."""
        lines = self._known_lines
        return Links(self.report, self.prefix, self.refs, lambda location: (location.source, location.line) in lines)

    @staticmethod
    def chunks_left(listing: SourceListing) -> int:
        """Return the number of chunks in which the front end loads the lines of a source that are not shown."""
        return -(-listing.left_out_count // LINES_AT_ONCE)

    # Breaks.

    @staticmethod
    def explanation_headline(break_: Break) -> str:
        """Return the first line of PyTorch's explanation."""
        return (break_.explanation or "").partition("\n")[0]

    @staticmethod
    def rest_of_explanation(break_: Break) -> str:
        """Return PyTorch's explanation after the first line."""
        return (break_.explanation or "").partition("\n")[2].strip("\n")

    def resumes_of(self, break_: Break) -> list[Resume]:
        """Return at most eight resume functions of a break: those that ran, then the others, both nearest first."""
        resumes = nearest_first(break_, lookup.resumes_of(self.report, break_))
        return sorted(resumes, key=lambda resume: not has_run(resume))[:_MAX_NAMES]

    def eager_functions_text(self, break_: Break) -> str:
        """Return the names of the functions that run eagerly because of a break, with their counts."""
        functions = lookup.functions_skipped_by(self.report, break_)
        names = Counter(function.function for function in functions_worth_counting(self.report, functions) or functions)
        shown_names = [f"`{name}`{f' ({times_text(number)})' if number > 1 else ''}" for name, number in names.items()]
        return join_words(shown_names, ", ", _MAX_NAMES)

    def way_out(self, break_: Break) -> str:
        """Return advice on compiling the functions that run eagerly because of a break; empty if there is none."""
        skipped = lookup.functions_skipped_by(self.report, break_)
        return next((function.way_out for function in skipped if function.way_out), "")

    @staticmethod
    def frames_of(break_: Break) -> list[str]:
        """Return the ids of the frames that report a break."""
        return list(dict.fromkeys(event.frame for event in break_.occurrences if event.frame is not None))

    def best_fix(self, break_: Break) -> Remedy | None:
        """Return the best remedy that works; ``None`` if there is none, or if it is shown with another break."""
        remedy = best_remedy(self.report, break_)
        if (
            remedy is None
            or remedies.number_of_other_break_with_remedy(self.report, remedy, self.numbers[break_.id]) is not None
        ):
            return None
        return remedy

    def shared_fix(self, group: Group) -> Remedy | None:
        """Return the best remedy for a group if that removes several breaks; ``None`` if each break needs its own."""
        best = best_remedy(self.report, group.breaks[0])
        return best if best is not None and len(best.breaks) > 1 else None

    @cached_property
    def compatible_remedies(self) -> list[Remedy]:
        """The remedies that can be applied together."""
        return remedies.compatible_remedies(self.report)

    @property
    def fix_above_breaks(self) -> Remedy | None:
        """The remedy to show above all breaks: the only one to apply, if it removes several; otherwise ``None``."""
        chosen_remedies = self.compatible_remedies
        return chosen_remedies[0] if len(chosen_remedies) == 1 and len(chosen_remedies[0].breaks) > 1 else None

    def trials_text(self, break_: Break) -> str:
        """Describe the outcome of the changes that do not work."""
        break_remedies = remedies.remedies_for_break(self.report, break_)
        return remedies.trials_sentence(break_remedies) if break_remedies is not None else ""

    def number_ranges_text(self, items: Iterable[Break | Group]) -> str:
        """Return the break numbers of a list's items for the front end, in the order of the list: "1 3-7 9"."""
        first_breaks = [item.breaks[0] if isinstance(item, Group) else item for item in items]
        return " ".join(number_ranges([self.numbers[break_.id] for break_ in first_breaks], "-"))

    @cached_property
    def _remedy_indexes(self) -> dict[str, int]:
        return {remedy.id: index for index, remedy in enumerate(self.report.remedies or [])}

    def remedy_index(self, remedy: Remedy) -> int:
        """Return the index of a remedy in the report, which identifies it in the front end."""
        return self._remedy_indexes[remedy.id]

    @property
    def begins_with_recompiles(self) -> bool:
        """Whether the recompiles are shown first, because there are no breaks."""
        return bool(self.report.recompiles) and not self.report.breaks

    @property
    def offers_trials(self) -> bool:
        """Whether trials can start, because there are breaks or recompiles, and trials are missing or interrupted."""
        remedy_list = self.report.remedies
        is_complete = remedy_list is not None and all(remedy.reason != INTERRUPTED_REASON for remedy in remedy_list)
        return bool(self.report.breaks or self.report.recompiles) and not is_complete

    @staticmethod
    def stack_tree_of(break_: Break) -> list[StackNode]:
        """Return the stacks that lead to a break, as a tree with the outermost frames first."""
        return stack_tree(_all_stacks(break_))

    @staticmethod
    def details_title(break_: Break, further_advice: list[Advice], detail: str) -> str:
        """Return the title of the collapsed details of a break: "2 other ways, stack of 4 lines, detail"."""
        line_count = len({(location.source, location.line) for stack in _all_stacks(break_) for location in stack})
        parts = [
            f"{len(further_advice)} other way{'s' if len(further_advice) > 1 else ''}" if further_advice else "",
            f"stack of {line_count} line{'s' if line_count > 1 else ''}" if line_count else "",
            "detail" if detail else "",
        ]
        return ", ".join(part for part in parts if part).capitalize() or "More"

    # Graphs, frames, scopes.

    def span_text(self, graph: Graph) -> str:
        """Return the range of a graph's lines in its first source; without any lines, the first line of its frame."""
        lines = [line.line for line in graph.lines if line.source == graph.lines[0].source]
        if not lines:
            frame = lookup.frames(self.report).get(graph.frame)
            return self._short_location_text(frame.location) if frame is not None and frame.location is not None else ""
        first, last = min(lines), max(lines)
        return f"line {first}" if first == last else f"lines {first} to {last}"

    def _short_location_text(self, location: Location) -> str:
        name = self.links.source_name(location)
        return f"{name}:{location.line}" if name else f"line {location.line}"

    @cached_property
    def _op_rows(self) -> OpRows:
        return OpRows(self.links)

    def op_rows(self, ops: list[Op]) -> Markup:
        """Return operations as rows of a table."""
        return Markup("".join(map(self._op_rows.row, ops)))  # noqa: S704 - our templates escape every value

    def code_line_count(self, graph: Graph) -> int:
        """Return the number of lines in a graph's code."""
        return graph.code.rstrip("\n").count("\n") + 1

    def shows_code(self, graph: Graph) -> bool:
        """Return whether the static markup shows a graph's code; it leaves out long code."""
        return self.code_line_count(graph) <= self.limits.code

    def highlight_code(self, code: str) -> Markup:
        """Return Python source as coloured markup."""
        return highlight_python(code.rstrip("\n"))

    def role_text(self, frame: Frame) -> str:
        """Return the role of a frame: "entry", "call", "resume at 15"."""
        resume = lookup.resumes(self.report).get(frame.resume or "")
        if resume is not None and resume.location is not None:
            return f"resume at {resume.location.line}"
        return frame.role

    def short_reason(self, skipped: Skipped) -> str:
        """Return, in a few words, why a function runs eagerly; if there is no short reason, return its line."""
        if skipped.kind != "other" or skipped.location is None:
            return skipped.kind
        return self._short_location_text(skipped.location)

    def callees(self, skipped: Skipped) -> list[str]:
        """Return the ids of the compiled frames that an eager function calls."""
        return [ident for ident in skipped.callees if self.refs.frame(ident)]

    def scope_depth(self, scope: Scope) -> int:
        """Return how many scopes contain a scope."""
        scopes, depth = lookup.scopes(self.report), 0
        while depth < _MAX_SCOPE_DEPTH and (parent := scopes.get(scope.parent or "")) is not None:
            scope, depth = parent, depth + 1
        return depth


def _split_minor(groups: list[Group]) -> tuple[list[Group], list[Break]]:
    """Separate the minor breaks from the groups of other breaks, unless there are too few of them to fold."""
    minor = [break_ for group in groups for break_ in group.breaks if break_.minor]
    other_groups = [group for group in groups if not group.breaks[0].minor]
    return (other_groups, minor) if len(minor) >= _MIN_FOLDED_BREAKS and other_groups else (groups, [])


def _all_stacks(break_: Break) -> list[list[Location]]:
    return [stack for stack in (break_.stack, *(event.stack for event in break_.occurrences)) if stack]


#: Calls are followed to this depth; a recursion may be deeper.
_MAX_CALL_DEPTH = 200


@dataclass(frozen=True, slots=True)
class RunStep:
    """One step of a run, and the part of the report that it is about.

    ``graph``: a graph was captured; ``break``: a break ended a graph or prevented one; ``eager``: a function runs
    eagerly; ``error``: compilation raised.
    """

    kind: Literal["graph", "break", "eager", "error"]
    graph: Graph | None = None
    frame: Frame | None = None
    skipped_function: Skipped | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class NestedStep:
    """A step of a run, with the names of the functions whose calls contain it, outermost first."""

    step: RunStep
    calls: tuple[str, ...]


def run_steps(report: Report) -> list[NestedStep]:
    """Return the steps of a run in order. A break that several frames report is a step only of the frame that broke."""
    return _StepFinder(report).steps()


class _StepFinder:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._numbers = break_numbers(report)
        self._graphs = {graph.id: graph for graph in report.graphs}
        positions = {frame.id: position for position, frame in enumerate(report.frames)}
        self._frame_by_break = {break_.id: _frame_of_break(positions, break_) for break_ in report.breaks}
        self._eager_by_frame: dict[str, list[Skipped]] = {}
        self._eager_by_break: dict[str | None, list[Skipped]] = {}
        for skipped in functions_worth_counting(report, report.skipped):
            if skipped.frame is not None:
                self._eager_by_frame.setdefault(skipped.frame, []).append(skipped)
            else:
                self._eager_by_break.setdefault(skipped.break_, []).append(skipped)
        frame_ids = {frame.id for frame in report.frames}
        self._called_frames: dict[str | None, list[Frame]] = {}
        for frame in report.frames:
            self._called_frames.setdefault(frame.caller if frame.caller in frame_ids else None, []).append(frame)
        self._visited_ids: set[str] = set()

    def steps(self) -> list[NestedStep]:
        """Return the steps of the run; eager functions that belong to no frame of the report come last."""
        steps = [step for frame in self._called_frames.get(None, ()) for step in self._steps_of_call(frame, 0)]
        # Frames that call each other in a cycle have no outermost frame.
        steps += [step for frame in self._report.frames for step in self._steps_of_call(frame, 0)]
        for remaining_functions in (*self._eager_by_frame.values(), *self._eager_by_break.values()):
            steps += [NestedStep(RunStep("eager", skipped_function=skipped), ()) for skipped in remaining_functions]
        return steps

    def _steps_of_call(self, frame: Frame, depth: int) -> list[NestedStep]:
        """Return the steps of a frame, of its resume functions and of the frames it calls.

        If there are several steps, the name of the frame's function is added to the calls of each step.
        """
        pending = deque([(frame, depth)])
        steps: list[NestedStep] = []
        while pending:
            current, level = pending.popleft()
            if current.id in self._visited_ids:
                continue
            self._visited_ids.add(current.id)
            steps += [NestedStep(step, ()) for step in self._steps_of_frame(current)]
            for called_frame in self._called_frames.get(current.id, ()):
                if called_frame.role == "resume" or level >= _MAX_CALL_DEPTH:
                    pending.append((called_frame, level))
                elif called_frame.id not in self._visited_ids:
                    steps += self._steps_of_call(called_frame, level + 1)
        if len(steps) == 1 or frame.role == "resume":
            return steps
        return [
            NestedStep(nested_step.step, (frame.function, *nested_step.calls)[:_MAX_NAMES]) for nested_step in steps
        ]

    def _steps_of_frame(self, frame: Frame) -> Iterator[RunStep]:
        for name in frame.graphs:
            if name in self._graphs:
                yield RunStep("graph", graph=self._graphs[name], frame=frame)
        for ident in frame.breaks:
            if self._frame_by_break.get(ident) == frame.id:
                yield RunStep("break", frame=frame, number=self._numbers.get(ident))
            # Eager functions that Dynamo never traced are listed after the break, in the first frame that reports it.
            yield from (RunStep("eager", skipped_function=skipped) for skipped in self._eager_by_break.pop(ident, ()))
        if frame.outcome == "error":
            yield RunStep("error", frame=frame)
        yield from (
            RunStep("eager", skipped_function=skipped, frame=frame)
            for skipped in self._eager_by_frame.pop(frame.id, ())
        )


def _frame_of_break(positions: Mapping[str, int], break_: Break) -> str | None:
    """Return the frame in which a break occurred: the last that reports it, because callers report first."""
    frames = [event.frame for event in break_.occurrences if event.frame in positions]
    return max(frames, key=lambda ident: positions[ident or ""], default=None)

"""Fold break events into breaks: one location in the source and one reason is one break, however often it occurs.

The text of a message cannot be the key: it differs between the frames in which a break occurs. See :class:`BreakTable`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from itertools import takewhile
from operator import and_
from typing import TYPE_CHECKING, Any, Literal

from jupyter_graphbreak.analysis import messages
from jupyter_graphbreak.analysis.ledger import BreakEvent
from jupyter_graphbreak.analysis.locations import shown_stack
from jupyter_graphbreak.knowledge import hints, owners
from jupyter_graphbreak.knowledge.causes import known_cause
from jupyter_graphbreak.knowledge.known_bugs import bug_with_message
from jupyter_graphbreak.knowledge.switches import CodeLocation, switches_for
from jupyter_graphbreak.records import additions
from jupyter_graphbreak.records.records import StackFrame, line_in_resume_name, original_name
from jupyter_graphbreak.report.schema import Advice, Break, Diagnostic, Occurrence, Reason, Setting, WhatIf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jupyter_graphbreak.analysis.ledger import FrameLedger
    from jupyter_graphbreak.analysis.locations import Sources
    from jupyter_graphbreak.analysis.messages import Cause
    from jupyter_graphbreak.analysis.scopes import ScopeTable
    from jupyter_graphbreak.knowledge.entries import BranchUse
    from jupyter_graphbreak.records.records import CompileKey
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Owner, Resume, Skipped

#: The location of the break that created a resume function: function, file and line.
_Origin = tuple[str, str, int | None]
#: The registry's name for a branch that depends on a tensor. Such a break creates two resume functions: one continues
#: if the condition holds, and the other if it does not.
_BRANCHING_TYPE = "Data-dependent branching"


@dataclass
class _ResumeOrigin:
    """A frame that ended on a line, with the numbers of breaks of each kind that precede its resume functions there."""

    preceding_counts: Counter[str]
    has_two_resumes: bool


class SameLineBreaks:
    """Counts, for each resume function of a run, the breaks that precede it on the line in its name.

    If several frames can have created a resume function, only the breaks that precede all of them are counted, so that
    one break is never reported as two. ``is_reached_again`` receives a file, a line and whether the break is at a
    branch; it returns whether a function can reach the same expression on the line again without a loop around it.
    """

    def __init__(self, is_reached_again: Callable[[str, int, bool], bool]) -> None:
        self._is_reached_again = is_reached_again
        self._entered_keys: set[CompileKey] = set()
        self._origins: dict[_Origin, list[_ResumeOrigin]] = {}
        self._preceding_counts: dict[tuple[int | None, int], Counter[str]] = {}  # by the frame id

    def enter_frame(self, frame: FrameLedger) -> None:
        """Count the breaks that precede a frame. Frames must be entered in the order in which they were compiled."""
        if frame.key in self._entered_keys:  # compiled again after a reset, which recreates all resume functions
            for table in (self._entered_keys, self._origins, self._preceding_counts):
                table.clear()
        self._entered_keys.add(frame.key)
        name, filename, _ = frame.code
        line = line_in_resume_name(name)
        frame_id = frame.key.autograd, frame.key.frame
        if line is None or (frame.key.compile > 0 and frame_id in self._preceding_counts):
            return
        origins = self._origins.get((original_name(name), filename, line), [])
        counts = (origin.preceding_counts for origin in origins)
        self._preceding_counts[frame_id] = reduce(and_, counts) if origins else Counter()
        if len(origins) == 1 and not origins[0].has_two_resumes:
            origins.clear()

    def count_preceding(self, frame: FrameLedger, event: BreakEvent) -> int:
        """Return the number of breaks of an event's kind that precede a frame on the line of the event."""
        name, _, _ = frame.code
        stack_frame = _stack_frame_of(frame, event)
        if (
            stack_frame is None
            or event.message.is_inlined
            or stack_frame.line != line_in_resume_name(name)
            or stack_frame.line is None
        ):
            return 0
        if self._is_reached_again(stack_frame.filename, stack_frame.line, _is_branch(event)):
            return 0
        return self._preceding_counts.get((frame.key.autograd, frame.key.frame), Counter())[_cause_name(event)]

    def leave_frame(self, frame: FrameLedger) -> None:
        """Store the event at which a frame ends, because it may create resume functions."""
        event = frame.ending_event
        stack_frame = _stack_frame_of(frame, event) if event is not None else None
        if event is None or stack_frame is None:
            return
        name, filename, _ = frame.code
        preceding_counts: Counter[str] = Counter()
        if stack_frame.line == line_in_resume_name(name):
            preceding_counts.update(self._preceding_counts.get((frame.key.autograd, frame.key.frame), {}))
        if not event.message.is_inlined:
            preceding_counts[_cause_name(event)] += 1
        self._origins.setdefault((original_name(name), filename, stack_frame.line), []).append(
            _ResumeOrigin(preceding_counts, has_two_resumes=_is_branch(event))
        )


def _stack_frame_of(frame: FrameLedger, event: BreakEvent) -> StackFrame | None:
    return next(iter(frame.stack_from(event)), None)


def _is_branch(event: BreakEvent) -> bool:
    return event.message.cause.gb_type == _BRANCHING_TYPE


def _cause_name(event: BreakEvent) -> str:
    return event.message.cause.gb_id or event.message.cause.gb_type


def advise(
    cause: Cause,
    consequence: Reason | None,
    owner: Owner = "own",
    stack: Sequence[CodeLocation] = (),
    use: BranchUse | None = None,
    code: str | None = None,
) -> list[Advice]:
    """Return the advice about a break, most useful first.

    ``consequence`` is the reason why the frame could not resume, and ``use`` the purpose of a branch that breaks, if it
    is known.
    """
    bug = bug_with_message(cause.explanation or "") if cause.gb_id is None else None
    if bug is not None:
        return [Advice(bug.advice_in_report, "graphbreak")]
    if advice_on_operator := hints.advice_on_operator_error(cause.explanation or ""):
        return [Advice(advice_on_operator, "graphbreak")]
    if owner != "own":
        return [Advice(text, "graphbreak") for text in _advice_outside_own_code(owner, cause, stack)]
    knowledge = known_cause(cause.gb_id, cause.gb_type, cause.context, code)
    our_advice = dict(knowledge.advice_by_use).get(use, knowledge.advice) if use is not None else knowledge.advice
    advice = [Advice(our_advice, "graphbreak")] if our_advice is not None else []
    advice += [Advice(hint) for hint in cause.hints if not hint.startswith(hints.GENERAL_HINTS)]
    if consequence is not None:
        consequence_advice = known_cause(consequence.gb_id, consequence.gb_type).advice_if_consequence
        advice += [Advice(consequence_advice, "graphbreak")] if consequence_advice is not None else []
    return advice


def _advice_outside_own_code(owner: Owner, cause: Cause, stack: Sequence[CodeLocation]) -> list[str]:
    """Return advice about a line of a library or of PyTorch: known switches and settings, then a workaround.

    A deliberate break needs no switch, so there is only one piece of advice about it.
    """
    knowledge = known_cause(cause.gb_id, cause.gb_type, cause.context)
    if knowledge.is_deliberate:
        is_in_optimizer = owner == "torch" and bool(stack) and (stack[-1].path or "").startswith("torch/optim/")
        return [owners.OPTIMIZER_ADVICE if is_in_optimizer else owners.ADVICE_BY_OWNER[owner].advice_if_deliberate]
    switches = list(switches_for(stack[-1], stack[:-1])) if stack else []
    changes = [switch.advice for switch in switches if not switch.is_second_choice]
    changes += [knowledge.setting_advice] if knowledge.setting_advice is not None else []
    changes += [switch.advice for switch in switches if switch.is_second_choice]
    # The library's part of the stack: the reader's own code calls it.
    library_stack = takewhile(lambda location: location.path is not None, reversed(stack))
    is_library_optimizer = owner == "library" and any(
        (location.path or "").startswith("torch/optim/") for location in library_stack
    )
    advice = (
        owners.LIBRARY_OPTIMIZER_ADVICE if is_library_optimizer else owners.ADVICE_BY_OWNER[owner].advice_if_unintended
    )
    return [*changes, advice]


Outcome = Literal["resumed", "skipped", "error"]
_SEVERITY: dict[Outcome, int] = {"resumed": 0, "skipped": 1, "error": 2}


@dataclass
class FoldedBreak:
    """A break while its events are being collected.

    ``preceding_count`` is the number of breaks of the same kind that are known to precede this one on its line.
    ``reasons`` contains Dynamo's internal names for the reason why the graphs before the break ended.
    """

    ident: str
    first_event: BreakEvent
    location: Location | None
    preceding_count: int = 0
    occurrences: list[Occurrence] = field(default_factory=list)
    consequence: Reason | None = None
    reasons: list[str] = field(default_factory=list)


#: The function that IPython's kernels put in place of ``open``.
_OPEN_OF_IPYTHON = "_modified_open"
#: The beginning of the file name of the interpreter's own modules, such as ``<frozen genericpath>``.
_FROZEN_MODULE = "<frozen "


class BreakTable:
    """Folds the events of a run into its breaks.

    Two events are occurrences of one break if they share the source line and the GB id (or else the type), and their
    column ranges overlap; unknown columns overlap any range. If both events lack columns, the number of breaks of that
    kind that precede them on the line must be the same. ``scopes`` receives the breaks that each scope governs, and
    ``notes`` a warning if the run and the source disagree.
    """

    def __init__(self, sources: Sources, scopes: ScopeTable, notes: list[Diagnostic]) -> None:
        self._sources = sources
        self._scopes = scopes
        self._notes = notes
        self._breaks: list[FoldedBreak] = []
        self._breaks_by_line: dict[tuple[Any, str], list[FoldedBreak]] = {}
        self._ids_by_frame: dict[str, list[str]] = {}
        self._break_by_event: dict[int, FoldedBreak] = {}  # by id() of the event
        self._events: list[tuple[BreakEvent, str]] = []  # event, id of its break
        self._same_line = SameLineBreaks(sources.is_reached_again)
        #: The breaks by the code that runs eagerly because of them.
        self._breaks_by_eager_code: dict[tuple[str, str, int], list[FoldedBreak]] = {}

    def fold(self, frame: FrameLedger) -> None:
        """Fold the events of a frame."""
        self._same_line.enter_frame(frame)
        for event in frame.events:
            message = event.message
            stack = shown_stack(self._sources, event.context.whole_stack or event.message.stack)
            name, filename, line = frame.code
            if event.context.stack:
                is_branch = message.cause.gb_type == _BRANCHING_TYPE
                location = self._sources.stack_frame_location(
                    self._innermost_stack_frame(event.context), is_branch=is_branch
                )
            elif message.file is not None:
                function = message.stack[-1].function if message.stack else name
                location = self._sources.location(message.file, message.line, function)
            else:
                location = self._sources.location(filename, line, name)
            outcome = _event_outcome(event)
            occurrence = Occurrence(
                frame=frame.ident,
                attempt=event.attempt,
                stack=stack or ([location] if location else []),
                outcome=outcome,
                consequence=_reason_of_cause(message.consequence),
                setting=self._setting_at(event.context, location),
            )
            folded_break = self._add_occurrence(
                event, location, occurrence, frame.ident, self._same_line.count_preceding(frame, event)
            )
            if event is frame.give_up_event and not event.reached_user:
                self._breaks_by_eager_code.setdefault(frame.code, []).append(folded_break)
        self._same_line.leave_frame(frame)
        ending_break = self.ending_break(frame)
        if ending_break is not None:
            ending_break.reasons += [
                graph.stacks.reason for graph in frame.graphs if graph.stacks and graph.stacks.reason
            ]

    def fold_refusal(self, refusal: additions.FrameRefused, order: int) -> tuple[FoldedBreak, Setting | None]:
        """Add a break on the first line of a function that Dynamo refused to compile, such as a generator.

        Return the break with the setting in force there. ``order`` is the number of the refusal's record.
        """
        registry = refusal.registry
        cause = messages.Cause(
            gb_type=registry.gb_type or refusal.reason,
            gb_id=registry.gb_id,
            url=messages.page_url(registry.gb_id),
            explanation=registry.explanation,
            hints=registry.hints,
        )
        event = BreakEvent(messages.BreakMessage(cause), 0, refusal, order, gave_up=True, reached_user=refusal.raised)
        name, filename, line = refusal.code_key or ("?", "?", None)
        location = self._sources.location(filename, line, name)
        stack = shown_stack(self._sources, refusal.above)
        outcome: Outcome = "error" if refusal.raised else "skipped"
        setting = self._setting_at(refusal, location)
        occurrence = Occurrence(
            frame=None, attempt=0, stack=[*stack, *([location] if location else [])], outcome=outcome, setting=setting
        )
        folded_break = self._add_occurrence(event, location, occurrence, None)
        if refusal.code_key is not None and not refusal.raised:
            self._breaks_by_eager_code.setdefault(refusal.code_key, []).append(folded_break)
        return folded_break, setting

    def find_causing_break(self, refusal: additions.FrameRefused, order: int) -> FoldedBreak | None:
        """Return the earlier break that made Dynamo try to compile a library's generator, if there is one.

        Dynamo inlines a generator if it compiles the caller. It only tries to compile the generator separately if the
        caller runs eagerly: inside the call at which a graph broke, or in a function that runs eagerly after a break.
        """
        if refusal.raised or refusal.filename is None or self._is_user_code(refusal.filename, refusal.name or ""):
            return None
        earlier_events = [(event, ident) for event, ident in reversed(self._events) if event.order < order]
        by_id = {folded_break.ident: folded_break for folded_break in self._breaks}
        is_in_library_call = True  # the stack frame is in the library, or on the user's line that calls the library
        for stack_frame in reversed(refusal.above):
            for event, ident in earlier_events:
                stack = event.context.whole_stack or event.message.stack
                # Further out, a call runs eagerly only if it broke the graph itself, not if a break occurred inside it.
                if any(
                    _is_on_lines_of(stack_frame, caller) for caller in (stack if is_in_library_call else stack[-1:])
                ):
                    return by_id[ident]
            eager_code = stack_frame.function, stack_frame.filename, stack_frame.first_line or 0
            for folded_break in reversed(self._breaks_by_eager_code.get(eager_code, [])):
                if folded_break.first_event.order < order:
                    return folded_break
            is_in_library_call &= not self._is_user_code(stack_frame.filename, stack_frame.function)
        return None

    def _is_user_code(self, filename: str, function: str) -> bool:
        return self._sources.kind(filename, function) in {"cell", "file"}

    def break_of_event(self, event: BreakEvent) -> FoldedBreak:
        """Return the break that an event was folded into."""
        return self._break_by_event[id(event)]

    def ids_of_frame(self, frame: str) -> list[str]:
        """Return the ids of the breaks in a frame."""
        return self._ids_by_frame.get(frame, [])

    def ending_break(self, frame: FrameLedger) -> FoldedBreak | None:
        """Return the break that ends the graphs of a frame and starts its resume functions, if there is one."""
        return self._break_by_event.get(id(frame.ending_event)) if frame.ending_event is not None else None

    def first_break_through(self, filename: str, line: int) -> FoldedBreak | None:
        """Return the first break whose stacks include a line; ``None`` if there is none."""
        location = self._sources.location(filename, line)
        for folded_break in self._breaks:
            for occurrence in folded_break.occurrences:
                if location is not None and any(
                    (location.source, location.line) == (o.source, o.line) for o in occurrence.stack
                ):
                    return folded_break
        return None

    def breaks(self, resumes: Iterable[Resume], skipped: Iterable[Skipped]) -> list[Break]:
        """Return the breaks, each with the ids of its resume functions and of the functions it makes run eagerly."""
        resumes_by_break: dict[str | None, list[str]] = {}
        for resume in resumes:
            resumes_by_break.setdefault(resume.break_, []).append(resume.id)
        skipped_by_break: dict[str | None, list[str]] = {}
        for function in skipped:
            skipped_by_break.setdefault(function.break_, []).append(function.id)
        return [
            self._make_break(
                folded_break, resumes_by_break.get(folded_break.ident, []), skipped_by_break.get(folded_break.ident, [])
            )
            for folded_break in self._breaks
        ]

    def what_if(self, torch: str | None) -> WhatIf:
        """Return which breaks would have been errors under stricter settings, as far as the run shows."""
        ordered_events = sorted(self._events, key=lambda pair: pair[0].order)
        ids_of_errors: list[str] = []
        for event, ident in ordered_events:
            # A stricter scope around the compiled function would not override the scopes that the function opens.
            inner_scopes = [scope for scope in event.context.scopes if scope.inside]
            # The scope around a generator function is closed when the generator runs.
            is_refusal = isinstance(event.context, additions.FrameRefused)
            if not is_refusal and (not inner_scopes or inner_scopes[-1].value) and ident not in ids_of_errors:
                ids_of_errors.append(ident)
        captured_breaks, error = _fullgraph_outcome(
            ordered_events, fullgraph_captures=hints.fullgraph_captures_values(torch)
        )
        return WhatIf(ids_of_errors, error, captured_breaks)

    def _setting_at(self, context: additions.EventContext, location: Location | None) -> Setting | None:
        setting, disagreement = self._scopes.setting_in_force(context, location)
        if disagreement is not None:
            place = (
                f"On {self._sources.name_by_id(location.source)} line {location.line}"
                if location is not None
                else "At a break"
            )
            note = Diagnostic("warning", f"{place}: {disagreement}.")
            if note not in self._notes:
                self._notes.append(note)
        return setting

    @staticmethod
    def _innermost_stack_frame(context: additions.EventContext) -> StackFrame:
        """Return the innermost stack frame of a break that has source code.

        IPython's wrapper of ``open`` and frozen modules, such as the module of ``os.path.exists``, have none: the
        result is then the stack frame that calls them.
        """
        stack_frames = [*context.whole_stack, *context.stack]
        with_source = (
            stack_frame
            for stack_frame in reversed(stack_frames)
            if stack_frame.function != _OPEN_OF_IPYTHON and not stack_frame.filename.startswith(_FROZEN_MODULE)
        )
        return next(with_source, stack_frames[-1])

    def _add_occurrence(
        self,
        event: BreakEvent,
        location: Location | None,
        occurrence: Occurrence,
        frame: str | None,
        preceding_count: int = 0,
    ) -> FoldedBreak:
        cause = event.message.cause
        line = (location.source, location.line) if location else None
        candidates = self._breaks_by_line.setdefault((line, cause.gb_id or cause.gb_type), [])
        folded_break = next(
            (candidate for candidate in candidates if _may_be_same(candidate, location, preceding_count)), None
        )
        if folded_break is None:
            folded_break = FoldedBreak(f"b{len(self._breaks) + 1}", event, location, preceding_count)
            self._breaks.append(folded_break)
            candidates.append(folded_break)
        elif folded_break.location is not None and folded_break.location.column is None and location is not None:
            folded_break.location = location  # the new occurrence may have columns
        self._break_by_event[id(event)] = folded_break
        self._events.append((event, folded_break.ident))
        self._scopes.add_governed_break(occurrence.setting, folded_break.ident)
        if occurrence not in folded_break.occurrences:
            folded_break.occurrences.append(occurrence)
        if folded_break.consequence is None:
            folded_break.consequence = occurrence.consequence
        if frame is not None and folded_break.ident not in (breaks := self._ids_by_frame.setdefault(frame, [])):
            breaks.append(folded_break.ident)
        return folded_break

    def _make_break(self, folded_break: FoldedBreak, resumes: list[str], skipped: list[str]) -> Break:
        cause = folded_break.first_event.message.cause
        setting = folded_break.occurrences[-1].setting
        owner = self._sources.owner(_stack_to_break(folded_break.first_event))
        code_locations = self._code_locations(folded_break) if owner != "own" else []
        use = self._sources.branch_use(folded_break.location) if owner == "own" else None
        code = folded_break.location.code if folded_break.location is not None else None
        outcome = max((occurrence.outcome for occurrence in folded_break.occurrences), key=_SEVERITY.__getitem__)
        return Break(
            id=folded_break.ident,
            gb_id=cause.gb_id,
            gb_type=cause.gb_type,
            url=cause.url,
            explanation=self._sources.with_user_names(cause.explanation),
            hints=cause.hints,
            context=self._sources.with_user_names(cause.context),
            consequence=folded_break.consequence,
            location=folded_break.location,
            stack=folded_break.occurrences[0].stack,
            occurrences=folded_break.occurrences,
            outcome=outcome,
            resumes=resumes,
            skipped=skipped,
            scope=setting.scope if setting is not None else None,
            setting=setting,
            also_reported_as=messages.other_names(cause, folded_break.reasons),
            advice=advise(cause, folded_break.consequence, owner, code_locations, use, code),
            owner=owner,
        )

    def _code_locations(self, folded_break: FoldedBreak) -> list[CodeLocation]:
        """Return the stack of a break as code locations, outermost first; the last one is that of the break itself."""
        files = self._sources.files()
        stack = list(folded_break.occurrences[0].stack)
        if folded_break.location is not None and stack[-1:] != [folded_break.location]:
            stack.append(folded_break.location)
        paths = [self._sources.module_path(files[location.source]) for location in stack]
        return [
            CodeLocation(path, location.function, location.code) for path, location in zip(paths, stack, strict=True)
        ]


def _fullgraph_outcome(
    ordered_events: list[tuple[BreakEvent, str]], *, fullgraph_captures: bool | None
) -> tuple[list[str], str | None]:
    """Return the breaks that ``fullgraph=True`` captures, and the break at or before which it raises an error.

    ``fullgraph_captures`` tells whether this release of PyTorch captures more under ``fullgraph=True``, if known.
    """
    captured_ids: list[str] = []
    for event, ident in ordered_events:
        cause = event.message.cause
        knowledge = known_cause(cause.gb_id, cause.gb_type)
        may_capture = knowledge.is_captured_by_fullgraph or hints.is_captured_by_fullgraph(cause.hints)
        if may_capture and fullgraph_captures is None:
            return [], None
        if not may_capture or not fullgraph_captures:
            # After a captured break the run takes a different path, so a break that followed from it may not occur.
            return captured_ids, None if captured_ids and hints.may_follow_from_earlier_break(cause.hints) else ident
        if ident not in captured_ids:
            captured_ids.append(ident)
        if event.gave_up:  # the rest of the frame, which ran eagerly, would be traced as part of the caller
            break
    return captured_ids, None


def _stack_to_break(event: BreakEvent) -> list[StackFrame]:
    """Return an event's stack including the break; for a refused function, the stack ends with that function."""
    context = event.context
    stack = context.whole_stack or event.message.stack
    if isinstance(context, additions.FrameRefused) and context.filename is not None:
        return [*stack, StackFrame(context.filename, context.firstlineno, context.name or "")]
    return stack


def _is_on_lines_of(stack_frame: StackFrame, other: StackFrame) -> bool:
    """Return whether a stack frame is on one of the lines of a different one."""
    if stack_frame.filename != other.filename or stack_frame.line is None or other.line is None:
        return False
    return other.line <= stack_frame.line <= (other.end_line or other.line)


def _may_be_same(folded_break: FoldedBreak, location: Location | None, preceding_count: int) -> bool:
    """Return whether a break on the line of a folded break may be the same break."""
    if (
        folded_break.location is not None
        and location is not None
        and folded_break.location.column is location.column is None
    ):
        return folded_break.preceding_count == preceding_count
    return _may_overlap(folded_break.location, location)


def _may_overlap(one: Location | None, other: Location | None) -> bool:
    """Return whether two locations on one line may belong to one expression.

    The location of an event may be the whole expression, a part of it, or only the line.
    """
    if one is None or other is None or one.column is None or other.column is None:
        return True
    left, right = sorted([one, other], key=lambda location: location.column or 0)
    are_separate = left.end_line == left.line and (left.end_column or 0) <= (right.column or 0)
    return not are_separate


def _event_outcome(event: BreakEvent) -> Outcome:
    if event.reached_user:
        return "error"
    if event.gave_up or event.message.continuation in {"skip", "rest eager"}:
        return "skipped"
    return "resumed"


def _reason_of_cause(cause: messages.Cause | None) -> Reason | None:
    return Reason(cause.gb_id, cause.gb_type) if cause is not None else None

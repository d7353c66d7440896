"""Sort the records of a run into one ledger per compiled frame, before any part of the report is built."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak.analysis import messages
from jupyter_graphbreak.records import additions
from jupyter_graphbreak.records.package_paths import PackagePaths
from jupyter_graphbreak.records.records import (
    StackFrame,
    is_resume_name,
    original_name,
    read_recompile_reasons,
    strip_inserted_frames,
)
from jupyter_graphbreak.report.schema import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyter_graphbreak.records.records import CompileKey, Record

_LIMIT_CAUSE = "Dynamo recompile limit exceeded"
#: Events that both our hooks and PyTorch's trace record, with the kinds of their records.
_EVENT_KINDS = (
    ("Frames", additions.FrameStarted.kind, "dynamo_start"),
    ("Graphs", additions.GraphStacks.kind, "dynamo_output_graph"),
    ("Graph breaks", additions.BreakLogged.kind, "artifact:dynamo_graph_break_reason"),
)
#: The beginning of a break that torch 2.9 adds if the user's logs show graph breaks: it repeats the error for which
#: Dynamo gave up on a frame.
_REPETITION_PREFIX = "Graph break: skip: "
#: The beginning of a record that PyTorch writes before a break at which the backend failed; both have the same reason.
_ANNOUNCEMENT_PREFIX = "WON'T CONVERT "
_UNKNOWN_TORCH_NOTE = "This PyTorch may differ from the supported releases; the report may be incomplete."
_MAX_ERROR_LENGTH = 300
#: The beginnings of PyTorch's reasons for not recompiling a frame; torch < 2.11 writes the last two.
_LIMIT_REASONS = (_LIMIT_CAUSE, "recompile_limit reached", "accumulated_recompile_limit reached")


@dataclass
class BreakEvent:
    """One occurrence of a break in one frame; ``order`` is the number of its record among all records of the run."""

    message: messages.BreakMessage
    attempt: int
    context: additions.EventContext
    order: int = 0
    gave_up: bool = False
    reached_user: bool = False


@dataclass
class CapturedGraph:
    """The code of a graph, with the attempt that captured it, and its operations' call stacks if they were recorded."""

    code: str
    stacks: additions.GraphStacks | None
    attempt: int


@dataclass
class FrameLedger:
    """The contents of all records about one compilation of one code object, or about its refusal."""

    key: CompileKey
    ident: str
    start: additions.FrameStarted | None = None
    trace_stack: list[StackFrame] = field(default_factory=list)
    events: list[BreakEvent] = field(default_factory=list)
    graphs: list[CapturedGraph] = field(default_factory=list)
    resumes: list[additions.ResumeCreated] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    are_metrics_lost: bool = False  # for all frames of the run
    backward_s: float = 0.0
    resume_line: int | None = None
    recompile_reasons: list[str] = field(default_factory=list)
    #: The lines that turn a dynamic size into a constant, by the size's name in guards, such as ``L['x'].size()[0]``.
    specializations: dict[str, StackFrame] = field(default_factory=dict)
    refusal: additions.FrameRefused | None = None
    refusal_order: int = 0
    skip_frame: additions.FrameGivenUp | None = None
    attempt_count: int = 1
    pending_break: additions.BreakLogged | None = None
    pending_failure: additions.FrameFailed | None = None
    pending_graph: additions.GraphStacks | None = None

    @property
    def is_started(self) -> bool:
        """Whether Dynamo began to compile the frame."""
        return self.start is not None or bool(self.trace_stack)

    @property
    def code(self) -> tuple[str, str, int]:
        """The function, the file and the first line of the code object."""
        if self.start is not None:
            return self.start.code_key
        if self.trace_stack:
            stack_frame = self.trace_stack[-1]
            return stack_frame.function, stack_frame.filename, stack_frame.line or 0
        if self.refusal is not None and self.refusal.code_key is not None:
            return self.refusal.code_key
        return "?", "?", 0

    @property
    def is_compiled(self) -> bool:
        """Whether the frame has compiled code; the metric ``has_guarded_code`` is also true for skipped frames."""
        if self.are_metrics_lost:
            return self.give_up_event is None and bool(self.graphs or self.resumes)
        return self.metrics.get("graph_op_count") is not None

    @property
    def lasting_graphs(self) -> list[CapturedGraph]:
        """The graphs that belong to the frame in the end.

        After a restart, the graphs of earlier attempts do not run, and if Dynamo gives up on the frame, none does. A
        graph whose failure raised an error in the user's program is kept, because it shows which code failed.
        """
        if self.give_up_event is not None and not self.give_up_event.reached_user:
            return []
        last_attempt = max((graph.attempt for graph in self.graphs), default=0)
        return [graph for graph in self.graphs if graph.attempt == last_attempt]

    def stack_from(self, event: BreakEvent) -> list[StackFrame]:
        """Return the stack of an event from this frame inwards, without callers; empty if the stack lacks this frame.

        In a log, functions of the same name in one file that call each other cannot be told apart.
        """
        if event.context.stack:
            return list(event.context.stack)
        stack = event.message.stack
        start = 0
        for caller in self.trace_stack[:-1]:
            line_of_caller = _line_in_function(caller)
            position = next(
                (i for i in range(start, len(stack)) if _line_in_function(stack[i]) == line_of_caller), None
            )
            start = position + 1 if position is not None else start
        name, filename, line = self.code
        for index, stack_frame in enumerate(stack[start:], start=start):
            is_same_function = _line_in_function(stack_frame)[:2] == (filename, original_name(name))
            if is_same_function and (is_resume_name(name) or (stack_frame.line or 0) >= line):
                return stack[index:]
        return []

    @property
    def ending_event(self) -> BreakEvent | None:
        """The event that ends the frame's graphs and starts its resume functions, if there is one."""
        return next((event for event in reversed(self.events) if not event.gave_up), None)

    @property
    def give_up_event(self) -> BreakEvent | None:
        """The event at which Dynamo gave up on the frame, if it did."""
        return next((event for event in reversed(self.events) if event.gave_up), None)


@dataclass
class Ledger:
    """The contents of a run's records, sorted.

    ``has_all_skip_reasons`` tells whether this PyTorch gives a reason for every frame that Dynamo did not begin to
    compile. ``refusals`` belong to no frame's ledger; each comes with the number of its record. ``settings`` are listed
    with the id of the first frame for which they were in force. ``cudagraph_skips`` are the reasons why graphs run
    without a CUDA graph, each with its frame, or ``None`` if PyTorch made this decision only when the graph ran.
    ``counts_by_kind`` leaves out records that repeat or announce a break.
    """

    frames: list[FrameLedger] = field(default_factory=list)
    skips: list[additions.FrameSkipped] = field(default_factory=list)
    differing_answers: list[additions.AnswerDiffers] = field(default_factory=list)
    repeated_compilations: list[additions.CompiledAgain] = field(default_factory=list)
    saves_of_compiled: list[additions.CompiledSaved] = field(default_factory=list)
    has_all_skip_reasons: bool = True
    refusals: list[tuple[additions.FrameRefused, int]] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    run: additions.RunSummary = field(default_factory=additions.RunSummary)
    error: additions.RunEnded | None = None
    device: additions.DeviceUsed = field(default_factory=additions.DeviceUsed)
    texts: list[additions.SourceRecorded] = field(default_factory=list)
    scopes: list[additions.ScopeOpened] = field(default_factory=list)
    compiled_for_report: list[additions.CompiledForReport] = field(default_factory=list)
    settings: list[tuple[str, additions.SettingsInForce]] = field(default_factory=list)
    cudagraph_skips: list[tuple[FrameLedger | None, str]] = field(default_factory=list)
    packages: PackagePaths = field(default_factory=PackagePaths)
    record_count: int = 0
    counts_by_kind: Counter[str] = field(default_factory=Counter)

    @property
    def started_frames(self) -> list[FrameLedger]:
        """The frames that Dynamo began to compile, in order."""
        return [frame for frame in self.frames if frame.is_started]

    def resume_lines(self) -> dict[int, int]:
        """Return the line on which each resume function continues, by the id of its code object."""
        resumes = (resume for frame in self.started_frames for resume in frame.resumes)
        return {resume.id: resume.line for resume in resumes if resume.id is not None and resume.line is not None}

    def first_compilation(self, frame: FrameLedger) -> FrameLedger | None:
        """Return the first compilation of a frame's code object, if it was recorded and is not the frame itself."""
        return next(iter(self.earlier_compilations(frame)), None)

    def earlier_compilations(self, frame: FrameLedger) -> list[FrameLedger]:
        """Return the recorded compilations of a frame's code object before the frame itself, in order."""
        earlier = itertools.takewhile(lambda other: other is not frame, self.frames)
        compilations = [other for other in earlier if other.key.frame == frame.key.frame and other.is_started]
        # After a reset, Dynamo uses the frame ids again, from compile id 0 on, for other code objects.
        indexes_of_first = [index for index, other in enumerate(compilations) if other.key.compile == 0]
        return compilations[indexes_of_first[-1] :] if indexes_of_first else compilations

    def refused_code(self, frame: FrameLedger) -> tuple[str, str, int]:
        """Return the code of a frame that Dynamo refused to compile, from the refusal or from its first compilation."""
        if frame.refusal is not None and frame.refusal.code_key is not None:
            return frame.refusal.code_key
        return (self.first_compilation(frame) or frame).code


def _line_in_function(stack_frame: StackFrame) -> tuple[str, str, int | None]:
    return stack_frame.filename, original_name(stack_frame.function), stack_frame.line


def read_records(records: Iterable[Record]) -> Ledger:
    """Return the ledger of a recording; a record that cannot be read becomes a diagnostic."""
    records = list(records)
    run = next(reversed(additions.additions_of(records, additions.RunSummary)), additions.RunSummary())
    reader = _LedgerReader(PackagePaths(tuple(run.library_roots), tuple(run.package_folders)))
    for record in records:
        reader.read(record)
    reader.ledger.notes += reader.notes()
    for frame in reader.ledger.frames:
        _infer_give_up(frame)
    error = reader.ledger.error
    # After an interrupt, the trace may lack the last events that our hooks recorded.
    if reader.ledger.run.watched and (error is None or error.status != "interrupted"):
        _mark_lost_metrics(reader.ledger.started_frames)
        reader.ledger.notes += _disagreements(reader.ledger)
    return reader.ledger


#: The attributes in which the ledger lists our additions to the trace.
_ATTRIBUTE_BY_ADDITION: dict[type[additions.Addition], str] = {
    additions.AnswerDiffers: "differing_answers",
    additions.CompiledAgain: "repeated_compilations",
    additions.CompiledSaved: "saves_of_compiled",
    additions.CompiledForReport: "compiled_for_report",
    additions.FrameSkipped: "skips",
    additions.ScopeOpened: "scopes",
    additions.SourceRecorded: "texts",
}


class _LedgerReader:
    """Reads records one by one into a ledger; its private attributes are the state between two records."""

    def __init__(self, packages: PackagePaths) -> None:
        self.ledger = Ledger(packages=packages)
        self._file_names: dict[int, str] = {}  # by their number in the trace
        self._current_frames: dict[CompileKey, FrameLedger] = {}
        self._compilation_counts: Counter[CompileKey] = Counter()
        self._unreadable_counts: Counter[str] = Counter()
        self._first_errors: dict[str, str] = {}

    def read(self, record: Record) -> None:
        """Read one record; if that fails, count the record as unreadable."""
        ledger = self.ledger
        ledger.record_count += 1
        ledger.counts_by_kind[record.kind] += 1
        try:
            addition = additions.read_addition(record)
            if addition is None:
                self._read_entry(record)
            elif not self._read_run_addition(record, addition) and record.compile_key is not None:
                self._read_frame_addition(record, record.compile_key, addition)
        except Exception as error:  # noqa: BLE001 - an unreadable record must not prevent reading the others
            message = f"{type(error).__name__}: {error}"
            self._unreadable_counts[record.kind] += 1
            self._first_errors.setdefault(record.kind, message[:_MAX_ERROR_LENGTH])

    def notes(self) -> list[Diagnostic]:
        """Return a warning for each kind of unreadable record: the number of records, and the first error."""
        return [
            Diagnostic(
                "warning",
                f"{'A record' if number == 1 else f'{number} records'} {kind[:_MAX_ERROR_LENGTH]!r} could not be read "
                f"({self._first_errors[kind]}).",
            )
            for kind, number in self._unreadable_counts.items()
        ]

    def _read_run_addition(self, record: Record, addition: additions.Addition) -> bool:
        """Read an addition that can occur outside of any frame; return whether it was one."""
        ledger = self.ledger
        if (name := _ATTRIBUTE_BY_ADDITION.get(type(addition))) is not None:
            getattr(ledger, name).append(addition)
            return True
        match addition:
            case additions.RunSummary():
                ledger.run = addition
            case additions.RunEnded():
                ledger.error = addition
            case additions.DeviceUsed():
                ledger.device = addition
            case additions.Note() | additions.WatchFailed() | additions.UnrecordedSkips():
                ledger.has_all_skip_reasons &= not isinstance(addition, additions.UnrecordedSkips)
                ledger.notes += _diagnostics(addition)
            case additions.SettingsInForce():
                ledger.settings.append((str(record.compile_key), addition))
            case additions.CudagraphSkipped(reason=reason):
                key = record.compile_key
                ledger.cudagraph_skips.append((self._frame(key) if key is not None else None, reason))
            case additions.FrameRefused():
                self._add_refusal(record.compile_key, addition)
            case _:
                return False
        return True

    def _add_refusal(self, key: CompileKey | None, refusal: additions.FrameRefused) -> None:
        if refusal.reason == "recompile limit" and key is not None:
            frame = self._frame(key)
            frame.refusal, frame.refusal_order = refusal, self.ledger.record_count
        else:
            self.ledger.refusals.append((refusal, self.ledger.record_count))

    def _read_frame_addition(self, record: Record, key: CompileKey, addition: additions.Addition) -> None:
        if isinstance(addition, additions.FrameStarted):
            self._frame(key, is_new=True).start = addition
            return
        frame = self._frame(key)
        frame.attempt_count = max(frame.attempt_count, record.attempt + 1)
        match addition:
            case additions.BreakLogged():
                frame.pending_break = msgspec.structs.replace(
                    addition, stack=strip_inserted_frames(addition.stack, self.ledger.packages)
                )
            case additions.FrameGivenUp():
                frame.skip_frame = addition
            case additions.FrameFailed():
                frame.pending_failure = msgspec.structs.replace(
                    addition, stack=strip_inserted_frames(addition.stack, self.ledger.packages)
                )
            case additions.GraphStacks():
                frame.pending_graph = addition
                if frame.graphs and frame.graphs[-1].stacks is None:  # in some releases, PyTorch's record comes first
                    frame.graphs[-1].stacks = addition
                    frame.pending_graph = None
            case additions.ResumeCreated():
                frame.resumes.append(addition)
            case additions.ResumedAt(line=line):
                frame.resume_line = line
            case _:
                pass

    def _named_stack(self, stack: Iterable[Mapping[str, Any]]) -> list[StackFrame]:
        """Return a stack of PyTorch's trace with file names in place of the trace's numbers."""
        return [
            StackFrame(self._file_names.get(item["filename"], str(item["filename"])), item["line"], item["name"])
            for item in stack
        ]

    def _read_entry(self, record: Record) -> None:
        """Read one of PyTorch's own records."""
        data, key = record.data, record.compile_key
        if record.kind == "str":
            self._file_names[data[1]] = data[0]
            return
        if key is None:
            return
        if record.kind == "dynamo_start":
            current = self._current_frames.get(key)
            # Our hooks recorded the same start just before. In a log there is only this record.
            frame = current if current is not None and not current.trace_stack else self._frame(key, is_new=True)
            frame.trace_stack = self._named_stack(data["stack"])
            return
        # PyTorch gives the reasons for a recompile before it begins to compile.
        frame = self._frame(key, is_new=record.kind == "artifact:recompile_reasons")
        frame.attempt_count = max(frame.attempt_count, record.attempt + 1)
        match record.kind:
            case "artifact:dynamo_graph_break_reason":
                _add_break(frame, record, self.ledger)
            case "artifact:dynamo_error":
                _add_failure(frame, record, self.ledger)
            case "artifact:recompile_reasons":
                frame.recompile_reasons = read_recompile_reasons(record.payload or "")
            case "symbolic_shape_specialization":
                stack = strip_inserted_frames(self._named_stack(data["user_stack"] or []), self.ledger.packages)
                frame.specializations |= dict.fromkeys(data["sources"], stack[-1]) if stack else {}
            case "dynamo_output_graph":
                frame.graphs.append(CapturedGraph(record.payload or "", frame.pending_graph, record.attempt))
                frame.pending_graph = None
            case "compilation_metrics":
                # A damaged record does not replace the values of an intact one.
                frame.metrics |= {name: value for name, value in data.items() if value is not None}
                if frame.refusal is None and str(data.get("fail_reason") or "").startswith(_LIMIT_REASONS):
                    frame.refusal = additions.FrameRefused(
                        reason="recompile limit", registry=additions.RegistryEntry(_LIMIT_CAUSE)
                    )
                self._note_cudagraph_skip(frame, data)
            case "bwd_compilation_metrics":
                seconds = data.get("entire_frame_compile_time_s") or data.get("inductor_compile_time_s")
                frame.backward_s += seconds or 0.0
                self._note_cudagraph_skip(frame, data)
            case _:
                pass

    def _note_cudagraph_skip(self, frame: FrameLedger, metrics: dict[str, Any]) -> None:
        """Add the last reason why a frame has no CUDA graph, unless it is recorded. Logs have it only here."""
        reason = metrics.get("cudagraph_skip_reason")
        if reason and (frame, reason) not in self.ledger.cudagraph_skips:
            self.ledger.cudagraph_skips.append((frame, str(reason)))

    def _frame(self, key: CompileKey, *, is_new: bool = False) -> FrameLedger:
        """Return the ledger of a compile id; ``is_new`` starts a new one, because Dynamo reuses ids after a reset."""
        current = self._current_frames.get(key)
        if current is not None and not (is_new and (current.is_started or current.metrics)):
            return current
        self._compilation_counts[key] += 1
        number = self._compilation_counts[key]
        frame = FrameLedger(key, f"{key}#{number}" if number > 1 else str(key))
        self._current_frames[key] = frame
        self.ledger.frames.append(frame)
        return frame


def _diagnostics(addition: additions.Note | additions.WatchFailed | additions.UnrecordedSkips) -> list[Diagnostic]:
    match addition:
        case additions.WatchFailed():
            return [Diagnostic("error", addition.sentence)]
        case additions.UnrecordedSkips(what=what):
            return [Diagnostic("info", f"Not recorded with this PyTorch: {what}.")] if what else []
        case _:
            return [Diagnostic(addition.level, addition.message)]


def _add_break(frame: FrameLedger, record: Record, ledger: Ledger) -> None:
    text = record.payload or ""
    event = frame.give_up_event
    if text.startswith(_REPETITION_PREFIX) and event is not None:
        event.reached_user = False  # the function ran eagerly, so the user saw no error
        ledger.counts_by_kind[record.kind] -= 1
        return
    if text.startswith(_ANNOUNCEMENT_PREFIX):
        ledger.counts_by_kind[record.kind] -= 1
        return
    hooked_break, frame.pending_break = frame.pending_break, None
    message = messages.parse_break(text, hooked_break.type if hooked_break is not None else None, ledger.packages)
    # The messages of torch < 2.11 contain links to some pages only.
    if hooked_break is not None and hooked_break.gb_id is not None and message.cause.gb_id is None:
        cause = msgspec.structs.replace(
            message.cause, gb_id=hooked_break.gb_id, url=messages.page_url(hooked_break.gb_id)
        )
        message = msgspec.structs.replace(message, cause=cause)
    frame.events.append(
        BreakEvent(message, record.attempt, hooked_break or additions.EventContext(), ledger.record_count)
    )


def _add_failure(frame: FrameLedger, record: Record, ledger: Ledger) -> None:
    hooked_failure, frame.pending_failure = frame.pending_failure, None
    exception = hooked_failure.type if hooked_failure is not None else None
    if hooked_failure is not None and hooked_failure.message is not None:
        parsed_reason = messages.parse_reason(hooked_failure.message, exception)
        stack = list(hooked_failure.stack)
        if failure_stack := messages.stack_of_backend_failure(parsed_reason.cause):
            stack[-1:] = failure_stack  # torch 2.9 gives the first line of the function
        if constraint_stack := messages.stack_of_constraint_violation(parsed_reason.cause):
            stack = constraint_stack  # PyTorch checks the constraints after tracing, when no line is being traced
            hooked_failure = msgspec.structs.replace(hooked_failure, stack=stack)
        leaf = stack[-1] if stack else None
        file, line = (leaf.filename, leaf.line) if leaf is not None else (None, None)
        message = messages.BreakMessage(parsed_reason.cause, parsed_reason.consequence, None, file, line, stack)
    else:
        message = _with_callers(frame, messages.parse_error(record.payload or "", exception, ledger.packages))
    reached_user = hooked_failure is not None and hooked_failure.raised
    last = frame.events[-1] if frame.events else None
    is_same_attempt = last is not None and last.attempt == record.attempt
    if last is not None and is_same_attempt and not reached_user and _is_same_cause(last.message, message):
        last.gave_up = True  # Dynamo logged the event, then the same exception left the frame
        if message.consequence is not None and last.message.consequence is None:
            last.message = msgspec.structs.replace(last.message, consequence=message.consequence)
        return
    if hooked_failure is None and last is not None and is_same_attempt:
        last.gave_up = (
            True  # in a log: Dynamo gave up at this break; an error that reaches the user has no break record
        )
        return
    context = hooked_failure or additions.EventContext()
    frame.events.append(
        BreakEvent(
            message,
            record.attempt,
            context,
            ledger.record_count,
            gave_up=True,
            reached_user=reached_user or hooked_failure is None,
        )
    )


def _with_callers(frame: FrameLedger, message: messages.BreakMessage) -> messages.BreakMessage:
    """Return an error's message with the frame's callers at the beginning of the stack."""
    if not (frame.trace_stack and message.stack):
        return message
    *callers, own_frame = frame.trace_stack
    first = message.stack[0]
    if (first.filename, original_name(first.function)) != (own_frame.filename, original_name(own_frame.function)):
        return message
    return msgspec.structs.replace(message, stack=[*callers, *message.stack])


def _infer_give_up(frame: FrameLedger) -> None:
    """Mark the last break of a frame as giving up if the frame has neither code nor resume function (torch < 2.11)."""
    has_result = frame.is_compiled or frame.resumes
    if frame.metrics and frame.events and frame.give_up_event is None and not has_result:
        frame.events[-1].gave_up = True


def _mark_lost_metrics(frames: list[FrameLedger]) -> None:
    """Mark the metrics as lost if they show no compiled code although there are graphs or resume functions."""
    if any(frame.is_compiled for frame in frames):
        return
    frames_without_failure = (
        frame for frame in frames if frame.give_up_event is None and not frame.metrics.get("fail_type")
    )
    if any(frame.graphs or frame.resumes for frame in frames_without_failure):
        for frame in frames:
            frame.are_metrics_lost = True


def _disagreements(ledger: Ledger) -> list[Diagnostic]:
    """Return a warning for each kind of event that our hooks, the trace or both failed to record.

    If the hooks and the trace disagree, a report without breaks may be wrong.
    """
    sentences = []
    for events, hook_kind, trace_kind in _EVENT_KINDS:
        hook_count, trace_count = ledger.counts_by_kind[hook_kind], ledger.counts_by_kind[trace_kind]
        if hook_count != trace_count and (events == "Frames" or not hook_count or not trace_count):
            sentences.append(f"{events} recorded by the hooks: {hook_count}, by PyTorch's trace: {trace_count}.")
    compilations = max(ledger.run.begun or 0, *(ledger.counts_by_kind[kind] for kind in _EVENT_KINDS[0][1:]))
    any_refused = any(frame.refusal for frame in ledger.frames)  # Dynamo also counts a refused compilation
    if compilations and not ledger.started_frames and not any_refused:
        noun = "compilation" if compilations == 1 else "compilations"
        sentences.append(f"Dynamo began {compilations} {noun}, but none could be read.")
    if any(frame.are_metrics_lost for frame in ledger.started_frames):
        sentences.append("PyTorch's trace lacks the outcomes of the frames; they are inferred.")
    return [Diagnostic("warning", f"{sentence} {_UNKNOWN_TORCH_NOTE}") for sentence in sentences]


def _is_same_cause(one: messages.BreakMessage, other: messages.BreakMessage) -> bool:
    return one.cause.gb_type == other.cause.gb_type and (other.line is None or one.line == other.line)

"""Read records, in order, into one ledger per compiled frame: what was said of it, before anything is made of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak.analysis.torch_text import messages
from jupyter_graphbreak.recording import additions
from jupyter_graphbreak.recording.package_paths import PackagePaths
from jupyter_graphbreak.recording.records import StackEntry, is_resume, plain_function, strip_torch_function_frames
from jupyter_graphbreak.report.schema import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.recording.records import CompileKey, Record

_LIMIT = "Dynamo recompile limit exceeded"
#: What both our hooks and PyTorch's trace see, by different means, and under which names.
_PAIRS = (
    ("frames", additions.FrameStarted.kind, "dynamo_start"),
    ("graphs", additions.GraphStacks.kind, "dynamo_output_graph"),
    ("graph breaks", additions.BreakSeen.kind, "artifact:dynamo_graph_break_reason"),
)
_SO = "This torch may differ from those that are known here; the report may be incomplete."
_MOST_WORDS = 300
#: PyTorch's reasons for a recompile are shorter, and fewer than the compilations that its limit allows.
_LONGEST_REASON, _MOST_REASONS = 4000, 100
_LIMITS = (_LIMIT, "recompile_limit reached", "accumulated_recompile_limit reached")  # the last two before torch 2.11


@dataclass
class Event:
    """One break as it happened in one frame.

    Parameters
    ----------
    order : int
        The number of the record among all records of the run.
    failed : bool
        Whether the frame was given up at this event.
    raised : bool
        Whether the error went up to the user.
    """

    message: messages.BreakMessage
    attempt: int
    conditions: additions.Conditions
    order: int = 0
    failed: bool = False
    raised: bool = False


@dataclass
class CapturedGraph:
    """The code of a graph, and the call stacks of its operations where they were recorded."""

    code: str
    stacks: additions.GraphStacks | None


@dataclass
class FrameLedger:
    """What the records say of one compilation of one code object, or of its refusal."""

    key: CompileKey
    ident: str
    start: additions.FrameStarted | None = None
    trace_stack: list[StackEntry] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    graphs: list[CapturedGraph] = field(default_factory=list)
    resumes: list[additions.ResumeMade] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    metrics_lost: bool = False  # for all frames of the run
    backward_s: float = 0.0
    resumed_at: int | None = None
    recompile_reasons: list[str] = field(default_factory=list)
    refusal: additions.FrameRefused | None = None
    refusal_order: int = 0
    left_at: additions.FrameGivenUp | None = None
    attempts: int = 1
    pending_break: additions.BreakSeen | None = None
    pending_failure: additions.FrameFailed | None = None
    pending_graph: additions.GraphStacks | None = None

    @property
    def started(self) -> bool:
        """Whether Dynamo began to compile it."""
        return self.start is not None or bool(self.trace_stack)

    @property
    def code(self) -> tuple[str, str, int]:
        """Function, file and first line of the code object."""
        if self.start is not None:
            return self.start.place
        if self.trace_stack:
            entry = self.trace_stack[-1]
            return entry.function, entry.filename, entry.line or 0
        if self.refusal is not None and self.refusal.code is not None:
            return self.refusal.code
        return "?", "?", 0

    @property
    def compiled(self) -> bool:
        """Whether code came of it; ``has_guarded_code`` is true of skipped frames, too."""
        if self.metrics_lost:
            return self.given_up is None and bool(self.graphs or self.resumes)
        return self.metrics.get("graph_op_count") is not None

    def within(self, event: Event) -> list[StackEntry]:
        """Return the stack of an event from this frame on, without its callers; empty where the frame is not in it.

        A log writes two functions of one name that call each other as one.
        """
        if event.conditions.stack:
            return list(event.conditions.stack)
        stack = event.message.stack
        at = 0
        for caller in self.trace_stack[:-1]:
            known = next((i for i in range(at, len(stack)) if _line(stack[i]) == _line(caller)), None)
            at = known + 1 if known is not None else at
        name, filename, line = self.code
        for index, entry in enumerate(stack[at:], start=at):
            same = _line(entry)[:2] == (filename, plain_function(name))
            if same and (is_resume(name) or (entry.line or 0) >= line):
                return stack[index:]
        return []

    @property
    def ending(self) -> Event | None:
        """The event at which its graphs end and its resume functions begin, where there is one."""
        return next((event for event in reversed(self.events) if not event.failed), None)

    @property
    def given_up(self) -> Event | None:
        """The event at which Dynamo gave it up, where it did."""
        return next((event for event in reversed(self.events) if event.failed), None)


@dataclass
class Ledger:
    """What the records of a run say, sorted.

    Parameters
    ----------
    sees_skips : bool
        Whether this torch says of every frame that Dynamo did not begin why.
    refusals : list of (FrameRefused, int)
        Each with the number of its record.
    settings : list of (str, SettingsInForce)
        Each with the id of the frame from which on they were in force.
    cudagraph_skips : list of (FrameLedger or None, str)
        Why a graph runs without a CUDA graph; without a frame where that was found out when it ran.
    packages : PackagePaths
        Where the run's packages are.
    kinds : Counter
        How many records there are of each kind.
    """

    frames: list[FrameLedger] = field(default_factory=list)
    skips: list[additions.FrameSkipped] = field(default_factory=list)
    compiled_again: list[additions.CompiledAgain] = field(default_factory=list)
    sees_skips: bool = True
    refusals: list[tuple[additions.FrameRefused, int]] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    run: additions.RunSummary = field(default_factory=additions.RunSummary)
    error: additions.RunEnded | None = None
    device: additions.DeviceUsed = field(default_factory=additions.DeviceUsed)
    texts: list[additions.SourceRecorded] = field(default_factory=list)
    scopes: list[additions.ScopeOpened] = field(default_factory=list)
    compiled: list[additions.CompiledForReport] = field(default_factory=list)
    settings: list[tuple[str, additions.SettingsInForce]] = field(default_factory=list)
    cudagraph_skips: list[tuple[FrameLedger | None, str]] = field(default_factory=list)
    packages: PackagePaths = field(default_factory=PackagePaths)
    records: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def started(self) -> list[FrameLedger]:
        """The frames that Dynamo began, in order."""
        return [frame for frame in self.frames if frame.started]

    def resumed_lines(self) -> dict[int, int]:
        """Return the line at which each resume function goes on, by the id of its code object."""
        made = (made for frame in self.started for made in frame.resumes)
        return {made.id: made.line for made in made if made.id is not None and made.line is not None}

    def first_id(self, frame: FrameLedger) -> str | None:
        """Return the id of the first compilation of a frame's code object, if it is another one."""
        first = next((f for f in self.frames if f.key.frame == frame.key.frame and f.started and f is not frame), None)
        return first.ident if first is not None else None

    def limited_code(self, frame: FrameLedger) -> tuple[str, str, int]:
        """Return the code of a frame that was not begun any more: the refusal's, or that of its first compilation."""
        if frame.refusal is not None and frame.refusal.code is not None:
            return frame.refusal.code
        earlier = (f for f in self.frames if f.started and f.key.frame == frame.key.frame)
        first = next(earlier, None)
        return first.code if first is not None else frame.code


def _line(entry: StackEntry) -> tuple[str, str, int | None]:
    return entry.filename, plain_function(entry.function), entry.line


def read_records(records: Iterable[Record]) -> Ledger:
    """Read a recording; a record that cannot be read is a diagnostic."""
    records = list(records)
    run = next(reversed(additions.additions_of(records, additions.RunSummary)), additions.RunSummary())
    reader = _Reader(PackagePaths(tuple(run.library_roots), tuple(run.package_folders)))
    for record in records:
        reader.read(record)
    reader.ledger.notes += reader.notes()
    for frame in reader.ledger.frames:
        _infer_giving_up(frame)
    error = reader.ledger.error
    # An interrupt may have come between what our hooks saw and what the trace says of it.
    if reader.ledger.run.watched and (error is None or error.status != "interrupted"):
        _infer_loss_of_metrics(reader.ledger.started)
        reader.ledger.notes += _doubts(reader.ledger)
    return reader.ledger


#: Entries of ours that the ledger lists, each in the attribute of this name.
_LISTS: dict[type[additions.Addition], str] = {
    additions.CompiledAgain: "compiled_again",
    additions.CompiledForReport: "compiled",
    additions.FrameSkipped: "skips",
    additions.ScopeOpened: "scopes",
    additions.SourceRecorded: "texts",
}


class _Reader:
    """Reads one record after the other; what it holds beside the ledger is where it stands."""

    def __init__(self, packages: PackagePaths) -> None:
        self.ledger = Ledger(packages=packages)
        self._names: dict[int, str] = {}  # of files, by the number that the trace gives them
        self._current: dict[CompileKey, FrameLedger] = {}
        self._begun: Counter[CompileKey] = Counter()
        self._unreadable: Counter[str] = Counter()
        self._why: dict[str, str] = {}

    def read(self, record: Record) -> None:
        """Take one record; what cannot be read is noted."""
        ledger = self.ledger
        ledger.records += 1
        ledger.kinds[record.kind] += 1
        try:
            addition = additions.read_addition(record)
            if addition is None:
                self._read_entry(record)
            elif not self._read_about_run(record, addition) and record.compile_key is not None:
                self._read_about_frame(record, record.compile_key, addition)
        except Exception as error:  # noqa: BLE001 - one record that cannot be read leaves the others
            why = f"{type(error).__name__}: {error}"
            self._unreadable[record.kind] += 1
            self._why.setdefault(record.kind, why[:_MOST_WORDS])

    def notes(self) -> list[Diagnostic]:
        """Return what is to be said of records that could not be read: of each kind how many, and why the first."""
        return [
            Diagnostic("warning", f"{_records(number)} {kind[:_MOST_WORDS]!r} could not be read ({self._why[kind]}).")
            for kind, number in self._unreadable.items()
        ]

    def _read_about_run(self, record: Record, addition: additions.Addition) -> bool:
        """Take an entry of ours that is about no single frame; return whether it was one."""
        ledger = self.ledger
        if (listed := _LISTS.get(type(addition))) is not None:
            getattr(ledger, listed).append(addition)
            return True
        match addition:
            case additions.RunSummary():
                ledger.run = addition
            case additions.RunEnded():
                ledger.error = addition
            case additions.DeviceUsed():
                ledger.device = addition
            case additions.Note() | additions.WatchFailed() | additions.Blind():
                ledger.sees_skips = ledger.sees_skips and not isinstance(addition, additions.Blind)
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
            frame.refusal, frame.refusal_order = refusal, self.ledger.records
        else:
            self.ledger.refusals.append((refusal, self.ledger.records))

    def _read_about_frame(self, record: Record, key: CompileKey, addition: additions.Addition) -> None:
        if isinstance(addition, additions.FrameStarted):
            self._frame(key, fresh=True).start = addition
            return
        frame = self._frame(key)
        frame.attempts = max(frame.attempts, record.attempt + 1)
        match addition:
            case additions.BreakSeen():
                frame.pending_break = msgspec.structs.replace(
                    addition, stack=strip_torch_function_frames(addition.stack, self.ledger.packages)
                )
            case additions.FrameGivenUp():
                frame.left_at = addition
            case additions.FrameFailed():
                frame.pending_failure = msgspec.structs.replace(
                    addition, stack=strip_torch_function_frames(addition.stack, self.ledger.packages)
                )
            case additions.GraphStacks():
                frame.pending_graph = addition
                if frame.graphs and frame.graphs[-1].stacks is None:  # in some releases the trace's entry comes first
                    frame.graphs[-1].stacks = addition
                    frame.pending_graph = None
            case additions.ResumeMade():
                frame.resumes.append(addition)
            case additions.ResumedAt(line=line):
                frame.resumed_at = line
            case _:
                pass

    def _read_entry(self, record: Record) -> None:
        """Take an entry of PyTorch's own."""
        data, key = record.data, record.compile_key
        if record.kind == "str":
            self._names[data[1]] = data[0]
            return
        if key is None:
            return
        if record.kind == "dynamo_start":
            known = self._current.get(key)
            # Our own record of the same start came just before; without it this is the start.
            frame = known if known is not None and not known.trace_stack else self._frame(key, fresh=True)
            frame.trace_stack = [
                StackEntry(self._names.get(entry["filename"], str(entry["filename"])), entry["line"], entry["name"])
                for entry in data["stack"]
            ]
            return
        frame = self._frame(key)
        frame.attempts = max(frame.attempts, record.attempt + 1)
        match record.kind:
            case "artifact:dynamo_graph_break_reason":
                _add_break(frame, record, self.ledger)
            case "artifact:dynamo_error":
                _add_failure(frame, record, self.ledger)
            case "artifact:recompile_reasons":
                frame.recompile_reasons = _reasons(record.payload or "")
            case "dynamo_output_graph":
                frame.graphs.append(CapturedGraph(record.payload or "", frame.pending_graph))
                frame.pending_graph = None
            case "compilation_metrics":
                frame.metrics = data
                if frame.refusal is None and str(data.get("fail_reason") or "").startswith(_LIMITS):
                    frame.refusal = additions.FrameRefused(
                        reason="recompile limit", registry=additions.RegistryEntry(_LIMIT)
                    )
                self._note_cudagraph_skip(frame, data)
            case "bwd_compilation_metrics":
                seconds = data.get("entire_frame_compile_time_s") or data.get("inductor_compile_time_s")
                frame.backward_s += seconds or 0.0
                self._note_cudagraph_skip(frame, data)
            case _:
                pass

    def _note_cudagraph_skip(self, frame: FrameLedger, metrics: dict[str, Any]) -> None:
        """Take the reason that metrics hold, the last one of a frame, where no hook of ours took it, as in a log."""
        reason = metrics.get("cudagraph_skip_reason")
        if reason and (frame, reason) not in self.ledger.cudagraph_skips:
            self.ledger.cudagraph_skips.append((frame, str(reason)))

    def _frame(self, key: CompileKey, *, fresh: bool = False) -> FrameLedger:
        """Return the ledger of a compile id; ``fresh`` begins a new one, as after ``torch._dynamo.reset()``."""
        known = self._current.get(key)
        if known is not None and not (fresh and known.started):
            return known
        self._begun[key] += 1
        again = self._begun[key]
        made = FrameLedger(key, f"{key}#{again}" if again > 1 else str(key))
        self._current[key] = made
        self.ledger.frames.append(made)
        return made


def _diagnostics(addition: additions.Note | additions.WatchFailed | additions.Blind) -> list[Diagnostic]:
    match addition:
        case additions.WatchFailed():
            return [Diagnostic("error", f"Watching failed at {addition.hook}: {addition.message}.")]
        case additions.Blind(what=what):
            return [Diagnostic("info", f"Not seen with this torch: {what}.")] if what else []
        case _:
            return [Diagnostic(addition.level, addition.message)]


def _add_break(frame: FrameLedger, record: Record, ledger: Ledger) -> None:
    seen, frame.pending_break = frame.pending_break, None
    text = record.payload or ""
    if text.startswith("Graph break: ") and frame.pending_failure is not None:
        return  # logged once more when the frame is given up, if the user's logs show graph breaks
    message = messages.parse_break(text, seen.type if seen is not None else None, ledger.packages)
    if seen is not None and seen.gb_id is not None and message.cause.gb_id is None:  # torch < 2.11 links some only
        cause = msgspec.structs.replace(message.cause, gb_id=seen.gb_id, url=messages.page_of(seen.gb_id))
        message = msgspec.structs.replace(message, cause=cause)
    frame.events.append(Event(message, record.attempt, seen or additions.Conditions(), ledger.records))


def _add_failure(frame: FrameLedger, record: Record, ledger: Ledger) -> None:
    seen, frame.pending_failure = frame.pending_failure, None
    exception = seen.type if seen is not None else None
    if seen is not None and seen.message is not None:
        parsed = messages.parse_reason(seen.message, exception)
        leaf = seen.stack[-1] if seen.stack else None
        file, line = (leaf.filename, leaf.line) if leaf is not None else (None, None)
        message = messages.BreakMessage(parsed.cause, parsed.consequence, None, file, line, list(seen.stack))
    else:
        message = _within(frame, messages.parse_error(record.payload or "", exception, ledger.packages))
    raised = seen is not None and seen.raised
    last = frame.events[-1] if frame.events else None
    if last is not None and last.attempt == record.attempt and not raised and _same_cause(last.message, message):
        last.failed = True  # the event was logged, then the same exception left the frame
        if message.consequence is not None and last.message.consequence is None:
            last.message = msgspec.structs.replace(last.message, consequence=message.consequence)
        return
    if seen is None and last is not None and last.attempt == record.attempt:
        last.failed = True  # a log: Dynamo logs the break at which it gives a frame up, and an error it does not
        return
    conditions = seen or additions.Conditions()
    frame.events.append(
        Event(message, record.attempt, conditions, ledger.records, failed=True, raised=raised or seen is None)
    )


def _within(frame: FrameLedger, message: messages.BreakMessage) -> messages.BreakMessage:
    """Return an error's message with the stack that leads to its frame: its own begins there."""
    if not (frame.trace_stack and message.stack):
        return message
    *callers, own = frame.trace_stack
    first = message.stack[0]
    if (first.filename, plain_function(first.function)) != (own.filename, plain_function(own.function)):
        return message
    return msgspec.structs.replace(message, stack=[*callers, *message.stack])


def _infer_giving_up(frame: FrameLedger) -> None:
    """Note a frame as given up after whose break there is no code and no resume function; torch < 2.11 is silent."""
    left = frame.compiled or frame.resumes
    if frame.metrics and frame.events and frame.given_up is None and not left:
        frame.events[-1].failed = True


def _infer_loss_of_metrics(frames: list[FrameLedger]) -> None:
    """Note that a run has no metrics of its compiled frames: there are graphs, but no frame that became code."""
    if any(frame.compiled for frame in frames):
        return
    ended_well = (frame for frame in frames if frame.given_up is None and not frame.metrics.get("fail_type"))
    if any(frame.graphs or frame.resumes for frame in ended_well):
        for frame in frames:
            frame.metrics_lost = True


def _doubts(ledger: Ledger) -> list[Diagnostic]:
    """Return a warning for everything that only our hooks or only the trace saw, or neither.

    Where they do not agree, a report without breaks is no good news.
    """
    sentences = []
    for what, ours, torchs in _PAIRS:
        hooked, traced = ledger.kinds[ours], ledger.kinds[torchs]
        if hooked != traced and (what == "frames" or not hooked or not traced):
            sentences.append(f"Number of {what} that our hooks saw: {hooked}; that PyTorch's trace has: {traced}.")
    begun = max(ledger.run.begun or 0, *(ledger.kinds[kind] for kind in _PAIRS[0][1:]))
    refused = any(frame.refusal for frame in ledger.frames)  # that is counted, too
    if begun and not ledger.started and not refused:
        sentences.append(f"Dynamo began to compile ({begun}x), and nothing of that could be read.")
    if any(frame.metrics_lost for frame in ledger.started):
        sentences.append("PyTorch's trace does not say what came of the frames; their outcomes are inferred.")
    return [Diagnostic("warning", f"{sentence} {_SO}") for sentence in sentences]


def _same_cause(one: messages.BreakMessage, other: messages.BreakMessage) -> bool:
    return one.cause.gb_type == other.cause.gb_type and (other.line is None or one.line == other.line)


def _records(number: int) -> str:
    return "A record" if number == 1 else f"{number} records"


def _reasons(payload: str) -> list[str]:
    """Read the payload of ``recompile_reasons``: one reason is a bare string, several are a JSON list."""
    try:
        reasons = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        reasons = payload or []
    listed = reasons if isinstance(reasons, list) else [reasons]
    return [str(reason)[:_LONGEST_REASON] for reason in listed[:_MOST_REASONS]]

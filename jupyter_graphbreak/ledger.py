"""Read records, in order, into one ledger per compiled frame: what was said of it, before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak import break_message
from jupyter_graphbreak.report import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.records import CompileKey, Record

_LIMIT = "Dynamo recompile limit exceeded"


@dataclass
class Event:
    """One break as one frame met it."""

    message: break_message.BreakMessage
    attempt: int
    details: dict[str, Any]
    order: int = 0  # among all events of the run
    failed: bool = False  # the frame was given up at this event
    raised: bool = False  # ... and the error went up to the user


@dataclass
class FrameLedger:
    """What the records say of one compilation of one code object, or of its refusal."""

    key: CompileKey
    ident: str
    start: dict[str, Any] | None = None
    trace_stack: list[list[Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    graphs: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)
    resumes: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    backward_s: float = 0.0
    recompile_reasons: list[str] = field(default_factory=list)
    refusal: dict[str, Any] | None = None
    attempts: int = 1
    pending_break: dict[str, Any] | None = None
    pending_failure: dict[str, Any] | None = None
    pending_graph: dict[str, Any] | None = None

    @property
    def started(self) -> bool:
        """Whether Dynamo began to compile it."""
        return self.start is not None or bool(self.trace_stack)

    @property
    def code(self) -> tuple[str, str, int]:
        """Function, file and first line of the code object."""
        if self.start is not None:
            return self.start["name"], self.start["filename"], self.start["firstlineno"]
        if self.trace_stack:
            filename, line, name = self.trace_stack[-1][:3]
            return name, filename, line
        if self.refusal is not None and "name" in self.refusal:
            return self.refusal["name"], self.refusal["filename"], self.refusal["firstlineno"]
        return "?", "?", 0

    @property
    def compiled(self) -> bool:
        """Whether code came of it; ``has_guarded_code`` is true of skipped frames, too."""
        return self.metrics.get("graph_op_count") is not None

    @property
    def given_up(self) -> Event | None:
        """The event at which Dynamo gave it up, where it did."""
        return next((event for event in reversed(self.events) if event.failed), None)


@dataclass
class Ledger:
    """What the records of a run say, sorted."""

    frames: list[FrameLedger] = field(default_factory=list)
    skips: list[dict[str, Any]] = field(default_factory=list)
    sees_skips: bool = True  # this torch says of every frame that Dynamo did not begin why
    refusals: list[dict[str, Any]] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    device: dict[str, Any] = field(default_factory=dict)
    texts: list[dict[str, Any]] = field(default_factory=list)
    scopes: list[dict[str, Any]] = field(default_factory=list)
    records: int = 0

    @property
    def started(self) -> list[FrameLedger]:
        """The frames that Dynamo began, in order."""
        return [frame for frame in self.frames if frame.started]

    def first_id(self, frame: FrameLedger) -> str | None:
        """Return the id of the first compilation of a frame's code object, if it is another one."""
        first = next((f for f in self.frames if f.key.frame == frame.key.frame and f.started and f is not frame), None)
        return first.ident if first is not None else None

    def limited_code(self, frame: FrameLedger) -> tuple[str, str, int]:
        """Return the code of a frame that was not begun any more: the refusal's, or that of its first compilation."""
        if frame.refusal is not None and "name" in frame.refusal:
            return frame.refusal["name"], frame.refusal["filename"], frame.refusal["firstlineno"]
        earlier = (f for f in self.frames if f.started and f.key.frame == frame.key.frame)
        first = next(earlier, None)
        return first.code if first is not None else frame.code


def read_records(records: Iterable[Record]) -> Ledger:
    """Read a recording; a record that cannot be read is a diagnostic."""
    ledger = Ledger()
    names: dict[int, str] = {}
    current: dict[CompileKey, FrameLedger] = {}
    for record in records:
        ledger.records += 1
        try:
            _read_record(record, ledger, names, current)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            ledger.notes.append(
                Diagnostic("warning", f"A record {record.kind!r} could not be read ({type(error).__name__}: {error}).")
            )
    for frame in ledger.frames:
        _infer_giving_up(frame)
    return ledger


def _read_record(  # noqa: C901, PLR0912 - one case for each kind of record
    record: Record, ledger: Ledger, names: dict[int, str], current: dict[CompileKey, FrameLedger]
) -> None:
    data = record.data
    match record.kind:
        case "str":
            names[data[1]] = data[0]
        case "graphbreak_run":
            ledger.run = data
        case "graphbreak_error":
            ledger.error = data
        case "graphbreak_device":
            ledger.device = data
        case "graphbreak_note":
            ledger.notes.append(Diagnostic(data["level"], data["message"]))
        case "graphbreak_fault":
            ledger.notes.append(Diagnostic("error", f"Watching failed at {data['hook']}: {data['message']}."))
        case "graphbreak_blind":
            ledger.sees_skips = False
            ledger.notes.append(Diagnostic("info", f"Not seen with this torch: {data['what']}."))
        case "graphbreak_source":
            ledger.texts.append(data)
        case "graphbreak_skip":
            ledger.skips.append(data)
        case "graphbreak_scope":
            ledger.scopes.append(data)
        case "graphbreak_refusal":
            data = {**data, "order": ledger.records}
            key = record.compile_key
            if data.get("reason") == "recompile limit" and key is not None:
                _frame(ledger, current, key).refusal = data
            else:
                ledger.refusals.append(data)
        case _:
            key = record.compile_key
            if key is not None:
                _read_frame_record(record, ledger, names, current, key)


def _read_frame_record(  # noqa: C901, PLR0912 - one case for each kind of record
    record: Record,
    ledger: Ledger,
    names: dict[int, str],
    current: dict[CompileKey, FrameLedger],
    key: CompileKey,
) -> None:
    data = record.data
    if record.kind == "graphbreak_start":
        frame = _frame(ledger, current, key, fresh=True)
        frame.start = data
        return
    if record.kind == "dynamo_start":
        known = current.get(key)
        # Our own record of the same start came just before; without it this is the start.
        frame = known if known is not None and not known.trace_stack else _frame(ledger, current, key, fresh=True)
        frame.trace_stack = [
            [names.get(e["filename"], str(e["filename"])), e["line"], e["name"]] for e in data["stack"]
        ]
        return
    frame = _frame(ledger, current, key)
    frame.attempts = max(frame.attempts, record.attempt + 1)
    match record.kind:
        case "graphbreak_break":
            frame.pending_break = data
        case "graphbreak_failure":
            frame.pending_failure = data
        case "graphbreak_graph":
            frame.pending_graph = data
            if frame.graphs and frame.graphs[-1][1] is None:  # the trace's entry comes first in some releases
                frame.graphs[-1] = (frame.graphs[-1][0], data)
                frame.pending_graph = None
        case "graphbreak_resume":
            frame.resumes.append(data)
        case "artifact:dynamo_graph_break_reason":
            _add_break(frame, record, ledger.records)
        case "artifact:dynamo_error":
            _add_failure(frame, record, ledger.records)
        case "artifact:recompile_reasons":
            frame.recompile_reasons = _reasons(record.payload or "")
        case "dynamo_output_graph":
            frame.graphs.append((record.payload or "", frame.pending_graph))
            frame.pending_graph = None
        case "compilation_metrics":
            frame.metrics = data
            if frame.refusal is None and str(data.get("fail_reason") or "").startswith(_LIMIT):
                frame.refusal = {"reason": "recompile limit", "registry": {"gb_type": _LIMIT}}
        case "bwd_compilation_metrics":
            frame.backward_s += data.get("entire_frame_compile_time_s") or data.get("inductor_compile_time_s") or 0.0
        case _:
            pass


def _frame(
    ledger: Ledger, current: dict[CompileKey, FrameLedger], key: CompileKey, *, fresh: bool = False
) -> FrameLedger:
    """Return the ledger of a compile id; ``fresh`` begins a new one, as after ``torch._dynamo.reset()``."""
    known = current.get(key)
    if known is not None and not (fresh and known.started):
        return known
    again = sum(frame.key == key for frame in ledger.frames)
    made = FrameLedger(key, f"{key}#{again + 1}" if again else str(key))
    current[key] = made
    ledger.frames.append(made)
    return made


def _add_break(frame: FrameLedger, record: Record, order: int) -> None:
    details, frame.pending_break = frame.pending_break or {}, None
    text = record.payload or ""
    if text.startswith("Graph break: ") and frame.pending_failure is not None:
        return  # said once more when the frame is given up, if the user's logs show graph breaks
    message = break_message.parse_break(text, details.get("type"))
    frame.events.append(Event(message, record.attempt, details, order))


def _add_failure(frame: FrameLedger, record: Record, order: int) -> None:
    details, frame.pending_failure = frame.pending_failure or {}, None
    if "message" in details:
        parsed = break_message.parse_reason(details["message"], details.get("type"))
        stack = [(e[0], e[1], e[2]) for e in details.get("stack", ())]
        file, line = stack[-1][:2] if stack else (None, None)
        message = break_message.BreakMessage(parsed.cause, parsed.consequence, None, file, line, stack)
    else:
        message = break_message.parse_error(record.payload or "", details.get("type"))
    raised = bool(details.get("raised"))
    last = frame.events[-1] if frame.events else None
    if last is not None and last.attempt == record.attempt and not raised and _same_cause(last.message, message):
        last.failed = True  # the event was logged, then the same exception left the frame
        if message.consequence is not None and last.message.consequence is None:
            last.message = msgspec.structs.replace(last.message, consequence=message.consequence)
        return
    frame.events.append(Event(message, record.attempt, details, order, failed=True, raised=raised))


def _infer_giving_up(frame: FrameLedger) -> None:
    """Note a frame as given up after whose break there is no code and no resume function; torch < 2.11 is silent."""
    left = frame.compiled or frame.resumes
    if frame.metrics and frame.events and frame.given_up is None and not left:
        frame.events[-1].failed = True


def _same_cause(one: break_message.BreakMessage, other: break_message.BreakMessage) -> bool:
    return one.cause.gb_type == other.cause.gb_type and (other.line is None or one.line == other.line)


def _reasons(payload: str) -> list[str]:
    """Read the payload of ``recompile_reasons``: one reason is a bare string, several are a JSON list."""
    try:
        found = msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return [payload] if payload else []
    return [str(each) for each in found] if isinstance(found, list) else [str(found)]

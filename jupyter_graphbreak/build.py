"""Make the report: pure functions from records to a :class:`~jupyter_graphbreak.report.Report`.

The records are read once, in order, into one ledger per compiled frame (:class:`_FrameLedger`); the lists of the
report are then written out from the ledgers. Nothing here imports torch or reads a file, so a report can be made of a
recording from another machine.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jupyter_graphbreak import advice, break_message, graph_code, skips
from jupyter_graphbreak.ledger import Event, FrameLedger, Ledger, read_records
from jupyter_graphbreak.records import Record, stack_entries
from jupyter_graphbreak.report import (
    Break,
    Device,
    Diagnostic,
    Frame,
    Graph,
    GraphLine,
    GuardFailure,
    Location,
    Occurrence,
    Op,
    Reason,
    Recompile,
    Report,
    Resume,
    RunError,
    Segment,
    Setting,
    SkipKind,
    Skipped,
    Source,
    Summary,
    Tensor,
    TensorMeta,
    Timing,
    WhatIf,
)
from jupyter_graphbreak.scopes import ScopeTable
from jupyter_graphbreak.source import Sources, SourceText, columns_of, is_resume, plain_function, shown_stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Outcome = Literal["resumed", "skipped", "error"]
#: Exceptions that say a break by another name.
_RAISED_AS = {"FailOnRecompileLimitHit": "Dynamo recompile limit exceeded"}
#: Lines of a library shown before and after a place where something happened.
_LIBRARY_CONTEXT = 10
_WORST: dict[Outcome, int] = {"resumed": 0, "skipped": 1, "error": 2}


def build_report(records: Iterable[Record]) -> Report:
    """Make the report of a run.

    Parameters
    ----------
    records : iterable of Record
        A recording of :func:`jupyter_graphbreak.recorder.record`, or entries of a ``TORCH_TRACE`` file.

    Returns
    -------
    Report
        What cannot be read is left out and said in ``diagnostics``; nothing is raised for it.
    """
    ledger = read_records(records)
    run = ledger.run
    roots = run.get("library_roots", ())
    kinds = Sources([], roots)
    sources = Sources(_source_texts(ledger, kinds), roots, run.get("folder"), run.get("home"))
    return _Writer(ledger, sources).report()


def _source_texts(ledger: Ledger, kinds: Sources) -> Iterator[SourceText]:
    for data in ledger.texts:
        try:
            yield _source_text(data, kinds)
        except (KeyError, TypeError, ValueError) as error:
            ledger.notes.append(Diagnostic("warning", f"A source could not be read ({type(error).__name__}: {error})."))


def _source_text(data: dict[str, Any], kinds: Sources) -> SourceText:
    kind = data.get("kind") or kinds.kind(data["filename"])
    return SourceText(
        filename=data["filename"],
        name=data["name"],
        kind="library" if kind == "machinery" else kind,
        segments=[Segment(each["first_line"], each["text"]) for each in data["segments"]],
        lines={int(number): text for number, text in data.get("lines", {}).items()},
        line_offset=data.get("line_offset", 0),
        indent=data.get("indent", 0),
    )


@dataclass
class _BreakLedger:
    """A break in the making: the key that folds its events, and what they said."""

    ident: str
    first: Event
    location: Location | None
    occurrences: list[Occurrence] = field(default_factory=list)
    consequence: Reason | None = None
    resumes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)  # why the graphs before it ended, as Dynamo names it inside


class _Writer:
    """Writes the lists of the report, in the order in which they refer to each other."""

    def __init__(self, ledger: Ledger, sources: Sources) -> None:
        self._ledger = ledger
        self._sources = sources
        self._breaks: list[_BreakLedger] = []
        self._by_place: dict[tuple[Any, str], list[_BreakLedger]] = {}
        self._breaks_of: dict[str, list[str]] = {}  # by frame
        self._event_break: dict[int, _BreakLedger] = {}  # by id() of the event
        self._events: list[tuple[Event, str]] = []  # each with the id of its break
        self._scopes = ScopeTable(sources)
        self._resumes: list[Resume] = []
        self._resume_of_frame: dict[str, str] = {}
        self._skipped: list[Skipped] = []
        self._graphs: list[Graph] = []
        self._graphs_of: dict[str, list[str]] = {}

    def report(self) -> Report:
        ledger = self._ledger
        started = [frame for frame in ledger.frames if frame.started]
        for scope in ledger.scopes:
            self._scopes.open(scope)
        for frame in started:
            if frame.start is not None:
                self._scopes.open_fullgraph(frame.start.get("fullgraph_site"))
            self._fold(frame)
        for refusal in ledger.refusals:
            self._fold_refusal(refusal)
        for frame in ledger.frames:
            if frame.refusal is not None:
                self._fold_limit(frame)
        self._write_resumes(started)
        for frame in started:
            self._write_graphs(frame)
        for frame in started:
            self._write_skipped(frame)
        self._write_other_skips()
        self._resumes = [
            msgspec.structs.replace(
                resume, graphs=[graph for frame in resume.frames for graph in self._graphs_of.get(frame, [])]
            )
            for resume in self._resumes
        ]
        callers = _callers(started)
        frames = [self._write_frame(frame, callers.get(frame.ident)) for frame in started]
        self._skipped = [
            msgspec.structs.replace(each, callees=_callees(each, frames)) if each.frame is not None else each
            for each in self._skipped
        ]
        breaks = [self._write_break(each) for each in self._breaks]
        recompiles = self._write_recompiles()
        error = self._write_error(breaks)
        run = ledger.run
        device = ledger.device
        return Report(
            status=ledger.error["status"] if ledger.error else "ok",
            device=Device(
                device.get("requested", "auto"), device.get("used", "unknown"), device.get("name"), device.get("note")
            ),
            torch=run.get("torch"),
            python=run.get("python"),
            config=run.get("config", {}),
            error=error,
            timing=Timing(
                wall_s=run.get("wall_s"),
                compile_s=_sum(frame.metrics.get("entire_frame_compile_time_s") for frame in ledger.frames)
                + sum(frame.backward_s for frame in ledger.frames),
                capture_s=run.get("capture_s"),
            ),
            summary=Summary(
                frames=len(frames),
                graphs=len(self._graphs),
                ops=sum(len(graph.ops) for graph in self._graphs),
                breaks=len(breaks),
                events=sum(len(each.occurrences) for each in breaks),
                resumes=len(self._resumes),
                skipped=len(self._skipped),
                recompiles=len(recompiles),
                errors=sum(frame.outcome == "error" for frame in frames),
            ),
            sources=self._shown_sources(frames),
            frames=frames,
            graphs=self._graphs,
            breaks=breaks,
            resumes=self._resumes,
            skipped=self._skipped,
            scopes=self._scopes.scopes(),
            recompiles=recompiles,
            what_if=self._what_if(),
            diagnostics=ledger.notes,
        )

    def _fold(self, frame: FrameLedger) -> None:
        for event in frame.events:
            message = event.message
            stack = self._stack(event)
            own = event.details.get("stack") or []
            name, filename, line = frame.code
            if own:
                leaf = own[-1]
                location = self._sources.location(leaf[0], leaf[1], leaf[2], columns_of(leaf))
            elif message.file is not None:
                function = message.stack[-1][2] if message.stack else name
                location = self._sources.location(message.file, message.line, function)
            else:
                location = self._sources.location(filename, line, name)
            outcome = _outcome(event)
            occurrence = Occurrence(
                frame=frame.ident,
                attempt=event.attempt,
                stack=stack or ([location] if location else []),
                outcome=outcome,
                consequence=_reason(message.consequence),
                setting=self._setting(event.details, location),
            )
            self._add(event, location, occurrence, frame.ident)

    def _setting(self, details: dict[str, Any], place: Location | None) -> Setting | None:
        stack = [*details.get("above", ()), *details.get("stack", ())]
        setting, disagreement = self._scopes.setting(details, stack, place)
        if disagreement is not None:
            where = f"{self._sources.name_of(place.source)} line {place.line}" if place is not None else "a break"
            note = Diagnostic("warning", f"At {where}: {disagreement}.")
            if note not in self._ledger.notes:
                self._ledger.notes.append(note)
        return setting

    def _stack(self, event: Event) -> list[Location]:
        if event.details.get("stack") or event.details.get("above"):
            return shown_stack(self._sources, [*event.details.get("above", ()), *event.details.get("stack", ())])
        return shown_stack(self._sources, [list(entry) for entry in event.message.stack])

    def _add(self, event: Event, location: Location | None, occurrence: Occurrence, frame: str | None) -> None:
        cause = event.message.cause
        place = (location.source, location.line) if location else None
        same_line = self._by_place.setdefault((place, cause.gb_id or cause.gb_type), [])
        folded = next((each for each in same_line if _overlap(each.location, location)), None)
        if folded is None:
            folded = _BreakLedger(f"b{len(self._breaks) + 1}", event, location)
            self._breaks.append(folded)
            same_line.append(folded)
        self._event_break[id(event)] = folded
        self._events.append((event, folded.ident))
        self._scopes.govern(occurrence.setting, folded.ident)
        if occurrence not in folded.occurrences:
            folded.occurrences.append(occurrence)
        if folded.consequence is None:
            folded.consequence = occurrence.consequence
        if frame is not None and folded.ident not in (known := self._breaks_of.setdefault(frame, [])):
            known.append(folded.ident)

    def _fold_refusal(self, refusal: dict[str, Any]) -> None:
        """Make a break, at its first line, of a function that Dynamo refused before it began, such as a generator."""
        registry = refusal.get("registry") or {}
        gb_id = registry.get("gb_id")
        cause = break_message.Cause(
            gb_type=registry.get("gb_type") or refusal["reason"],
            gb_id=gb_id,
            url=_url(gb_id),
            explanation=registry.get("explanation"),
            hints=registry.get("hints") or [],
        )
        raised = bool(refusal.get("raised"))
        event = Event(
            break_message.BreakMessage(cause), 0, refusal, refusal.get("order", 0), failed=True, raised=raised
        )
        location = self._sources.location(refusal["filename"], refusal["firstlineno"], refusal["name"])
        stack = shown_stack(self._sources, refusal.get("above", []))
        outcome: Outcome = "error" if raised else "skipped"
        setting = self._setting(refusal, location)
        self._add(
            event,
            location,
            Occurrence(
                frame=None,
                attempt=0,
                stack=[*stack, *([location] if location else [])],
                outcome=outcome,
                setting=setting,
            ),
            None,
        )
        if not raised:
            folded = self._event_break[id(event)]
            known = {(each.location, each.break_) for each in self._skipped}
            if (location, folded.ident) not in known:
                self._skip(None, refusal["name"], location, skips.GENERATOR, folded, setting)

    def _fold_limit(self, frame: FrameLedger) -> None:
        refusal = frame.refusal or {}
        if refusal.get("raised"):
            if "filename" in refusal:
                self._fold_refusal(refusal)
            return
        name, filename, line = self._limited(frame)
        wrapped = refusal.get("wrapped")
        shared = wrapped is not None
        if wrapped is not None:  # what is lost is the decorated function
            name, filename, line = wrapped["name"], wrapped["filename"], wrapped["firstlineno"]
        location = self._sources.location(filename, line, name) if line else None
        reason = skips.of_limit(refusal.get("limit"), refusal.get("limit_value"), shared=shared)
        known = {(each.location, each.kind) for each in self._skipped}
        if (location, reason.kind) not in known:
            self._skip(None, name, location, reason, None, None)

    def _limited(self, frame: FrameLedger) -> tuple[str, str, int]:
        """Return the code of a frame that was not begun any more: the refusal's, or that of its first compilation."""
        if frame.refusal is not None and "name" in frame.refusal:
            return frame.refusal["name"], frame.refusal["filename"], frame.refusal["firstlineno"]
        earlier = (f for f in self._ledger.frames if f.started and f.key.frame == frame.key.frame)
        first = next(earlier, None)
        return first.code if first is not None else frame.code

    def _write_resumes(self, started: list[FrameLedger]) -> None:
        by_code: dict[Any, int] = {}
        for frame in started:
            last = next((e for e in reversed(frame.events) if not e.failed), None)
            folded = self._event_break.get(id(last)) if last is not None else None
            for made in frame.resumes:
                if made["id"] in by_code:
                    continue
                by_code[made["id"]] = len(self._resumes)
                self._resumes.append(self._resume(made, folded))
        for frame in started:
            name, filename, line = frame.code
            if not is_resume(name):
                continue
            index = by_code.get(frame.start["id"]) if frame.start is not None else None
            if index is None:  # no record of its making: it is known by its name
                index = next((i for i, r in enumerate(self._resumes) if r.name == name and r.frames == []), None)
            if index is None:
                index = len(self._resumes)
                broken = self._broken_at(filename, line)
                self._resumes.append(self._resume({"name": name, "filename": filename, "line": line}, broken))
            resume = self._resumes[index]
            self._resumes[index] = msgspec.structs.replace(resume, frames=[*resume.frames, frame.ident])
            self._resume_of_frame[frame.ident] = resume.id

    def _resume(self, made: dict[str, Any], folded: _BreakLedger | None) -> Resume:
        name = made["name"]
        line = made.get("line") or made.get("firstlineno")
        ident = f"r{len(self._resumes) + 1}"
        if folded is not None:
            folded.resumes.append(ident)
        return Resume(
            id=ident,
            name=name,
            function=plain_function(name),
            location=self._sources.location(made["filename"], line, name),
            break_=folded.ident if folded is not None else None,
        )

    def _broken_at(self, filename: str, line: int) -> _BreakLedger | None:
        """Return the break that a resume function's name points at: the place in its function's own line."""
        at = self._sources.location(filename, line)
        for folded in self._breaks:
            for occurrence in folded.occurrences:
                if at is not None and any(
                    each.source == at.source and each.line == at.line for each in occurrence.stack
                ):
                    return folded
        return None

    def _write_graphs(self, frame: FrameLedger) -> None:
        last = next((e for e in reversed(frame.events) if not e.failed), None)
        folded = self._event_break.get(id(last)) if last is not None else None
        for code, stacks in frame.graphs:
            if folded is not None and stacks and stacks.get("reason"):
                folded.reasons.append(stacks["reason"])
            parsed = graph_code.parse_graph(code)
            if frame.start is not None and stacks is None and not parsed.ops:
                continue  # torch >= 2.15 writes an empty graph to the trace and does not compile it
            ident = _letter(len(self._graphs))
            if parsed.unread:
                self._ledger.notes.append(
                    Diagnostic("warning", f"{parsed.unread} lines of graph {ident} could not be read.")
                )
            traces = [stack_entries(each) for each in stacks["stacks"]] if stacks else []
            ops = [self._op(each, traces, stacks) for each in parsed.ops]
            self._graphs.append(
                Graph(
                    id=ident,
                    name=plain_function(frame.code[0]),
                    frame=frame.ident,
                    ops=ops,
                    inputs=[
                        Tensor(each.name, each.tensor.shape, each.tensor.dtype, each.tensor.device)
                        if each.tensor
                        else Tensor(each.name, None, "unknown")
                        for each in parsed.inputs
                    ],
                    lines=self._lines(parsed.ops, traces, stacks),
                    code=self._readable(code),
                    ends="break" if folded is not None else "return",
                    break_=folded.ident if folded is not None else None,
                )
            )
            self._graphs_of.setdefault(frame.ident, []).append(ident)

    def _readable(self, code: str) -> str:
        """Return a graph's code with places named as everywhere else, without what only frees memory."""

        def renamed(match: re.Match[str]) -> str:
            location = self._sources.location(match["file"], int(match["line"]), match["name"].strip())
            if location is None:
                return match[0]
            return f"# {self._sources.name(match['file'])}:{location.line} in {location.function}, code:"

        code = re.sub(r";  (?:\w+ = )+None$", "", code, flags=re.MULTILINE)
        return re.sub(r"# File: (?P<file>.+?):(?P<line>\d+) in (?P<name>[^,\n]+), code:", renamed, code)

    def _op(self, op: graph_code.CodeOp, traces: list[list[tuple[str, int, str]]], stacks: dict[str, Any] | None) -> Op:
        trace = _trace(op, traces, stacks)
        shown = [entry for entry in trace if self._sources.kind(entry[0], entry[2]) != "machinery"]
        inner = next((e for e in reversed(shown) if "/torch/" not in e[0].replace("\\", "/")), None)
        entry = inner or (shown[-1] if shown else (trace[-1] if trace else None))
        tensor = op.tensor
        return Op(
            name=op.name,
            target=op.target,
            location=_line_only(self._sources.location(*entry)) if entry else None,
            output=TensorMeta(tensor.shape, tensor.dtype, tensor.device)
            if tensor and tensor.shape is not None
            else None,
        )

    def _lines(
        self,
        ops: list[graph_code.CodeOp],
        traces: list[list[tuple[str, int, str]]],
        stacks: dict[str, Any] | None,
    ) -> list[GraphLine]:
        counted: dict[tuple[str, int], int] = {}
        for op in ops:
            places = {
                (location.source, location.line)
                for filename, line, name in _trace(op, traces, stacks)
                if self._sources.kind(filename, name) in {"cell", "file"}
                and (location := self._sources.location(filename, line, name)) is not None
            }
            for place in places:
                counted[place] = counted.get(place, 0) + 1
        return [GraphLine(source, line, number) for (source, line), number in sorted(counted.items())]

    def _skip(
        self,
        frame: str | None,
        function: str,
        location: Location | None,
        reason: skips.SkipReason,
        folded: _BreakLedger | None,
        setting: Setting | None,
    ) -> None:
        ident = f"k{len(self._skipped) + 1}"
        if folded is not None:
            folded.skipped.append(ident)
        self._skipped.append(
            Skipped(
                id=ident,
                frame=frame,
                function=plain_function(function),
                location=location,
                reason=reason.sentence,
                break_=folded.ident if folded is not None else None,
                kind=reason.kind,
                way_out=reason.way_out,
                setting=setting,
            )
        )

    def _write_skipped(self, frame: FrameLedger) -> None:
        event = frame.given_up
        if event is None or event.raised:
            return
        name, filename, line = frame.code
        folded = self._event_break[id(event)]
        met = next((each for each in folded.occurrences if each.frame == frame.ident), None)
        reason = skips.of_break(event.message.cause, event.message.consequence, self._block(frame, event))
        location = self._sources.location(filename, line, name)
        self._skip(frame.ident, name, location, reason, folded, met.setting if met is not None else None)

    def _block(self, frame: FrameLedger, event: Event) -> SkipKind | None:
        """Return the block in the frame's own function that holds the break, or the call that leads to it."""
        name, filename, _ = frame.code
        stack = event.details.get("stack") or [list(entry) for entry in event.message.stack]
        line = next((e[1] for e in stack if e[0] == filename and plain_function(e[2]) == plain_function(name)), None)
        if line is None:
            return None
        return skips.block_around(self._sources.source(filename), line + self._sources.line_offset(filename))

    def _write_other_skips(self) -> None:
        """Frames that Dynamo never began for a reason that is no break: the trace has nothing of them."""
        for skip in self._ledger.skips:
            reason = skips.of_refusal(skip["reason"])
            own = self._sources.kind(skip["filename"], skip["name"]) in {"cell", "file"}
            if reason is not None and (own or reason.kind == "dispatch mode"):
                location = self._sources.location(skip["filename"], skip["firstlineno"], skip["name"])
                self._skip(None, skip["name"], location, reason, None, None)

    def _write_frame(self, frame: FrameLedger, caller: str | None) -> Frame:
        name, filename, line = frame.code
        graphs = self._graphs_of.get(frame.ident, [])
        given_up = frame.given_up
        outcome: Literal["compiled", "empty", "skipped", "error"]
        if given_up is not None:
            outcome = "error" if given_up.raised else "skipped"
        elif frame.compiled:
            outcome = "compiled"
        elif graphs or frame.metrics.get("fail_type") or not frame.metrics:
            outcome = "error"  # also when the user interrupted it
        else:
            outcome = "empty"
        resume = self._resume_of_frame.get(frame.ident)
        return Frame(
            id=frame.ident,
            function=plain_function(name),
            location=self._sources.location(filename, line, name),
            role="resume" if is_resume(name) else self._role(frame),
            outcome=outcome,
            attempts=frame.attempts,
            resume=resume,
            caller=caller,
            graphs=graphs,
            breaks=self._breaks_of.get(frame.ident, []),
            compile_s=frame.metrics.get("entire_frame_compile_time_s"),
            recompile_of=self._first_id(frame) if frame.key.compile > 0 else None,
            recompile_reasons=[_guard(reason) for reason in frame.recompile_reasons],
        )

    @staticmethod
    def _role(frame: FrameLedger) -> Literal["entry", "call"]:
        stack = frame.start["stack"] if frame.start is not None else frame.trace_stack[:-1]
        # torch/_dynamo/eval_frame.py holds the wrapper that torch.compile returns
        return "entry" if not stack or stack[-1][0].endswith("eval_frame.py") else "call"

    def _first_id(self, frame: FrameLedger) -> str | None:
        first = next(
            (f for f in self._ledger.frames if f.key.frame == frame.key.frame and f.started and f is not frame), None
        )
        return first.ident if first is not None else None

    def _what_if(self) -> WhatIf:
        """Work out what a stricter setting would have made of the run: the first error would have ended it."""
        ordered = sorted(self._events, key=lambda each: each[0].order)
        strict: list[str] = []
        for event, ident in ordered:
            # Scopes opened inside the compiled function stay inside a scope put around it.
            inside = [scope for scope in event.details.get("scopes") or () if scope.get("inside")]
            if (not inside or inside[-1]["value"]) and ident not in strict:
                strict.append(ident)
        return WhatIf(strict, ordered[0][1] if ordered else None)

    def _write_break(self, folded: _BreakLedger) -> Break:
        cause = folded.first.message.cause
        setting = folded.occurrences[-1].setting
        outcome = max((each.outcome for each in folded.occurrences), key=_WORST.__getitem__)
        return Break(
            id=folded.ident,
            gb_id=cause.gb_id,
            gb_type=cause.gb_type,
            url=cause.url,
            explanation=self._sources.in_words(cause.explanation),
            hints=cause.hints,
            context=self._sources.in_words(cause.context),
            consequence=folded.consequence,
            location=folded.location,
            stack=folded.occurrences[0].stack,
            occurrences=folded.occurrences,
            outcome=outcome,
            resumes=folded.resumes,
            skipped=folded.skipped,
            scope=setting.scope if setting is not None else None,
            setting=setting,
            also_reported_as=break_message.other_names(cause, folded.reasons),
            advice=advice.advise(cause, folded.consequence),
        )

    def _write_recompiles(self) -> list[Recompile]:
        made = []
        for frame in self._ledger.frames:
            limit = frame.refusal is not None
            if frame.key.compile == 0 and not limit:
                continue
            name, filename, line = self._limited(frame) if limit or not frame.started else frame.code
            made.append(
                Recompile(
                    frame=frame.ident,
                    of=self._first_id(frame),
                    function=plain_function(name),
                    location=self._sources.location(filename, line, name) if line else None,
                    reasons=[self._guard_failure(reason) for reason in frame.recompile_reasons],
                    limit_hit=limit,
                )
            )
        return made

    def _guard_failure(self, reason: str) -> GuardFailure:
        stack = stack_entries(reason.partition("User stack trace:")[2])
        location = self._sources.location(*stack[-1]) if stack else None
        return GuardFailure(_guard(reason), location)

    def _shown_sources(self, frames: list[Frame]) -> list[Source]:
        """Return the sources; of a library only the lines around what happened, its functions can be long."""
        places = [each.location for each in self._breaks] + [each.location for each in frames]
        places += [each.location for each in self._skipped] + [each.location for each in self._scopes.scopes()]
        shown = []
        for source in self._sources.sources():
            lines = {place.line for place in places if place is not None and place.source == source.id}
            segments = source.segments
            if source.kind == "library":
                segments = [part for segment in segments for part in _around(segment, lines)]
            shown.append(msgspec.structs.replace(source, segments=segments))
        return shown

    def _write_error(self, breaks: list[Break]) -> RunError | None:
        error = self._ledger.error
        if error is None:
            return None
        stack = shown_stack(self._sources, error.get("stack", []))
        message = error["message"].partition("\n\nfrom user code:")[0]
        parsed = break_message.parse_reason(message, error["type"])
        failed = [each for each in breaks if each.outcome == "error"]
        same = [
            each
            for each in failed
            if each.gb_type in {parsed.cause.gb_type, error["type"], _RAISED_AS.get(error["type"])}
        ]
        cause = same[-1] if same else None
        location = cause.location if cause is not None else (stack[-1] if stack else None)
        return RunError(error["type"], message, location, cause.id if cause is not None else None)


def _around(segment: Segment, lines: set[int]) -> Iterator[Segment]:
    """Yield the parts of a segment that are close to some lines."""
    text = segment.text.split("\n")
    kept = [
        index
        for index in range(len(text))
        if any(abs(segment.first_line + index - line) <= _LIBRARY_CONTEXT for line in lines)
    ]
    for position, index in enumerate(kept):
        if position and kept[position - 1] == index - 1:
            continue
        end = next((i for i, j in zip(kept[position:], kept[position + 1 :], strict=False) if j != i + 1), kept[-1])
        yield Segment(segment.first_line + index, "\n".join(text[index : end + 1]))


def _overlap(one: Location | None, other: Location | None) -> bool:
    """Whether two places on one line may be one expression: events name the whole of it, a part, or just the line."""
    if one is None or other is None or one.column is None or other.column is None:
        return True
    first, second = sorted([one, other], key=lambda each: each.column or 0)
    ends_before = first.end_line == first.line and (first.end_column or 0) <= (second.column or 0)
    return not ends_before


def _outcome(event: Event) -> Outcome:
    if event.raised:
        return "error"
    if event.failed or event.message.continuation in {"skip", "rest eager"}:
        return "skipped"
    return "resumed"


def _callees(skipped: Skipped, frames: list[Frame]) -> list[str]:
    return [each.id for each in frames if each.caller == skipped.frame and each.outcome == "compiled"]


def _callers(started: list[FrameLedger]) -> dict[str, str]:
    """Return for each frame's id the innermost frame on its stack that was compiled before it, where there is one."""
    callers: dict[str, str] = {}
    earlier: dict[tuple[str, str, int], str] = {}
    for frame in started:
        stack = reversed(frame.start["stack"]) if frame.start is not None else []
        codes = ((name, filename, firstlineno) for filename, _, name, firstlineno in stack)
        caller = next((earlier[code] for code in codes if code in earlier), None)
        if caller is not None:
            callers[frame.ident] = caller
        earlier[frame.code] = frame.ident
    return callers


def _line_only(location: Location | None) -> Location | None:
    """Leave out the text of a place: of ten thousand operations it would make half of the report."""
    return msgspec.structs.replace(location, code=None) if location is not None else None


def _trace(
    op: graph_code.CodeOp, traces: list[list[tuple[str, int, str]]], stacks: dict[str, Any] | None
) -> list[tuple[str, int, str]]:
    index = stacks["ops"].get(op.name) if stacks else None
    if index is not None:
        return traces[index]
    return [op.place[:3]] if op.place else []


def _reason(cause: break_message.Cause | None) -> Reason | None:
    return Reason(cause.gb_id, cause.gb_type) if cause is not None else None


def _guard(reason: str) -> str:
    """Return the guard of a recompile reason: ``0/0: tensor 'x' size mismatch ...  # line`` without id, line, stack."""
    text = reason.partition("User stack trace:")[0].partition("  # ")[0].strip()
    head, colon, rest = text.partition(": ")
    return rest.strip() if colon and "/" in head and head.replace("/", "").isdigit() else text


def _letter(index: int) -> str:
    letters = string.ascii_uppercase
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, len(letters))
        text = letters[rest] + text
    return text


def _sum(values: Iterable[float | None]) -> float:
    return sum(value for value in values if value is not None)


def _url(gb_id: str | None) -> str | None:
    return f"https://meta-pytorch.github.io/compile-graph-break-site/gb/{gb_id.lower()}.html" if gb_id else None

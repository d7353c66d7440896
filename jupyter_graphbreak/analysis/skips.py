"""List the functions that run eagerly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.analysis.reasons.running_eagerly import (
    block_around,
    block_around_variadic_calls,
    of_break,
    of_limit,
    of_refusal,
)
from jupyter_graphbreak.knowledge.skipped_functions import CALLED_EAGERLY, GENERATOR, SKIP_FRAME
from jupyter_graphbreak.recording.records import compiled_function, is_resume, plain_function
from jupyter_graphbreak.report.schema import SkipKind, Skipped

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.breaks import BreakTable, FoldedBreak
    from jupyter_graphbreak.analysis.ledger import Event, FrameLedger
    from jupyter_graphbreak.analysis.source.locations import Sources
    from jupyter_graphbreak.knowledge.entries import SkipReason
    from jupyter_graphbreak.recording import additions
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Frame, Setting

#: Functions that run eagerly because of a block around the break: moving lines out of the block helps.
_MOVES_LINES: frozenset[SkipKind] = frozenset({"loop", "context manager", "try", "skip_frame"})


class SkipTable:
    """Lists the functions of a run that run eagerly, each with the break that caused it, if any.

    Parameters
    ----------
    sources : Sources
        The source texts, and the locations in them.
    breaks : BreakTable
        The breaks, with the events of all frames folded in.
    resumed_lines : dict
        The line at which each resume function continues, by the id of its code object.
    """

    def __init__(self, sources: Sources, breaks: BreakTable, resumed_lines: dict[int, int]) -> None:
        self._sources = sources
        self._breaks = breaks
        self._resumed_lines = resumed_lines
        self._skipped: list[Skipped] = []

    def skipped(self, frames: list[Frame]) -> list[Skipped]:
        """Return the skipped functions, with the compiled frames that they call."""
        return [
            msgspec.structs.replace(
                skipped, callees=[f.id for f in frames if f.caller == skipped.frame and f.outcome == "compiled"]
            )
            if skipped.frame is not None
            else skipped
            for skipped in self._skipped
        ]

    def add_frame(self, frame: FrameLedger) -> None:
        """Add a frame if Dynamo gave it up, at a break or at ``skip_frame()``, and no error reached the user."""
        event = frame.given_up
        name, filename, line = frame.code
        line = frame.resumed_at or line
        if event is None and frame.skip_frame is not None:
            code_id = frame.start.id if frame.start is not None else None
            self._add(frame.ident, name, self._lines(filename, line, name, code_id), SKIP_FRAME)
        if event is None or event.raised:
            return
        folded = self._breaks.of_event(event)
        occurrence = next((o for o in folded.occurrences if o.frame == frame.ident), None)
        reason = of_break(event.message.cause, event.message.consequence, self._block(frame, event))
        location = self._lines(filename, line, name, frame.start.id if frame.start is not None else None)
        self._add(frame.ident, name, location, reason, folded, occurrence.setting if occurrence else None)

    def add_refused(self, refusal: additions.FrameRefused, folded: FoldedBreak, setting: Setting | None) -> None:
        """Add a function that Dynamo refused to begin, with the break that stands for the refusal."""
        self._add_generator(refusal, GENERATOR, folded, setting)

    def add_consequence(self, refusal: additions.FrameRefused, cause: FoldedBreak) -> None:
        """Add a generator that Dynamo refused only because its caller runs eagerly, with the break that caused that."""
        self._add_generator(refusal, CALLED_EAGERLY, cause, None)

    def _add_generator(
        self, refusal: additions.FrameRefused, reason: SkipReason, folded: FoldedBreak, setting: Setting | None
    ) -> None:
        name, filename, line = refusal.code or ("?", "?", None)
        location = self._lines(filename, line, name, refusal.id)
        known = {(skipped.location, skipped.break_) for skipped in self._skipped}
        if (location, folded.ident) not in known:
            self._add(None, name, location, reason, folded, setting)

    def add_limited(self, refusal: additions.FrameRefused, code: tuple[str, str, int]) -> None:
        """Add a function that a limit prevented from being compiled again.

        Parameters
        ----------
        refusal : FrameRefused
        code : tuple
            Name, file and first line of the function.
        """
        # If the limit was reached by the wrapper that torch shares, it is the decorated function that runs eagerly.
        name, filename, line = refusal.wrapped.place if refusal.wrapped is not None else code
        code_id = refusal.wrapped.id if refusal.wrapped is not None else refusal.id
        location = self._lines(filename, line, name, code_id) if line else None
        reason = of_limit(refusal.limit, refusal.limit_value, shared=refusal.wrapped is not None)
        known = {(skipped.location, skipped.kind) for skipped in self._skipped}
        if (location, reason.kind) not in known:
            self._add(None, name, location, reason)

    def add_unbegun(self, skip: additions.FrameSkipped) -> None:
        """Add a frame that Dynamo never began, for a reason other than a break; the trace has no entry for it."""
        reason = of_refusal(skip.reason)
        kind = self._sources.kind(skip.filename, skip.name)
        shown = {"dispatch mode": True, "remembered": kind != "machinery"}
        if reason is not None and (kind in {"cell", "file"} or shown.get(reason.kind, False)):
            location = self._lines(skip.filename, skip.firstlineno, skip.name, skip.id)
            self._add(None, skip.name, location, reason)

    def _lines(self, filename: str, line: int | None, name: str, code_id: int | None) -> Location | None:
        """Return the lines that run eagerly: the whole function, or those after the resume point."""
        if code_id is not None and is_resume(name):
            line = self._resumed_lines.get(code_id, line)
        return self._sources.rest_of_function(filename, line, name)

    def _add(
        self,
        frame: str | None,
        function: str,
        location: Location | None,
        reason: SkipReason,
        folded: FoldedBreak | None = None,
        setting: Setting | None = None,
    ) -> None:
        self._skipped.append(
            Skipped(
                id=f"k{len(self._skipped) + 1}",
                frame=frame,
                function=compiled_function(function),
                location=location,
                reason=reason.sentence,
                break_=folded.ident if folded is not None else None,
                kind=reason.kind,
                way_out=reason.way_out if self._can_apply(reason, location) else None,
                setting=setting,
            )
        )

    def _can_apply(self, reason: SkipReason, location: Location | None) -> bool:
        """Return whether the user can apply the way out: not if it means moving lines of a library."""
        return reason.kind not in _MOVES_LINES or location is None or not self._sources.is_library(location)

    def _block(self, frame: FrameLedger, event: Event) -> SkipKind | None:
        """Return the kind of block in the frame's own function that contains the break or the call that leads to it."""
        name, filename, first_line = frame.code
        source, offset = self._sources.source(filename), self._sources.line_offset(filename)
        own = (
            e
            for e in frame.stack_from(event)
            if (e.filename, plain_function(e.function)) == (filename, plain_function(name))
        )
        line = next((entry.line for entry in own), None)
        if line is not None:
            return block_around(source, line + offset)
        if event.message.operation == "CALL_FUNCTION_EX":
            return block_around_variadic_calls(source, first_line + offset, plain_function(name))
        return None

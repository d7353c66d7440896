"""Distinguish breaks of one kind on one line if their columns are unknown, by counting the breaks before each.

The name of a resume function contains the line of the break that created it, and Dynamo creates none in a loop. If a
resume function breaks on the line in its name, it has already resumed after one break there, and this is a second one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from jupyter_graphbreak.recording.records import plain_function, resumed_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.analysis.ledger import Event, FrameLedger
    from jupyter_graphbreak.recording.records import CompileKey, StackEntry

#: The origin in the name of a resume function: function, file and line.
_Origin = tuple[str, str, int | None]
#: A break of this type creates two resume functions, one for each side of the branch.
_BRANCHING = "Data-dependent branching"


@dataclass
class _ResumeOrigin:
    """A frame that ended at a line: how many breaks of each kind precede its resume functions on that line."""

    preceding: Counter[str]
    has_two_resumes: bool


class SameLineBreaks:
    """Counts, for each resume function of a run, the breaks that precede it on the line in its name.

    If several frames can have created a resume function, only the breaks that precede all of them count, so that
    one place is never reported as two.

    Parameters
    ----------
    is_reached_again : callable
        Takes a file, a line and whether there is a branch; returns whether a function can come back to the same place
        on the line without a loop around it.
    """

    def __init__(self, is_reached_again: Callable[[str, int, bool], bool]) -> None:
        self._is_reached_again = is_reached_again
        self._seen: set[CompileKey] = set()
        self._origins: dict[_Origin, list[_ResumeOrigin]] = {}
        self._preceding: dict[tuple[int | None, int], Counter[str]] = {}  # by the frame id

    def enter_frame(self, frame: FrameLedger) -> None:
        """Count the breaks that precede a frame. Frames must be entered in the order in which they were compiled."""
        if frame.key in self._seen:  # compiled again after a reset, which recreates all resume functions
            for table in (self._seen, self._origins, self._preceding):
                table.clear()
        self._seen.add(frame.key)
        name, filename, _ = frame.code
        line = resumed_at(name)
        code = frame.key.autograd, frame.key.frame
        if line is None or (frame.key.compile > 0 and code in self._preceding):
            return
        origins = self._origins.get((plain_function(name), filename, line), [])
        self._preceding[code] = reduce(and_, (origin.preceding for origin in origins)) if origins else Counter()
        if len(origins) == 1 and not origins[0].has_two_resumes:
            origins.clear()

    def count_preceding(self, frame: FrameLedger, event: Event) -> int:
        """Return the number of breaks of an event's kind that precede a frame on the line of the event."""
        name, _, _ = frame.code
        own = _own(frame, event)
        if own is None or event.message.inlined or own.line != resumed_at(name) or own.line is None:
            return 0
        if self._is_reached_again(own.filename, own.line, _is_branch(event)):
            return 0
        return self._preceding.get((frame.key.autograd, frame.key.frame), Counter())[_kind(event)]

    def leave_frame(self, frame: FrameLedger) -> None:
        """Remember the event at which a frame ends: it may create resume functions."""
        event = frame.ending
        own = _own(frame, event) if event is not None else None
        if event is None or own is None:
            return
        name, filename, _ = frame.code
        known = self._preceding.get((frame.key.autograd, frame.key.frame))
        preceding = Counter(known) if known is not None and own.line == resumed_at(name) else Counter()
        if not event.message.inlined:
            preceding[_kind(event)] += 1
        self._origins.setdefault((plain_function(name), filename, own.line), []).append(
            _ResumeOrigin(preceding, has_two_resumes=_is_branch(event))
        )


def _own(frame: FrameLedger, event: Event) -> StackEntry | None:
    return next(iter(frame.stack_from(event)), None)


def _is_branch(event: Event) -> bool:
    return event.message.cause.gb_type == _BRANCHING


def _kind(event: Event) -> str:
    return event.message.cause.gb_id or event.message.cause.gb_type

"""Tell breaks of one kind on one line apart where no column does: by what a resume function has behind it.

A resume function is named after the line of the break that made it. Dynamo makes none in a loop. So where a resume
function breaks on the very line that it is named after, it has passed one place on that line, and this is another.
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

#: A function, as a resume function names it: its name, its file, and a line.
_Line = tuple[str, str, int | None]
#: What makes two resume functions of one break: one for each side of a branch.
_BRANCHING = "Data-dependent branching"


@dataclass
class _Maker:
    """A frame that ended at a line: which kinds of breaks on it are behind its resume functions, and how many."""

    behind: Counter[str]
    several: bool  # whether it makes more than one


class PassedBreaks:
    """Counts for the frames of a run, in order, what each has behind it on the line that it is named after.

    Which frame made a resume function is known where only one can have. Where several can, only what all of them have
    behind them counts, so that no place is taken for two.

    Parameters
    ----------
    reached_again : callable
        Given a file, a line and whether a branch is taken there, whether a function can come back to the same place
        of the line without a loop around it.
    """

    def __init__(self, reached_again: Callable[[str, int, bool], bool]) -> None:
        self._reached_again = reached_again
        self._seen: set[CompileKey] = set()
        self._makers: dict[_Line, list[_Maker]] = {}
        self._behind: dict[tuple[int | None, int], Counter[str]] = {}  # by the frame id

    def begin(self, frame: FrameLedger) -> None:
        """Find out what is behind a frame."""
        if frame.key in self._seen:  # compiled once more after a reset: all resume functions are made anew
            for table in (self._seen, self._makers, self._behind):
                table.clear()
        self._seen.add(frame.key)
        name, filename, _ = frame.code
        line = resumed_at(name)
        code = frame.key.autograd, frame.key.frame
        if line is None or (frame.key.compile > 0 and code in self._behind):
            return
        makers = self._makers.get((plain_function(name), filename, line), [])
        self._behind[code] = reduce(and_, (maker.behind for maker in makers)) if makers else Counter()
        if len(makers) == 1 and not makers[0].several:
            makers.clear()

    def behind(self, frame: FrameLedger, event: Event) -> int:
        """Return how many breaks of an event's kind are behind a frame, on the line of the event."""
        name, _, _ = frame.code
        own = _own(frame, event)
        if own is None or event.message.inlined or own.line != resumed_at(name) or own.line is None:
            return 0
        if self._reached_again(own.filename, own.line, _branches(event)):
            return 0
        return self._behind.get((frame.key.autograd, frame.key.frame), Counter())[_kind(event)]

    def end(self, frame: FrameLedger) -> None:
        """Note that resume functions may come of the event at which a frame ends."""
        event = frame.ending
        own = _own(frame, event) if event is not None else None
        if event is None or own is None:
            return
        name, filename, _ = frame.code
        known = self._behind.get((frame.key.autograd, frame.key.frame))
        behind = Counter(known) if known is not None and own.line == resumed_at(name) else Counter()
        if not event.message.inlined:
            behind[_kind(event)] += 1
        self._makers.setdefault((plain_function(name), filename, own.line), []).append(
            _Maker(behind, several=_branches(event))
        )


def _own(frame: FrameLedger, event: Event) -> StackEntry | None:
    return next(iter(frame.within(event)), None)


def _branches(event: Event) -> bool:
    return event.message.cause.gb_type == _BRANCHING


def _kind(event: Event) -> str:
    return event.message.cause.gb_id or event.message.cause.gb_type

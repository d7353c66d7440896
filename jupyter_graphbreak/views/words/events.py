"""Describe PyTorch's work on one function in sentences for a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from jupyter_graphbreak.views.words.locations import location_text
from jupyter_graphbreak.views.words.plain_text import duration_text, one_line
from jupyter_graphbreak.views.words.reason import title_of
from jupyter_graphbreak.views.words.recompilation import recompilations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.report.schema import Break, Frame, Report

EventKind: TypeAlias = Literal["compile", "recompile", "break", "eager", "error"]


class Event(msgspec.Struct, frozen=True):
    """Something that PyTorch did while compiling.

    Parameters
    ----------
    kind : {"compile", "recompile", "break", "eager", "error"}
        ``eager`` means that a function, or the rest of a function, was not compiled and runs eagerly.
    function : str
        The name of the function.
    text : str
        The event in one sentence; ``str(event)`` returns it.
    seconds : float or None
        The compile time in seconds, for ``compile`` and ``recompile``.
    gb_id : str or None
        The id of a break's cause, such as ``"GB0170"``.
    """

    kind: EventKind
    function: str
    text: str
    seconds: float | None = None
    gb_id: str | None = None

    def __str__(self) -> str:
        return self.text


def events_of(report: Report) -> Iterator[Event]:
    """Yield the events in the report of one compilation: the compilation itself, then breaks and eager functions."""
    for frame in report.frames:
        place_text = location_text(report, frame.location)
        if report.recompiles:
            if not any(recompile.limit_hit for recompile in report.recompiles):  # otherwise the function runs eagerly
                yield _recompile_event(report, frame, place_text)
        elif frame.outcome == "compiled":
            duration = f" in {duration_text(frame.compile_s)}" if frame.compile_s is not None else ""
            yield Event("compile", frame.function, f"Compiled {place_text}{duration}.", frame.compile_s)
        elif frame.outcome == "error":
            failed_breaks = [break_ for break_ in report.breaks if break_.outcome == "error"]
            places = ",".join(f" at {_location_and_cause(report, break_)}" for break_ in failed_breaks)
            yield Event("error", frame.function, f"Compiling {place_text} failed{places}.")
    for break_ in report.breaks:
        if break_.outcome != "error":
            function = break_.location.function if break_.location is not None else None
            sentence = f"Graph break at {_location_and_cause(report, break_)}."
            yield Event("break", function or "", sentence, gb_id=break_.gb_id)
    for skipped in report.skipped:
        if skipped.break_ is None:
            place_text, reason = location_text(report, skipped.location), one_line(skipped.reason).rstrip(".")
            yield Event("eager", skipped.function, f"Runs eagerly: {place_text}: {reason}.")


def _recompile_event(report: Report, frame: Frame, place_text: str) -> Event:
    variations = [guard.variation for recompilation in recompilations(report) for guard in recompilation.guards]
    reason_text = f": {one_line(', '.join(variations))}" if variations else ""
    duration = f" in {duration_text(frame.compile_s)}" if frame.compile_s is not None else ""
    return Event("recompile", frame.function, f"Recompiled {place_text}{duration}{reason_text}.", frame.compile_s)


def _location_and_cause(report: Report, break_: Break) -> str:
    gb_id = f" ({break_.gb_id})" if break_.gb_id else ""
    return f"{location_text(report, break_.location)}: {one_line(title_of(break_))}{gb_id}"

"""Data about the changes from one run to a later run of the same code."""

from __future__ import annotations

from typing import Literal

import msgspec

from jupyter_graphbreak.report.summary import Summary, Timing


class BreakPlace(msgspec.Struct, frozen=True):
    """The line of a break and the name of its source; ``name`` is ``None`` for the cell that ran."""

    name: str | None
    line: int


class RunFigures(msgspec.Struct, frozen=True):
    """The figures of one of two compared runs; ``name`` is the name of its cell, if it ran a cell.

    The figures leave out code that the other run reused instead of compiling it; see :class:`Reused`.
    """

    name: str | None
    status: Literal["ok", "error", "interrupted"]
    summary: Summary
    timing: Timing


class BreakChange(msgspec.Struct, frozen=True):
    """A break that occurs in only one of two runs, or on a different line in each.

    Parameters
    ----------
    change : {"gone", "new", "moved", "unknown"}
        ``unknown``: the break occurs in only one run, and the other run reused compiled code whose breaks are unknown.
    before, after : BreakPlace or None
        The location in the earlier and in the later run.
    break_ : str or None
        The id of the break in the later run.
    """

    change: Literal["gone", "new", "moved", "unknown"]
    gb_id: str | None
    gb_type: str
    function: str | None
    code: str | None
    before: BreakPlace | None
    after: BreakPlace | None
    break_: str | None = msgspec.field(default=None, name="break")


class Reused(msgspec.Struct, frozen=True):
    """A function that one of two runs compiled while the other reused code that was compiled earlier.

    Parameters
    ----------
    run : {"before", "after"}
        The run that did not compile the function.
    """

    function: str
    place: BreakPlace | None
    run: Literal["before", "after"]


class Changes(msgspec.Struct, frozen=True):
    """The changes from one run to a later run.

    Parameters
    ----------
    before, after : RunFigures
        The figures of the earlier and of the later run.
    breaks : list of BreakChange
        The breaks that are gone, new or moved, and those for which this is unknown.
    same : list of str
        The ids, in the later run, of the breaks that occur on the same line in both runs.
    reused : list of Reused
        Functions that only one of the runs compiled; they are not compared.
    """

    before: RunFigures
    after: RunFigures
    breaks: list[BreakChange] = []
    same: list[str] = []
    reused: list[Reused] = []

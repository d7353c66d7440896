"""What changed from one run to a later one of the same code."""

from __future__ import annotations

from typing import Literal

import msgspec

from jupyter_graphbreak.report.figures import Summary, Timing


class Place(msgspec.Struct, frozen=True):
    """A line, by the name of its source; ``name`` is ``None`` for the cell that ran itself."""

    name: str | None
    line: int


class RunFigures(msgspec.Struct, frozen=True):
    """One run of two that are compared; ``name`` is that of its cell, if it was one."""

    name: str | None
    status: Literal["ok", "error", "interrupted"]
    summary: Summary
    timing: Timing


class Change(msgspec.Struct, frozen=True):
    """A break that only one of two runs has, or that is at another line now.

    Parameters
    ----------
    before, after : Place or None
        Where it is in the earlier run and where it is in the later one.
    break_ : str or None
        Its id in the later run.
    """

    change: Literal["gone", "new", "moved"]
    gb_id: str | None
    gb_type: str
    function: str | None
    code: str | None
    before: Place | None
    after: Place | None
    break_: str | None = msgspec.field(default=None, name="break")


class Changes(msgspec.Struct, frozen=True):
    """What changed from one run to a later one.

    Parameters
    ----------
    before, after : RunFigures
        The figures of the earlier and of the later run.
    breaks : list of Change
        The breaks that are gone, new or moved.
    same : list of str
        The ids, in the later run, of the breaks that both runs have at the same line.
    """

    before: RunFigures
    after: RunFigures
    breaks: list[Change] = []
    same: list[str] = []

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
    """One run of two that are compared; ``name`` is that of its cell, if it was one.

    The figures leave out what the other run did not compile because PyTorch held its code; see :class:`Reused`.
    """

    name: str | None
    status: Literal["ok", "error", "interrupted"]
    summary: Summary
    timing: Timing


class Change(msgspec.Struct, frozen=True):
    """A break that only one of two runs has, or that is at another line now.

    Parameters
    ----------
    change : str
        ``unknown`` if one of two runs has it, and the other did not compile its function, for PyTorch held its code.
    before, after : Place or None
        Where it is in the earlier run and where it is in the later one.
    break_ : str or None
        Its id in the later run.
    """

    change: Literal["gone", "new", "moved", "unknown"]
    gb_id: str | None
    gb_type: str
    function: str | None
    code: str | None
    before: Place | None
    after: Place | None
    break_: str | None = msgspec.field(default=None, name="break")


class Reused(msgspec.Struct, frozen=True):
    """A function that one of two runs compiled and the other did not, for PyTorch held its code from earlier.

    Parameters
    ----------
    run : {"before", "after"}
        The run that did not compile it.
    """

    function: str
    place: Place | None
    run: Literal["before", "after"]


class Changes(msgspec.Struct, frozen=True):
    """What changed from one run to a later one.

    Parameters
    ----------
    before, after : RunFigures
        The figures of the earlier and of the later run.
    breaks : list of Change
        The breaks that are gone, new or moved, and those of which that is unknown.
    same : list of str
        The ids, in the later run, of the breaks that both runs have at the same line.
    reused : list of Reused
        Functions that only one of the runs compiled, so that nothing of them is compared.
    """

    before: RunFigures
    after: RunFigures
    breaks: list[Change] = []
    same: list[str] = []
    reused: list[Reused] = []

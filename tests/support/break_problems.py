"""Handwritten breaks and their source code, for tests of remedies."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal
from jupyter_graphbreak.experiments.families.table import FAMILIES
from jupyter_graphbreak.report.location import Location, Source
from jupyter_graphbreak.report.schema import Break, Device, Frame, Report


def location_of(text: str, code: str, source: str = "s1") -> Location:
    """Return the location of the first occurrence of a piece of code in a source text."""
    start = text.index(code)
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1)
    end = start + len(code)
    end_line = text.count("\n", 0, end) + 1
    return Location(source, line, end_line, column, end - (text.rfind("\n", 0, end) + 1), "f", code)


def problem(
    text: str, code: str | Sequence[str], gb_id: str = "GB0170", *, gb_type: str = "", entry: str | None = None,
    hints: Sequence[str] = (),
) -> Problem:  # fmt: skip
    """Return the problem of removing the first of several breaks, one at each given piece of code.

    ``entry`` is the first line of the compiled function. Without it, the report has no frames.
    """
    pieces = [code] if isinstance(code, str) else list(code)
    breaks = [
        Break(f"b{n}", gb_id, gb_type, location_of(text, piece), "resumed", hints=list(hints))
        for n, piece in enumerate(pieces)
    ]
    frames = []
    if entry is not None:
        name = entry.removeprefix("def ").partition("(")[0]
        frames = [Frame("0/0", name, location_of(text, entry), "entry", "compiled")]
    source = Source("s1", "Cell In[1]", "cell")
    report = Report("ok", Device("cpu", "cpu"), sources=[source], breaks=breaks, frames=frames)
    return Problem(report, breaks[0], {"s1": text})


def proposals_of(family: str, break_problem: Problem) -> list[Proposal]:
    """Return the proposals that a family makes for a problem."""
    return list(FAMILIES[family](break_problem))


def proposed_texts(family: str, break_problem: Problem) -> list[str]:
    """Return the source texts that a family proposes for the cell."""
    return [proposal.texts["s1"] for proposal in proposals_of(family, break_problem) if proposal.texts]

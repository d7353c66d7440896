"""Sentences about standalone scripts: what each script shows, or why there is no script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.lines import break_numbers
from jupyter_graphbreak.views.words.plain_text import count_text, one_line

if TYPE_CHECKING:
    from jupyter_graphbreak.report.reproducer import Reproducer
    from jupyter_graphbreak.report.schema import Report


def reproducer_sentence(report: Report, reproducer: Reproducer) -> str:
    """Return the sentence about a script: "A standalone script of 12 lines shows break 1: `...`."."""
    finding = _finding_name(report, reproducer)
    if reproducer.script is None:
        return (
            f"{finding[0].upper()}{finding[1:]} cannot be reproduced: {one_line(reproducer.reason or 'unknown reason')}"
        )
    lines = count_text(len(reproducer.script.strip().split("\n")), "line")
    return f'A standalone script of {lines} shows {finding}: `report.reproducer("{reproducer.id}")`.'


def reproducers_of(report: Report, ident: str) -> list[tuple[int, Reproducer]]:
    """Return the scripts for a break, given its id, each with the index of the script in the report."""
    scripts = enumerate(report.reproducers or [])
    return [(index, script) for index, script in scripts if script.id == ident and script.script is not None]


def other_reproducers(report: Report) -> list[tuple[int, Reproducer]]:
    """Return the scripts for findings other than breaks, each with its index in the report."""
    break_ids = {break_.id for break_ in report.breaks}
    scripts = enumerate(report.reproducers or [])
    return [(index, script) for index, script in scripts if script.id not in break_ids and script.script is not None]


def _finding_name(report: Report, reproducer: Reproducer) -> str:
    numbers = break_numbers(report)
    if reproducer.id in numbers:
        return f"break {numbers[reproducer.id]}"
    if reproducer.id in {"error", "check"}:
        return "the error" if reproducer.id == "error" else "the wrong result"
    return f"the {one_line(reproducer.title)}"

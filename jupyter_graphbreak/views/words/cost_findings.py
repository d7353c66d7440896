"""Sentences about what makes a compiled call slow or large, or different from an eager one, each with a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.cost import memory_text
from jupyter_graphbreak.views.words.where import place, without_function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.report.cost import EntryCost, MemoryCost
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Report

#: How many entries are described.
_MOST_ENTRIES = 50
#: Calls that take less memory are not described, nor are differences below this share.
_NOTABLE_BYTES = 1 << 20
_NOTABLE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence about the cost of an entry.

    Parameters
    ----------
    sentence : str
        The sentence.
    share : float
        What the finding costs, as a share of what an eager call takes; negative if compiling saves it.
    location : Location or None
        The line in the source.
    """

    sentence: str
    share: float = 0.0
    location: Location | None = None


def cost_findings(report: Report) -> list[Finding]:
    """Return the findings about all entries, the most expensive first."""
    cost = report.cost
    if cost is None:
        return []
    several = len(cost.entries) > 1
    findings = []
    for entry in cost.entries[:_MOST_ENTRIES]:
        name = f"{entry.function}: " if several else ""
        findings += [Finding(name + one.sentence, one.share, one.location) for one in _of_entry(report, entry)]
    return sorted(findings, key=lambda finding: -finding.share)


def _of_entry(report: Report, entry: EntryCost) -> Iterator[Finding]:
    if entry.memory is not None:
        yield from _memory(report, entry.memory)


def _memory(report: Report, memory: MemoryCost) -> Iterator[Finding]:
    """Compare the peaks, and say how much of them is kept for the backward pass.

    "a call needs 48.0 MiB more memory than eager (96.0 MiB against 48.0 MiB); 40.0 MiB are kept for the backward pass
    (eager 20.0 MiB, most at line 12: 16.0 MiB)".
    """
    compiled, eager = memory.compiled_peak_bytes, memory.eager_peak_bytes
    if max(compiled, eager) < _NOTABLE_BYTES:
        return
    more = compiled - eager
    share = more / max(eager, 1)
    if abs(share) < _NOTABLE_SHARE:
        sentence = f"a call needs as much memory as eager ({memory_text(compiled)})"
    else:
        word = "more" if more > 0 else "less"
        both = f"({memory_text(compiled)} against {memory_text(eager)})"
        sentence = f"a call needs {memory_text(abs(more))} {word} memory than eager {both}"
    line = next(iter(memory.lines), None)
    location = line.location if line is not None else None
    if memory.compiled_saved_bytes or memory.eager_saved_bytes:
        kept = memory_text(memory.compiled_saved_bytes) if memory.compiled_saved_bytes else "none"
        most = memory_text(memory.eager_saved_bytes) if memory.eager_saved_bytes else "none"
        if line is not None:
            most += f", most at {place(report, without_function(location))}: {memory_text(line.eager_bytes)}"
        verb = "is" if kept == "none" else "are"
        sentence += f"; {kept} {verb} kept for the backward pass (eager {most})"
    yield Finding(sentence, share, location)

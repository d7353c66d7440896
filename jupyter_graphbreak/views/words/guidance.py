"""What a break costs, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.report.schema import Advice
from jupyter_graphbreak.views.words.lines import break_numbers
from jupyter_graphbreak.views.words.plain_text import counted

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Break, Report


def cost_of(listed: Break) -> str:
    """Return what a break costs: "adds 2 graphs, 0.35 s of compiling; 3 functions run eagerly"."""
    cost = listed.cost
    if cost is None:
        return ""
    parts = []
    if cost.graphs or cost.compile_s is not None:
        seconds = f"{cost.compile_s:.2f} s of compiling" if cost.compile_s is not None else ""
        graphs = f"adds {counted(cost.graphs, 'graph')}" if cost.graphs else "adds no graph"
        parts.append(", ".join(filter(None, [graphs, seconds])))
    if cost.eager:
        parts.append(f"{counted(cost.eager, 'function')} {'runs' if cost.eager == 1 else 'run'} eagerly")
    return "; ".join(parts) or "adds no graph"


def guidance(report: Report, listed: Break) -> list[Advice]:
    """Return what to do, the best first; PyTorch's hints where there is nothing else."""
    given = {advice.text for advice in listed.advice}
    first = _first_of_all(report, listed) if listed.minor else None
    known = [*listed.advice, *(Advice(hint) for hint in listed.hints if hint not in given)]
    return [first, *known] if first is not None else known


def _first_of_all(report: Report, listed: Break) -> Advice | None:
    """Return that another break is to go first, where the function is compiled only because its caller is not."""
    frames = {frame.id: frame for frame in report.frames}
    frame = frames.get(listed.occurrences[-1].frame or "") if listed.occurrences else None
    while frame is not None and frame.caller in frames and listed.id in frames[frame.caller].breaks:
        frame = frames[frame.caller]
    if frame is None:
        return None
    cause = next((skipped for skipped in report.skipped if skipped.frame == frame.caller), None)
    number = break_numbers(report).get(cause.break_ or "") if cause is not None else None
    if cause is None or number is None or cause.break_ == listed.id:
        return None
    return Advice(
        f"fix break {number} first: compiled by itself only because its caller `{cause.function}` runs eagerly",
        "graphbreak",
    )

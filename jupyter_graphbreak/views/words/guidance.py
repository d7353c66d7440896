"""What a break costs, and what to do about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyter_graphbreak.report.remedies import WORKING
from jupyter_graphbreak.report.schema import Advice
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.lines import break_numbers
from jupyter_graphbreak.views.words.plain_text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Report

#: By what means a change removes a break, as both titles of remedies and advice name it.
_MEANS = ("torch.where", "torch.cond", "after the call", "detach()")
#: Calls within calls through which a break is followed to what makes it.
_MOST_CALLS = 100
#: Between the alternatives of one piece of advice.
_ALTERNATIVES = re.compile(r"; (?=or )|; |, (?=or )")


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
    """Return what to do, the best first; PyTorch's hints too if the line is the reader's own.

    What was tried and failed is not advised again.
    """
    given = {advice.text for advice in listed.advice}
    hints = listed.hints if listed.owner == "own" or not listed.advice else []
    first = _first_of_all(report, listed) if listed.minor else None
    known = [*listed.advice, *(Advice(hint) for hint in hints if hint not in given)]
    known = _without_failed(known, _failed(report, listed))
    return [first, *known] if first is not None else known


def _failed(report: Report, listed: Break) -> list[str]:
    """Return by what means nothing removed a break, in the words of advice."""
    tried = [remedy for remedy in lookup.remedies_by_break(report).get(listed.id, ()) if remedy.kind != "person"]
    working = _means(remedy for remedy in tried if remedy.verdict in WORKING)
    failed = _means(remedy for remedy in tried if remedy.verdict not in {*WORKING, "not tried"})
    return [means for means in failed if means not in working]


def _means(remedies: Iterable[Remedy]) -> list[str]:
    """Return by what means remedies remove a break; those put together of several say nothing of each."""
    found: list[str] = []
    for remedy in remedies:
        if len(remedy.settings) == 1:
            found += remedy.settings
        if "; " not in remedy.title:
            found += [means for means in _MEANS if means in remedy.title]
    return list(dict.fromkeys(found))


def _without_failed(advice: list[Advice], failed: list[str]) -> list[Advice]:
    """Leave out the alternatives that failed, and say once which those are."""
    kept: list[Advice] = []
    dropped: list[str] = []
    for item in advice:
        clauses = _ALTERNATIVES.split(item.text)
        left = []
        for clause in clauses:
            means = [name for name in failed if name in clause]
            dropped += [name for name in means if name not in dropped]
            if not means:
                left.append(clause)
        if len(left) == len(clauses):
            kept.append(item)
        elif left:
            kept.append(Advice("; ".join([left[0].removeprefix("or "), *left[1:]]), item.origin))
    if not dropped:
        return advice
    words = " and ".join(name.removeprefix("torch._dynamo.config.") for name in dropped)
    note = f"{words} {'was' if len(dropped) == 1 else 'were'} tried and did not work"
    if not kept:
        return [Advice(f"{note}: decide what has to change", "graphbreak")]
    return [Advice(f"{kept[0].text} ({note})", kept[0].origin), *kept[1:]]


def _first_of_all(report: Report, listed: Break) -> Advice | None:
    """Return that another break is to go first, where the function is compiled only because its caller is not."""
    frames = lookup.frames(report)
    frame = frames.get(listed.occurrences[-1].frame or "") if listed.occurrences else None
    passed: set[str] = set()  # a report that somebody made up may have callers that call each other
    while frame is not None and frame.caller in frames and listed.id in frames[frame.caller].breaks:
        if frame.id in passed or len(passed) >= _MOST_CALLS:
            return None
        passed.add(frame.id)
        frame = frames[frame.caller]
    if frame is None:
        return None
    cause = lookup.skipped_by_frame(report).get(frame.caller)
    number = break_numbers(report).get(cause.break_ or "") if cause is not None else None
    if cause is None or number is None or cause.break_ == listed.id:
        return None
    return Advice(
        f"fix break {number} first: compiled by itself only because its caller `{cause.function}` runs eagerly",
        "graphbreak",
    )

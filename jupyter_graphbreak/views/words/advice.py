"""Describe the cost of a break, and give advice about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyter_graphbreak.knowledge.entries import CONFIG
from jupyter_graphbreak.report.remedies import WORKING
from jupyter_graphbreak.report.schema import Advice
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.lines import break_numbers
from jupyter_graphbreak.views.words.locations import function_of
from jupyter_graphbreak.views.words.plain_text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Report

#: Techniques that remove a break, as they appear in the titles of remedies and in advice.
_TECHNIQUES = ("torch.where", "torch.cond", "after the call", "within the graph", "detach()")
#: The search for the cause of a break follows at most this many callers.
_MAX_CALLERS = 100
#: The separators between alternatives in one piece of advice.
_ALTERNATIVE_SEPARATOR = re.compile(r"; (?=or )|; |, (?=or )")


def cost_text(break_: Break) -> str:
    """Return the cost of a break: "adds 2 graphs; compiling the code after it took 0.35 s; 1 function runs eagerly"."""
    cost = break_.cost
    if cost is None:
        return ""
    eager = f"{count_text(cost.eager, 'function')} {'runs' if cost.eager == 1 else 'run'} eagerly" if cost.eager else ""
    return "; ".join(filter(None, [added_graphs_text(break_), eager])) or "adds no graph"


def added_graphs_text(break_: Break) -> str:
    """Describe what a break adds: "adds 2 graphs; compiling the code after it took 0.35 s"; empty if unknown."""
    cost = break_.cost
    if cost is None or (not cost.graphs and cost.compile_s is None):
        return ""
    seconds = f"compiling the code after it took {cost.compile_s:.2f} s" if cost.compile_s is not None else ""
    graphs = f"adds {count_text(cost.graphs, 'graph')}" if cost.graphs else "adds no graph"
    return "; ".join(filter(None, [graphs, seconds]))


def advice_for_break(report: Report, break_: Break) -> list[Advice]:
    """Return advice about a break, best first; techniques that failed in trials are left out.

    PyTorch's hints are included if the break is in the reader's own code, or if there is no other advice.
    """
    texts = {advice.text for advice in break_.advice}
    hints = break_.hints if break_.owner == "own" or not break_.advice else []
    caller_advice = advice_to_fix_caller(report, break_)
    all_advice = [*break_.advice, *(Advice(hint) for hint in hints if hint not in texts)]
    all_advice = _without_failed_techniques(all_advice, _failed_techniques(report, break_))
    return [caller_advice, *all_advice] if caller_advice is not None else all_advice


def _failed_techniques(report: Report, break_: Break) -> list[str]:
    """Return the techniques that were tried for a break and did not work."""
    trials = [remedy for remedy in lookup.remedies_by_break(report).get(break_.id, ()) if remedy.kind != "person"]
    working_techniques = _techniques_of(remedy for remedy in trials if remedy.verdict in WORKING)
    failed_remedies = [remedy for remedy in trials if remedy.verdict not in {*WORKING, "not tried"}]
    failed_techniques = _techniques_of(failed_remedies)
    failed_techniques += [
        remedy.title[:1].lower() + remedy.title[1:] for remedy in failed_remedies if remedy.kind == "switch"
    ]
    return [technique for technique in failed_techniques if technique not in working_techniques]


def _techniques_of(remedies: Iterable[Remedy]) -> list[str]:
    """Return the techniques that remedies use. The title of a remedy with several changes says nothing about each."""
    techniques: list[str] = []
    for remedy in remedies:
        if len(remedy.settings) == 1:
            techniques += remedy.settings
        if "; " not in remedy.title:
            techniques += [technique for technique in _TECHNIQUES if technique in remedy.title]
    return list(dict.fromkeys(techniques))


def _without_failed_techniques(advice: list[Advice], failed_techniques: list[str]) -> list[Advice]:
    """Return advice without the alternatives that failed, and with a note that mentions them."""
    remaining_advice: list[Advice] = []
    dropped_techniques: list[str] = []
    for piece in advice:
        clauses = _ALTERNATIVE_SEPARATOR.split(piece.text)
        remaining_clauses = []
        for clause in clauses:
            techniques = [name for name in failed_techniques if name in clause]
            dropped_techniques += [name for name in techniques if name not in dropped_techniques]
            if not techniques:
                remaining_clauses.append(clause)
        if len(remaining_clauses) == len(clauses):
            remaining_advice.append(piece)
        elif remaining_clauses:
            text = "; ".join(remaining_clauses).removeprefix("or ")
            remaining_advice.append(Advice(text, piece.origin))
    if not dropped_techniques:
        return advice
    dropped_techniques = [name for name in dropped_techniques if name in _TECHNIQUES or name.startswith(CONFIG)]
    if not dropped_techniques:  # only switches failed, and the card of the break lists them with their verdicts
        return remaining_advice
    words = " and ".join(name.removeprefix(CONFIG) for name in dropped_techniques)
    note = f"{words} {'was' if len(dropped_techniques) == 1 else 'were'} tried and did not work"
    if not remaining_advice:
        return [Advice(f"{note}: decide what has to change", "graphbreak")]
    first, *other_advice = remaining_advice
    return [Advice(f"{first.text} ({note})", first.origin), *other_advice]


def advice_to_fix_caller(report: Report, break_: Break) -> Advice | None:
    """Return advice to fix another break first, which makes the caller of this function run eagerly, if one does."""
    if not break_.minor:
        return None
    frames = lookup.frames(report)
    frame = frames.get(break_.occurrences[-1].frame or "") if break_.occurrences else None
    visited_ids: set[str] = set()  # in an invalid report, callers may call each other in a cycle
    while frame is not None and frame.caller in frames and break_.id in frames[frame.caller].breaks:
        if frame.id in visited_ids or len(visited_ids) >= _MAX_CALLERS:
            return None
        visited_ids.add(frame.id)
        frame = frames[frame.caller]
    if frame is None:
        return None
    cause = lookup.skipped_by_frame(report).get(frame.caller)
    number = break_numbers(report).get(cause.break_ or "") if cause is not None else None
    if cause is None or number is None or cause.break_ == break_.id:
        return None
    caller = function_of(report, cause.location) if cause.location is not None else cause.function
    return Advice(
        f"fix break {number} first: this function is compiled separately because its caller `{caller}` runs eagerly",
        "graphbreak",
    )

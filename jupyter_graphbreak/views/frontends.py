"""The verdicts of the front ends as text and as HTML: one table, most telling cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.frontends import OUTCOMES
from jupyter_graphbreak.views.html import environment, style_sheet
from jupyter_graphbreak.views.terminal import counted, plain, wrapped

if TYPE_CHECKING:
    from jupyter_graphbreak.frontends import Example, Frontends, Outcome, Verdict

#: A sign before the word, for the quick eye.
_SIGNS: dict[Outcome, str] = {
    "captures": "✓",
    "breaks": "✂",
    "eager": "○",
    "refuses": "⚠",
    "silently wrong": "✗",
    "raises": "⊘",
}
_RIGHT: set[Outcome] = {"captures", "breaks", "eager"}


def render_text(found: Frontends) -> str:
    """Return the verdicts as text for a terminal 100 columns wide, without a line break at the end."""
    lines = [*wrapped("", f"front ends on {_call(found)} | torch {found.torch}", indent="")]
    names = max(len(each.frontend) for each in found.verdicts)
    words = max(len(word) for word in OUTCOMES.values())
    for verdict in found.verdicts:
        counts = f"{graphs(verdict)}, {breaks(verdict)}" if verdict.graphs is not None else ""
        lines.append(f" {verdict.frontend:<{names}}  {OUTCOMES[verdict.outcome]:<{words}}  {counts}".rstrip())
        for sentence in details(found, verdict):
            lines += wrapped("", sentence)
    for sentence in legend(found):
        lines += wrapped("", sentence, indent="")
    return "\n".join(map(plain, lines))


def render_html(found: Frontends) -> str:
    """Return the verdicts as a snippet of HTML with its own style sheet."""
    template = environment().get_template("frontends.html.j2")
    return template.render(
        found=found, call=_call(found), words=OUTCOMES, signs=_SIGNS, right=_RIGHT, css=style_sheet(),
        details=details, legend=legend(found),
    ).strip()  # fmt: skip


def _call(found: Frontends) -> str:
    return f"{found.function}({found.example.values})"


def graphs(verdict: Verdict) -> str:
    """Return how many graphs there are: "2 graphs"."""
    return counted(verdict.graphs or 0, "graph")


def breaks(verdict: Verdict) -> str:
    """Return how many breaks there are: "1 break"."""
    return counted(verdict.breaks or 0, "break")


def details(found: Frontends, verdict: Verdict) -> list[str]:
    """Return what there is to say about a verdict, in sentences, code between backticks."""
    told = []
    where = f"with {_told(verdict.example)}: " if verdict.example is not None else ""
    if verdict.difference is not None:
        told.append(f"{where}{verdict.difference}")
    elif verdict.raised is not None:
        message = verdict.raised.message.rstrip(": ")
        raised = f"{verdict.raised.type}: {message}" if message else verdict.raised.type
        by = "" if verdict.raised.by == "capture" or verdict.outcome == "refuses" else "the captured program raises "
        told.append(f"{where}{by}{raised}")
    told += [f"warned: {each}" for each in verdict.warnings]
    if verdict.outcome == "silently wrong" and not verdict.warnings:
        told.append("without a warning")
    told += verdict.notes
    if verdict.deprecated:
        told.append(f"deprecated in torch {found.torch.partition('+')[0]}")
    return told


def _told(example: Example) -> str:
    if not example.values or not example.what:
        return example.values or example.what or "no arguments"
    return f"{example.values} ({example.what})"


def _brief(example: Example) -> str:
    return example.what.removesuffix(", random") or example.values or "no arguments"


def legend(found: Frontends) -> list[str]:
    """Return what was tried, and what follows from it."""
    told = [f"About the first break: {found.advice.rstrip('.')}."] if found.advice else []
    if not found.others:
        return [
            *told,
            "No other input could be derived: that the programs agree with eager was seen with one input only.",
        ]
    tried = ", ".join(dict.fromkeys(map(_brief, found.others)))
    told.append(f"Also run with: {tried}.")
    if any(each.breaks for each in found.verdicts):
        told.append("Graphs and breaks are counted with the first input.")
    if found.changes:
        told.append(f"A call changes {', '.join(found.changes)}, so each of these was run after the first input.")
    for raised in dict.fromkeys(each.raised.type for each in found.others if each.raised is not None):
        inputs = [_brief(each) for each in found.others if each.raised is not None and each.raised.type == raised]
        told.append(f"The function itself raises {raised} with {', '.join(dict.fromkeys(inputs))}.")
    agreeing = any(each.outcome in _RIGHT for each in found.verdicts)
    if agreeing and found.searched:
        told.append('"captures" and "right" mean that none of these inputs told the program from the function itself.')
    return told

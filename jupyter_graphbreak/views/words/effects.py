"""Say which functions were not run again because of their side effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.locations import location_text
from jupyter_graphbreak.views.words.plain_text import count_text, one_line

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Effect, Report

#: The maximum number of effects to list; the rest are counted.
_MAX_NAMED_EFFECTS = 4


def not_run_again_sentence(report: Report) -> str:
    """Return the sentence about functions that were not run again because of their side effects; empty without any.

    For example: "Nothing was run again, because that would repeat side effects: line 4 in step writes to the file
    rows.csv."
    """
    if not report.effects:
        return ""
    effect_texts = [_effect_text(report, effect) for effect in report.effects[:_MAX_NAMED_EFFECTS]]
    more_count = len(report.effects) - len(effect_texts)
    reasons = "; ".join([*effect_texts, *([f"and {count_text(more_count, 'other effect')}"] if more_count > 0 else [])])
    subject = "Some functions were not run again" if _has_repeated_runs(report) else "Nothing was run again"
    return f"{subject}, because that would repeat side effects: {reasons}."


def _effect_text(report: Report, effect: Effect) -> str:
    place_text = location_text(report, effect.location) if effect.location is not None else "the code"
    return f"{place_text} {one_line(effect.what)}"


def _has_repeated_runs(report: Report) -> bool:
    has_trials = any(remedy.kind != "person" for remedy in report.remedies or [])
    return has_trials or bool(report.check) or bool(report.cost is not None and report.cost.entries)

"""Say whether a break was allowed, by which setting, and what a stricter setting would have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.lines import break_numbers
from jupyter_graphbreak.views.words.locations import line_text

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Break, Report, Scope, Setting

_MAX_LISTED_BREAKS = 20
#: The results of :func:`describe_permission` that mention no setting.
PERMISSIONS_WITHOUT_SETTING = frozenset({"allowed", "allowed by default"})
_FULLGRAPH_CAVEAT = "of breaking; Python code that needs the value, such as a branch, can still be an error."


def describe_permission(report: Report, break_: Break) -> str:
    """Say whether a break was allowed, and by which setting: "allowed by error_on_graph_break(False), line 13"."""
    if break_.setting is not None:
        if break_.outcome == "error" and not break_.setting.value:
            return "an error, although breaks are allowed"
        return _setting_sentence(report, break_.setting)
    return "an error" if break_.outcome == "error" else "allowed"


def scope_label(scope: Scope) -> str:
    """Return the effect of a scope on breaks: "breaks are errors" or "breaks allowed"."""
    return "breaks are errors" if scope.value else "breaks allowed"


def scope_name(scope: Scope) -> str:
    """Return the setting of a scope as source text: "error_on_graph_break(True)", "fullgraph=True"."""
    return f"fullgraph={scope.value}" if scope.setting == "fullgraph" else f"{scope.setting}({scope.value})"


def stricter_setting_sentences(report: Report) -> list[list[str | int]]:
    """Return sentences about the effect of stricter settings, each as a list of strings and numbers of breaks."""
    what_if, numbers = report.what_if, break_numbers(report)
    strict_numbers = [numbers[ident] for ident in what_if.error_on_graph_break if ident in numbers]
    captured_numbers = [numbers[ident] for ident in what_if.captured if ident in numbers]
    ending_break = numbers.get(what_if.fullgraph or "")
    sentences: list[list[str | int]] = []
    if strict_numbers:
        introduction = (
            "With error_on_graph_break(True) around the compiled function, the run would end with an error at"
        )
        other_numbers = _first_numbers(strict_numbers[1:])
        sentences.append(
            [
                introduction,
                strict_numbers[0],
                *(["; no scope allows", *other_numbers, "either."] if other_numbers else ["."]),
            ]
        )
    if captured_numbers:
        consequence = (
            ["; the run would end with an error at", ending_break, "at the latest."]
            if ending_break is not None
            else [_FULLGRAPH_CAVEAT]
        )
        sentences.append(
            [
                "With fullgraph=True, PyTorch would try to capture",
                *_first_numbers(captured_numbers),
                "instead",
                *consequence,
            ]
        )
    elif ending_break is not None:
        sentences.append(
            ["With fullgraph=True, the run would end with an error at", ending_break, ", whatever the scopes say."]
        )
    return sentences


def _first_numbers(numbers: list[int]) -> list[str | int]:
    more_count = len(numbers) - _MAX_LISTED_BREAKS
    return [*numbers[:_MAX_LISTED_BREAKS], *([f"and {more_count} more"] if more_count > 0 else [])]


def _setting_sentence(report: Report, setting: Setting) -> str:
    scopes = lookup.scopes(report)
    scope = scopes.get(setting.scope or "")
    chain = [scopes[ident] for ident in setting.chain if ident in scopes]
    if "fullgraph" in setting.rules:
        words = "an error because of fullgraph=True"
        words += f", {line_text(report, scope.location)}" if scope is not None else ""
        inner = next((open_scope for open_scope in reversed(chain) if open_scope.setting != "fullgraph"), None)
        return f"{words}, which overrides {_scope_with_location(report, inner)}" if inner is not None else words
    if scope is None:
        if not setting.value:
            return "allowed by default"
        return "an error because of error_on_graph_break(True), set before watching began"
    words = f"{'an error because of' if setting.value else 'allowed by'} {_scope_with_location(report, scope)}"
    if "inherited" in setting.rules:
        words += ", around the call"
    outer = next((open_scope for open_scope in reversed(chain[:-1]) if open_scope.value is not scope.value), None)
    if outer is not None:
        words += f", inside {_scope_with_location(report, outer)}"
    return words


def _scope_with_location(report: Report, scope: Scope) -> str:
    name = scope_name(scope)
    return f"{name}, {line_text(report, scope.location)}" if scope.location is not None else f"{name} ({scope.note})"

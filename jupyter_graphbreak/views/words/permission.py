"""Whether a break was allowed, who said so, and what a stricter setting would have made of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.lines import break_numbers
from jupyter_graphbreak.views.words.where import place, without_function

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Break, Report, Scope, Setting

#: Breaks that one sentence lists.
_MOST_NUMBERS = 20
_MAY_FAIL = "of breaking; Python code that needs the value, such as a branch, can still be an error."


def permission(report: Report, listed: Break) -> str:
    """Return whether a break was allowed and who said so: "allowed by error_on_graph_break(False), line 13"."""
    if listed.setting is not None:
        if listed.outcome == "error" and not listed.setting.value:
            return "an error, although breaks are allowed"
        return _allowed(report, listed.setting)
    return "an error" if listed.outcome == "error" else "allowed"


def scope_label(scope: Scope) -> str:
    """Return what a scope says about breaks."""
    return "breaks are errors" if scope.value else "breaks allowed"


def scope_name(scope: Scope) -> str:
    """Return the setting of a scope as code has it: "error_on_graph_break(True)", "fullgraph=True"."""
    return f"fullgraph={scope.value}" if scope.setting == "fullgraph" else f"{scope.setting}({scope.value})"


def stricter(report: Report) -> list[list[str | int]]:
    """Return sentences on what stricter settings would have made of the run, in parts: text, and numbers of breaks."""
    what_if, numbers = report.what_if, break_numbers(report)
    strict = [numbers[ident] for ident in what_if.error_on_graph_break if ident in numbers]
    captured = [numbers[ident] for ident in what_if.captured if ident in numbers]
    end = numbers.get(what_if.fullgraph or "")
    sentences: list[list[str | int]] = []
    if strict:
        around = "With error_on_graph_break(True) around the compiled function, the run would end with an error at"
        others = _shortened(strict[1:])
        sentences.append([around, strict[0], *(["; no scope allows", *others, "either."] if others else ["."])])
    if captured:
        then = ["; the run would end with an error at", end, "at the latest."] if end is not None else [_MAY_FAIL]
        sentences.append(["With fullgraph=True, PyTorch would try to capture", *_shortened(captured), "instead", *then])
    elif end is not None:
        sentences.append(["With fullgraph=True, the run would end with an error at", end, ", whatever the scopes say."])
    return sentences


def _shortened(numbers: list[int]) -> list[str | int]:
    more = len(numbers) - _MOST_NUMBERS
    return [*numbers[:_MOST_NUMBERS], *([f"and {more} more"] if more > 0 else [])]


def _allowed(report: Report, setting: Setting) -> str:
    scopes = lookup.scopes(report)
    scope = scopes.get(setting.scope or "")
    chain = [scopes[ident] for ident in setting.chain if ident in scopes]
    if "fullgraph" in setting.rules:
        words = "an error by fullgraph=True" + (f", {_start(report, scope)}" if scope is not None else "")
        inner = next((open_scope for open_scope in reversed(chain) if open_scope.setting != "fullgraph"), None)
        return f"{words}, which wins over {_named(report, inner)}" if inner is not None else words
    if scope is None:
        if not setting.value:
            return "allowed by default"
        return "an error by error_on_graph_break(True), set where nobody watched"
    words = f"{'an error' if setting.value else 'allowed'} by {_named(report, scope)}"
    if "inherited" in setting.rules:
        words += ", around the call"
    outer = next((open_scope for open_scope in reversed(chain[:-1]) if open_scope.value is not scope.value), None)
    if outer is not None:
        words += f", inside ({outer.value}) of {_start(report, outer)}"
    return words


def _named(report: Report, scope: Scope) -> str:
    name = f"{scope.setting}({scope.value})"
    return f"{name}, {_start(report, scope)}" if scope.location is not None else f"{name} ({scope.note})"


def _start(report: Report, scope: Scope) -> str:
    return place(report, without_function(scope.location))

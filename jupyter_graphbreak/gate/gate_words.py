"""Describe the gate's decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_graphbreak.gate.baseline import AllowedBreak
    from jupyter_graphbreak.gate.verdict import GateVerdict


NOTHING_COMPILED = "nothing was compiled, so the absence of breaks proves nothing"
COMPILE_SOMETHING = (
    "call a compiled function in this process, and check that compiling is not switched off by "
    'TORCH_COMPILE_DISABLE=1, torch._dynamo.config.disable or the stance "force_eager"'
)


def headline(verdict: GateVerdict) -> str:
    """Return the decision in one line, e.g. "gate failed: 1 new break, 1 function newly runs eagerly"."""
    if verdict.nothing_compiled:
        return f"gate failed: {NOTHING_COMPILED}"
    parts = [
        _counted(len(verdict.new), "new break"),
        _counted(len(verdict.eager), "function newly runs eagerly", "functions newly run eagerly"),
        _counted(len(verdict.recompiles), "function recompiled more often", "functions recompiled more often"),
    ]
    failed = ", ".join(part for part in parts if part)
    notes = [_counted(verdict.same, "allowed break", "allowed breaks")]
    notes.append(_counted(len(verdict.gone), "allowed break gone", "allowed breaks gone"))
    rest = ", ".join(note for note in notes if note)
    if not failed:
        return f"gate passed: {rest or 'no breaks'}"
    return f"gate failed: {failed}; {rest}" if rest else f"gate failed: {failed}"


def details(verdict: GateVerdict) -> list[str]:
    """Return one line per difference from the baseline, or what to do if nothing was compiled."""
    if verdict.nothing_compiled:
        return [COMPILE_SOMETHING]
    return [
        *(f"new    {_break(break_)}" for break_ in verdict.new),
        *(f"eager  {_where(function.path, function.function)}: {function.reason}" for function in verdict.eager),
        *(
            f"again  {_where(function.path, function.function)}: recompiled {function.now} times, "
            f"{function.before} allowed"
            for function in verdict.recompiles
        ),
        *(f"gone   {_break(break_)}" for break_ in verdict.gone),
    ]


def _break(break_: AllowedBreak) -> str:
    cause = break_.cause + (f" ({break_.gb_id})" if break_.gb_id else "")
    return "   ".join(part for part in (_where(break_.path, break_.function), break_.line, cause) if part)


def _where(path: str, function: str) -> str:
    where = path or "a cell"
    return f"{where} in {function}" if function else where


def _counted(number: int, one: str, more: str | None = None) -> str:
    return "" if not number else f"{number} {one if number == 1 else more or one + 's'}"

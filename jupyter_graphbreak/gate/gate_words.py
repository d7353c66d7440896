"""What the gate decided, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_graphbreak.gate.baseline import AllowedBreak
    from jupyter_graphbreak.gate.verdict import Verdict


NOTHING_COMPILED = "nothing was compiled, so the absence of breaks proves nothing"
COMPILE_SOMETHING = (
    "call a function that torch.compile made, in this process; TORCH_COMPILE_DISABLE=1, torch._dynamo.config.disable "
    'and the stance "force_eager" switch compiling off'
)


def headline(verdict: Verdict) -> str:
    """Return the decision in one line: "gate failed: 1 new break, 1 function newly eager"."""
    if verdict.nothing_compiled:
        return f"gate failed: {NOTHING_COMPILED}"
    parts = [
        _counted(len(verdict.new), "new break"),
        _counted(len(verdict.eager), "function runs eagerly that did not", "functions run eagerly that did not"),
        _counted(len(verdict.recompiles), "function recompiled more often", "functions recompiled more often"),
    ]
    failed = ", ".join(part for part in parts if part)
    notes = [_counted(verdict.same, "allowed break met", "allowed breaks met")]
    notes.append(_counted(len(verdict.gone), "allowed break gone", "allowed breaks gone"))
    rest = ", ".join(note for note in notes if note)
    if not failed:
        return f"gate passed: {rest or 'no breaks'}"
    return f"gate failed: {failed}; {rest}" if rest else f"gate failed: {failed}"


def details(verdict: Verdict) -> list[str]:
    """Return one line for each thing that is new, more, or gone; what to do if nothing was compiled."""
    if verdict.nothing_compiled:
        return [COMPILE_SOMETHING]
    return [
        *(f"new    {_break(found)}" for found in verdict.new),
        *(f"eager  {_where(each.path, each.function)}: {each.reason}" for each in verdict.eager),
        *(
            f"again  {_where(each.path, each.function)}: compiled again {each.now} times, {each.before} allowed"
            for each in verdict.recompiles
        ),
        *(f"gone   {_break(found)}" for found in verdict.gone),
    ]


def _break(found: AllowedBreak) -> str:
    cause = found.cause + (f" ({found.gb_id})" if found.gb_id else "")
    return "   ".join(part for part in (_where(found.path, found.function), found.line, cause) if part)


def _where(path: str, function: str) -> str:
    where = path or "a cell"
    return f"{where} in {function}" if function else where


def _counted(number: int, one: str, more: str | None = None) -> str:
    return "" if not number else f"{number} {one if number == 1 else more or one + 's'}"

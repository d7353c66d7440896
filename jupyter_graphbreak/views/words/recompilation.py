"""Functions that were compiled again: what varied between the calls, and the line that ends it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Recompile, Report

#: What Dynamo calls a value that a resume function is given and that no variable holds.
_ON_THE_STACK = "___stack"
_VALUE = re.compile(r"(?P<name>[\w.\[\]'\"]+) == (?P<value>.+)")
_SIZE = re.compile(
    r"tensor '(?P<name>.+)' size mismatch at index (?P<index>\d+)\. expected (?P<old>\S+), actual (?P<new>\S+)"
)
_DTYPE = re.compile(r"tensor '(?P<name>.+)' dtype mismatch\. expected (?P<old>\S+), actual (?P<new>\S+)")
#: Values of a series that are written out at its beginning; of more, these and the last.
_MOST_VALUES = 2


@dataclass(frozen=True, slots=True)
class Recompilation:
    """A function that was compiled more than once.

    Parameters
    ----------
    frames : list of str
        Its compilations after the first, one that the limit refused among them.
    story : str
        What varied: "k: 2 -> 3 -> ... -> 9, limit reached, runs eagerly".
    advice : str
        What ends it; empty where nothing is known.
    guard_at : Location or None
        The line that put the guard there, where PyTorch tells.
    """

    function: str
    location: Location | None
    frames: list[str]
    story: str
    advice: str
    limit_hit: bool
    guard_at: Location | None


@dataclass(frozen=True, slots=True)
class _Variation:
    name: str
    old: str
    new: str | None
    advice: str


def recompilations(report: Report) -> list[Recompilation]:
    """Return the functions that were compiled again, in the order in which that began."""
    by_function: dict[tuple[str | None, str, int], list[Recompile]] = {}
    for recompile in report.recompiles:
        line = recompile.location.line if recompile.location is not None else 0
        by_function.setdefault((recompile.of, recompile.function, line), []).append(recompile)
    return [_recompilation(recompiles) for recompiles in by_function.values()]


def limit_was_spent(report: Report) -> bool:
    """Whether a function runs eagerly because it was compiled too often."""
    return any(recompile.limit_hit for recompile in report.recompiles)


def _recompilation(recompiles: list[Recompile]) -> Recompilation:
    variations = [_variation(recompile.reasons[0].guard) for recompile in recompiles if recompile.reasons]
    last = recompiles[-1]
    known = variations[-1] if variations else None
    story = _series([variation for variation in variations if variation]) if known is not None else _guard(last)
    if last.limit_hit:
        story += ", limit reached, runs eagerly"
    places = (reason.location for recompile in recompiles for reason in recompile.reasons)
    return Recompilation(
        function=last.function,
        location=last.location,
        frames=[recompile.frame for recompile in recompiles],
        story=story,
        advice=known.advice if known is not None else "",
        limit_hit=last.limit_hit,
        guard_at=next((place for place in places if place is not None), None),
    )


def _series(variations: list[_Variation]) -> str:
    name = variations[-1].name
    values = [variation.old for variation in variations if variation.name == name]
    values.append(variations[-1].new or "another value")
    if variations[-1].new is None and len(values) > _MOST_VALUES:
        values.pop()  # a series shows by itself that it goes on
    steps = list(dict.fromkeys(values))
    if len(steps) > _MOST_VALUES + 1:
        steps = [*steps[:_MOST_VALUES], "...", steps[-1]]
    return f"{name}: {' -> '.join(steps)}"


def _guard(recompile: Recompile) -> str:
    return f"`{recompile.reasons[0].guard}` did not hold" if recompile.reasons else "a guard did not hold"


def _variation(guard: str) -> _Variation | None:
    if size := _SIZE.fullmatch(guard):
        name, index = size["name"], size["index"]
        return _Variation(
            f"dimension {index} of {name}", size["old"], size["new"],
            f"`torch._dynamo.mark_dynamic({name}, {index})` before the call, or `torch.compile(..., dynamic=True)`",
        )  # fmt: skip
    if dtype := _DTYPE.fullmatch(guard):
        name = dtype["name"]
        return _Variation(
            f"dtype of {name}", dtype["old"], dtype["new"],
            f"give `{name}` one dtype before the call: `{name} = {name}.to(...)`",
        )  # fmt: skip
    if value := _VALUE.fullmatch(guard):
        name = value["name"]
        shown = "the value that the break returned" if name.startswith(_ON_THE_STACK) else name
        return _Variation(shown, value["value"], None, _advice_for(name, value["value"]))
    return None


def _advice_for(name: str, value: str) -> str:
    if not re.fullmatch(r"-?\d+(?:\.\d+)?", value):
        return f"each value of `{name}` has code of its own: decide by it outside of the compiled function"
    if name.startswith(_ON_THE_STACK):
        return "`torch.compile(..., dynamic=True)`, or keep the value a tensor: then there is no break either"
    tensor = f"a tensor instead of a number: `{name} = torch.tensor({value})`"
    if "." in name:
        return f"{tensor}, or `torch._dynamo.config.allow_unspec_int_on_nn_module = True`"
    return f"`torch.compile(..., dynamic=True)`, or {tensor}"

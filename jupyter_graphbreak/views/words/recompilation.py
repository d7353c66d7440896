"""Functions that were compiled again: what varied between the calls, and the line that ends it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.per_report import per_report
from jupyter_graphbreak.views.words.plain_text import joined
from jupyter_graphbreak.views.words.where import function_of, place, without_function

if TYPE_CHECKING:
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import GuardFailure, Recompile, Report

#: What Dynamo calls a value that a resume function is given and that no variable holds.
_ON_THE_STACK = "___stack"
_VALUE = re.compile(r"(?P<name>[\w.\[\]'\"]+|len\([^()]+\)) == (?P<value>.+)")
#: What Dynamo compares of a tensor: "tensor 'x' size mismatch at index 0. expected 2, actual 3".
#: Its parts are looked for one after the other: a pattern for all of it can take long on a text made for that.
_TENSOR = re.compile(r"' (?P<what>\w+) mismatch(?: at index (?P<index>\d+))?\. expected (?P<old>[^,]+)(?=,|$)")
_TENSOR_BEGINS = "tensor '"
_ACTUAL = ", actual "
#: The object itself or its type: "___check_obj_id(fn, 140), type=<class 'function'>".
_IDENTITY = re.compile(r"___check_(?P<what>obj|type)_id\((?P<name>.+), \d+\)(?:, type=(?P<type>.+))?", re.DOTALL)
_GLOBAL_STATE = re.compile(r"GLOBAL_STATE changed: (?P<what>.+)")
#: How Dynamo names a local and a global variable.
_VARIABLE = re.compile(r"\b[LG]\['(\w+)'\]")
#: What a reader calls the things that Dynamo compares of a tensor.
_OF_TENSOR = {"size": "dimension {index}", "stride": "stride {index}", "rank": "number of dimensions"}
_OTHER_FLAG = {"True": "False", "False": "True"}
#: So many functions are named; more are counted.
_MOST_NAMES = 2
#: Lines of one guard that are named.
_MOST_LINES = 20
#: Values of a series that are written out at its beginning; of more, these and the last.
_MOST_VALUES = 2


@dataclass(frozen=True, slots=True)
class FailedGuard:
    """One thing that varied between the calls, so that the compiled versions of a function did not fit.

    Parameters
    ----------
    story : str
        What varied and how: "k: 2 -> 3 -> ... -> 9".
    times : int
        How many recompiles had a guard on it that failed.
    locations : list of Location
        The lines that put these guards there, if PyTorch says so.
    advice : str
        What ends it; empty if nothing is known.
    """

    story: str
    times: int
    locations: list[Location]
    advice: str


@dataclass(frozen=True, slots=True)
class Recompilation:
    """A function that was compiled more than once.

    Parameters
    ----------
    frames : list of str
        Its compilations after the first, including one that the limit refused.
    guards : list of FailedGuard
        Everything that varied, what failed in most recompiles first.
    total : int
        How often it was compiled in all; 0 if its first compilation was before the run.
    """

    function: str
    location: Location | None
    frames: list[str]
    guards: list[FailedGuard]
    limit_hit: bool
    total: int

    @property
    def times(self) -> str:
        """How often it was compiled again, and whether the limit ended that: "compiled 3 times again"."""
        made = len(self.frames) - self.limit_hit
        if not made:
            return "was to be compiled again: limit reached, runs eagerly"
        again = f"compiled again ({self.frames[0]})" if made == 1 else f"compiled {made} times again"
        return f"{again}, then limit reached: runs eagerly" if self.limit_hit else again

    def share(self, guard: FailedGuard) -> str:
        """Return in how many of the recompiles a guard failed; the empty string if there was one recompile only."""
        total = len(self.frames)
        if total == 1:
            return ""
        return f"{'all' if guard.times == total else f'{guard.times} of'} {total} times"


@dataclass(frozen=True, slots=True)
class _Variation:
    """What one guard says: the value that a compiled version was made for, and the value that came instead."""

    name: str
    old: str
    new: str | None
    advice: str


@per_report
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


def no_breaks_but(report: Report) -> str:
    """Return what a headline has to say in place of "no breaks"; the empty string if that is the whole truth.

    "no breaks, but f was compiled 8 times and now runs eagerly (recompile limit)".
    """
    limited = at_limit(report)
    return f"no breaks, but {limited}" if limited and not report.breaks else ""


def at_limit(report: Report) -> str:
    """Return which functions run eagerly because of the recompile limit; the empty string if none does.

    "f was compiled 8 times and now runs eagerly (recompile limit)".
    """
    limited = [again for again in recompilations(report) if again.limit_hit]
    of_wrappers = [skipped.function for skipped in report.skipped if skipped.kind == "shared wrapper"]
    names = list(dict.fromkeys(of_wrappers or [_name_of(report, again) for again in limited]))
    if not names:
        return ""
    verb = "now runs eagerly (recompile limit)" if len(names) == 1 else "now run eagerly (recompile limit)"
    if len(names) > _MOST_NAMES:
        return f"{len(names)} functions {verb}"
    first = limited[0] if limited else None
    if of_wrappers or first is None or len(names) > 1 or not first.total:
        return f"{' and '.join(names)} {verb}"
    times = "once" if first.total == 1 else f"{first.total} times"
    return f"{names[0]} was compiled {times} and {verb}"


def guard_lines(report: Report, guard: FailedGuard) -> str:
    """Return the lines of a failed guard: "line 7", "model.py:3 and model.py:9"; empty if they are not known."""
    return joined([place(report, without_function(location)) for location in guard.locations[:_MOST_LINES]], " and ")


def _name_of(report: Report, again: Recompilation) -> str:
    """Return the name of a function that was compiled again, with its class if that is known."""
    return function_of(report, again.location) if again.location is not None else again.function


def _recompilation(recompiles: list[Recompile]) -> Recompilation:
    """Sort the guards that failed by what they are about."""
    failed: dict[str, list[tuple[int, GuardFailure, _Variation | None]]] = {}
    for index, recompile in enumerate(recompiles):
        for reason in reversed(recompile.reasons):  # PyTorch begins with the version that was made last
            variation = _variation(reason.guard)
            name = variation.name if variation is not None else reason.guard
            failed.setdefault(name, []).append((index, reason, variation))
    guards = [_failed_guard(group) for group in failed.values()]
    last = recompiles[-1]
    return Recompilation(
        function=last.function,
        location=last.location,
        frames=[recompile.frame for recompile in recompiles],
        guards=sorted(guards, key=lambda guard: -guard.times),
        limit_hit=last.limit_hit,
        total=len(recompiles) - last.limit_hit + 1 if last.of is not None else 0,
    )


def _failed_guard(group: list[tuple[int, GuardFailure, _Variation | None]]) -> FailedGuard:
    variations = [(index, variation) for index, _, variation in group if variation is not None]
    places = dict.fromkeys(reason.location for _, reason, _ in group if reason.location is not None)
    return FailedGuard(
        story=_story(variations) if variations else f"`{group[0][1].guard}` did not hold",
        times=len({index for index, _, _ in group}),
        locations=list(places),
        advice=variations[-1][1].advice if variations else "",
    )


def _story(variations: list[tuple[int, _Variation]]) -> str:
    """Return the values of one thing, as far as its guards name them, in the order in which they were first met.

    Arrows stand between values that came one after the other; commas if one of them may have come back.
    """
    name = variations[-1][1].name
    if not variations[-1][1].old:
        return name
    values: dict[str, None] = {}  # in the order in which they were first met
    last = ""
    came_back = False
    for _, group in groupby(variations, key=lambda variation: variation[0]):
        of_one_call = [variation for _, variation in group]
        olds = [variation.old for variation in of_one_call]
        for old in olds:
            if old not in values:
                values[old], last = None, old
        actual = of_one_call[-1].new
        if actual is None:
            came_back |= len(set(olds)) < len(olds)  # there are two versions for one value
            continue
        if actual not in values:
            values[actual], last = None, actual
        came_back |= actual != last
    series = list(values)
    if len(series) == 1:
        series.append(_OTHER_FLAG.get(series[0], "another value"))
    if len(series) > _MOST_VALUES + 1:
        series = [*series[:_MOST_VALUES], "...", series[-1]]
    return f"{name}: {(', ' if came_back else ' -> ').join(series)}"


def _variation(guard: str) -> _Variation | None:
    guard = _VARIABLE.sub(r"\1", guard)
    if guard.startswith(_TENSOR_BEGINS) and (tensor := _TENSOR.search(guard)):
        rest = guard[tensor.end() :]
        if not rest or rest.startswith(_ACTUAL):
            name = guard[len(_TENSOR_BEGINS) : tensor.start()]
            return _of_tensor(name, tensor, rest.removeprefix(_ACTUAL) or None)
    if value := _VALUE.fullmatch(guard):
        name = value["name"]
        shown = "the value that the break returned" if name.startswith(_ON_THE_STACK) else name
        return _Variation(shown, value["value"], None, _advice_for(name, value["value"]))
    if identity := _IDENTITY.fullmatch(guard):
        what = "object" if identity["what"] == "obj" else "type"
        return _Variation(f"`{identity['name']}` is another {what}", "", None, "")
    if state := _GLOBAL_STATE.fullmatch(guard):
        return _Variation(f"global state changed: {state['what'].strip()}", "", None, "")
    return None


def _of_tensor(name: str, guard: re.Match[str], new: str | None) -> _Variation:
    index, what, old = guard["index"], guard["what"], guard["old"]
    advice = ""
    if what == "size":
        advice = f"`torch._dynamo.mark_dynamic({name}, {index})` before the call, or `torch.compile(..., dynamic=True)`"
    elif what == "dtype":
        advice = f"give `{name}` one dtype before the call: `{name} = {name}.to(...)`"
    elif what == "requires_grad":
        old = "True" if old.endswith("1") else "False"
        new = _OTHER_FLAG[old]
    return _Variation(f"{_OF_TENSOR.get(what, what).format(index=index)} of {name}", old, new, advice)


def _advice_for(name: str, value: str) -> str:
    if not re.fullmatch(r"-?\d+(?:\.\d+)?", value):
        return f"each value of `{name}` has code of its own: decide by it outside of the compiled function"
    if name.startswith(_ON_THE_STACK):
        return "`torch.compile(..., dynamic=True)`, or keep the value a tensor: then there is no break either"
    tensor = f"a tensor instead of a number: `{name} = torch.tensor({value})`"
    if "." in name:
        return f"{tensor}, or `torch._dynamo.config.allow_unspec_int_on_nn_module = True`"
    return f"`torch.compile(..., dynamic=True)`, or {tensor}"

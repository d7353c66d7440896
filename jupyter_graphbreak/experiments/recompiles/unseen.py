"""Derive calls with sizes and numbers that a run never used."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.recompiles.replay import RepeatedCall
from jupyter_graphbreak.experiments.recompiles.varied import Number, NumberList, Size
from jupyter_graphbreak.experiments.trial.seen_calls import Container, TensorSketch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from jupyter_graphbreak.experiments.recompiles.varied import Varied
    from jupyter_graphbreak.experiments.trial.seen_calls import Path, SeenCall

#: The maximum number of such calls.
_MOST = 3
#: How many pairs of calls are looked at.
_MOST_PAIRS = 200
#: PyTorch compiles sizes 0 and 1 separately; they are used only if the run has them.
_SMALLEST = 2

#: The values of the sizes and numbers that varied.
_Values = tuple[float, ...]
#: A size, a number, or a list of numbers of which the length varied.
_Axis = Size | Number | NumberList


def unseen_calls(calls: Sequence[SeenCall], varied: Varied, assigned: Collection[Path]) -> list[RepeatedCall]:
    """Return calls with sizes and numbers that none of the given calls has.

    They continue the differences between two of the calls, so that sizes and numbers which belong together, such as the
    length of a tensor and a maximum length, still fit together.

    Parameters
    ----------
    calls : sequence of SeenCall
    varied : Varied
        What varied between the calls.
    assigned : collection of Path
        The places of the state to assign before each call.
    """
    lists = [numbers for numbers in varied.lists if numbers.varies_in_length]
    numbers = [number for number in varied.numbers if not any(known.contains(number.path) for known in lists)]
    axes: list[_Axis] = [*varied.sizes, *numbers, *lists]
    known = [(call, values) for call in calls if (values := _values_of(call, axes)) is not None]
    seen = {values for _, values in known}
    if not axes or len(seen) < 2:  # noqa: PLR2004
        return []
    unseen: dict[_Values, RepeatedCall] = {}
    for new, call in itertools.islice(_continued(known, axes), _MOST_PAIRS):
        if new not in seen and new not in unseen:
            unseen[new] = _with_values(call, axes, new, assigned)
        if len(unseen) == _MOST:
            break
    return list(unseen.values())


def _values_of(call: SeenCall, axes: Sequence[_Axis]) -> _Values | None:
    values: list[float] = []
    for axis in axes:
        sketch: Any = call.values.get(axis.path)
        if isinstance(axis, Size) and isinstance(sketch, TensorSketch):
            values.append(sketch.shape[axis.dim])
        elif isinstance(axis, NumberList) and isinstance(sketch, Container):
            values.append(len(sketch.keys))
        elif isinstance(axis, Number) and type(sketch) in {int, float}:
            values.append(sketch)
        else:
            return None
    return tuple(values)


def _continued(known: Sequence[tuple[SeenCall, _Values]], axes: Sequence[_Axis]) -> Iterator[tuple[_Values, SeenCall]]:
    """Yield values that continue the differences between two calls, and values between them."""
    largest = max(known, key=lambda pair: sum(map(abs, pair[1])))
    others = [pair for pair in known if pair is not largest]
    pairs = itertools.chain(((other, largest) for other in others), itertools.permutations(known, 2))
    for (_, one), (call, other) in pairs:
        for steps, parts in ((1, 1), (-1, 2), (1, 2), (2, 1)):
            new = tuple(b + (b - a) * steps / parts for a, b in zip(one, other, strict=True))
            whole = [axis for axis in axes if not isinstance(axis, Number) or axis.is_whole]
            if all(value.is_integer() for axis, value in zip(axes, new, strict=True) if axis in whole):
                rounded = tuple(int(v) if axis in whole else v for axis, v in zip(axes, new, strict=True))
                if all(_is_allowed(axis, value) for axis, value in zip(axes, rounded, strict=True)):
                    yield rounded, call


def _is_allowed(axis: _Axis, value: float) -> bool:
    """Return whether a value is of the kind that the run used: as large, and with the same sign."""
    if not isinstance(axis, Number) or (axis.is_whole and min(axis.values) >= 0):
        return value >= min(_SMALLEST, *axis.values) and (value >= _SMALLEST or value in axis.values)
    if all(seen > 0 for seen in axis.values):
        return value > 0
    return all(seen < 0 for seen in axis.values) is (value < 0) or min(axis.values) < 0 < max(axis.values)


def _with_values(call: SeenCall, axes: Sequence[_Axis], values: _Values, assigned: Collection[Path]) -> RepeatedCall:
    arguments: dict[Path, Any] = dict(call.arguments)
    state = call.plain_state(assigned)
    for axis, value in zip(axes, values, strict=True):
        if isinstance(axis, Size):
            known = arguments.get(axis.path)
            if isinstance(known, TensorSketch):
                shape = (*known.shape[: axis.dim], int(value), *known.shape[axis.dim + 1 :])
                arguments[axis.path] = dataclasses.replace(known, shape=shape, data=None)
        elif isinstance(axis, NumberList):
            content = itertools.cycle(next(filter(None, axis.contents), (1,)))
            arguments[axis.path] = Container(axis.kind, tuple(range(int(value))))
            arguments |= {axis.path.into("item", index): next(content) for index in range(int(value))}
        elif axis.path in arguments:
            arguments[axis.path] = value
        else:
            state[axis.path] = value
    named = ", ".join(
        f"size {value} of {axis}"
        if isinstance(axis, Size)
        else f"length {value} of {axis}"
        if isinstance(axis, NumberList)
        else f"{axis} = {value:g}"
        for axis, value in zip(axes, values, strict=True)
    )
    return RepeatedCall(arguments, state, named, is_unseen=True, keywords=call.keywords, modes=call.modes)

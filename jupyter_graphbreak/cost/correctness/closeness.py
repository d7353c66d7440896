"""Tell a wrong result from one that is only rounded otherwise, with the help of one in double precision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from jupyter_graphbreak.trial.difference import difference
from jupyter_graphbreak.trial.subject import clone

#: How many times as far as eager's a result may be from that in double precision.
_FACTOR = 8.0
#: How far eager may be from double precision, in square roots of its precision; farther is no rounding.
_UNSOUND = 4.0
_DOUBLE = {torch.float16, torch.bfloat16, torch.float32}


def unlike(expected: Any, actual: Any, exact: Any = None) -> str | None:
    """Return how a result differs from the expected one beyond rounding, ``None`` if it does not.

    Parameters
    ----------
    expected, actual
        The results, of any kind.
    exact
        The expected one in double precision, where it could be had: numbers may be as far from it as the expected ones
        are, times a small factor.
    """
    found = difference(expected, actual)
    if found is None or exact is None or difference(expected, actual, values=False) is not None:
        return found
    ones, others, doubles = leaves(expected), leaves(actual), leaves(exact)
    if not len(ones) == len(others) == len(doubles):
        return found
    for one, other, double in zip(ones, others, doubles, strict=True):
        if not _as_exact(one, other, double):
            return found
    return None


def leaves(value: Any) -> list[Any]:
    """Return what containers and objects hold: tensors, numbers, strings."""
    found: list[Any] = []
    pending, seen = [value], set()
    while pending:
        item = pending.pop()
        if isinstance(item, torch.Tensor | str | bytes | int | float | complex | type(None)):
            found.append(item)
            continue
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Mapping):
            pending += item.values()
        elif isinstance(item, list | tuple):
            pending += item
        elif hasattr(item, "__dict__"):
            pending += vars(item).values()
    return found


def _as_exact(expected: Any, actual: Any, exact: Any) -> bool:
    if difference(expected, actual) is None:
        return True
    if isinstance(expected, float) and isinstance(actual, float) and isinstance(exact, float):
        return _as_exact(*(torch.tensor(number, dtype=torch.float64) for number in (expected, actual, exact)))
    if not all(isinstance(value, torch.Tensor) for value in (expected, actual, exact)):
        return False
    if expected.shape != exact.shape or not expected.is_floating_point():
        return False
    rounding = torch.finfo(expected.dtype).eps
    with torch.no_grad():
        expected, actual, exact = (value.detach().double() for value in (expected, actual, exact))
        finite = exact.isfinite() & expected.isfinite()
        if not torch.equal(actual[~finite].nan_to_num(), expected[~finite].nan_to_num()):
            return False
        expected, actual, exact = expected[finite], actual[finite], exact[finite]
        if not exact.numel():
            return True
        largest, off = exact.abs().max(), (expected - exact).abs().max()
        if off > _UNSOUND * math.sqrt(rounding) * largest:  # it took another way, where a number decides
            return False
        return bool((actual - exact).abs().max() <= _FACTOR * off + 2 * rounding * largest)


def doubled(value: Any) -> Any:
    """Return a copy of a value, its tensors and modules in double precision."""
    return _doubled(clone(value), {})


def _doubled(value: Any, memo: dict[int, Any]) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    made: Any = value
    match value:
        case torch.nn.Module():
            made = value.double()
        case torch.Tensor() if value.dtype in _DOUBLE:
            made = value.detach().double().requires_grad_(value.requires_grad)
        case dict():
            for key in value:
                value[key] = _doubled(value[key], memo)
        case list():
            value[:] = [_doubled(item, memo) for item in value]
        case tuple():
            parts = [_doubled(item, memo) for item in value]
            made = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    memo[id(value)] = made
    return made

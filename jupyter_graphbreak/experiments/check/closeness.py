"""Distinguish a wrong result from different rounding, by comparing with a result in double precision."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.places import named_tensors
from jupyter_graphbreak.experiments.trial.values import difference
from jupyter_graphbreak.records.attributes import attribute_of, is_instance

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.trial.subject import Subject

#: A result may be this many times as far from the one in double precision as rounding explains.
_FACTOR = 8.0
#: If eager's distance is more than this many times the rounding, eager took a different branch.
_OTHER_BRANCH = 100.0
_DOUBLE = {torch.float16, torch.bfloat16, torch.float32}


class Exact(NamedTuple):
    """A result in double precision, and the result for inputs perturbed by rounding."""

    value: Any
    varied: Any


def difference_beyond_rounding(
    expected: Any, actual: Any, exact: Exact | None = None, *, varying: Collection[str] = (), root: str = ""
) -> str | None:
    """Return how a result differs from the expected one beyond rounding, ``None`` if it does not.

    Parameters
    ----------
    expected, actual
        The results, of any kind.
    exact : Exact or None
        The results in double precision, if available, from which the size of rounding follows.
    varying, root
        As for :func:`difference`.
    """
    result = difference(expected, actual, varying=varying, root=root)
    if result is None or exact is None or difference(expected, actual, values=False) is not None:
        return result
    parts = [flatten(value) for value in (expected, actual, exact.value, exact.varied)]
    if len({len(part) for part in parts}) > 1:
        return result
    return None if all(_is_rounding(*leaf) for leaf in zip(*parts, strict=True)) else result


def flatten(value: Any) -> list[Any]:
    """Return the tensors, numbers and strings in containers and objects."""
    result: list[Any] = []
    pending, seen = [value], set()
    while pending:
        item = pending.pop()
        if is_instance(item, torch.Tensor | str | bytes | int | float | complex | type(None)):
            result.append(item)
            continue
        if id(item) in seen:
            continue
        seen.add(id(item))
        if is_instance(item, Mapping):
            pending += item.values()
        elif is_instance(item, list | tuple):
            pending += item
        elif attribute_of(item, "__dict__") is not None:
            pending += vars(item).values()
    return result


def _is_rounding(expected: Any, actual: Any, exact: Any, varied: Any) -> bool:
    if difference(expected, actual) is None:
        return True
    values = [expected, actual, exact, varied]
    if all(is_instance(value, float) for value in values):
        return _is_rounding(*(torch.tensor(value, dtype=torch.float64) for value in values))
    if not all(is_instance(value, torch.Tensor) and value.shape == expected.shape for value in values):
        return False
    if not expected.is_floating_point():
        return False
    precision = torch.finfo(expected.dtype).eps
    with torch.no_grad():
        expected, actual, exact, varied = (value.detach().double() for value in values)
        finite = exact.isfinite() & varied.isfinite() & expected.isfinite()
        if not torch.equal(actual[~finite].nan_to_num(), expected[~finite].nan_to_num()):
            return False
        expected, actual, exact, varied = (value[finite] for value in (expected, actual, exact, varied))
        if not exact.numel():
            return True
        rounding = (varied - exact).abs().max() + precision * exact.abs().max()
        off = (expected - exact).abs().max()
        if off > _OTHER_BRANCH * rounding:
            return False
        return bool((actual - exact).abs().max() <= _FACTOR * max(off, rounding))


def to_double(value: Any, memo: dict[Any, Any] | None = None, *, varied: bool = False) -> Any:
    """Return a copy of a value with its tensors and modules in double precision.

    Parameters
    ----------
    value : object
        The value to copy.
    memo : dict
        Objects that are not copied, by their ids.
    varied : bool
        Whether to change each number randomly by up to the rounding error of its precision.
    """
    return _to_double(clone(value, memo), {}, torch.Generator().manual_seed(0) if varied else None)


def double_state(subject: Subject, *, varied: bool = False) -> None:
    """Convert the tensors of a subject's state to double precision, in place."""
    noise = torch.Generator().manual_seed(0) if varied else None
    seen: set[int] = set()
    for name, root in subject.roots():
        for _, tensor in named_tensors(root, name, seen):
            if tensor.dtype in _DOUBLE:
                tensor.data = _to_double_tensor(tensor.data, noise)


def _to_double(value: Any, memo: dict[int, Any], noise: torch.Generator | None) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    result: Any = value
    if is_instance(value, torch.nn.Module):
        with torch.no_grad():
            for tensor in (*value.parameters(), *value.buffers()):
                tensor.data = _to_double_tensor(tensor.data, noise)
    elif is_instance(value, torch.Tensor):
        result = _to_double_tensor(value.detach(), noise).requires_grad_(value.requires_grad)
    elif is_instance(value, dict):
        for key in value:
            value[key] = _to_double(value[key], memo, noise)
    elif is_instance(value, list):
        value[:] = [_to_double(item, memo, noise) for item in value]
    elif is_instance(value, tuple):
        parts = [_to_double(item, memo, noise) for item in value]
        result = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    memo[id(value)] = result
    return result


def _to_double_tensor(value: torch.Tensor, noise: torch.Generator | None) -> torch.Tensor:
    if value.dtype not in _DOUBLE:
        return value
    result = value.double()
    if noise is None:
        return result
    drawn = torch.rand(value.shape, dtype=torch.float64, generator=noise).to(value.device) * 2 - 1
    return result * (1 + torch.finfo(value.dtype).eps / 2 * drawn)

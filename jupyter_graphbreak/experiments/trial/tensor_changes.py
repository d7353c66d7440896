"""Change the elements, the sizes, the dtype or the strides of the tensors among the arguments of a call."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.records.attributes import is_dataclass, is_instance

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.trial.arguments import Arguments

#: A change of one tensor.
Change = Callable[[torch.Tensor], torch.Tensor]
#: Integer tensors are not filled with numbers whose absolute value is this large or larger.
_HUGE = 1e9


def identity(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor unchanged."""
    return value


def unless(condition: Callable[[torch.Tensor], bool], change: Change, otherwise: Change = identity) -> Change:
    """Return a change that applies ``otherwise`` to tensors that meet a condition, and ``change`` to all others."""
    return lambda tensor: otherwise(tensor) if condition(tensor) else change(tensor)


def only_for(tensors: Iterable[torch.Tensor], change: Change) -> Change:
    """Return a change that applies to the given tensors only."""
    ids = set(map(id, tensors))
    return lambda tensor: change(tensor) if id(tensor) in ids else tensor


def roll(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose elements are shifted by one along the last dimension."""
    return value.roll(1, -1)


def fill_with_minimum(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor in which all elements equal the smallest one, which must be an integer."""
    return torch.full_like(value, int(value.min()))


def randomize_within_range(value: torch.Tensor) -> torch.Tensor:
    """Return random integers between the smallest and the largest element."""
    generator = torch.Generator().manual_seed(1)
    result = torch.randint(int(value.min()), int(value.max()) + 1, value.shape, generator=generator)
    return result.to(value.device, value.dtype)


def multiply_by_ten(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor times ten. A tensor of flags stays unchanged."""
    return value if value.dtype == torch.bool else value * 10


def negate(value: torch.Tensor) -> torch.Tensor:
    """Return the negative of a tensor, or the bitwise complement if the dtype is bool or uint8."""
    return ~value if value.dtype in {torch.bool, torch.uint8} else -value


def randomize(value: torch.Tensor, seed: int = 1) -> torch.Tensor:
    """Return a tensor of the same shape and dtype with normally distributed random numbers, or random flags."""
    generator = torch.Generator().manual_seed(seed)
    result = torch.randn(value.shape, generator=generator) * 3
    return (result > 0 if value.dtype == torch.bool else result.to(value.dtype)).to(value.device)


def fill_with(value: torch.Tensor, number: float) -> torch.Tensor:
    """Return a copy of a tensor filled with a number, which is truncated for an integer dtype.

    Return the tensor itself if its dtype cannot hold the number, or if an integer tensor would get a huge number.
    """
    if not (value.is_floating_point() or value.is_complex()) and not (math.isfinite(number) and abs(number) < _HUGE):
        return value
    try:
        return torch.full_like(value, number)
    except RuntimeError:  # the dtype cannot represent the number
        return value


def replace_first(value: torch.Tensor, number: float) -> torch.Tensor:
    """Return a floating-point tensor with its first element replaced. Any other or empty tensor stays unchanged."""
    if not value.is_floating_point() or not value.numel():
        return value
    result = value.detach().clone()
    result.view(-1)[0] = number
    return result


def resize(value: torch.Tensor, size: int, new_size: int) -> torch.Tensor:
    """Return a tensor with each dimension of one size resized, repeating the last row if necessary."""
    for dim, length in enumerate(value.shape):
        if length == size:
            index = torch.arange(new_size, device=value.device).clamp(max=size - 1)
            value = value.index_select(dim, index)
    return value


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the dense tensors in a value, including those in containers and dataclasses."""
    tensors: list[torch.Tensor] = []

    def collect(tensor: torch.Tensor) -> torch.Tensor:
        tensors.append(tensor)
        return tensor

    _map_tensors_in(value, collect, {})
    return tensors


def map_tensors(arguments: Arguments, change: Change) -> Arguments:
    """Return arguments with a change applied to each dense tensor."""
    cache: dict[int, Any] = {}
    return arguments.map_values(lambda value: _map_tensors_in(value, change, cache))


def _map_tensors_in(value: Any, change: Change, cache: dict[int, Any]) -> Any:
    """Return a value with each dense tensor changed, including those in containers and dataclasses, not modules."""
    if id(value) in cache:
        return cache[id(value)]
    result = value
    if is_instance(value, torch.Tensor):
        result = apply_change(value, change) if value.layout == torch.strided else value
    elif is_instance(value, list | tuple) and type(value) in {list, tuple}:
        result = type(value)(_map_tensors_in(item, change, cache) for item in value)
    elif is_instance(value, tuple) and hasattr(value, "_fields"):
        result = type(value)(*(_map_tensors_in(item, change, cache) for item in value))
    elif is_instance(value, MutableMapping):
        # A mapping that rejects different sizes, such as a tensordict, stays unchanged.
        with contextlib.suppress(Exception):
            changed_copy = copy.copy(value)
            for key, item in value.items():
                changed_copy[key] = _map_tensors_in(item, change, cache)
            result = changed_copy
    elif is_dataclass(value) and not is_instance(value, type | torch.nn.Module):
        result = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                object.__setattr__(result, field.name, _map_tensors_in(getattr(value, field.name), change, cache))
    cache[id(value)] = result
    return result


def apply_change(value: torch.Tensor, change: Change) -> torch.Tensor:
    """Return the changed tensor, requiring gradients as the original does, or the original if the change raises."""
    try:
        with torch.no_grad():
            result = change(value)
    except Exception:  # noqa: BLE001 - the dtype or the layout may not support the change
        return value
    if result is value or result.requires_grad:
        return result
    return result.detach().requires_grad_(value.requires_grad and (result.is_floating_point() or result.is_complex()))


def first_rows(value: torch.Tensor, count: int) -> torch.Tensor:
    """Return the first rows of a tensor. A zero-dimensional tensor stays unchanged."""
    return value[:count] if value.dim() else value


def with_extreme_integers(value: torch.Tensor) -> torch.Tensor:
    """Return integers whose products overflow the dtype, as Python's do not. Other tensors stay unchanged.

    The value is negative if the maximum is large: a program that uses it as a size would otherwise exhaust the memory.
    """
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        return value
    maximum = torch.iinfo(value.dtype).max
    return torch.full_like(value, maximum if maximum < 1 << 12 else -maximum)


def with_one_positive(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor in which only the first element is positive. An unsigned or empty tensor stays unchanged."""
    if value.dtype in {torch.bool, torch.uint8} or not value.numel():
        return value
    result = -value.detach().abs() - 1
    result.view(-1)[0] *= -1
    return result


def with_alternating_signs(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor in which every second element has the opposite sign. An unsigned tensor stays unchanged."""
    if value.dtype in {torch.bool, torch.uint8} or not value.numel():
        return value
    signs = torch.arange(value.numel(), device=value.device) % 2 * 2 - 1
    return value * signs.reshape(value.shape).to(value.dtype)


def as_scalar(change: Change, value: torch.Tensor, dtype: torch.dtype, *, is_floating: bool) -> torch.Tensor:
    """Return the first element of a changed tensor as a zero-dimensional tensor, if it is a flag or of a given kind."""
    if not value.numel():
        return value
    if value.dtype == torch.bool:
        return change(value).reshape(-1)[0]
    return change(value).reshape(-1)[0].to(dtype) if contains_numbers(value, is_floating=is_floating) else value


def contains_numbers(value: torch.Tensor, *, is_floating: bool) -> bool:
    """Return whether a tensor contains floating-point numbers, or integers if not ``is_floating``."""
    return value.is_floating_point() is is_floating and not value.is_complex() and value.dtype != torch.bool


def convert_numbers(change: Change, value: torch.Tensor, dtype: torch.dtype, *, is_floating: bool) -> torch.Tensor:
    """Return a changed tensor with a new dtype, if its dtype is of the given kind; flags are changed and stay flags."""
    if value.dtype == torch.bool:
        return change(value)
    if not contains_numbers(value, is_floating=is_floating):
        return value
    changed_tensor = change(value)
    return changed_tensor.round().to(dtype) if is_floating else changed_tensor.to(dtype)


def with_gaps(change: Change, value: torch.Tensor) -> torch.Tensor:
    """Return a changed tensor with strides as in a slice."""
    return torch.stack([change(value)] * 2, dim=-1)[..., 0] if value.dim() else change(value)


def transpose(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor with its first and last dimensions exchanged."""
    return value.transpose(0, -1) if value.dim() > 1 else value


def triple(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor times 3, so that fewer numbers become zero as integers. A tensor of flags stays unchanged."""
    return value if value.dtype == torch.bool else value * 3

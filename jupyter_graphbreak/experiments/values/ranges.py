"""The range of the numbers in a tensor."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.tensor_values import looking_at_tensors
from jupyter_graphbreak.report.values import ValueRange


class Presence(NamedTuple):
    """Whether a tensor has NaN, and whether it has infinite elements."""

    has_nan: bool
    has_inf: bool


NO_NONFINITE = Presence(has_nan=False, has_inf=False)


def presence_of(tensor: torch.Tensor) -> Presence:
    """Return whether a tensor has NaN or infinite elements."""
    with looking_at_tensors():
        numbers = _numbers(tensor)
        if numbers is None or not (numbers.is_floating_point() or numbers.is_complex()):
            return NO_NONFINITE
        if bool(torch.isfinite(numbers).all()):
            return NO_NONFINITE
        return Presence(bool(torch.isnan(numbers).any()), bool(torch.isinf(numbers).any()))


def range_of(tensor: torch.Tensor) -> ValueRange:
    """Return the range of a tensor; only its shape, dtype and number of elements if its numbers cannot be read."""
    with looking_at_tensors():
        shape, dtype = [int(size) for size in tensor.shape], str(tensor.dtype).removeprefix("torch.")
        numbers = _numbers(tensor)
        if numbers is None or not numbers.numel():
            return ValueRange(shape, dtype, tensor.numel())
        nan = inf = 0
        if numbers.is_floating_point() or numbers.is_complex():
            is_finite = torch.isfinite(numbers)
            nonfinite_count = numbers.numel() - int(is_finite.sum())
            if nonfinite_count:
                nan = int(torch.isnan(numbers).sum())
                inf = nonfinite_count - nan
                numbers = numbers[is_finite]
        range_without_bounds = ValueRange(shape, dtype, tensor.numel(), nan, inf)
        if numbers.is_complex() or not numbers.numel():
            return range_without_bounds
        low, high, mean = _bounds_and_mean(numbers)
        return replace(range_without_bounds, low=low, high=high, mean=mean)


def merged_range(one: ValueRange, other: ValueRange) -> ValueRange:
    """Return the range of the values of two executions."""
    lows = [low for low in (one.low, other.low) if low is not None]
    highs = [high for high in (one.high, other.high) if high is not None]
    weights = [(part.mean, part.elements - part.nan - part.inf) for part in (one, other) if part.mean is not None]
    total = sum(count for _, count in weights)
    return ValueRange(
        one.shape,
        one.dtype,
        one.elements + other.elements,
        one.nan + other.nan,
        one.inf + other.inf,
        min(lows, default=None),
        max(highs, default=None),
        sum(mean * (count / total) for mean, count in weights) if total else None,
    )


def _bounds_and_mean(numbers: torch.Tensor) -> tuple[float | None, float | None, float | None]:
    exact = torch.float32 if numbers.device.type == "mps" else torch.float64
    try:
        mean = float(numbers.mean(dtype=exact))
        low, high = torch.aminmax(numbers.to(torch.uint8) if numbers.dtype == torch.bool else numbers)
    except (RuntimeError, NotImplementedError):  # unsigned integers of several bytes
        return None, None, None
    return float(low), float(high), mean if math.isfinite(mean) else None


def _numbers(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the numbers of a tensor as a plain tensor; ``None`` if they cannot be read."""
    if tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        return None
    try:
        plain = tensor.detach()
        if plain.layout != torch.strided:
            plain = plain.coalesce().values() if plain.layout == torch.sparse_coo else plain.values()
        if plain.dtype.is_floating_point and plain.dtype.itemsize == 1:
            plain = plain.float()  # PyTorch cannot compare 8-bit floating-point numbers
    except (RuntimeError, NotImplementedError):  # a tensor of a different kind
        return None
    return plain if type(plain) in {torch.Tensor, torch.nn.Parameter} else None

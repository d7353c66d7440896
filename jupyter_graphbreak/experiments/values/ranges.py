"""Measure the range of the numbers in a tensor."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.tensor_values import disable_gradients_and_overrides
from jupyter_graphbreak.report.values import ValueRange

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The number of elements to process at once. It is limited because masks and double-precision copies need several times
#: the memory.
_ELEMENTS_IN_PART = 1 << 20


class NonfiniteFlags(NamedTuple):
    """Whether a tensor contains NaN, and whether it contains infinite elements."""

    has_nan: bool
    has_inf: bool


ALL_FINITE = NonfiniteFlags(has_nan=False, has_inf=False)


def nonfinite_flags(tensor: torch.Tensor) -> NonfiniteFlags:
    """Return two flags: whether a tensor contains NaN, and whether it contains infinite elements."""
    with disable_gradients_and_overrides():
        numbers = _numbers(tensor)
        if numbers is None or not (numbers.is_floating_point() or numbers.is_complex()):
            return ALL_FINITE
        if all(bool(torch.isfinite(part).all()) for part in _parts(numbers)):
            return ALL_FINITE
        return NonfiniteFlags(bool(torch.isnan(numbers).any()), bool(torch.isinf(numbers).any()))


def range_of(tensor: torch.Tensor) -> ValueRange:
    """Return the range of a tensor, or only its shape, dtype and number of elements if its numbers cannot be read."""
    with disable_gradients_and_overrides():
        shape, dtype = [int(size) for size in tensor.shape], str(tensor.dtype).removeprefix("torch.")
        numbers = _numbers(tensor)
        if numbers is None or not numbers.numel():
            return ValueRange(shape, dtype, tensor.numel())
        part_ranges = (_range_of_part(part, shape, dtype) for part in _parts(numbers))
        return replace(functools.reduce(merge_ranges, part_ranges), elements=tensor.numel())


def _parts(numbers: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the numbers of a tensor in parts, without copying them."""
    by_stride = sorted(range(numbers.dim()), key=numbers.stride, reverse=True)
    contiguous_numbers = numbers.permute(by_stride)
    contiguous_numbers = contiguous_numbers.view(-1) if contiguous_numbers.is_contiguous() else contiguous_numbers
    elements_in_row = contiguous_numbers.numel() // max(1, len(contiguous_numbers))
    yield from contiguous_numbers.split(max(1, _ELEMENTS_IN_PART // max(1, elements_in_row)))


def _range_of_part(numbers: torch.Tensor, shape: list[int], dtype: str) -> ValueRange:
    elements, nan, inf = numbers.numel(), 0, 0
    if numbers.is_floating_point() or numbers.is_complex():
        is_finite = torch.isfinite(numbers)
        nonfinite_count = elements - int(is_finite.sum())
        if nonfinite_count:
            nan = int(torch.isnan(numbers).sum())
            inf = nonfinite_count - nan
            numbers = numbers[is_finite]
    range_without_bounds = ValueRange(shape, dtype, elements, nan, inf)
    if numbers.is_complex() or not numbers.numel():
        return range_without_bounds
    low, high, mean = _bounds_and_mean(numbers)
    return replace(range_without_bounds, low=low, high=high, mean=mean)


def merge_ranges(one: ValueRange, other: ValueRange) -> ValueRange:
    """Return the common range of the values of two executions, or of two parts of a tensor."""
    lows = [low for low in (one.low, other.low) if low is not None]
    highs = [high for high in (one.high, other.high) if high is not None]
    means_and_counts = [
        (part.mean, part.elements - part.nan - part.inf) for part in (one, other) if part.mean is not None
    ]
    total = sum(count for _, count in means_and_counts)
    is_mean_known = all(part.mean is not None for part in (one, other) if part.low is not None)
    return ValueRange(
        one.shape,
        one.dtype,
        one.elements + other.elements,
        one.nan + other.nan,
        one.inf + other.inf,
        min(lows, default=None),
        max(highs, default=None),
        sum(mean * (count / total) for mean, count in means_and_counts) if total and is_mean_known else None,
    )


def _bounds_and_mean(numbers: torch.Tensor) -> tuple[float | None, float | None, float | None]:
    exact_dtype = torch.float32 if numbers.device.type == "mps" else torch.float64
    try:
        mean = float(numbers.mean(dtype=exact_dtype))
        low, high = torch.aminmax(numbers.to(torch.uint8) if numbers.dtype == torch.bool else numbers)
    except (RuntimeError, NotImplementedError):  # for example, for unsigned integers of several bytes
        return None, None, None
    return float(low), float(high), mean if math.isfinite(mean) else None


def _numbers(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the numbers of a tensor as a plain tensor, or ``None`` if they cannot be read."""
    if tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        return None
    try:
        plain_tensor = tensor.detach()
        if plain_tensor.layout != torch.strided:
            plain_tensor = (
                plain_tensor.coalesce().values() if plain_tensor.layout == torch.sparse_coo else plain_tensor.values()
            )
        if plain_tensor.dtype.is_floating_point and plain_tensor.dtype.itemsize == 1:
            plain_tensor = plain_tensor.float()  # PyTorch cannot compare 8-bit floating-point numbers
    except (RuntimeError, NotImplementedError):  # for example, for a tensor without accessible numbers
        return None
    return plain_tensor if type(plain_tensor) in {torch.Tensor, torch.nn.Parameter} else None

"""Compute digests of large tensors. Comparing digests instead of tensors saves memory."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

#: Smaller tensors are compared element by element. The number does not depend on the dtype, so that a result and the
#: same result in double precision are treated alike.
_MIN_ELEMENTS = 1 << 18
#: The number of neighboring elements in a row, and the number of weighted sums that a row is reduced to.
_ROW_ELEMENTS, _ROW_SUMS = 1024, 8
#: The number of rows to reduce at once.
_CHUNK_ROWS = 512
#: The attribute of a digest that stores the shape of its tensor.
_SHAPE_ATTRIBUTE = "_graphbreak_shape"


def is_large(value: torch.Tensor) -> bool:
    """Return whether a digest can replace a tensor and needs less memory."""
    return (
        type(value) in {torch.Tensor, torch.nn.Parameter}
        and value.layout == torch.strided
        and value.dtype in {torch.float32, torch.float64}  # in smaller dtypes, rounding would hide one element
        and not (value.is_nested or value.is_meta or value.is_quantized)
        and value.numel() >= _MIN_ELEMENTS
    )


def digest(value: torch.Tensor) -> torch.Tensor:
    """Return a small tensor that represents a large one.

    Each element of the digest is a randomly weighted sum of neighboring elements, of the same magnitude as an element.
    The last elements, which do not fill a row, are appended unchanged. If two digests agree up to rounding, so do the
    tensors that they represent, except by chance. The digest of a zero tensor is zero.
    """
    elements = value.detach().reshape(-1)
    elements_in_rows = elements.numel() // _ROW_ELEMENTS * _ROW_ELEMENTS
    rows = elements[:elements_in_rows].view(-1, _ROW_ELEMENTS)
    # Neither autocast nor the matmul precision settings affect double precision.
    weights = _random_weights().to(value.device)
    sum_count = len(rows) * _ROW_SUMS
    rest = elements[elements_in_rows:]
    result = torch.empty(sum_count + rest.numel(), dtype=value.dtype, device=value.device)
    sums = result[:sum_count].view(-1, _ROW_SUMS)
    # All chunks use one buffer: small results between large temporaries would keep the C library from reusing memory.
    buffer = torch.empty(_CHUNK_ROWS, _ROW_ELEMENTS, dtype=torch.float64, device=value.device)
    for chunk, chunk_sums in zip(rows.split(_CHUNK_ROWS), sums.split(_CHUNK_ROWS), strict=True):
        chunk_sums.copy_(buffer[: len(chunk)].copy_(chunk) @ weights)
    result[sum_count:].copy_(rest)
    return result


def store_shape(tensor_digest: torch.Tensor, value: torch.Tensor) -> None:
    """Store the shape of a tensor in its digest."""
    setattr(tensor_digest, _SHAPE_ATTRIBUTE, value.shape)


def shape_of(value: torch.Tensor) -> torch.Size:
    """Return the shape of a tensor, or of the tensor that a digest represents."""
    shape: Any = vars(value).get(_SHAPE_ATTRIBUTE, value.shape)
    return torch.Size(shape)


@functools.cache
def _random_weights() -> torch.Tensor:
    generator = torch.Generator().manual_seed(20)
    numbers = torch.randn(_ROW_ELEMENTS, _ROW_SUMS, generator=generator, device="cpu", dtype=torch.float64)
    return numbers / math.sqrt(_ROW_ELEMENTS)

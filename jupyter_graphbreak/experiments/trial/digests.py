"""Digests of large tensors, which stand for them when what calls did is compared: so results need little memory."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

#: Tensors of fewer bytes are compared element by element.
_SMALLEST = 1 << 20
#: So many neighbouring elements are summed up in so many ways, each with its own weights.
_ELEMENTS, _WAYS = 1024, 8
#: Of so many such rows the sums are made at once.
_CHUNK = 512
#: The attribute in which a digest keeps the shape of its tensor.
_SHAPE = "_graphbreak_shape"


def is_large(value: torch.Tensor) -> bool:
    """Whether a digest can stand for a tensor, and needs less memory."""
    return (
        type(value) in {torch.Tensor, torch.nn.Parameter}
        and value.layout == torch.strided
        and value.dtype in {torch.float32, torch.float64}  # what rounding changes of shorter numbers hides an element
        and not (value.is_nested or value.is_meta or value.is_quantized)
        and value.numel() * value.element_size() >= _SMALLEST
    )


def digest(value: torch.Tensor) -> torch.Tensor:
    """Return a small tensor that stands for a large one.

    Each part of it is the sum of neighbouring elements with random weights, as large as an element is. So two tensors
    whose digests are as close as rounding makes them are that close themselves; a digest of zeros is one of zeros.
    """
    elements = value.detach().reshape(-1)
    wide = elements.numel() // _ELEMENTS * _ELEMENTS
    rows = elements[:wide].view(-1, _ELEMENTS)
    # In double precision, which neither autocast nor a setting for products of matrices makes less exact.
    weights = _weights().to(value.device)
    parts = [(rows[start : start + _CHUNK].double() @ weights).to(value.dtype) for start in range(0, len(rows), _CHUNK)]
    return torch.cat([*(part.reshape(-1) for part in parts), elements[wide:]])


def note_shape(made: torch.Tensor, value: torch.Tensor) -> None:
    """Keep the shape of a tensor with its digest."""
    setattr(made, _SHAPE, value.shape)


def shape_of(value: torch.Tensor) -> torch.Size:
    """Return the shape of a tensor, or of the one that a digest stands for."""
    shape: Any = vars(value).get(_SHAPE, value.shape)
    return torch.Size(shape)


@functools.cache
def _weights() -> torch.Tensor:
    generator = torch.Generator().manual_seed(20)
    numbers = torch.randn(_ELEMENTS, _WAYS, generator=generator, device="cpu", dtype=torch.float64)
    return numbers / math.sqrt(_ELEMENTS)

"""Make the input of a slow function smaller, so that there is time for many inputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.trial.code_hints import are_indices
from jupyter_graphbreak.experiments.trial.tensor_changes import map_tensors, resize, tensors_in

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.trial.arguments import Arguments

#: The smallest size to which a dimension shrinks, and the smallest size that is worth shrinking.
_FEW = 3
_MANY = 8


def shrinkable_sizes(first: Arguments) -> list[int]:
    """Return the sizes of dimensions that may be shrunk, those of first dimensions, such as batches, first."""
    tensors = tensors_in((first.args, first.kwargs))
    leading = [tensor.shape[0] for tensor in tensors if tensor.dim()]
    inner = [size for tensor in tensors for size in tensor.shape[1:]]
    return [size for size in dict.fromkeys([*leading, *inner]) if size >= _MANY]


def shrunk(first: Arguments, size: int) -> tuple[Arguments, int] | None:
    """Return arguments in which each dimension of a size is smaller, and the new size; ``None`` if that is not safe.

    Integers that are valid indices for the size are still valid for the new size, because some operations do not check
    them. No other dimension has the new size.
    """
    tensors = tensors_in((first.args, first.kwargs))
    highest = [int(tensor.max()) for tensor in tensors if are_indices(tensor) and tensor.numel()]
    least = max([_FEW, *(index + 1 for index in highest if index < size)])
    sizes = {length for tensor in tensors for length in tensor.shape}
    new = next(number for number in range(least, least + len(sizes) + 1) if number not in sizes)
    if 2 * new > size:
        return None
    return map_tensors(first, functools.partial(resize, size=size, new=new)), new

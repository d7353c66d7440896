"""Make the input of a slow function smaller, so that there is time for many inputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.trial.code_hints import look_like_indices
from jupyter_graphbreak.experiments.trial.tensor_changes import map_tensors, resize, tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.trial.arguments import Arguments

#: The smallest size to which a dimension shrinks, and the smallest size that is worth shrinking.
_FEW = 2
_MANY = 8
#: A further size to try: networks for images halve sizes several times.
_DIVISIBLE = 16


def shrinkable_sizes(first: Arguments) -> list[int]:
    """Return the sizes of dimensions that may be shrunk, those of first dimensions, such as batches, first."""
    tensors = tensors_in((first.args, first.kwargs))
    leading = [tensor.shape[0] for tensor in tensors if tensor.dim()]
    inner = [size for tensor in tensors for size in tensor.shape[1:]]
    return [size for size in dict.fromkeys([*leading, *inner]) if size >= _MANY]


def shrunk(first: Arguments, size: int) -> Iterator[tuple[Arguments, int]]:
    """Yield arguments in which each dimension of a size is smaller, with the new size; the smallest ones come first.

    Integers that are valid indices for the size are still valid for the new size, because some operations do not check
    them. No other dimension has the new size.
    """
    tensors = tensors_in((first.args, first.kwargs))
    highest = [int(tensor.max()) for tensor in tensors if look_like_indices(tensor) and tensor.numel()]
    least = max([_FEW, *(index + 1 for index in highest if index < size)])
    sizes = {length for tensor in tensors for length in tensor.shape}
    fewest = next(number for number in range(least, least + len(sizes) + 1) if number not in sizes)
    divisible = _DIVISIBLE if fewest < _DIVISIBLE and _DIVISIBLE not in sizes and size % _DIVISIBLE == 0 else fewest
    for new in dict.fromkeys([fewest, divisible]):
        if 2 * new <= size:
            yield map_tensors(first, functools.partial(resize, size=size, new_size=new)), new

"""Look at tensors while a program runs, without taking part in it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def looking_at_tensors() -> Iterator[None]:
    """Record no gradients, and call no modes and no classes of the program, while the context is open."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        yield


def changes_in_place(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor was changed in place; ``None`` for a tensor that does not count it."""
    return None if tensor.is_inference() else tensor._version


def has_own_dispatch(kind: type[torch.Tensor]) -> bool:
    """Return whether a class of tensors runs operations itself, so that its data may be anywhere."""
    return bool(kind.__torch_dispatch__ != torch.Tensor.__torch_dispatch__)

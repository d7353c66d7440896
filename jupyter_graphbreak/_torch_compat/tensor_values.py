"""Read tensors of a running program without recording gradients or calling the program's overrides."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The maximum depth of containers of tensors.
_MAX_DEPTH = 5


@contextlib.contextmanager
def disable_gradients_and_overrides() -> Iterator[None]:
    """Record no gradients, and call no ``__torch_function__`` of the program, while the context is open."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        yield


def has_nan(value: Any, depth: int = 0) -> bool:
    """Return whether a tensor, or a tensor in a container, contains NaN; false for tensors that cannot be read now."""
    match value:
        case torch.Tensor():
            can_have_nan = value.is_floating_point() or value.is_complex()
            if (
                not can_have_nan
                or value.device.type == "meta"
                or overrides_torch_dispatch(type(value))
                or (value.is_cuda and torch.cuda.is_current_stream_capturing())
            ):
                return False
            with disable_gradients_and_overrides(), _disable_current_modes():
                return bool(torch.isnan(value).any())
        case dict():
            value = list(value.values())
        case list() | tuple():
            pass
        case _:
            return False
    return depth < _MAX_DEPTH and any(has_nan(part, depth + 1) for part in value)


def in_place_change_count(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor was changed in place; ``None`` for a tensor that does not count changes."""
    with torch._C.DisableTorchFunctionSubclass():
        return None if tensor.is_inference() else tensor._version


def overrides_torch_dispatch(class_: type[torch.Tensor]) -> bool:
    """Return whether a class of tensors overrides ``__torch_dispatch__``, so its data may be anywhere."""
    return bool(class_.__torch_dispatch__ != torch.Tensor.__torch_dispatch__)

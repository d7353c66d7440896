"""Change and restore the default device for new tensors, and list the available CUDA devices."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def use_default_device(device: str | None) -> Iterator[None]:
    """Make a device the default while the context is open; a default that the code sets in the meantime remains."""
    if device is None:
        yield
        return
    import torch

    previous = default_device_state()
    torch.set_default_device(device)
    temporary_device = default_device_state()[0]
    try:
        yield
    finally:
        if default_device_state()[0] is temporary_device:
            restore_default_device(previous)


def default_device_state() -> tuple[Any, bool]:
    """Return the state to restore: the default device for new tensors, and whether none was ever set."""
    import torch

    context: Any = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    was_unset = context is not None and not hasattr(context, "device_context")
    return getattr(importlib.import_module("torch.utils._device"), "CURRENT_DEVICE", None), was_unset


def restore_default_device(state: tuple[Any, bool]) -> None:
    """Restore the state that :func:`default_device_state` returned."""
    import torch

    device, was_unset = state
    torch.set_default_device(device)
    context: Any = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    if was_unset and getattr(context, "device_context", ...) is None:
        del context.device_context  # torch 2.9 fails if the value is None


class CudaDevices(NamedTuple):
    """The CUDA devices of this process: their names, the index of the current one, and the reason if there are none."""

    names: Sequence[str] = ()
    current_index: int = 0
    missing_reason: str = "no CUDA device is visible to this kernel"


def cuda_devices() -> CudaDevices:
    """Return the CUDA devices of this process."""
    import torch

    try:
        if torch.cuda.is_available():
            names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
            return CudaDevices(names, torch.cuda.current_device())
    except (RuntimeError, AssertionError) as error:  # the name of a busy or broken device cannot be read
        return CudaDevices(missing_reason=f"CUDA does not answer ({str(error).partition(chr(10))[0]})")
    if torch.version.cuda is None:
        return CudaDevices(missing_reason=f"torch {torch.__version__} is built without CUDA")
    return CudaDevices()


def default_device_name() -> str:
    """Return the name of the current default device for new tensors."""
    import torch

    try:
        return str(torch.get_default_device())
    except AttributeError:  # torch 2.9, after set_default_device(None)
        return "cpu"

"""Where new tensors are made, and which CUDA devices there are."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def default_device(device: str | None) -> Iterator[None]:
    """Make a device the default one while the context is open; what the code itself sets meanwhile stays."""
    if device is None:
        yield
        return
    import torch

    state = importlib.import_module("torch.utils._device")
    before = getattr(state, "CURRENT_DEVICE", None)
    torch.set_default_device(device)
    ours = getattr(state, "CURRENT_DEVICE", None)
    try:
        yield
    finally:
        if getattr(state, "CURRENT_DEVICE", None) is ours:
            torch.set_default_device(before)


def cuda_devices() -> tuple[list[str], int, str]:
    """Return the names of the CUDA devices, the number of the current one, and why there is none."""
    import torch

    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        return [torch.cuda.get_device_name(index) for index in range(count)], torch.cuda.current_device(), ""
    if torch.version.cuda is None:
        return [], 0, f"torch {torch.__version__} is built without CUDA"
    return [], 0, "no CUDA device is visible to this kernel"


def default_device_name() -> str:
    """Return the device on which new tensors are made now."""
    import torch

    return str(torch.get_default_device())

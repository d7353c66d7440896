"""Save PyTorch's modes during a call, so that the call can be repeated in the same modes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.default_device import default_device_state, restore_default_device
from jupyter_graphbreak._torch_compat.process_settings import AUTOCAST_DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class CallModes:
    """The PyTorch modes that determine the result of a call and the code compiled for it.

    ``autocast`` contains the device types with active autocast, each with its dtype; ``dtype`` and ``device`` are the
    defaults for new tensors, and ``transform_count`` counts the functorch transforms around the call.
    ``uses_torch_function`` tells whether operations call the ``__torch_function__`` of tensor subclasses.
    """

    records_gradients: bool = True
    is_inference: bool = False
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    caches_casts: bool = True
    dtype: torch.dtype = torch.float32
    device: str | None = None
    transform_count: int = 0
    uses_torch_function: bool = True

    @staticmethod
    def now() -> CallModes:
        """Return the current modes."""
        return CallModes(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            tuple(
                (device_type, torch.get_autocast_dtype(device_type))
                for device_type in AUTOCAST_DEVICES
                if torch.is_autocast_enabled(device_type)
            ),
            torch.is_autocast_cache_enabled(),
            torch.get_default_dtype(),
            _default_device(),
            functorch_depth(),
            torch._C._is_torch_function_enabled(),
        )

    @contextlib.contextmanager
    def apply(self) -> Iterator[None]:
        """Set these modes while the context is open, then restore the previous ones."""
        dtype = torch.get_default_dtype()
        subclass_mode: Any = (
            torch._C._EnableTorchFunction if self.uses_torch_function else torch._C.DisableTorchFunctionSubclass
        )
        with (
            restore_functorch_depth(),
            subclass_mode(),
            _temporary_default_device(self.device),
            torch.inference_mode(self.is_inference),
            torch.set_grad_enabled(self.records_gradients),
            _temporary_autocast(dict(self.autocast), cache=self.caches_casts),
        ):
            torch.set_default_dtype(self.dtype)
            try:
                yield
            finally:
                torch.set_default_dtype(dtype)


#: The modes for creating and comparing copies.
DEFAULT_MODES = CallModes(uses_torch_function=False)


@contextlib.contextmanager
def _temporary_autocast(dtypes: dict[str, torch.dtype], *, cache: bool) -> Iterator[None]:
    dtypes_before = _autocast_dtypes()
    cache_before = torch.is_autocast_cache_enabled()
    is_needed = bool(dtypes) or any(enabled for enabled, _ in dtypes_before.values())
    is_changed = is_needed or cache != cache_before
    if is_changed:
        torch.autocast_increment_nesting()
    try:
        if is_changed:
            torch.set_autocast_cache_enabled(cache)
        for device_type, (enabled, dtype) in dtypes_before.items() if is_changed else ():
            if enabled != (device_type in dtypes):
                torch.set_autocast_enabled(device_type, device_type in dtypes)
            if dtypes.get(device_type, dtype) != dtype:
                torch.set_autocast_dtype(device_type, dtypes[device_type])
        yield
    finally:
        if is_changed and torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(cache_before)
        _restore_autocast_dtypes(dtypes_before)


@contextlib.contextmanager
def leave_autocast_contexts() -> Iterator[None]:
    """When the context ends, leave the autocast contexts that were entered in it but not left.

    After an error, a compiled graph does not leave the ones that it has entered. PyTorch would then keep its copies of
    the parameters in lower precision, although the parameters change. In torch 2.9, autocast would also stay enabled.
    """
    depth_before, dtypes_before = _autocast_nesting(), _autocast_dtypes()
    is_entered = False
    try:
        yield
    except BaseException:
        is_entered = _autocast_nesting() > depth_before
        raise
    finally:
        if _autocast_nesting() > depth_before:
            while torch.autocast_decrement_nesting() > depth_before:
                pass
            torch.clear_autocast_cache()
        if is_entered:  # without an error, the program has enabled autocast on purpose: that must remain
            _restore_autocast_dtypes(dtypes_before)


def _autocast_dtypes() -> dict[str, tuple[bool, torch.dtype]]:
    """Return for each device type whether autocast is enabled, and its dtype."""
    return {
        device_type: (torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type))
        for device_type in AUTOCAST_DEVICES
    }


def _restore_autocast_dtypes(dtypes: dict[str, tuple[bool, torch.dtype]]) -> None:
    for device_type, (enabled, dtype) in dtypes.items():
        if torch.is_autocast_enabled(device_type) != enabled:
            torch.set_autocast_enabled(device_type, enabled)
        if torch.get_autocast_dtype(device_type) != dtype:
            torch.set_autocast_dtype(device_type, dtype)


def _autocast_nesting() -> int:
    """Return the number of autocast contexts around the current code."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _default_device() -> str | None:
    device, _ = default_device_state()
    return None if device is None else str(device)


@contextlib.contextmanager
def _temporary_default_device(device: str | None) -> Iterator[None]:
    if _default_device() == device:
        yield
        return
    previous = default_device_state()
    torch.set_default_device(device)
    try:
        yield
    finally:
        restore_default_device(previous)


def functorch_depth() -> int:
    """Return the number of active functorch transforms."""
    depth: Any = getattr(torch._C._functorch, "get_dynamic_layer_stack_depth", lambda: 0)
    return int(depth())


@contextlib.contextmanager
def restore_functorch_depth() -> Iterator[None]:
    """When the context ends, end the functorch transforms that a failed call left open."""
    undo: Any = getattr(torch._C._functorch, "pop_dynamic_layer_stack_and_undo_to_depth", None)
    depth = functorch_depth()
    try:
        yield
    finally:
        while undo is not None and (current := functorch_depth()) > depth:
            with contextlib.suppress(RuntimeError):  # torch 2.9 raises an error after it has ended the transform
                undo(current - 1)
            if functorch_depth() >= current:
                break

"""Choose the device of a run: the rule behind ``--device``, as a pure function.

``auto`` makes the kernel's CUDA device the default device while the code runs, if there is one and no object that the
code names is on the CPU. Otherwise the code's own devices are used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak.report.schema import Device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_FORM = re.compile(r"auto|cpu|cuda(?::\d+)?")


class Cuda(msgspec.Struct, frozen=True):
    """The CUDA devices of the kernel: their names, the index of the current one, and the reason if there are none."""

    names: list[str] = []
    current: int = 0
    why_none: str = "no CUDA device is visible to this kernel"


class Choice(msgspec.Struct, frozen=True):
    """The device for the report, and the device to make the default; ``None`` leaves the default unchanged."""

    device: Device
    default: str | None = None


def choose_device(requested: str, cuda: Cuda, values: Mapping[str, Any]) -> Choice:
    """Choose the default device of a run.

    Parameters
    ----------
    requested : str
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    cuda : Cuda
        The CUDA devices of the kernel.
    values : mapping
        The objects that the code names. Tensors and modules among them have their own devices.

    Returns
    -------
    Choice

    Raises
    ------
    ValueError
        If the device does not exist; the message lists the existing devices.
    """
    if not _FORM.fullmatch(requested):
        raise ValueError(f"unknown device {requested!r}: use auto, cpu, cuda or cuda:N")
    if requested == "cpu":
        return Choice(Device("cpu", "cpu"), "cpu")
    if requested != "auto":
        return _choose_cuda(requested, cuda)
    if not cuda.names:
        return Choice(Device("auto", "cpu", note=cuda.why_none))
    on_cpu = [name for name, value in values.items() if "cpu" in devices_of(value)]
    if on_cpu:
        names = f"{_shortened(on_cpu)} {'is' if len(on_cpu) == 1 else 'are'} on the CPU"
        return Choice(Device("auto", "cpu", note=f"{names}, so the code's own devices are used"))
    used = f"cuda:{cuda.current}"
    return Choice(Device("auto", used, cuda.names[cuda.current]), used)


def _choose_cuda(requested: str, cuda: Cuda) -> Choice:
    if not cuda.names:
        raise ValueError(f"--device {requested}: {cuda.why_none}; use --device cpu")
    number = int(requested.partition(":")[2] or cuda.current)
    if number >= len(cuda.names):
        known = ", ".join(f"cuda:{index} {name}" for index, name in enumerate(cuda.names))
        raise ValueError(f"--device {requested}: no such device; available: {known}")
    return Choice(Device(requested, f"cuda:{number}", cuda.names[number]), f"cuda:{number}")


def devices_of(value: Any) -> set[str]:
    """Return the device types of the tensors in an object: a tensor, a module, or a container of them."""
    return {
        kind for tensor in _tensors(value) for kind in [getattr(getattr(tensor, "device", None), "type", None)] if kind
    }


def _tensors(value: Any) -> Iterable[Any]:
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    if isinstance(value, type):
        return []
    if callable(getattr(value, "parameters", None)) and callable(getattr(value, "buffers", None)):
        return [*value.parameters(), *value.buffers()]
    return [value] if hasattr(value, "device") and hasattr(value, "dtype") else []


def _shortened(names: Sequence[str]) -> str:
    most = 3
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

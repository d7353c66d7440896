"""Where the code runs: the rule behind ``--device``, as a pure function.

``auto`` makes the kernel's CUDA device the default device while the code runs, when there is one and nothing that the
code names lives on the CPU; else the code's own devices stand.
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
    """The CUDA devices of the kernel: their names, the number of the current one, and why there is none."""

    names: list[str] = []
    current: int = 0
    why_none: str = "no CUDA device is visible to this kernel"


class Choice(msgspec.Struct, frozen=True):
    """What to say of the device, and the device to make the default (``None``: leave it as it is)."""

    device: Device
    default: str | None = None


def choose_device(requested: str, cuda: Cuda, values: Mapping[str, Any]) -> Choice:
    """Choose the default device of a run.

    Parameters
    ----------
    requested : str
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    cuda : Cuda
        What the kernel has.
    values : mapping
        The objects that the code names; tensors and modules among them have devices of their own.

    Raises
    ------
    ValueError
        If there is no such device; the message says what was found.
    """
    if not _FORM.fullmatch(requested):
        raise ValueError(f"unknown device {requested!r}: use auto, cpu, cuda or cuda:N")
    if requested == "cpu":
        return Choice(Device("cpu", "cpu"), "cpu")
    if requested != "auto":
        return _forced(requested, cuda)
    if not cuda.names:
        return Choice(Device("auto", "cpu", note=cuda.why_none))
    on_cpu = [name for name, value in values.items() if "cpu" in devices_of(value)]
    if on_cpu:
        lives = f"{_listed(on_cpu)} {'lives' if len(on_cpu) == 1 else 'live'} on the CPU"
        return Choice(Device("auto", "cpu", note=f"{lives}, so the code's own devices stand"))
    used = f"cuda:{cuda.current}"
    return Choice(Device("auto", used, cuda.names[cuda.current]), used)


def _forced(requested: str, cuda: Cuda) -> Choice:
    if not cuda.names:
        raise ValueError(f"--device {requested}: {cuda.why_none}; use --device cpu")
    number = int(requested.partition(":")[2] or cuda.current)
    if number >= len(cuda.names):
        known = ", ".join(f"cuda:{index} {name}" for index, name in enumerate(cuda.names))
        raise ValueError(f"--device {requested}: there is no such device; found {known}")
    return Choice(Device(requested, f"cuda:{number}", cuda.names[number]), f"cuda:{number}")


def devices_of(value: Any) -> set[str]:
    """Return the types of the devices that an object's tensors live on: a tensor, a module, or a container of them."""
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


def _listed(names: Sequence[str]) -> str:
    most = 3
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

"""The options of the magic, with a parser that separates them from the call that follows.

``--device auto`` makes the kernel's CUDA device the default device while the code runs, if there is one and no object
that the code mentions is on the CPU. Otherwise the code's own devices are used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from IPython.core.error import UsageError

from jupyter_graphbreak.records.attributes import attribute_of
from jupyter_graphbreak.report.schema import Device
from jupyter_graphbreak.views.words.plain_text import join_words

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from jupyter_graphbreak._torch_compat.default_device import CudaDevices
    from jupyter_graphbreak.compiling.compile_options import CompileOptions

#: The maximum number of objects on the CPU that a note lists.
_MAX_NAMES = 3
_DEVICE_PATTERN = re.compile(r"auto|cpu|cuda(?::\d+)?")


class Options(msgspec.Struct, frozen=True):
    """The options of one use of the magic; its help describes them.

    ``remedies`` is ``--try``; ``expression`` is the text after the options.
    """

    device: str = "auto"
    backend: str | None = None
    fullgraph: bool = False
    mode: str | None = None
    dynamic: Literal["true", "false"] | None = None
    frontends: bool = False
    output: str | None = None
    processes: bool = False
    remedies: bool = False
    patch: str | None = None
    cost: bool = False
    check: bool = False
    values: bool = False
    at: list[str] | None = None
    repro: bool = False
    fresh: bool = False
    log: str | None = None
    expression: str = ""

    def compile_options(self) -> CompileOptions:
        """Return the options for the code that the magic compiles."""
        from jupyter_graphbreak.compiling.compile_options import CompileOptions

        dynamic = None if self.dynamic is None else self.dynamic == "true"
        backend = self.backend
        if backend is None and self.mode is None and (self.cost or self.check):
            backend = "inductor"  # the default of torch.compile; eager has nothing to measure
        return CompileOptions(
            backend=backend,
            mode=self.mode,
            fullgraph=self.fullgraph,
            dynamic=dynamic,
            # `--check` reruns the code with this setting. With `--cost`, the code is compiled without it, so that the
            # measured times are the usual ones.
            eager_random_numbers=self.check and not self.cost,
        )

    @property
    def runs_again(self) -> bool:
        """Whether to run compiled code again on copies."""
        return self.tries_changes or self.cost or self.check or self.looks_at_values or self.repro

    @property
    def looks_at_values(self) -> bool:
        """Whether to look at the values inside compiled code."""
        return self.values or bool(self.at)

    @property
    def tries_changes(self) -> bool:
        """Whether to try changes, either those of this package or the user's patch."""
        return self.remedies or self.patch is not None

    def used_compile_options(self) -> list[str]:
        """Return the names of the options in use that apply only to the code that the magic compiles."""
        return [f"--{name}" for name in ("fullgraph", "mode", "dynamic") if getattr(self, name)]


def read_options(parser: argparse.ArgumentParser, line: str) -> Options:
    """Return the options on the magic's line, or raise a UsageError if an option or its value is invalid."""
    words = list(re.finditer(r"\S+", line))
    try:
        arguments = vars(parser.parse_args([word[0] for word in words]))
    except UsageError as error:
        raise UsageError(f"{error}; %%compile_explain? lists the options") from None
    word_count = len(arguments["expression"])
    arguments["expression"] = line[words[-word_count].start() :].strip() if word_count else ""
    options = Options(**arguments)
    if options.output is not None and not options.output.isidentifier():
        raise UsageError(f"-o {options.output}: not a valid variable name; use for example -o report")
    if options.at:
        from jupyter_graphbreak.experiments.values.requested_lines import parse_lines

        try:
            parse_lines(options.at)
        except ValueError as error:
            raise UsageError(f"--at {error}") from None
    return options


class DeviceChoice(msgspec.Struct, frozen=True):
    """The device for the report, and the device to make the default; ``None`` leaves the default unchanged."""

    device: Device
    default: str | None = None


def choose_device(requested: str, cuda: CudaDevices, mentioned_objects: Mapping[str, Any]) -> DeviceChoice:
    """Choose the default device of a run: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Tensors and modules among the mentioned objects have their own devices. A ValueError is raised if the device is
    unknown or does not exist.
    """
    if not _DEVICE_PATTERN.fullmatch(requested):
        raise ValueError(f"unknown device {requested!r}: use auto, cpu, cuda or cuda:N")
    if requested == "cpu":
        return DeviceChoice(Device("cpu", "cpu"), "cpu")
    if requested != "auto":
        return _choose_cuda(requested, cuda)
    if not cuda.names:
        return DeviceChoice(Device("auto", "cpu", note=cuda.missing_reason))
    on_cpu = [name for name, value in mentioned_objects.items() if "cpu" in device_types_of(value)]
    if on_cpu:
        names = f"{join_words(on_cpu, ', ', _MAX_NAMES)} {'is' if len(on_cpu) == 1 else 'are'} on the CPU"
        return DeviceChoice(Device("auto", "cpu", note=f"{names}, so the code's own devices are used"))
    default_device = f"cuda:{cuda.current_index}"
    return DeviceChoice(Device("auto", default_device, cuda.names[cuda.current_index]), default_device)


def _choose_cuda(requested: str, cuda: CudaDevices) -> DeviceChoice:
    if not cuda.names:
        raise ValueError(f"--device {requested}: {cuda.missing_reason}; use --device cpu")
    number = int(requested.partition(":")[2] or cuda.current_index)
    if number >= len(cuda.names):
        available = ", ".join(f"cuda:{index} {name}" for index, name in enumerate(cuda.names))
        raise ValueError(f"--device {requested}: no such device; available: {available}")
    return DeviceChoice(Device(requested, f"cuda:{number}", cuda.names[number]), f"cuda:{number}")


def device_types_of(value: Any) -> set[str]:
    """Return the device types of the tensors in an object: a tensor, a module, or a container of them."""
    return {
        device_type
        for tensor in _tensors(value)
        for device_type in [getattr(getattr(tensor, "device", None), "type", None)]
        if device_type
    }


def _tensors(value: Any) -> Iterable[Any]:
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    if isinstance(value, type):
        return []
    if callable(attribute_of(value, "parameters")) and callable(attribute_of(value, "buffers")):
        return [*value.parameters(), *value.buffers()]
    return [value] if None not in (attribute_of(value, "device"), attribute_of(value, "dtype")) else []

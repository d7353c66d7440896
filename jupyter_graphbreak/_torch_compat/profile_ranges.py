"""What PyTorch's profilers say of one call, as plain data: named ranges of time, and what a device is asked to do."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jupyter_graphbreak._torch_compat.hooks.code_marks import left_alone
from jupyter_graphbreak._torch_compat.patching import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REGION = re.compile(r"^Torch-Compiled Region: (\S+)$")
_GRAPH = re.compile(r"^graphbreak graph (\d+)$")
_OPERATION = re.compile(r"^(?!autograd::|c10d::|profiler::)[A-Za-z_]\w*::\w+(\.\w+)?$")
Kind = Literal["call", "lookup", "region", "graph", "forward", "backward", "printing", "operation"]


@dataclass(frozen=True)
class Range:
    """Something that took time.

    Parameters
    ----------
    kind : str
        The call as a whole; a lookup of compiled code, which evaluates guards; a compiled frame with all that it calls;
        a graph; the forward or the backward pass of a differentiated graph; a tensor that is made a text; an operation.
    name : str
        Of a region its compile id, of a graph its number, of an operation its name.
    link : int
        The same for a forward pass and its backward pass.
    """

    kind: Kind
    name: str
    start_us: float
    end_us: float
    thread: int = 0
    link: int = -1


@dataclass(frozen=True)
class Activity:
    """Something that kineto saw while a call ran: a call of the device's driver, or memory taken and given back.

    Parameters
    ----------
    name : str
        Of the driver's function, such as ``cudaLaunchKernel``; empty of memory.
    memory : str
        The type of the device whose memory it is; empty of anything else.
    nbytes : int
        Bytes of memory: taken, or with a minus given back.
    """

    name: str
    memory: str = ""
    nbytes: int = 0


def profiled(call: Callable[[], Any]) -> list[Range]:
    """Make a call under the profiler; return the ranges that it saw, in order of their beginning."""
    with _marked_printing(), _profiler() as profiler, marked("graphbreak call"):
        call()
    ranges = [read for event in profiler.function_events if (read := _range(event)) is not None]
    return sorted(ranges, key=lambda read: (read.start_us, -read.end_us))


def device_activities(call: Callable[[], Any], device: str | None = "cuda") -> list[Activity]:
    """Make a call under kineto, which alone sees what the driver of a device is asked for; ``None`` is no device.

    Raises
    ------
    RuntimeError
        If another profiler is at work.
    """
    profiler = importlib.import_module("torch.autograd.profiler").profile(use_device=device, profile_memory=True)
    with _silent_process():
        profiler.__enter__()
    try:
        with marked("graphbreak call"):
            call()
    finally:
        with _silent_process():
            profiler.__exit__(None, None, None)
    events = sorted(profiler.kineto_results.events(), key=lambda event: event.start_ns())
    whole = next((event for event in events if event.name() == "graphbreak call"), None)
    if whole is None:
        return []
    end = whole.start_ns() + whole.duration_ns()
    return [_activity(event) for event in events if whole.start_ns() < event.start_ns() <= end]


def _activity(event: Any) -> Activity:
    if event.name() == "[memory]":
        return Activity("", event.device_type().name.lower(), event.nbytes())
    return Activity(event.name())


@contextlib.contextmanager
def _silent_process() -> Iterator[None]:
    """Send to nowhere what the process writes to its standard error: kineto says there that it begins and ends."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def marked(name: str) -> Any:
    """Return a context whose time is a range of the profiler."""
    return importlib.import_module("torch.autograd.profiler").record_function(name)


def marked_graph(number: int) -> Any:
    """Return a context in which a graph runs."""
    return marked(f"graphbreak graph {number}")


@contextlib.contextmanager
def _marked_printing() -> Iterator[None]:
    """Have it seen when PyTorch makes a text of a tensor, which takes operations that no line of the user's calls."""
    home = importlib.import_module("torch._tensor_str")
    original = home._str

    @functools.wraps(original)
    def as_text(*args: Any, **kwargs: Any) -> Any:
        with marked("graphbreak printing"):
            return original(*args, **kwargs)

    left_alone(as_text)
    with patched(home, "_str", as_text):
        yield


def _profiler() -> Any:
    """Return the profiler that writes nothing to the terminal, where this torch still has it."""
    try:
        return importlib.import_module("torch.autograd.profiler_legacy").profile()
    except (ImportError, AttributeError):
        return importlib.import_module("torch.autograd.profiler").profile(use_kineto=False)


def _range(event: Any) -> Range | None:
    kind: Kind
    name: str = event.name
    if name == "graphbreak call":
        kind = "call"
    elif name == "graphbreak printing":
        kind = "printing"
    elif name == "TorchDynamo Cache Lookup":
        kind = "lookup"
    elif region := _REGION.match(name):
        kind, name = "region", region[1]
    elif graph := _GRAPH.match(name):
        kind, name = "graph", graph[1]
    elif name == "CompiledFunction":
        kind = "forward"
    elif name == "CompiledFunctionBackward":
        kind = "backward"
    elif _OPERATION.match(name):
        kind = "operation"
    else:
        return None
    time = event.time_range
    return Range(kind, name, float(time.start), float(time.end), event.thread, getattr(event, "sequence_nr", -1))

"""What the profiler of PyTorch's own operations says of one call: named ranges of time, as plain data."""

from __future__ import annotations

import contextlib
import functools
import importlib
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


def profiled(call: Callable[[], Any]) -> list[Range]:
    """Make a call under the profiler; return the ranges that it saw, in order of their beginning."""
    with _marked_printing(), _profiler() as profiler, marked("graphbreak call"):
        call()
    ranges = [read for event in profiler.function_events if (read := _range(event)) is not None]
    return sorted(ranges, key=lambda read: (read.start_us, -read.end_us))


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

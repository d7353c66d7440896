"""Profile one call with PyTorch's profilers, and mark where the code that Dynamo creates is entered and left."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import tempfile
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal

from jupyter_graphbreak._torch_compat.compiled import skip_functions
from jupyter_graphbreak._torch_compat.patching import patch_attribute, prepare_calls_on_thread, report_to_run
from jupyter_graphbreak.faults import with_fallback
from jupyter_graphbreak.records.attributes import is_hashable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

_REGION_NAME = re.compile(r"^Torch-Compiled Region: (\S+)$")
_GRAPH_RANGE_NAME = re.compile(r"^graphbreak graph (\d+)$")
#: Matches any line, because kineto writes to the standard error of the process when it starts and stops.
_KINETO_MESSAGE = re.compile(rb"")
#: While the profiler counts memory, the allocator writes this line if memory is freed that was allocated before
#: (CPUAllocator.cpp in PyTorch). No setting of a running process prevents that.
_ALLOCATOR_WARNING = re.compile(rb"^\[W.*Memory block of unknown size was allocated before")
_OPERATION_NAME = re.compile(r"^(?!autograd::|c10d::|profiler::)[A-Za-z_]\w*::\w+(\.\w+)?$")
RangeKind = Literal["call", "lookup", "region", "graph", "forward", "backward", "printing", "operation"]


@dataclass(frozen=True)
class ProfileRange:
    """A time range of a profile.

    ``call``: the whole call. ``lookup``: the lookup of compiled code, including its guards. ``region``: a compiled
    frame with its calls, named by its compile id. ``graph``: a graph, named by its number. ``forward``, ``backward``: a
    pass of a differentiated graph. ``printing``: the formatting of a tensor as text. ``operation``: an operation, with
    its name. Ranges of other kinds have the name that the profiler recorded.
    """

    kind: RangeKind
    name: str
    start_us: float
    end_us: float
    thread: int = 0


@dataclass(frozen=True)
class Activity:
    """An event that kineto recorded during a call: a call to the device's driver, or memory allocated or freed.

    ``name`` is the driver's function, such as ``cudaLaunchKernel``; ``memory_device`` is the type of the device that
    has the memory. Each is empty for the other kind of event. ``nbytes`` is negative for freed memory.
    """

    name: str
    memory_device: str = ""
    nbytes: int = 0


def profile_call(function: Callable[[], Any]) -> list[ProfileRange]:
    """Make a call under the profiler and return the recorded ranges, ordered by start time."""
    with _mark_printing(), _profiler() as profiler, mark_range("graphbreak call"):
        function()
    ranges = [range_ for event in profiler.function_events if (range_ := _parse_range(event)) is not None]
    return sorted(ranges, key=lambda range_: (range_.start_us, -range_.end_us))


def record_device_activities(function: Callable[[], Any], device: str | None = "cuda") -> list[Activity]:
    """Make a call under kineto, the only profiler that records driver calls; return the recorded events, in order.

    Raises a RuntimeError if a different profiler is active. Without a device, only the processor is recorded.
    """
    profiler = importlib.import_module("torch.autograd.profiler").profile(use_device=device, profile_memory=True)
    with _filter_stderr(_KINETO_MESSAGE):
        profiler.__enter__()
    try:
        with _filter_stderr(_ALLOCATOR_WARNING), mark_range("graphbreak call"):
            function()
    finally:
        with _filter_stderr(_KINETO_MESSAGE):
            profiler.__exit__(None, None, None)
    events = sorted(profiler.kineto_results.events(), key=lambda event: event.start_ns())
    call_event = next((event for event in events if event.name() == "graphbreak call"), None)
    if call_event is None:
        return []
    end = call_event.start_ns() + call_event.duration_ns()
    return [_activity(event) for event in events if call_event.start_ns() < event.start_ns() <= end]


def _activity(event: Any) -> Activity:
    if event.name() == "[memory]":
        return Activity("", event.device_type().name.lower(), event.nbytes())
    return Activity(event.name())


@contextlib.contextmanager
def _filter_stderr(dropped_lines: re.Pattern[bytes]) -> Iterator[None]:
    """Delay the standard error of the process until the context ends, and drop the lines that match a pattern."""
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as output_file:
        os.dup2(output_file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            output_file.seek(0)
            for line in output_file:
                if not dropped_lines.search(line):
                    os.write(stderr, line)
            os.close(stderr)


def mark_range(name: str) -> Any:
    """Return a context that the profiler records as a range."""
    return importlib.import_module("torch.autograd.profiler").record_function(name)


def mark_graph(number: int) -> Any:
    """Return a context that the profiler records as the run of a graph."""
    return mark_range(f"graphbreak graph {number}")


def _mark_printing() -> contextlib.AbstractContextManager[None]:
    """Mark when PyTorch formats a tensor as text, because that runs operations that the user's code does not call."""
    tensor_str = importlib.import_module("torch._tensor_str")
    original = tensor_str._str

    @functools.wraps(original)
    def marked_str(*args: Any, **kwargs: Any) -> Any:
        with mark_range("graphbreak printing"):
            return original(*args, **kwargs)

    skip_functions(marked_str)
    return patch_attribute(tensor_str, "_str", marked_str)


def _profiler() -> Any:
    """Return the legacy profiler, because it prints nothing; if PyTorch lacks it, the one without kineto."""
    try:
        return importlib.import_module("torch.autograd.profiler_legacy").profile()
    except (ImportError, AttributeError):
        return importlib.import_module("torch.autograd.profiler").profile(use_kineto=False)


def _parse_range(event: Any) -> ProfileRange | None:
    kind: RangeKind
    name: str = event.name
    if name == "graphbreak call":
        kind = "call"
    elif name == "graphbreak printing":
        kind = "printing"
    elif name == "TorchDynamo Cache Lookup":
        kind = "lookup"
    elif region := _REGION_NAME.match(name):
        kind, name = "region", region[1]
    elif graph := _GRAPH_RANGE_NAME.match(name):
        kind, name = "graph", graph[1]
    elif name == "CompiledFunction":
        kind = "forward"
    elif name == "CompiledFunctionBackward":
        kind = "backward"
    elif _OPERATION_NAME.match(name):
        kind = "operation"
    else:
        return None
    time = event.time_range
    return ProfileRange(kind, name, float(time.start), float(time.end), event.thread)


#: When code calls a mark: "entered" after its guards have passed, "resumes" before it calls a resume function, "left"
#: before it returns. "marked" directly follows "entered": the time between the two is the cost of a mark.
Moment = Literal["entered", "marked", "resumes", "left"]


_RESUME_GLOBAL_PREFIX = "__resume_at_"


@contextlib.contextmanager
def mark_compiled_code(mark: Callable[[Moment], Callable[[], None]]) -> Iterator[None]:
    """Make all code that Dynamo creates on this thread in the context call a function at each :data:`Moment`.

    ``mark`` is called while code is created, as part of the compiler. It returns the function that the code calls;
    pass that function to :func:`~jupyter_graphbreak._torch_compat.compiled.skip_functions`. If this PyTorch creates
    code in a different way, the code stays unchanged, and the run notes that.
    """
    convert_frame = importlib.import_module("torch._dynamo.convert_frame")
    thread = get_ident()

    def insert_marks(_: CodeType, code: CodeType) -> CodeType | None:
        return _add_marks(code, mark) if get_ident() == thread else None

    hook = with_fallback("marking compiled code", insert_marks, lambda *_: None, report_to_run)
    handle = convert_frame.register_bytecode_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def replace_backends(replace: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """Replace the backend of each frame that Dynamo compiles on this thread while the context is open."""
    output_graph = importlib.import_module("torch._dynamo.output_graph")

    def prepare(graph: Any, *_: Any, **__: Any) -> None:
        graph.compiler_fn = replace(graph.compiler_fn)

    return prepare_calls_on_thread(output_graph.OutputGraph, "call_user_compiler", prepare)


def _add_marks(code: CodeType, mark: Callable[[Moment], Callable[[], None]]) -> CodeType:
    transformation = importlib.import_module("torch._dynamo.bytecode_transformation")

    def instructions_for_call(moment: Moment) -> list[Any]:
        return [
            *transformation.add_push_null(transformation.create_load_const(mark(moment), checked=False)),
            *transformation.create_call_function(0, push_null=False),
            transformation.create_instruction("POP_TOP"),
        ]

    def insert_marks(instructions: list[Any], _: dict[str, Any]) -> None:
        is_entered = False
        # A single pass, because code that rebuilds large containers has tens of thousands of instructions.
        new_instructions: list[Any] = []
        for instruction in instructions:
            if instruction.opname == "LOAD_GLOBAL" and str(instruction.argval).startswith(_RESUME_GLOBAL_PREFIX):
                new_instructions += instructions_for_call("resumes")
            elif instruction.opname in {"RETURN_VALUE", "RETURN_CONST"}:
                new_instructions += instructions_for_call("left")
            new_instructions.append(instruction)
            if instruction.opname == "RESUME" and not is_entered:
                new_instructions += [*instructions_for_call("entered"), *instructions_for_call("marked")]
                is_entered = True
        instructions[:] = new_instructions

    # PyTorch caches instructions by the hash of their code, but Dynamo's code may have a dict among its constants.
    constants = tuple(part if is_hashable(part) else _UnhashableConstant(part) for part in code.co_consts)
    result = transformation.transform_code_object(code.replace(co_consts=constants), insert_marks)
    new_code: CodeType = result[0] if isinstance(result, tuple) else result
    constants = tuple(part.constant if type(part) is _UnhashableConstant else part for part in new_code.co_consts)
    return new_code.replace(co_consts=constants)


class _UnhashableConstant:
    """Stands for a constant that has no hash."""

    def __init__(self, constant: Any) -> None:
        self.constant = constant

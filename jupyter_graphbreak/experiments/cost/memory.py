"""Measure the peak memory of a call with its backward pass, and the memory that each line keeps for this pass."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import torch
from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.backends import SavedTensor, saved_tensors, stack_of
from jupyter_graphbreak._torch_compat.profile_ranges import record_device_activities
from jupyter_graphbreak.experiments.cost import variants
from jupyter_graphbreak.experiments.cost.graph_timer import as_leaves
from jupyter_graphbreak.experiments.cost.timing import CudaClock
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.named_objects import memory_address
from jupyter_graphbreak.experiments.trial.time_limit import require_time
from jupyter_graphbreak.records.package_paths import OWN_FOLDER
from jupyter_graphbreak.records.records import StackFrame
from jupyter_graphbreak.report.cost import MemoryCost, MemoryLine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from types import FrameType

    from jupyter_graphbreak._torch_compat.profile_ranges import Activity
    from jupyter_graphbreak.experiments.cost.graph_timer import GraphTimer
    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.experiments.cost.variants import Variant
    from jupyter_graphbreak.report.location import Location

    #: The frames of a stack, outermost first.
    Stack = tuple[StackFrame, ...]
    #: The number of a graph, and of a run of the graph.
    _GraphRun = tuple[int, int]
    #: The shape and dtype of a tensor.
    _ShapeAndDtype = tuple[tuple[int, ...], torch.dtype]

_Key = TypeVar("_Key")
_MAX_LINES = 20
#: The maximum number of entries in a stack.
_MAX_FRAMES = 50


def measure_memory(steady_state: SteadyState) -> MemoryCost | None:
    """Measure the memory of an eager and of a compiled call; ``None`` if the user's profiler is active."""
    peaks, saved_bytes_by_variant = [], []
    for variant in (steady_state.eager, steady_state.compiled):
        require_time()
        variant.observe_with_backward(lambda call: call())  # compiles the backward pass
        saved_bytes = SavedBytes(variant.memory_addresses(), lambda _: stack_in_call(inspect.currentframe()))
        variant.observe_with_backward(saved_bytes.observe)
        saved_bytes_by_variant.append(saved_bytes)
        try:
            peaks.append(
                peak_bytes(variant.observe_with_backward(functools.partial(memory_activities, variant=variant)))
            )
        except RuntimeError:
            return None
    lines: Counter[Location] = Counter()
    for stack, nbytes in saved_bytes_by_variant[0].bytes_by_key.items():
        if (location := steady_state.locate(stack)) is not None:
            lines[location] += nbytes
    return MemoryCost(
        eager_peak_bytes=peaks[0],
        compiled_peak_bytes=peaks[1],
        eager_saved_bytes=saved_bytes_by_variant[0].peak_bytes,
        compiled_saved_bytes=saved_bytes_by_variant[1].peak_bytes,
        lines=[MemoryLine(location, nbytes) for location, nbytes in lines.most_common(_MAX_LINES)],
    )


def memory_activities(function: Callable[[], Any], variant: Variant) -> list[Activity]:
    """Return the activities of a call under the profiler, except those that allocate on other devices.

    Raises a RuntimeError if the user's profiler is active.
    """
    device = "cuda" if isinstance(variant.clock, CudaClock) else None
    activities = record_device_activities(function, device)
    return [
        activity
        for activity in activities
        if not activity.memory_device or (activity.memory_device == "cpu") == (device is None)
    ]


def peak_bytes(activities: Iterable[Activity]) -> int:
    """Return the peak in bytes of the memory that activities allocate, without memory allocated before them."""
    return max(itertools.accumulate((activity.nbytes for activity in activities), initial=0))


class SavedBytes(Generic[_Key]):
    """Counts the bytes of tensors that autograd keeps for backward passes.

    Memory that several tensors share is counted once, and memory at ``excluded_addresses`` is left out, because the
    call's arguments or state keep it. ``peak_bytes`` is the maximum number of bytes that were kept at one time, and
    ``bytes_by_key`` the number kept then, by the key that ``describe`` returned when an operation first kept the
    tensor.
    """

    def __init__(self, excluded_addresses: Collection[int], describe: Callable[[torch.Tensor], _Key]) -> None:
        self._excluded_addresses = excluded_addresses
        self._describe = describe
        self._counts: Counter[int] = Counter()
        self._bytes_by_address: dict[int, tuple[_Key, int]] = {}
        self._current_bytes = self.peak_bytes = 0
        self.bytes_by_key: dict[_Key, int] = {}

    def observe(self, function: Callable[[], Any]) -> None:
        """Make a call, and count the bytes that it keeps for its backward pass."""
        with torch.autograd.graph.saved_tensors_hooks(self._keep, _KeptTensor.unpack):
            function()
        self._note_peak()

    def _keep(self, tensor: torch.Tensor) -> _KeptTensor:
        address, key = memory_address(tensor), self._describe(tensor)
        if address is None or address in self._excluded_addresses:
            return _KeptTensor(tensor)
        if not self._counts[address]:
            nbytes = tensor.untyped_storage().nbytes()
            self._bytes_by_address[address] = key, nbytes
            self._current_bytes += nbytes
        self._counts[address] += 1
        return _KeptTensor(tensor, lambda: self._release(address))

    def _release(self, address: int) -> None:
        self._counts[address] -= 1
        if not self._counts[address]:
            self._note_peak()
            self._current_bytes -= self._bytes_by_address.pop(address)[1]

    def _note_peak(self) -> None:
        if self._current_bytes > self.peak_bytes:
            self.peak_bytes = self._current_bytes
            bytes_by_key: Counter[_Key] = Counter()
            for key, nbytes in self._bytes_by_address.values():
                bytes_by_key[key] += nbytes
            self.bytes_by_key = dict(bytes_by_key)


def stack_in_call(frame: FrameType | None) -> Stack:
    """Return the part of a frame's stack inside a variant's call, outermost frame first, without our own frames."""
    entries: list[StackFrame] = []
    while frame is not None and len(entries) < _MAX_FRAMES and frame.f_code.co_filename != variants.__file__:
        code = frame.f_code
        if not code.co_filename.startswith(OWN_FOLDER):
            entries.append(StackFrame(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(reversed(entries))


class _KeptTensor:
    """Holds a tensor that autograd keeps, and calls a function when autograd releases the tensor."""

    def __init__(self, tensor: torch.Tensor, on_release: Callable[[], None] | None = None) -> None:
        self._tensor = tensor
        self._on_release = on_release

    def unpack(self) -> torch.Tensor:
        """Return the tensor."""
        return self._tensor

    def __del__(self) -> None:
        if self._on_release is not None:
            with contextlib.suppress(Exception):
                self._on_release()


# The lines of compiled graphs.


class _SavedTensorKey(NamedTuple):
    """The key of a saved tensor: the run of a graph, and the tensor's number among those that this run saves."""

    run: _GraphRun
    number: int


def with_compiled_lines(memory: MemoryCost, steady_state: SteadyState) -> MemoryCost:
    """Return the memory cost, extended with the number of bytes that each line keeps in the compiled call."""
    compiled = steady_state.compiled
    saved_by_run = _SavedTensorsByRun(compiled.timer)
    compiled_bytes = SavedBytes(compiled.memory_addresses(), saved_by_run.record)
    compiled.observe_with_backward(compiled_bytes.observe)
    stacks = _stacks_by_saved_tensor(compiled, saved_by_run) if saved_by_run.tensors else {}
    lines: Counter[Location | None] = Counter()
    for key, nbytes in compiled_bytes.bytes_by_key.items():
        stack = stacks.get(key, ()) if isinstance(key, _SavedTensorKey) else key
        lines[steady_state.locate(stack)] += nbytes
    bytes_without_line = lines.pop(None, 0)
    eager = {line.location: line.eager_bytes for line in memory.lines}
    compiled_lines = [
        MemoryLine(location, eager.get(location, 0), lines.get(location, None if bytes_without_line else 0))
        for location in dict.fromkeys([*eager, *lines])
        if location is not None
    ]
    compiled_lines.sort(key=lambda line: -max(line.eager_bytes, line.compiled_bytes or 0))
    return replace(memory, lines=compiled_lines[:_MAX_LINES])


class _SavedTensorsByRun:
    """The tensors that autograd saves in each run of a graph, in order."""

    def __init__(self, timer: GraphTimer) -> None:
        self._timer = timer
        self.tensors: defaultdict[_GraphRun, list[_ShapeAndDtype]] = defaultdict(list)

    def record(self, tensor: torch.Tensor) -> _SavedTensorKey | Stack:
        """Record a saved tensor; return its key if a graph is running, otherwise the stack of the operation."""
        run = self._timer.running_graph
        if run is None:
            return stack_in_call(inspect.currentframe())
        self.tensors[run].append((tuple(tensor.shape), tensor.dtype))
        return _SavedTensorKey(run, len(self.tensors[run]) - 1)


def _stacks_by_saved_tensor(
    compiled: Variant, saved_by_run: _SavedTensorsByRun
) -> dict[_SavedTensorKey | Stack, Stack]:
    """Return the known stacks of the operations for which graphs keep tensors, by the tensors' keys."""
    timer, inputs = compiled.timer, compiled.graph_inputs()
    expected: dict[int, list[SavedTensor] | None] = {}
    for number in dict.fromkeys(number for number, _ in saved_by_run.tensors):
        require_time()
        module, graph_inputs = timer.modules[number], inputs[number]
        expected[number] = compiled.run_in_modes(lambda: _expected_saved_tensors(timer, module, graph_inputs))  # noqa: B023 - called in this iteration only
    return {
        _SavedTensorKey(run, number): tensor.stack
        for run, saved_kinds in saved_by_run.tensors.items()
        for number, tensor in _pair_by_shape_and_dtype(saved_kinds, expected[run[0]] or []).items()
    }


def _pair_by_shape_and_dtype(saved_kinds: list[_ShapeAndDtype], expected: list[SavedTensor]) -> dict[int, SavedTensor]:
    """Pair saved tensors with the expected ones, by shape and dtype, in order.

    If the number of tensors with one shape and dtype is not the expected one, these tensors are left out. The order
    across shapes and dtypes may differ slightly: PyTorch prefers parameters, and knows them only when it compiles a
    call.
    """
    numbers_by_kind, expected_by_kind = defaultdict(list), defaultdict(list)
    for number, kind in enumerate(saved_kinds):
        numbers_by_kind[kind].append(number)
    for saved_tensor in expected:
        expected_by_kind[saved_tensor.shape, saved_tensor.dtype].append(saved_tensor)
    pairs = (
        zip(numbers, expected_by_kind[kind], strict=True)
        for kind, numbers in numbers_by_kind.items()
        if len(numbers) == len(expected_by_kind[kind])
    )
    return dict(itertools.chain.from_iterable(pairs))


def _expected_saved_tensors(
    timer: GraphTimer, module: torch.fx.GraphModule, inputs: list[Any]
) -> list[SavedTensor] | None:
    name = str(getattr(timer.backend, "compiler_name", None) or getattr(timer.backend, "__name__", ""))
    leaves = as_leaves(inputs)
    if name != "eager":
        return saved_tensors(name, timer.backend, module, leaves)
    recorder = _SavedTensorRecorder(module)
    with torch.autograd.graph.saved_tensors_hooks(recorder.record, lambda tensor: tensor):
        recorder.run(*clone(leaves))
    return recorder.saved_tensors


class _SavedTensorRecorder(torch.fx.Interpreter):
    """Runs a graph operation by operation, and records the tensors that autograd saves for each operation."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.saved_tensors: list[SavedTensor] = []
        self._node: torch.fx.Node | None = None

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run an operation."""
        self._node = n
        return super().run_node(n)

    def record(self, tensor: torch.Tensor) -> torch.Tensor:
        """Record that the running operation saves a tensor."""
        stack = stack_of(self._node) if self._node is not None else ()
        self.saved_tensors.append(SavedTensor(tuple(tensor.shape), tensor.dtype, stack))
        return tensor

"""Measure the memory that a call with its backward pass takes: its peak, and the part kept for the backward pass."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from jupyter_graphbreak._torch_compat.profile_ranges import record_device_activities
from jupyter_graphbreak.experiments.cost import variants
from jupyter_graphbreak.experiments.cost.clock import CudaClock
from jupyter_graphbreak.experiments.trial.places import memory_address
from jupyter_graphbreak.experiments.trial.time_limit import require_time
from jupyter_graphbreak.records.package_paths import OWN_FOLDER
from jupyter_graphbreak.records.records import StackEntry
from jupyter_graphbreak.report.cost import MemoryCost, MemoryLine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from types import FrameType

    from jupyter_graphbreak._torch_compat.profile_ranges import Activity
    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.experiments.cost.variants import Variant
    from jupyter_graphbreak.report.location import Location

    #: The entries of a stack, outermost first.
    Stack = tuple[StackEntry, ...]

_Key = TypeVar("_Key")
#: The maximum number of lines to list, and of entries of a stack to search for a line.
MAX_LINES = 20
_MAX_FRAMES = 50


def measure_memory(steady_state: SteadyState) -> MemoryCost | None:
    """Measure the memory of an eager and of a compiled call; ``None`` if the user's profiler is active."""
    peaks, saved_bytes_by_variant = [], []
    for variant in (steady_state.eager, steady_state.compiled):
        require_time()
        variant.with_backward(lambda call: call())  # compiles the backward pass
        saved_bytes = SavedBytes(variant.held_memory(), lambda _: stack_in_call(inspect.currentframe()))
        variant.with_backward(saved_bytes.observe)
        saved_bytes_by_variant.append(saved_bytes)
        try:
            peaks.append(peak_bytes(variant.with_backward(functools.partial(memory_activities, variant=variant))))
        except RuntimeError:
            return None
    lines: Counter[Location] = Counter()
    for stack, nbytes in saved_bytes_by_variant[0].by_key.items():
        if (location := steady_state.locate(stack)) is not None:
            lines[location] += nbytes
    return MemoryCost(
        eager_peak_bytes=peaks[0],
        compiled_peak_bytes=peaks[1],
        eager_saved_bytes=saved_bytes_by_variant[0].peak,
        compiled_saved_bytes=saved_bytes_by_variant[1].peak,
        lines=[MemoryLine(location, nbytes) for location, nbytes in lines.most_common(MAX_LINES)],
    )


def memory_activities(call: Callable[[], Any], variant: Variant) -> list[Activity]:
    """Make a call of a variant under the profiler, and return its activities, except memory on other devices.

    Raises
    ------
    RuntimeError
        If the user's profiler is active.
    """
    device = "cuda" if isinstance(variant.clock, CudaClock) else None
    activities = record_device_activities(call, device)
    return [
        activity for activity in activities if not activity.memory or (activity.memory == "cpu") == (device is None)
    ]


def peak_bytes(activities: Iterable[Activity]) -> int:
    """Return the peak of the memory that the activities allocate, without the memory that was allocated before them."""
    return max(itertools.accumulate((activity.nbytes for activity in activities), initial=0))


class SavedBytes(Generic[_Key]):
    """Counts the bytes of tensors that autograd keeps for backward passes.

    Memory that several tensors share counts once.

    Parameters
    ----------
    excluded_addresses : collection of int
        The addresses of memory that does not count, since the call's arguments or state keep it.
    describe : callable
        Returns a key for a tensor when an operation keeps it.

    Attributes
    ----------
    peak : int
        The most bytes that were kept at one time.
    by_key : dict
        The bytes kept at the peak, by the key of the operation that kept them first.
    """

    def __init__(self, excluded_addresses: Collection[int], describe: Callable[[torch.Tensor], _Key]) -> None:
        self._excluded_addresses = excluded_addresses
        self._describe = describe
        self._counts: Counter[int] = Counter()
        self._bytes_by_address: dict[int, tuple[_Key, int]] = {}
        self._current = self.peak = 0
        self.by_key: dict[_Key, int] = {}

    def observe(self, call: Callable[[], Any]) -> None:
        """Make a call and count the bytes that it keeps."""
        with torch.autograd.graph.saved_tensors_hooks(self._keep, _KeptTensor.unpack):
            call()
        self._note_peak()

    def _keep(self, tensor: torch.Tensor) -> _KeptTensor:
        address, key = memory_address(tensor), self._describe(tensor)
        if address is None or address in self._excluded_addresses:
            return _KeptTensor(tensor)
        if not self._counts[address]:
            nbytes = tensor.untyped_storage().nbytes()
            self._bytes_by_address[address] = key, nbytes
            self._current += nbytes
        self._counts[address] += 1
        return _KeptTensor(tensor, lambda: self._release(address))

    def _release(self, address: int) -> None:
        self._counts[address] -= 1
        if not self._counts[address]:
            self._note_peak()
            self._current -= self._bytes_by_address.pop(address)[1]

    def _note_peak(self) -> None:
        if self._current > self.peak:
            self.peak = self._current
            by_key: Counter[_Key] = Counter()
            for key, nbytes in self._bytes_by_address.values():
                by_key[key] += nbytes
            self.by_key = dict(by_key)


def stack_in_call(frame: FrameType | None) -> Stack:
    """Return the stack of a frame in a variant's call, outermost entry first, without our own frames."""
    entries: list[StackEntry] = []
    while frame is not None and len(entries) < _MAX_FRAMES and frame.f_code.co_filename != variants.__file__:
        code = frame.f_code
        if not code.co_filename.startswith(OWN_FOLDER):
            entries.append(StackEntry(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(reversed(entries))


class _KeptTensor:
    """A tensor that autograd keeps; calls a function when autograd releases it."""

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

"""Measure the memory that a call with its backward pass takes: its peak, and what is kept for the backward pass."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.profile_ranges import device_activities
from jupyter_graphbreak.experiments.cost.clock import CudaClock
from jupyter_graphbreak.experiments.trial.places import memory_address
from jupyter_graphbreak.experiments.trial.time_limit import require_time
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, package_paths
from jupyter_graphbreak.records.records import StackEntry
from jupyter_graphbreak.report.cost import MemoryCost, MemoryLine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from types import FrameType

    from jupyter_graphbreak.experiments.cost.variants import Variant
    from jupyter_graphbreak.report.location import Location

#: The maximum number of lines to list.
_MOST_LINES = 20


def measure_memory(
    eager: Variant, compiled: Variant, locate: Callable[[StackEntry], Location | None]
) -> MemoryCost | None:
    """Measure the memory of an eager and of a compiled call; ``None`` if the user's profiler is active.

    Parameters
    ----------
    eager, compiled : Variant
        The calls, in their steady state.
    locate : callable
        Returns the location in the report of a place in the code.
    """
    peaks, kept = [], []
    for variant in (eager, compiled):
        require_time()
        variant.with_backward(lambda call: call())  # compiles the backward pass
        saved = SavedBytes(variant.held_memory())
        variant.with_backward(saved.observe)
        kept.append(saved)
        try:
            peaks.append(variant.with_backward(_peak_on(variant)))
        except RuntimeError:
            return None
    lines: Counter[Location] = Counter()
    for entry, nbytes in kept[0].by_line.items():
        if (location := locate(entry)) is not None:
            lines[location] += nbytes
    return MemoryCost(
        eager_peak_bytes=peaks[0],
        compiled_peak_bytes=peaks[1],
        eager_saved_bytes=kept[0].most,
        compiled_saved_bytes=kept[1].most,
        lines=[MemoryLine(location, nbytes) for location, nbytes in lines.most_common(_MOST_LINES)],
    )


def _peak_on(variant: Variant) -> Callable[[Callable[[], Any]], int]:
    """Return a function that makes a call and returns the peak of the memory that it allocated on the call's device."""
    device = "cuda" if isinstance(variant.clock, CudaClock) else None

    def peak(call: Callable[[], Any]) -> int:
        activities = device_activities(call, device)
        sizes = (seen.nbytes for seen in activities if seen.memory and (seen.memory == "cpu") == (device is None))
        return max(itertools.accumulate(sizes, initial=0))

    return peak


class SavedBytes:
    """Counts the bytes of tensors that autograd keeps for backward passes.

    Memory that several tensors share counts once.

    Parameters
    ----------
    held : collection of int
        The addresses of memory that does not count, since it is kept anyway.

    Attributes
    ----------
    most : int
        The most bytes that were kept at a time.
    by_line : dict
        These bytes by the line whose operation kept them first.
    """

    def __init__(self, held: Collection[int]) -> None:
        self._held = held
        self._packages = package_paths()
        self._counts: Counter[int] = Counter()
        self._lines: dict[int, tuple[StackEntry, int]] = {}
        self._now = self.most = 0
        self.by_line: dict[StackEntry, int] = {}

    def observe(self, call: Callable[[], Any]) -> None:
        """Make a call and count what it keeps."""
        with torch.autograd.graph.saved_tensors_hooks(self._keep, _Kept.tensor_of):
            call()
        self._note_most()

    def _keep(self, tensor: torch.Tensor) -> _Kept:
        address = memory_address(tensor)
        if address is None or address in self._held:
            return _Kept(tensor)
        if not self._counts[address]:
            nbytes = tensor.untyped_storage().nbytes()
            self._lines[address] = self._line(inspect.currentframe()), nbytes
            self._now += nbytes
        self._counts[address] += 1
        return _Kept(tensor, lambda: self._release(address))

    def _release(self, address: int) -> None:
        self._counts[address] -= 1
        if not self._counts[address]:
            self._note_most()
            self._now -= self._lines.pop(address)[1]

    def _note_most(self) -> None:
        if self._now > self.most:
            self.most = self._now
            by_line: defaultdict[StackEntry, int] = defaultdict(int)
            for entry, nbytes in self._lines.values():
                by_line[entry] += nbytes
            self.by_line = dict(by_line)

    def _line(self, frame: FrameType | None) -> StackEntry:
        """Return the innermost line outside PyTorch, or else the innermost one."""
        entries = list(_entries(frame))
        outside = (
            entry for entry in entries if not (self._packages.module_path(entry.filename) or "").startswith("torch/")
        )
        return next(outside, entries[0])


def _entries(frame: FrameType | None) -> Iterator[StackEntry]:
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(OWN_FOLDER):
            yield StackEntry(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back


class _Kept:
    """A tensor that autograd keeps; calls a function when it no longer does."""

    def __init__(self, tensor: torch.Tensor, on_release: Callable[[], None] | None = None) -> None:
        self._tensor = tensor
        self._on_release = on_release

    def tensor_of(self) -> torch.Tensor:
        """Return the tensor."""
        return self._tensor

    def __del__(self) -> None:
        if self._on_release is not None:
            with contextlib.suppress(Exception):
                self._on_release()

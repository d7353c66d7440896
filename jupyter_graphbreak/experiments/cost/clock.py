"""Clocks for calls that run on the processor, and for calls on a CUDA device, which runs asynchronously."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Clock(Protocol):
    """Records moments during a call, and converts them to times afterwards."""

    def mark(self) -> Any:
        """Return the current moment."""

    def times_us(self, marks: Sequence[Any]) -> list[float]:
        """Return the time in microseconds from the first moment to each moment."""


class ProcessorClock:
    """The clock for a call that has done all of its work when it returns."""

    def mark(self) -> int:
        """Return the current moment."""
        return time.perf_counter_ns()

    def times_us(self, marks: Sequence[int]) -> list[float]:
        """Return the time in microseconds from the first moment to each moment."""
        return [(mark - marks[0]) / 1e3 for mark in marks]


class CudaClock:
    """The clock for a call that queues work on a CUDA device.

    A moment is an event on the device's stream, so the time between two moments includes the time that the device
    waited for the processor. The processor waits for the device only after all moments are recorded.

    Parameters
    ----------
    cuda
        An object with ``Event`` and ``synchronize``, like ``torch.cuda``.
    """

    def __init__(self, cuda: Any = torch.cuda) -> None:
        self._cuda = cuda

    def mark(self) -> Any:
        """Return the current moment."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def times_us(self, marks: Sequence[Any]) -> list[float]:
        """Wait for the device, and return the time in microseconds from the first moment to each moment."""
        self._cuda.synchronize()
        return [0.0, *(marks[0].elapsed_time(mark) * 1e3 for mark in marks[1:])]


def clock_for(tensors: Iterable[torch.Tensor]) -> Clock:
    """Return the clock for a call that uses these tensors."""
    return CudaClock() if any(tensor.is_cuda for tensor in tensors) else ProcessorClock()

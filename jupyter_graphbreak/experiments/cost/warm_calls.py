"""Time the calls that a run makes of compiled callables, once they no longer compile anything."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.compiled import compilation_count
from jupyter_graphbreak._torch_compat.hooks.entries import watch_calls
from jupyter_graphbreak.experiments.cost.clock import CudaClock, ProcessorClock
from jupyter_graphbreak.experiments.cost.timing import spread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from jupyter_graphbreak.experiments.cost.clock import Clock
    from jupyter_graphbreak.report.cost import Spread

#: Fewer calls are not reported.
_MIN_CALLS = 5
#: Only the last calls of a longer loop are used.
_MAX_CALLS = 10_000


class _Begun(NamedTuple):
    """The start of a call: the number of compilations so far, and the moment."""

    compilations: int | None
    mark: Any


class WarmCalls:
    """Times each call that compiles nothing."""

    def __init__(self) -> None:
        self._clock: Clock = (
            CudaClock() if torch.cuda.is_available() and torch.cuda.is_initialized() else ProcessorClock()
        )
        self._begun: dict[FrameType, _Begun] = {}
        self._finished: defaultdict[int, list[tuple[Any, Any]]] = defaultdict(list)

    def note_edge(self, frame: FrameType, wrapped: int) -> None:
        """Record that a call begins or ends."""
        begun = self._begun.pop(frame, None)
        if begun is None:
            self._begun[frame] = _Begun(compilation_count(), self._clock.mark())
            return
        now = self._clock.mark()
        if begun.compilations == compilation_count():
            finished = self._finished[wrapped]
            finished.append((begun.mark, now))
            del finished[:-_MAX_CALLS]
        else:
            self._finished[wrapped].clear()  # earlier calls were not the steady state

    def clear(self) -> None:
        """Discard the calls that did not end."""
        self._begun.clear()

    def spread_of(self, wrapped: int | None) -> Spread | None:
        """Return the times of a callable's calls, ``None`` if there were too few."""
        finished = self._finished.get(wrapped, []) if wrapped is not None else []
        if len(finished) < _MIN_CALLS:
            return None
        return spread([self._clock.times_us(pair)[-1] for pair in finished])


@contextlib.contextmanager
def timed_calls() -> Iterator[WarmCalls]:
    """Time the calls of compiled callables while the context is open."""
    warm = WarmCalls()
    try:
        with watch_calls(warm.note_edge, lambda _: None, lambda _: None):
            yield warm
    finally:
        warm.clear()

"""Time the calls of compiled callables as a run makes them, once nothing is compiled in them any more."""

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

#: Fewer calls are no loop.
_FEWEST = 5
#: Of a longer loop the last calls count.
_MOST = 10_000


class _Begun(NamedTuple):
    """A call that has begun: how many compilations there had been, and the moment."""

    compilations: int | None
    mark: Any


class WarmCalls:
    """Takes the time of each call that compiles nothing."""

    def __init__(self) -> None:
        self._clock: Clock = (
            CudaClock() if torch.cuda.is_available() and torch.cuda.is_initialized() else ProcessorClock()
        )
        self._begun: dict[FrameType, _Begun] = {}
        self._made: defaultdict[int, list[tuple[Any, Any]]] = defaultdict(list)

    def edge(self, frame: FrameType, wrapped: int) -> None:
        """Note that a call begins or ends."""
        begun = self._begun.pop(frame, None)
        if begun is None:
            self._begun[frame] = _Begun(compilation_count(), self._clock.mark())
            return
        now = self._clock.mark()
        if begun.compilations == compilation_count():
            made = self._made[wrapped]
            made.append((begun.mark, now))
            del made[:-_MOST]
        else:
            self._made[wrapped].clear()  # what came before it was not the steady state

    def end(self) -> None:
        """Let go of the calls that did not end."""
        self._begun.clear()

    def spread_of(self, wrapped: int | None) -> Spread | None:
        """Return what the calls of a callable took, ``None`` where they were too few."""
        made = self._made.get(wrapped, []) if wrapped is not None else []
        if len(made) < _FEWEST:
            return None
        return spread([self._clock.times_us(pair)[-1] for pair in made])


@contextlib.contextmanager
def timed_calls() -> Iterator[WarmCalls]:
    """Time the calls that are made while the context is open."""
    warm = WarmCalls()
    try:
        with watch_calls(warm.edge, lambda _: None, lambda _: None):
            yield warm
    finally:
        warm.end()

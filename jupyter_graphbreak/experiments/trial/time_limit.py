"""A time limit for runs, checked before each call and each step of compiling, when a run can be stopped cleanly."""

from __future__ import annotations

import contextlib
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.compiled import before_each_step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_END: ContextVar[float] = ContextVar("graphbreak_end", default=float("inf"))


class TimeUpError(BaseException):
    """The time limit has passed. Not an ``Exception``, so that the function in a trial does not catch it."""


@contextlib.contextmanager
def limit_time(end: float) -> Iterator[None]:
    """End runs at a time of :func:`time.monotonic` while the context is open; an earlier outer limit still applies.

    Raises
    ------
    TimeUpError
        Before a call, or a step of a compilation, that would start later.
    """
    token = _END.set(min(end, _END.get()))
    try:
        yield
    finally:
        _END.reset(token)


def seconds_left() -> float:
    """Return how many seconds remain until the time limit."""
    return _END.get() - time.monotonic()


def limit_compilations() -> AbstractContextManager[None]:
    """Return a context in which compilations end at the time limit."""
    return before_each_step(require_time)


def require_time() -> None:
    """Raise :class:`TimeUpError` if the time limit has passed."""
    if seconds_left() <= 0:
        raise TimeUpError


class Patience:
    """A time limit for trying further inputs, counted from now.

    The limit applies to the processor time of this thread, so that the number of inputs tried does not depend on other
    programs. A longer limit of wall-clock time applies to functions that wait.

    Parameters
    ----------
    seconds : float
        The processor time.
    wall_clock : float
        The maximum wall-clock time, by default five times the processor time.
    """

    def __init__(self, seconds: float, wall_clock: float = float("inf")) -> None:
        self._processor_end = time.thread_time() + seconds
        self._wall_clock_end = time.monotonic() + min(wall_clock, _WALL_CLOCK_FACTOR * seconds)

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.thread_time() > self._processor_end or self.is_wall_clock_over

    @property
    def is_wall_clock_over(self) -> bool:
        """Whether the wall-clock time is up: the function waits, or other programs use the processor."""
        return time.monotonic() > self._wall_clock_end


#: The limit of wall-clock time, as a multiple of the limit of processor time.
_WALL_CLOCK_FACTOR = 5.0

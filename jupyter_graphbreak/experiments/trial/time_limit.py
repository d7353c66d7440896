"""A time limit for runs, checked before each call and each step of a compilation, when a run can be stopped cleanly."""

from __future__ import annotations

import contextlib
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from jupyter_graphbreak._torch_compat.compiled import call_before_compilation_steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

#: The kinds of runs that cannot be stopped: a call to the function, and its backward pass.
RunKind = Literal["call", "backward"]


@dataclass
class _RunCosts:
    """The duration of the shortest run of each kind, and the number of compilation steps so far."""

    shortest_s: dict[RunKind, float] = field(default_factory=dict)
    step_count: int = 0


@dataclass(frozen=True)
class _TimeLimit:
    """The deadline as a :func:`time.monotonic` time, and the costs of all runs under the outermost limit."""

    deadline: float = float("inf")
    run_costs: _RunCosts = field(default_factory=_RunCosts)


_TIME_LIMIT: ContextVar[_TimeLimit | None] = ContextVar("graphbreak_time_limit", default=None)


class TimeUpError(BaseException):
    """The time limit has passed. This is not an ``Exception``, so that the function in a trial does not catch it."""


@contextlib.contextmanager
def limit_time(deadline: float) -> Iterator[None]:
    """Stop runs at a :func:`time.monotonic` time, or at an earlier outer limit, while the context is open.

    A TimeUpError is raised before a call or a compilation step that would start later.
    """
    outer_limit = _TIME_LIMIT.get()
    token = _TIME_LIMIT.set(
        _TimeLimit(deadline)
        if outer_limit is None
        else _TimeLimit(min(deadline, outer_limit.deadline), outer_limit.run_costs)
    )
    try:
        yield
    finally:
        _TIME_LIMIT.reset(token)


def seconds_left() -> float:
    """Return the number of seconds that remain until the time limit."""
    limit = _TIME_LIMIT.get()
    return limit.deadline - time.monotonic() if limit is not None else float("inf")


def limit_compilations() -> AbstractContextManager[None]:
    """Return a context in which compilations end at the time limit."""
    return call_before_compilation_steps(_note_compilation_step)


def _note_compilation_step() -> None:
    if (limit := _TIME_LIMIT.get()) is not None:
        limit.run_costs.step_count += 1
    require_time()


def require_time(kind: RunKind | None = None) -> None:
    """Raise :class:`TimeUpError` if the time limit has passed, or if too little time is left for a run of a kind."""
    limit = _TIME_LIMIT.get()
    if limit is not None and seconds_left() <= (limit.run_costs.shortest_s.get(kind, 0.0) if kind is not None else 0.0):
        raise TimeUpError


@contextlib.contextmanager
def measure_run(kind: RunKind) -> Iterator[None]:
    """Allow a run only if there is time for the shortest one of its kind so far, and measure how long it takes.

    The time of a run that compiles something is ignored. A TimeUpError is raised before a run that would end too late.
    """
    require_time(kind)
    limit = _TIME_LIMIT.get()
    steps, start = limit.run_costs.step_count if limit is not None else 0, time.monotonic()
    yield
    if limit is not None and limit.run_costs.step_count == steps:
        seconds = time.monotonic() - start
        limit.run_costs.shortest_s[kind] = min(seconds, limit.run_costs.shortest_s.get(kind, seconds))


class TimeBudget:
    """A time limit for trying further inputs, counted from the creation of the object.

    The limit applies to the processor time of this thread, so the number of inputs does not depend on other programs. A
    longer wall-clock limit, at most five times the processor time, applies to functions that wait.
    """

    def __init__(self, seconds: float, wall_clock: float = float("inf")) -> None:
        self._processor_deadline = time.thread_time() + seconds
        self._wall_clock_deadline = time.monotonic() + min(wall_clock, _WALL_CLOCK_FACTOR * seconds)

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.thread_time() > self._processor_deadline or self.is_wall_clock_over

    @property
    def is_wall_clock_over(self) -> bool:
        """Whether the wall-clock time is up, because the function waits or other programs use the processor."""
        return time.monotonic() > self._wall_clock_deadline


#: The wall-clock limit, as a multiple of the processor time limit.
_WALL_CLOCK_FACTOR = 5.0

"""When runs are to end: checked before each compilation and each call, where a run can be left in good order."""

from __future__ import annotations

import contextlib
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.compiled import before_each_compilation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_END: ContextVar[float] = ContextVar("graphbreak_end", default=float("inf"))


class TimeUpError(BaseException):
    """The time for runs is up. This is no Exception, so that no function under trial catches it."""


@contextlib.contextmanager
def time_limited(end: float) -> Iterator[None]:
    """End runs at a moment of :func:`time.monotonic` while the context is open, or before, if they are to end then.

    Raises
    ------
    TimeUpError
        When something is to be compiled or called after that.
    """
    token = _END.set(min(end, _END.get()))
    try:
        yield
    finally:
        _END.reset(token)


def seconds_left() -> float:
    """Return for how many seconds runs may go on."""
    return _END.get() - time.monotonic()


def compilations_limited() -> AbstractContextManager[None]:
    """Return a context in which no compilation begins when the time is up."""
    return before_each_compilation(require_time)


def require_time() -> None:
    """Raise :class:`TimeUpError` if the time is up."""
    if seconds_left() <= 0:
        raise TimeUpError

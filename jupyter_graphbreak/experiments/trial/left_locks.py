"""Refuse code that leaves a lock locked: its next run would wait forever."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.trial.process_state import find_changing_line
from jupyter_graphbreak.experiments.trial.side_effects import ObservedEffect, TrialStoppedError
from jupyter_graphbreak.experiments.trial.state_parts import StateChange
from jupyter_graphbreak.recording.targets import own_codes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LEFT = StateChange("leaves a lock locked", frozenset({"acquire", "__enter__"}), frozenset())


@contextlib.contextmanager
def released(locks: Sequence[Any], call: Any) -> Iterator[None]:
    """Release copied locks, which are free when the context begins, if code in the context leaves them locked.

    Parameters
    ----------
    locks : sequence of Lock or RLock
    call : callable
        The callable that runs; its code is searched for the line that acquires a lock.

    Raises
    ------
    TrialStoppedError
        If a lock was left locked.
    """
    try:
        yield
    finally:
        left = [lock for lock in locks if _release(lock)]
    if left:
        raise TrialStoppedError(ObservedEffect("state", _LEFT.what, find_changing_line(_LEFT, own_codes(call), {})))


def _release(lock: Any) -> bool:
    """Release a lock that only this thread uses; return whether it was locked."""
    is_locked = lock.locked if isinstance(lock, type(threading.Lock())) else lock._is_owned  # noqa: SLF001 - until 3.14
    was_locked: bool = is_locked()
    while is_locked():
        lock.release()
    return was_locked

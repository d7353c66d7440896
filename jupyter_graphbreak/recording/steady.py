"""Open and close what a run needs so that nothing is left behind, whatever fails or is interrupted on the way."""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_graphbreak.faults import shielded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_T = TypeVar("_T")


class GuardedExitStack:
    """Contexts that are entered one after the other and left together, by closing :attr:`contexts`.

    Whatever ends the leaving of one, an interrupt for instance, the others are left.

    Parameters
    ----------
    on_fault : callable
        Told what failed and the error; neither entering nor leaving raises it.
    """

    def __init__(self, on_fault: Callable[[str, Exception], None]) -> None:
        self._on_fault = on_fault
        self.contexts = contextlib.ExitStack()
        self.complete = True

    def enter(self, what: str, make: Callable[[], AbstractContextManager[_T]], default: _T) -> _T:
        """Make a context and enter it.

        Parameters
        ----------
        what : str
            What it is for, for the note about a fault.
        make : callable
            Returns the context.
        default
            What to return where it cannot be entered; ``complete`` is false then.
        """
        try:
            context = make()
            value = context.__enter__()
        except Exception as fault:  # noqa: BLE001 - a fault of ours is no reason not to run the user's code
            self.complete = False
            self._on_fault(what, fault)
            return default
        self.undo_last(what, functools.partial(context.__exit__, None, None, None))
        return value

    def undo_last(self, what: str, undo: Callable[[], object]) -> None:
        """Call a function when the contexts are left, before those that were entered earlier."""
        self.contexts.callback(shielded(what, undo, lambda: None, self._on_fault))


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let an interrupt wait until the context ends; a second one is obeyed at once.

    Only the main thread is interrupted, and only where interrupts are Python's to handle.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    waiting: list[int] = []

    def wait(number: int, frame: Any) -> None:
        waiting.append(number)
        if len(waiting) > 1:
            handler(number, frame)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if len(waiting) == 1:
            handler(signal.SIGINT, None)

"""Enter and leave the contexts of a run so that nothing is left behind, even after errors and interrupts."""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_graphbreak.faults import with_fallback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_T = TypeVar("_T")


class GuardedExitStack:
    """Contexts that are entered one by one and left together, by closing :attr:`contexts`.

    If closing one context fails or is interrupted, the others are still closed. ``on_fault`` receives a description of
    a failed step and the error, which is then not raised.
    """

    def __init__(self, on_fault: Callable[[str, Exception], None]) -> None:
        self._on_fault = on_fault
        self.contexts = contextlib.ExitStack()
        self.is_complete = True

    def enter(self, activity: str, make_context: Callable[[], AbstractContextManager[_T]], default: _T) -> _T:
        """Create and enter the context of an activity; if that fails, return ``default``, and note it."""
        try:
            context = make_context()
            value = context.__enter__()
        except Exception as fault:  # noqa: BLE001 - an internal error must not prevent the user's code from running
            self.is_complete = False
            self._on_fault(activity, fault)
            return default
        self.undo_at_end(activity, functools.partial(context.__exit__, None, None, None))
        return value

    def undo_at_end(self, activity: str, undo: Callable[[], object]) -> None:
        """Call a function when the contexts are left, before leaving the contexts entered earlier."""
        self.contexts.callback(with_fallback(activity, undo, lambda: None, self._on_fault))


#: The attribute of our handler that refers to the handler it delays.
DEFERRED_HANDLER_ATTRIBUTE = "graphbreak_deferred"


@contextlib.contextmanager
def defer_interrupts() -> Iterator[None]:
    """Delay an interrupt until the context ends; a second interrupt takes effect at once.

    This only applies to the main thread, and only if Python handles interrupts.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    delayed_signals: list[int] = []

    def delay(signal_number: int, frame: Any) -> None:
        delayed_signals.append(signal_number)
        if len(delayed_signals) > 1:
            handler(signal_number, frame)

    vars(delay)[DEFERRED_HANDLER_ATTRIBUTE] = handler
    signal.signal(signal.SIGINT, delay)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if len(delayed_signals) == 1:
            handler(signal.SIGINT, None)

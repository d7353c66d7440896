"""The ``error_on_graph_break`` scopes that are open on each thread, as one watch sees them open and close."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.records.additions import OpenScope
    from jupyter_graphbreak.records.records import StackEntry

#: Where each scope object was made; kept between runs, for functions that an earlier cell decorated.
SITES: weakref.WeakKeyDictionary[Any, StackEntry] = weakref.WeakKeyDictionary()

_KEPT = "graphbreak_scopes"


class Scopes(threading.local):
    """The scopes that are open on a thread: those that Python has entered, then those being traced.

    The setting itself is one global of torch; which scope set it is known only to who watches scopes open and close.
    """

    def __init__(self) -> None:
        self._entered: list[tuple[int, OpenScope]] = []  # each with the id() of its scope object
        self._last: list[OpenScope] = []

    @property
    def entered(self) -> list[OpenScope]:
        """The scopes that Python has entered, outermost first."""
        return [scope for _, scope in self._entered]

    def begin_within(self, others: Iterable[Scopes]) -> None:
        """Begin with the scopes of this thread that other watches know."""
        self._entered = max((list(other._entered) for other in others), key=len, default=[])

    def enter(self, manager: Any, scope: OpenScope) -> None:
        """Note that Python has entered a scope."""
        self._entered.append((id(manager), scope))

    def leave(self, manager: Any) -> None:
        """Note that Python has left a scope."""
        index = next((i for i in reversed(range(len(self._entered))) if self._entered[i][0] == id(manager)), None)
        if index is not None:
            del self._entered[index]

    def open_traced(self, tracer: Any, variable: Any, scope: OpenScope) -> None:
        """Note that the tracer has entered a scope."""
        self._trace(tracer, [*self._traced(tracer), (id(variable), scope)])
        self._last = self.chain(tracer)

    def close_traced(self, tracer: Any, variable: Any) -> None:
        """Note that the tracer has left a scope."""
        self._trace(tracer, [traced for traced in self._traced(tracer) if traced[0] != id(variable)])
        self._last = self.chain(tracer)

    def begin_trace(self) -> None:
        """Close what the last frame left open: another is about to be traced."""
        self._last = self.entered

    def chain(self, tracer: Any) -> list[OpenScope]:
        """Return the open scopes, outermost first."""
        return [*self.entered, *(scope for _, scope in self._traced(tracer))]

    def last_chain(self) -> list[OpenScope]:
        """Return the scopes that were open when tracing last said so; for an error that has lost its tracer."""
        return list(self._last)

    def _traced(self, tracer: Any) -> list[tuple[int, OpenScope]]:
        """Return the scopes being traced; each attempt to trace a frame has an output of its own, which keeps them."""
        kept: dict[int, list[tuple[int, OpenScope]]] = getattr(getattr(tracer, "output", None), _KEPT, {})
        return kept.get(id(self), [])

    def _trace(self, tracer: Any, scopes: list[tuple[int, OpenScope]]) -> None:
        vars(tracer.output).setdefault(_KEPT, {})[id(self)] = scopes

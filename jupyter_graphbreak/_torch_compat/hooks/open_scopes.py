"""Keep track of the open ``error_on_graph_break`` scopes of each thread, as one watch sees them."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.records.additions import OpenScope
    from jupyter_graphbreak.records.records import StackEntry

#: The location at which each scope object was created. It outlives a run, for functions that an earlier cell decorated.
CREATION_SITES: weakref.WeakKeyDictionary[Any, StackEntry] = weakref.WeakKeyDictionary()

_OUTPUT_ATTRIBUTE = "graphbreak_scopes"


class ThreadScopes(threading.local):
    """The open scopes of a thread: those that Python has entered, then those that are being traced.

    The setting is a single global torch variable, so only watching the scopes shows which of them set it.
    """

    def __init__(self) -> None:
        self._entered_scopes: list[tuple[int, OpenScope]] = []  # each with the id() of its scope object
        self._last_scopes: list[OpenScope] = []

    @property
    def entered_scopes(self) -> list[OpenScope]:
        """The scopes that Python has entered, outermost first."""
        return [scope for _, scope in self._entered_scopes]

    def inherit_scopes(self, other_watches: Iterable[ThreadScopes]) -> None:
        """Start with the scopes of this thread that other watches know."""
        self._entered_scopes = max((list(other._entered_scopes) for other in other_watches), key=len, default=[])

    def enter(self, manager: Any, scope: OpenScope) -> None:
        """Note that Python has entered a scope."""
        self._entered_scopes.append((id(manager), scope))

    def leave(self, manager: Any) -> None:
        """Note that Python has left a scope."""
        index = next(
            (i for i in reversed(range(len(self._entered_scopes))) if self._entered_scopes[i][0] == id(manager)), None
        )
        if index is not None:
            del self._entered_scopes[index]

    def open_traced(self, tracer: Any, variable: Any, scope: OpenScope) -> None:
        """Note that the tracer has entered a scope."""
        self._set_traced(tracer, [*self._traced_scopes(tracer), (id(variable), scope)])
        self._last_scopes = self.open_scopes(tracer)

    def close_traced(self, tracer: Any, variable: Any) -> None:
        """Note that the tracer has left a scope."""
        self._set_traced(tracer, [scope for scope in self._traced_scopes(tracer) if scope[0] != id(variable)])
        self._last_scopes = self.open_scopes(tracer)

    def begin_trace(self) -> None:
        """Forget the traced scopes of the last frame, before the next one is traced."""
        self._last_scopes = self.entered_scopes

    def open_scopes(self, tracer: Any) -> list[OpenScope]:
        """Return the open scopes, outermost first."""
        return [*self.entered_scopes, *(scope for _, scope in self._traced_scopes(tracer))]

    def last_open_scopes(self) -> list[OpenScope]:
        """Return the last known open scopes, for an error that has lost its tracer."""
        return list(self._last_scopes)

    def _traced_scopes(self, tracer: Any) -> list[tuple[int, OpenScope]]:
        """Return the traced scopes, which are stored in the output of each attempt to trace a frame."""
        output = getattr(tracer, "output", None)
        scopes_by_watch: dict[int, list[tuple[int, OpenScope]]] = getattr(output, _OUTPUT_ATTRIBUTE, {})
        return scopes_by_watch.get(id(self), [])

    def _set_traced(self, tracer: Any, scopes: list[tuple[int, OpenScope]]) -> None:
        vars(tracer.output).setdefault(_OUTPUT_ATTRIBUTE, {})[id(self)] = scopes

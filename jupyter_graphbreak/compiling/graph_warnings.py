"""Attribute warnings from a graph's operations to the program's own lines instead of the graph's code."""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import redirected_here
from jupyter_graphbreak.compiling.tracebacks import places_in_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


@contextlib.contextmanager
def warnings_at_own_lines() -> Iterator[None]:
    """Show warnings from this thread's graphs at the lines that the operations come from."""
    with redirected_here(warnings, "_showwarnmsg", _at_own_line):
        yield


def _at_own_line(message: Any) -> tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]] | None:
    """Return the call that warns at the line of an operation; ``None`` if the warning is not from a graph."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the graph that warns
    while frame is not None and frame.f_code.co_filename != message.filename:
        frame = frame.f_back
    places = places_in_graph(frame, message.lineno) if frame is not None else []
    outer = frame.f_back if frame is not None and places else None
    while outer is not None and outer.f_code.co_filename != places[-1][0]:
        outer = outer.f_back
    if outer is None:
        return None
    filename, line, _ = places[-1]
    scope = outer.f_globals
    registry = scope.setdefault("__warningregistry__", {})
    name = scope.get("__name__", "<unknown>")
    return warnings.warn_explicit, (message.message, message.category, filename, line, name, registry), {}

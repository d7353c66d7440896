"""The options for compiling code that the user did not compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak.recording.targets import is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable


class CompileOptions(msgspec.Struct, frozen=True):
    """The arguments for ``torch.compile`` that the user has specified.

    Without a backend and a mode, the backend is ``eager``: it has the same graphs and breaks as any other backend and
    the same results as eager code, and it generates no code, so compiling is fast. With ``eager_random_numbers``,
    Inductor draws the same random numbers as eager code, but its code is slower.
    """

    backend: str | None = None
    mode: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None
    eager_random_numbers: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for ``torch.compile``."""
        options: dict[str, Any] = {"fullgraph": self.fullgraph, "dynamic": self.dynamic}
        if self.mode is not None:
            options["mode"] = self.mode
        backend = self.backend or (None if self.mode else "eager")
        if backend is not None:
            options["backend"] = backend
        return options


def ensure_compiled(fn: Callable[..., Any], options: CompileOptions) -> Callable[..., Any]:
    """Return a compiled version of a function, or the function itself if it is already compiled."""
    import torch

    if is_compiled(fn):
        return fn
    compiled: Callable[..., Any] = torch.compile(fn, **options.arguments())
    return compiled

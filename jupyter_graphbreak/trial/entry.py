"""An entry: a compiled callable that user code called, with copies of what it was called with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.trial.inputs import Arguments


@dataclass(frozen=True)
class Entry:
    """A callable as it was before it ran, so that it can run again.

    Parameters
    ----------
    function : str
        Its qualified name.
    frame : str or None
        The id of its first frame in the report of the run; ``None`` where it was not taken from a run.
    call : callable
        The function, method or module itself, uncompiled. What it may change is copied: running a
        :class:`~jupyter_graphbreak.trial.subject.Subject` of it is free of consequences.
    arguments : Arguments
        Copies of the arguments of its first call.
    backend : str or callable
        What it was compiled with.
    dynamic : bool or None
        As given to ``torch.compile``.
    """

    function: str
    frame: str | None
    call: Callable[..., Any]
    arguments: Arguments
    backend: str | Callable[..., Any] = "eager"
    dynamic: bool | None = None

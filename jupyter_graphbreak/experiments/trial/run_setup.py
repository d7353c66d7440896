"""What all runs of one entry share: the modes of its call, and the memory of its large tensors."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.call_modes import DEFAULT_MODES, CallModes
from jupyter_graphbreak.experiments.trial.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyter_graphbreak.experiments.trial.memory import Twin


@dataclass(frozen=True)
class RunSetup:
    """The modes in which runs are made, and the memory that their copies share."""

    modes: CallModes = field(default_factory=CallModes.now)
    memory: Memory = field(default_factory=Memory)


_CURRENT: ContextVar[RunSetup | None] = ContextVar("graphbreak_run_setup", default=None)


def current_setup() -> RunSetup:
    """Return the setup of the runs that are being made; without one the modes that are in force, and no memory."""
    return _CURRENT.get() or RunSetup()


@contextlib.contextmanager
def runs_set_up(modes: CallModes, twins: Iterable[Twin] = ()) -> Iterator[None]:
    """Make all runs in the same modes while the context is open; what is done between them is done in the usual ones.

    Within another such context this does nothing.

    Parameters
    ----------
    modes : CallModes
        Those of the call that runs repeat.
    twins : iterable of Twin
        Memory of its tensors that was itself copied.
    """
    if _CURRENT.get() is not None:
        yield
        return
    setup = RunSetup(modes, Memory(twins))
    token = _CURRENT.set(setup)
    try:
        with DEFAULT_MODES.entered():
            yield
    finally:
        setup.memory.restore()
        _CURRENT.reset(token)

"""The setup that all runs of one entry share: the modes of its call, and the memory of its large tensors."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.call_modes import DEFAULT_MODES, CallModes
from jupyter_graphbreak.experiments.trial.memory import SharedMemory
from jupyter_graphbreak.experiments.trial.shared_names import NameSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyter_graphbreak.experiments.trial.memory import StorageCopy


@dataclass(frozen=True)
class RunSetup:
    """The modes of runs, the memory that their copies share, and the original values of names."""

    modes: CallModes = field(default_factory=CallModes.now)
    memory: SharedMemory = field(default_factory=SharedMemory)
    name_snapshot: NameSnapshot = field(default_factory=NameSnapshot)


_CURRENT: ContextVar[RunSetup | None] = ContextVar("graphbreak_run_setup", default=None)


def current_setup() -> RunSetup:
    """Return the active setup or, without one, a setup with the current modes and no shared memory."""
    return _CURRENT.get() or RunSetup()


@contextlib.contextmanager
def share_run_setup(
    modes: CallModes, storage_copies: Iterable[StorageCopy] = (), name_snapshot: NameSnapshot | None = None
) -> Iterator[None]:
    """Use the same modes and memory for all runs while the context is open.

    Code between runs uses the default modes. A nested context has no effect.

    Parameters
    ----------
    storage_copies : iterable of StorageCopy
        The copies of large memory from before the call.
    name_snapshot : NameSnapshot, optional
        The values that names referred to when the call started.
    """
    if _CURRENT.get() is not None:
        yield
        return
    setup = RunSetup(modes, SharedMemory(storage_copies), name_snapshot or NameSnapshot())
    token = _CURRENT.set(setup)
    try:
        with DEFAULT_MODES.apply():
            yield
    finally:
        setup.memory.restore()
        setup.memory.return_free_memory()
        _CURRENT.reset(token)

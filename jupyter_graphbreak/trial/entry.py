"""The entries of a run: compiled callables that user code called, with copies from before they ran."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.hooks.entry_hooks import watch_entries
from jupyter_graphbreak._torch_compat.isolation import eager_semantics, new_globals_readable
from jupyter_graphbreak._torch_compat.separate_cache import separate_cache
from jupyter_graphbreak.recording.targets import own_codes, reached
from jupyter_graphbreak.trial.guard import effects_seen, state_effect
from jupyter_graphbreak.trial.inputs import Arguments
from jupyter_graphbreak.trial.process_state import ProcessState
from jupyter_graphbreak.trial.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak._torch_compat.hooks.entry_hooks import EnteredCall
    from jupyter_graphbreak.trial.guard import SeenEffects
    from jupyter_graphbreak.trial.side_effects import SeenEffect

#: The most that copies may take, as a share of free memory.
_SHARE = 0.25


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
    compiles_itself : bool
        Whether it is called as it stands, since it compiles a function in it.
    wrapped : int or None
        What identifies the callable among those that the run called.
    """

    function: str
    frame: str | None
    call: Callable[..., Any]
    arguments: Arguments
    backend: str | Callable[..., Any] = "eager"
    dynamic: bool | None = None
    compiles_itself: bool = False
    wrapped: int | None = None


class KeptEntries:
    """The entries of a run, in the order in which they were compiled.

    Parameters
    ----------
    limit : int or None
        The most bytes that copies may take; ``None`` stands for a quarter of the memory that is free.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.entries: list[Entry] = []
        #: What was not kept and why, in sentences.
        self.left_out: list[str] = []
        #: What was seen to happen outside of the objects that are copied: no entry that does it is kept.
        self.effects: list[SeenEffect] = []
        self._states: list[tuple[Entry, ProcessState]] = []
        self._limit = limit
        self._taken = 0

    def take(self, entered: EnteredCall) -> None:
        """Copy an entry, where there is room for it."""
        name = name_of(entered.call)
        size = _size(entered)
        if self._limit is None:
            self._limit = copies_limit()
        if self._taken + size > self._limit:
            self.left_out.append(
                f"{name} was not copied: its arguments and state take {_in_words(size)}, and "
                f"{_in_words(self._limit - self._taken)} of the limit are left. Nothing was tried for it."
            )
            return
        self._taken += size
        with torch.no_grad():
            given = Arguments(*entered.args, **entered.kwargs)
            subject = Subject(entered.call, given)
        if subject.shared:
            self.left_out.append(
                f"Nothing was tried for {name}: {', '.join(subject.shared)} cannot be copied, and runs would change it."
            )
            return
        arguments = subject.arguments or given
        self.entries.append(
            Entry(
                name,
                entered.frame,
                subject.call,
                arguments,
                entered.backend,
                entered.dynamic,
                wrapped=entered.wrapped,
            )
        )
        self._states.append((self.entries[-1], ProcessState()))

    def leave_out(self, entry: Entry, effect: SeenEffect) -> None:
        """Leave out an entry whose first trial was stopped before it had an effect."""
        self.entries = [kept for kept in self.entries if kept is not entry]
        self.effects.append(effect)

    def leave_out_effects(self, seen: SeenEffects) -> None:
        """Leave out the entries that were seen to do something that no copy keeps to itself."""
        self.effects += [effect for _, effect in seen.seen]
        refused = {wrapped for within, _ in seen.seen for wrapped in within}
        for entry, before in self._states:
            changed = state_effect(before.changes(), [entry.call], seen.lines)
            if changed is not None:
                self.effects.append(changed)
            if changed is not None or entry.wrapped in refused:
                self.entries = [kept for kept in self.entries if kept is not entry]
        self._states.clear()


@contextlib.contextmanager
def kept_entries(limit: int | None = None) -> Iterator[KeptEntries]:
    """Keep the entries that are compiled while the context is open.

    Parameters
    ----------
    limit : int or None
        The most bytes that copies may take; ``None`` stands for a quarter of the memory that is free.
    """
    kept = KeptEntries(limit)
    faults: list[str] = []

    def emit(addition: object) -> None:
        faults.append(getattr(addition, "message", type(addition).__name__))

    with effects_seen() as seen, watch_entries(kept.take, emit, lambda _: None):
        try:
            yield kept
        finally:
            kept.leave_out_effects(seen)
    kept.left_out += [f"An entry could not be copied ({fault})." for fault in faults]


@contextlib.contextmanager
def compiling_anew(call: Any) -> Iterator[None]:
    """Compile a copied callable as in its run, apart from what Dynamo holds of it.

    Parameters
    ----------
    call : callable
        A function, a method or a module; or a cell that the magic compiled as one function, for which Dynamo acts as in
        the cell's own run.
    """
    with contextlib.ExitStack() as opened:
        opened.enter_context(separate_cache(own_codes(call)))
        if is_cell(call):
            for context in (eager_semantics, new_globals_readable):
                opened.enter_context(context())
        yield


def is_cell(call: Any) -> bool:
    """Whether a callable is a cell that was made into one function."""
    code = getattr(call, "__code__", None)
    return code is not None and code.co_name == "<module>"


def name_of(call: Any) -> str:
    """Return what a person calls a function, a method, a module or a partial."""
    call = getattr(call, "func", call)
    name = getattr(call, "__qualname__" if hasattr(call, "__code__") else "__name__", type(call).__name__)
    return str(name).rpartition("<locals>.")[2]


def _size(entered: EnteredCall) -> int:
    tensors: dict[int, torch.Tensor] = {}

    def add(value: Any) -> None:
        match value:
            case torch.Tensor():
                tensors[id(value)] = value
            case torch.nn.Module():
                tensors.update((id(tensor), tensor) for tensor in (*value.parameters(), *value.buffers()))
            case dict():
                for item in value.values():
                    add(item)
            case list() | tuple():
                for item in value:
                    add(item)

    for value in (entered.args, entered.kwargs, *reached(entered.call, *entered.args)):
        add(value)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def copies_limit() -> int:
    """Return the most bytes that copies may take now: a quarter of the memory that is free."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system: then 4 GiB are supposed
        free = 4 << 30
    return int(free * _SHARE)


def _in_words(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"

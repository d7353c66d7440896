"""The entries of a run: compiled callables that user code called, with copies from before they ran."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.call_modes import CallModes
from jupyter_graphbreak._torch_compat.hooks.entries import watch_entries
from jupyter_graphbreak._torch_compat.isolation import eager_semantics, readable_new_globals
from jupyter_graphbreak._torch_compat.separate_cache import separate_cache
from jupyter_graphbreak.experiments.trial.guard import effects_seen, state_effect
from jupyter_graphbreak.experiments.trial.inputs import Arguments
from jupyter_graphbreak.experiments.trial.memory import GROWTH, KeptMemory, in_words, memory_limit
from jupyter_graphbreak.experiments.trial.process_state import SETS_COMPILER, ProcessState
from jupyter_graphbreak.experiments.trial.run_setup import runs_set_up
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.time_limit import compilations_limited
from jupyter_graphbreak.recording.targets import own_codes, reached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from jupyter_graphbreak._torch_compat.hooks.entries import EnteredCall
    from jupyter_graphbreak.experiments.trial.guard import SeenEffects
    from jupyter_graphbreak.experiments.trial.memory import Twin
    from jupyter_graphbreak.experiments.trial.side_effects import SeenEffect

#: Of calls that only use code which was compiled for others so many are kept.
_MOST_REUSING = 16
#: How deep in containers tensors are looked for.
_DEEPEST = 6


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
        :class:`~jupyter_graphbreak.experiments.trial.subject.Subject` of it is free of consequences.
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
    modes : CallModes
        The modes of its call.
    twins : tuple of Twin
        The large memory of its copies, and what that was copied from.
    reuses : bool
        Whether it used code that was compiled for another entry.
    """

    function: str
    frame: str | None
    call: Callable[..., Any]
    arguments: Arguments
    backend: str | Callable[..., Any] = "eager"
    dynamic: bool | None = None
    compiles_itself: bool = False
    wrapped: int | None = None
    modes: CallModes = field(default_factory=CallModes.now)
    twins: tuple[Twin, ...] = ()
    reuses: bool = False

    def set_up(self) -> AbstractContextManager[None]:
        """Return a context in which runs are made in the modes of the entry, on memory that they share."""
        return runs_set_up(self.modes, self.twins)

    def why_not_run(self) -> str | None:
        """Return why it cannot run again, as a sentence; ``None`` if it can."""
        if self.modes.functorch:
            return f"{self.function} was called within a transform of torch.func, which cannot be repeated alone."
        tensors = self.tensors()
        too_large = _too_large(self.function, sum(tensor.nbytes for tensor in tensors), 0, _limit(tensors))
        if too_large is not None:
            return too_large
        with self.set_up():
            used_up = Subject(self.call, self.arguments).used_up
        return f"{self.function} was not run again: {used_up[0]}, and a run would use it up." if used_up else None

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors that the call works with."""
        return _tensors(self.call, self.arguments.args, self.arguments.kwargs)


class KeptEntries:
    """The entries of a run, in the order in which they were compiled.

    Parameters
    ----------
    limit : int or None
        The most bytes that copies and trials may take; ``None`` stands for half of the memory that is left.
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
        self._reusing = 0

    def take(self, entered: EnteredCall) -> None:
        """Copy an entry, if there is room for it."""
        name = name_of(entered.call)
        if entered.reuses:
            self._reusing += 1
            if self._reusing > _MOST_REUSING:
                if self._reusing == _MOST_REUSING + 1:
                    self.left_out.append(
                        f"Of the calls that only use code compiled for others, the first {_MOST_REUSING} are looked at."
                    )
                return
        if entered.modes.functorch:
            self.left_out.append(
                f"Nothing was tried for {name}: it was called within a transform of torch.func, such as vmap, which "
                "cannot be repeated alone."
            )
            return
        tensors = _tensors(entered.call, entered.args, entered.kwargs)
        size = sum(tensor.nbytes for tensor in tensors)
        limit = self._limit
        if limit is None:
            limit = _limit(tensors) + self._taken
        too_large = _too_large(name, size, self._taken, limit)
        if too_large is not None:
            self.left_out.append(too_large)
            return
        memory = KeptMemory()
        given = Arguments(*entered.args, **entered.kwargs)
        subject = Subject(entered.call, given, memory)
        if subject.used_up:
            self.left_out.append(f"Nothing was tried for {name}: {subject.used_up[0]}, and a run would use it up.")
            return
        self._taken += size
        self.entries.append(
            Entry(
                name,
                entered.frame,
                subject.call,
                subject.arguments or given,
                entered.backend,
                entered.dynamic,
                wrapped=entered.wrapped,
                modes=entered.modes,
                twins=tuple(memory.twins),
                reuses=entered.reuses,
            )
        )
        self._states.append((self.entries[-1], ProcessState(subject.assigned)))

    def leave_out(self, entry: Entry, effect: SeenEffect) -> None:
        """Leave out an entry whose first trial was stopped before it had an effect."""
        self.entries = [kept for kept in self.entries if kept is not entry]
        self.effects.append(effect)

    def leave_out_effects(self, seen: SeenEffects) -> None:
        """Leave out the entries that were seen to do something that no copy keeps to itself."""
        self.effects += [effect for _, effect in seen.seen]
        refused = {wrapped for within, _ in seen.seen for wrapped in within}
        for entry, before in self._states:
            # An entry is taken while Dynamo converts it, with settings of ours in force; trials restore what they set.
            changes = [change for change in before.changes() if not change.what.startswith(SETS_COMPILER)]
            changed = state_effect(changes, [entry.call], seen.lines)
            if changed is not None:
                self.effects.append(changed)
            if changed is not None or entry.wrapped in refused:
                self.entries = [kept for kept in self.entries if kept is not entry]
        self._states.clear()


def _limit(tensors: list[torch.Tensor]) -> int:
    """Return the most bytes that trials of a call may take now, on the device of its tensors."""
    return memory_limit(next((tensor.device for tensor in tensors if tensor.is_cuda), None))


def _too_large(name: str, size: int, taken: int, limit: int) -> str | None:
    """Return a sentence that says why there is no room for the trials of an entry; ``None`` if there is."""
    if taken + GROWTH * size <= limit:
        return None
    return (
        f"{name} was not run again: its arguments and state take {in_words(size)}, trials up to {GROWTH} times as "
        f"much, and {in_words(max(0, limit - taken))} of the limit are left (half of the free memory)."
    )


@contextlib.contextmanager
def kept_entries(limit: int | None = None) -> Iterator[KeptEntries]:
    """Keep the entries that are compiled while the context is open.

    Parameters
    ----------
    limit : int or None
        The most bytes that copies and trials may take; ``None`` stands for half of the memory that is left.
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
        opened.enter_context(compilations_limited())
        if is_cell(call):
            for context in (eager_semantics, readable_new_globals):
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


def _tensors(*values: Any) -> list[torch.Tensor]:
    """Return the tensors that a call works with, as far as they are found without copying it."""
    tensors: dict[int, torch.Tensor] = {}

    def add(value: Any, depth: int) -> None:
        match value:
            case torch.Tensor():
                tensors[id(value)] = value
            case torch.nn.Module():
                tensors.update((id(tensor), tensor) for tensor in (*value.parameters(), *value.buffers()))
            case _ if depth > _DEEPEST:
                return
            case dict():
                for item in value.values():
                    add(item, depth + 1)
            case list() | tuple():
                for item in value:
                    add(item, depth + 1)

    for value in (*values, *reached(*values)):
        add(value, 0)
    memory = {}
    for tensor in tensors.values():
        with contextlib.suppress(Exception):  # tensors without memory
            memory[tensor.data_ptr() or id(tensor)] = tensor
    return list(memory.values())

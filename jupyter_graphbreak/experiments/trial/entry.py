"""The entries of a run: compiled callables that user code called, copied before they ran."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass, field, replace
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.call_modes import CallModes
from jupyter_graphbreak._torch_compat.compiled import is_compiler_error, undo_compile_in_place
from jupyter_graphbreak._torch_compat.hooks.entries import watch_entries
from jupyter_graphbreak._torch_compat.isolation import eager_semantics, make_new_globals_readable
from jupyter_graphbreak._torch_compat.separate_cache import separate_cache
from jupyter_graphbreak._torch_compat.tensor_values import disable_gradients_and_overrides, has_nan
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.call_specs import CallHistory, CallSpec, key_of, owner_of
from jupyter_graphbreak.experiments.trial.guard import record_effects, state_effect
from jupyter_graphbreak.experiments.trial.memory import MAX_GROWTH, StorageRecorder, format_bytes, memory_limit
from jupyter_graphbreak.experiments.trial.process_state import COMPILER_CHANGE_PREFIX, ProcessState
from jupyter_graphbreak.experiments.trial.subject import Subject, share_run_setup
from jupyter_graphbreak.experiments.trial.swapped_bindings import NameSnapshot
from jupyter_graphbreak.experiments.trial.time_limit import limit_compilations
from jupyter_graphbreak.faults import error_headline
from jupyter_graphbreak.recording.targets import reachable_objects, user_code_objects
from jupyter_graphbreak.records.attributes import is_instance, stored_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from jupyter_graphbreak._torch_compat.hooks.entries import CompiledCall
    from jupyter_graphbreak.experiments.trial.guard import EffectRecorder
    from jupyter_graphbreak.experiments.trial.memory import StorageCopy
    from jupyter_graphbreak.experiments.trial.side_effects import ObservedEffect
    from jupyter_graphbreak.experiments.trial.state_parts import StateChange, StatePart
    from jupyter_graphbreak.report.schema import Report

    #: Opens a context in which a remedy is applied, and yields the entry with the remedy.
    RemedyContext = Callable[[], AbstractContextManager["Entry"]]

#: The maximum number of recorded calls that only reuse code compiled for other calls.
_MAX_REUSING_CALLS = 16
#: The maximum depth at which containers are searched for tensors.
_MAX_DEPTH = 6


@dataclass(frozen=True)
class Entry:
    """A copy of a callable from before it ran, so that it can run again."""

    #: The qualified name of the callable.
    name: str
    #: The id of the callable's first frame in the report of the run, or ``None`` for an entry that no run recorded.
    frame_id: str | None
    #: The uncompiled function, method or module. To run it without effects, use a
    #: :class:`~jupyter_graphbreak.experiments.trial.subject.Subject` of it.
    function: Callable[..., Any]
    #: Copies of the arguments of the first call.
    arguments: Arguments
    backend: str | Callable[..., Any] = "eager"
    dynamic: bool | None = None
    guard_filter: Callable[..., Any] | None = None
    #: Whether to call the callable without compiling it, because it compiles a function inside it.
    compiles_inner_function: bool = False
    #: The path of each module to compile instead of the callable, and the name of the method to compile. An empty name
    #: stands for the module's calls, which ``Module.compile`` compiles.
    inner_targets: frozenset[tuple[str, str]] = frozenset()
    #: Identifies the callable among those that the run called.
    callable_id: int | None = None
    modes: CallModes = field(default_factory=CallModes.now)
    storage_copies: tuple[StorageCopy, ...] = ()
    #: The values of the names in code that is not copied.
    name_snapshot: NameSnapshot = field(default_factory=NameSnapshot)
    #: Whether the call used code compiled for another entry.
    reuses_code: bool = False
    #: The copies to which ``function`` has only weak references, and which this tuple keeps alive.
    weak_referents: tuple[Any, ...] = ()

    def compile(self, program: Callable[..., Any], backend: str | Callable[..., Any]) -> Callable[..., Any]:
        """Return a program compiled with a backend and with the entry's other options."""
        options: dict[str, Any] | None = {"guard_filter_fn": self.guard_filter} if self.guard_filter else None
        return torch.compile(program, backend=backend, dynamic=self.dynamic, options=options)

    def set_up(self) -> AbstractContextManager[None]:
        """Return a context in which runs use the modes of the entry and share memory."""
        return share_run_setup(self.modes, self.storage_copies, self.name_snapshot)

    @disable_gradients_and_overrides()
    def why_not_run(self) -> str | None:
        """Return a sentence that says why the entry cannot run again, or ``None`` if it can."""
        if self.modes.transform_count:
            return f"{self.name} was called within a torch.func transform, which cannot be repeated on its own."
        tensors = self.tensors()
        return _why_too_large(self.name, sum(tensor.nbytes for tensor in tensors), 0, _trial_limit(tensors))

    @disable_gradients_and_overrides()
    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors that the call uses."""
        return _used_tensors(self.function, self.arguments.args, self.arguments.kwargs)


def backend_name(backend: str | Callable[..., Any]) -> str:
    """Return the name to show for a backend."""
    if isinstance(backend, str):
        return backend
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None)
    return str(name or type(backend).__name__)


class RecordedEntries:
    """The entries of a run, in the order in which they were compiled.

    With ``looks_for_nan``, also the first call to each entry that returned NaN.
    """

    def __init__(self, *, looks_for_nan: bool = False) -> None:
        self.entries: list[Entry] = []
        #: Calls to generator functions, which Dynamo does not compile.
        self.generator_calls: list[Entry] = []
        #: Sentences that say which entries were not recorded, and why.
        self.omission_reasons: list[str] = []
        #: The observed effects outside the copied objects. Entries with such effects are left out.
        self.effects: list[ObservedEffect] = []
        #: The specs of all calls. ``entries`` contains only the first call to each entry.
        self.call_history = CallHistory()
        self._keys: list[tuple[Entry, Any]] = []
        #: The number and a copy of the first call that returned NaN, by the keys of the entries.
        self._calls_with_nan: dict[Any, tuple[int, Entry | None]] = {}
        #: The process's state before each call that is running, with the call's thread.
        self._states: list[tuple[int, Entry, ProcessState]] = []
        self._changes: list[tuple[Entry, list[StateChange]]] = []
        self._looks_for_nan = looks_for_nan
        self._used_bytes = 0
        self._reusing_call_count = 0

    @disable_gradients_and_overrides()
    def record_entry(self, entered_call: CompiledCall) -> None:
        """Copy an entry, or note why it is left out."""
        name = callable_name(entered_call.function)
        if entered_call.reuses:
            self._reusing_call_count += 1
            if self._reusing_call_count > _MAX_REUSING_CALLS:
                if self._reusing_call_count == _MAX_REUSING_CALLS + 1:
                    self.omission_reasons.append(
                        f"Only the first {_MAX_REUSING_CALLS} calls that reuse code compiled for other calls are "
                        "examined."
                    )
                return
        if entered_call.modes.transform_count:
            self.omission_reasons.append(
                f"Nothing was tried for {name}: it was called within a torch.func transform, such as vmap, which "
                "cannot be repeated on its own."
            )
            return
        copy_or_reason = self._copy_call(name, entered_call)
        if isinstance(copy_or_reason, str):
            self.omission_reasons.append(copy_or_reason)
            return
        copy, changeable_parts = copy_or_reason
        entry = replace(
            copy, frame_id=entered_call.frame_id, callable_id=entered_call.callable_id, reuses_code=entered_call.reuses
        )
        self.entries.append(entry)
        self._states.append((get_ident(), entry, ProcessState(changeable_parts)))
        self._keys.append((entry, key_of(entered_call.function)))

    def _copy_call(self, name: str, original: CompiledCall) -> tuple[Entry, list[StatePart]] | str:
        """Return a copy of a call with the package parts that it may change, or a sentence if the call is too large."""
        tensors = _used_tensors(original.function, original.args, original.kwargs)
        size = sum(tensor.nbytes for tensor in tensors)
        reason = _why_too_large(name, size, self._used_bytes, _trial_limit(tensors) + self._used_bytes)
        if reason is not None:
            return reason
        memory = StorageRecorder()
        arguments = Arguments(*original.args, **original.kwargs)
        subject = Subject(original.function, arguments, memory)
        self._used_bytes += size
        if subject.function is not original.function:
            undo_compile_in_place(subject.function)
        copy = Entry(
            name, None, subject.function, subject.arguments or arguments, *original.compile_arguments,
            modes=original.modes, storage_copies=tuple(memory.storage_copies), name_snapshot=subject.name_snapshot(),
            weak_referents=subject.weak_referents(),
        )  # fmt: skip
        return copy, subject.changeable_parts

    @disable_gradients_and_overrides()
    def note_start(self, started_call: CompiledCall) -> None:
        """Remember a call that is about to start, and keep a copy if it calls a generator function."""
        self.call_history.note_start(started_call)
        code = getattr(getattr(started_call.function, "__func__", started_call.function), "__code__", None)
        if code is None or not code.co_flags & inspect.CO_GENERATOR or len(self.generator_calls) >= _MAX_REUSING_CALLS:
            return
        copy_or_reason = self._copy_call(callable_name(started_call.function), started_call)
        if not isinstance(copy_or_reason, str):
            copy, _ = copy_or_reason
            self.generator_calls.append(copy if callable(copy.backend) else replace(copy, backend="eager"))

    @disable_gradients_and_overrides()
    def note_end(self, started_call: CompiledCall, result: Any) -> None:
        """Note the end of a call. Compare the states now, because a context around the call may restore the state."""
        self.call_history.note_end()
        if self._looks_for_nan:
            self._record_call_with_nan(started_call, result)
        thread = get_ident()
        self._record_state_changes([state for state in self._states if state[0] == thread])
        self._states = [state for state in self._states if state[0] != thread]

    def _record_call_with_nan(self, started_call: CompiledCall, result: Any) -> None:
        """Copy the first call to an entry that returned NaN, unless this call is already recorded."""
        key = key_of(started_call.function)
        recorded_entry = next((entry for entry, known_key in self._keys if known_key == key), None)
        if recorded_entry is None or key in self._calls_with_nan or not has_nan(result):
            return
        number = self.call_history.count_calls(key)
        self._calls_with_nan[key] = number, None
        copy_or_reason = self._copy_call(recorded_entry.name, started_call) if number > 1 else ""
        if not isinstance(copy_or_reason, str):
            copy, _ = copy_or_reason
            self._calls_with_nan[key] = number, replace(
                recorded_entry, function=copy.function, arguments=copy.arguments, modes=copy.modes,
                storage_copies=copy.storage_copies, name_snapshot=copy.name_snapshot,
                weak_referents=copy.weak_referents,
            )  # fmt: skip

    def call_with_nan(self, entry: Entry) -> tuple[int, Entry | None] | None:
        """Return the number of the first call to an entry that returned NaN, and a copy made after it, if any."""
        return self._calls_with_nan.get(self._key_of(entry))

    def _key_of(self, entry: Entry) -> Any:
        return next((key for recorded_entry, key in self._keys if recorded_entry is entry), None)

    def _keys_of_alike_entries(self, entry: Entry) -> dict[Any, None]:
        """Return the keys of an entry and of entries like it."""
        return dict.fromkeys(
            key for known_entry, key in self._keys if known_entry is entry or _are_alike(known_entry, entry)
        )

    def _record_state_changes(self, ended_calls: list[tuple[int, Entry, ProcessState]]) -> None:
        for _, entry, state_before in ended_calls:
            # An entry is copied while Dynamo compiles it, when our own compiler settings are active.
            changes = [
                change for change in state_before.changes() if not change.description.startswith(COMPILER_CHANGE_PREFIX)
            ]
            self._changes.append((entry, changes))

    def calls_to(self, entry: Entry) -> list[CallSpec]:
        """Return the different calls to an entry, the copied one first, then those to modules like it.

        The result includes the calls in other modes, such as those without gradients: they cause recompiles. Modules
        of one class share their code, so the state of one module can cause recompiles in calls to another one. If
        the entry was copied in a later call, the result consists of its own calls in the modes of that call.
        """
        own_key = self._key_of(entry)
        calls = self.call_history.calls_to(own_key)
        if calls and calls[0].modes != entry.modes:  # the entry was copied in a later call
            return [call for call in calls if call.modes == entry.modes]
        keys = self._keys_of_alike_entries(entry)
        return [*calls, *(call for key in keys if key != own_key for call in self.call_history.calls_to(key))]

    def count_calls(self, entry: Entry) -> int:
        """Return the number of calls to an entry in the run, or one if the number is not known."""
        return max(1, self.call_history.count_calls(self._key_of(entry)))

    def has_repeated_calls(self, entry: Entry) -> bool:
        """Return whether the run repeated a call to an entry, or to a module like it."""
        history = self.call_history
        return any(history.count_calls(key) > len(history.calls_to(key)) for key in self._keys_of_alike_entries(entry))

    def leave_out(self, entry: Entry, effect: ObservedEffect) -> None:
        """Leave out an entry whose first trial was stopped before it had an effect."""
        self.entries = [recorded_entry for recorded_entry in self.entries if recorded_entry is not entry]
        self.effects.append(effect)

    def leave_out_entries_with_effects(self, recorder: EffectRecorder) -> None:
        """Leave out the entries that had an effect outside the copied objects."""
        self.effects += [effect for _, effect in recorder.recorded_effects]
        callables_with_effects = {callable_id for callers, _ in recorder.recorded_effects for callable_id in callers}
        self._record_state_changes(self._states)
        self._states = []
        for entry, changes in self._changes:
            effect_on_state = state_effect(changes, [entry.function], recorder.changing_lines)
            if effect_on_state is not None:
                self.effects.append(effect_on_state)
            if effect_on_state is not None or entry.callable_id in callables_with_effects:
                self.entries = [recorded_entry for recorded_entry in self.entries if recorded_entry is not entry]
        self._changes.clear()


def _are_alike(one: Entry, other: Entry) -> bool:
    """Return whether two entries are the same method, in the same modes, of modules that differ only in values."""
    modules = [owner_of(entry.function) for entry in (one, other)]
    if not all(is_instance(module, torch.nn.Module) for module in modules) or type(modules[0]) is not type(modules[1]):
        return False
    names = [getattr(entry.function, "__name__", None) for entry in (one, other)]
    shapes = [
        [(name, tensor.shape, tensor.dtype) for name, tensor in (*module.named_parameters(), *module.named_buffers())]
        for module in modules
    ]
    return names[0] == names[1] and shapes[0] == shapes[1] and one.modes == other.modes


def _trial_limit(tensors: list[torch.Tensor]) -> int:
    """Return the number of bytes that trials of a call may use now on the device of its tensors."""
    return memory_limit(next((tensor.device for tensor in tensors if tensor.is_cuda), None))


def _why_too_large(name: str, size: int, used_bytes: int, limit: int) -> str | None:
    """Return a sentence if there is not enough memory for the trials of an entry, or ``None`` if there is."""
    if used_bytes + MAX_GROWTH * size <= limit:
        return None
    return (
        f"{name} was not run again: its arguments and state take {format_bytes(size)}, trials up to {MAX_GROWTH} times "
        f"as much, but only {format_bytes(max(0, limit - used_bytes))} of the limit (half of the free memory) is "
        "left."
    )


@contextlib.contextmanager
def record_entries(*, looks_for_nan: bool = False) -> Iterator[RecordedEntries]:
    """Record the entries that are compiled while the context is open."""
    recorded_entries = RecordedEntries(looks_for_nan=looks_for_nan)
    faults: list[str] = []

    def emit(addition: object) -> None:
        faults.append(getattr(addition, "message", type(addition).__name__))

    entry_watch = watch_entries(
        recorded_entries.record_entry,
        emit,
        lambda _: None,
        on_start=recorded_entries.note_start,
        on_end=recorded_entries.note_end,
        on_compiling=recorded_entries.call_history.note_compiling,
    )
    with record_effects() as effect_recorder, entry_watch:
        try:
            yield recorded_entries
        finally:
            recorded_entries.leave_out_entries_with_effects(effect_recorder)
            recorded_entries.call_history.close()
    recorded_entries.omission_reasons += [
        f"A compiled function could not be copied, so it was not run again ({fault})." for fault in faults
    ]


@contextlib.contextmanager
def compile_separately(fn: Any) -> Iterator[None]:
    """Make Dynamo compile a copied callable again, in a separate cache, while the context is open."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(separate_cache(user_code_objects(fn)))
        stack.enter_context(limit_compilations())
        if is_cell(fn):
            for context in (eager_semantics, make_new_globals_readable):
                stack.enter_context(context())
        yield


def is_cell(fn: Any) -> bool:
    """Return whether a callable is a cell that was compiled as one function."""
    code = getattr(fn, "__code__", None)
    return code is not None and code.co_name == "<module>"


def callable_name(fn: Any) -> str:
    """Return the name to show for a function, a method, a module or a partial."""
    fn = getattr(fn, "func", fn)
    name = getattr(fn, "__qualname__" if hasattr(fn, "__code__") else "__name__", type(fn).__name__)
    return str(name).rpartition("<locals>.")[2]


def why_copies_failed(entry: Entry, error: Exception, run_report: Report) -> str:
    """Return a sentence that says why an entry's call on copies raised an error."""
    if is_compiler_error(error):
        again = " again" if run_report.error is not None else ""
        return f"Compiling a copy of {entry.name} failed{again}: {error_headline(error)}"
    if run_report.error is not None:
        return f"{entry.name} also fails without torch.compile: {error_headline(error)}"
    return f"{entry.name} could not run again on copies ({error_headline(error)})"


def _used_tensors(*values: Any) -> list[torch.Tensor]:
    """Return the tensors that a call uses, one per address, as far as a search without copying finds them."""
    tensors: dict[int, torch.Tensor] = {}

    def add(value: Any, depth: int) -> None:
        if is_instance(value, torch.Tensor):
            tensors[id(value)] = value
        elif is_instance(value, torch.nn.Module):
            tensors.update((id(tensor), tensor) for tensor in (*value.parameters(), *value.buffers()))
        elif depth > _MAX_DEPTH:
            return
        elif is_instance(value, dict):
            for _, item in stored_items(value):
                add(item, depth + 1)
        elif is_instance(value, list | tuple):
            for item in (list if is_instance(value, list) else tuple).__iter__(value):
                add(item, depth + 1)

    for value in (*values, *reachable_objects(*values)):
        add(value, 0)
    memory = {}
    for tensor in tensors.values():
        with contextlib.suppress(Exception):  # tensors without memory
            memory[tensor.data_ptr() or id(tensor)] = tensor
    return list(memory.values())

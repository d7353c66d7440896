"""A copied function with copies of everything that it may change, so that every run starts from the same state.

All runs of an entry share a setup: the modes of its call, and the memory of its large tensors.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import types
import weakref
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.call_modes import DEFAULT_MODES, CallModes
from jupyter_graphbreak.experiments.trial.copies import clone, identity_memo, memory_key
from jupyter_graphbreak.experiments.trial.function_copies import FunctionCopier, name_of
from jupyter_graphbreak.experiments.trial.guard import prevent_effects
from jupyter_graphbreak.experiments.trial.memory import SharedMemory, release_content
from jupyter_graphbreak.experiments.trial.named_objects import named_objects
from jupyter_graphbreak.experiments.trial.object_kinds import LOCK_CONSTRUCTORS, is_data, is_immutable
from jupyter_graphbreak.experiments.trial.process_state import release_leftover_locks
from jupyter_graphbreak.experiments.trial.saved_state import SavedState, value_to_restore, value_to_save
from jupyter_graphbreak.experiments.trial.swapped_bindings import MISSING, NameSnapshot, SwappedBinding
from jupyter_graphbreak.experiments.trial.uncopied_code import UncopiedCode
from jupyter_graphbreak.experiments.trial.user_imports import unloaded_modules
from jupyter_graphbreak.recording.targets import closure_values, user_code_objects
from jupyter_graphbreak.records.attributes import attribute_of, is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.copies import MemoryProvider
    from jupyter_graphbreak.experiments.trial.memory import StorageCopy
    from jupyter_graphbreak.experiments.trial.swapped_bindings import VariableKey


def _has_weak_reference(function: types.FunctionType) -> bool:
    """Return whether a function has a closure variable that is a weak reference."""
    return any(is_instance(value, weakref.ReferenceType) for value in closure_values(function))


def _copy_function_with_weak_reference(function: types.FunctionType, memo: dict[Any, Any]) -> types.FunctionType:
    """Return a copy of a function with a weak reference in its closure, and any other function unchanged."""
    if not _has_weak_reference(function):
        return function
    cells = tuple(types.CellType(clone(cell.cell_contents, memo)) for cell in function.__closure__ or ())
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    vars(copy).update(vars(function))
    return copy


@dataclass(frozen=True)
class RunSetup:
    """The modes of runs, the memory that their copies share, and the original values of names."""

    modes: CallModes = field(default_factory=CallModes.now)
    memory: SharedMemory = field(default_factory=SharedMemory)
    name_snapshot: NameSnapshot = field(default_factory=NameSnapshot)


_CURRENT_SETUP: ContextVar[RunSetup | None] = ContextVar("graphbreak_run_setup", default=None)


def current_setup() -> RunSetup:
    """Return the active setup or, without one, a setup with the current modes and no shared memory."""
    return _CURRENT_SETUP.get() or RunSetup()


@contextlib.contextmanager
def share_run_setup(
    modes: CallModes, storage_copies: Iterable[StorageCopy] = (), name_snapshot: NameSnapshot | None = None
) -> Iterator[None]:
    """Use the same modes and memory for all runs while the context is open.

    Code between runs uses the default modes. A nested context has no effect. ``storage_copies`` contains the memory of
    large tensors before the entry's call, and ``name_snapshot`` the values of names at that time.
    """
    if _CURRENT_SETUP.get() is not None:
        yield
        return
    setup = RunSetup(modes, SharedMemory(storage_copies), name_snapshot or NameSnapshot())
    token = _CURRENT_SETUP.set(setup)
    try:
        with DEFAULT_MODES.apply():
            yield
    finally:
        setup.memory.restore()
        setup.memory.return_free_memory()
        _CURRENT_SETUP.reset(token)


class Subject:
    """A callable that leaves no trace when it runs, because the functions, closures, globals and modules are copies.

    The copied code objects are new, so Dynamo has compiled none of them. Most methods of classes are not copied. The
    globals that they read are swapped for copies while a program runs, as described in :meth:`activate`.

    The arguments of the calls are copied with the function so that shared objects and shared memory stay shared. A
    subject that never runs may have a provider of memory, and one that runs once its own memory; by default, all
    subjects share large memory. ``name_snapshot`` contains the values of names when the copied function was called, by
    default those of the current entry.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        arguments: Arguments | None = None,
        memory_provider: MemoryProvider | None = None,
        own_memory: SharedMemory | None = None,
        name_snapshot: NameSnapshot | None = None,
    ) -> None:
        if memory_provider is None:
            _import_modules(fn)
        setup = current_setup()
        name_snapshot = setup.name_snapshot if name_snapshot is None else name_snapshot
        self.modes, self.memory = setup.modes, setup.memory if own_memory is None else own_memory
        self._detached_keys: set[Any] = set()
        self._copier = copier = FunctionCopier(
            name_snapshot.origin_ids, self.memory if memory_provider is None else memory_provider
        )
        self._bindings = copier.bindings
        #: The objects that could not be copied, with name, type and reason. Runs use the originals, which are restored
        #: afterwards.
        self.uncopied_descriptions = copier.uncopied_descriptions
        self.function: Any = copier.copy(fn, name_of(fn))
        #: The copied module, the object that a copied method belongs to, or any other copied object that can be called.
        self.owner: Any = None
        if not is_instance(self.function, types.FunctionType | types.BuiltinFunctionType | type):
            self.owner = getattr(self.function, "__self__", self.function)
        self.arguments = None
        self._original_arguments = arguments
        if arguments is not None:
            for name, value in arguments.by_name(fn).items():
                copier.copy(value, name)
            self.arguments = arguments.map_values(lambda value: copier.copy(value, "the arguments"))
        #: Copies of logging handlers whose classes the user wrote, by the ids of the originals.
        self.handlers = copier.copy_handlers()
        #: Copies of logger filters, by the ids of the originals.
        self.filters = copier.copy_filters()
        roots = [self.function, *self.handlers.values(), *self.filters.values(), *(value for _, value in self.roots())]
        copies = () if self.arguments is None else self.arguments.values()
        self._uncopied_code = UncopiedCode(copier, name_snapshot.values, roots, copies)
        #: The parts of packages that the code may change, judging by the names that it contains.
        self.changeable_parts = self._uncopied_code.changeable_parts
        if memory_provider is not None:
            return
        self._locks = [copy for key, copy in copier.memo.items() if type(copy) in LOCK_CONSTRUCTORS and id(copy) != key]
        self.save_state()
        self.initial_state = self.state() if own_memory is None else {}

    def save_state(self) -> None:
        """Save the current state for :meth:`restore`, except for shared memory."""
        self._values = [(binding, value_to_save(binding.read())) for binding in self._bindings]
        self._saved_state = SavedState((value for _, value in self.roots()), self.memory.restores)

    def roots(self) -> Iterator[tuple[str, Any]]:
        """Yield the objects that a call may change, by name. The name of the module or instance itself is empty."""
        if self.owner is not None:
            yield "", self.owner
        variables: set[VariableKey] = set()
        values_by_name: dict[str, list[Any]] = {}
        for binding in self._bindings:
            value, earlier_values = binding.read(), values_by_name.setdefault(binding.name, [])
            is_new = (
                binding.key not in variables
                if binding.key is not None
                else all(value is not earlier_value for earlier_value in earlier_values)
            )
            if (
                value is MISSING
                or not is_new
                or (not is_immutable(value) and any(value is earlier_value for earlier_value in earlier_values))
            ):
                continue
            earlier_values.append(value)
            if binding.key is not None:
                variables.add(binding.key)
            yield (binding.name if len(earlier_values) == 1 else f"{binding.name} ({len(earlier_values)})"), value

    def name_snapshot(self) -> NameSnapshot:
        """Return the values that names have while this subject runs, for code that is not copied."""
        swapped_bindings = [binding for binding in self._bindings if isinstance(binding, SwappedBinding)]
        values = {binding.key: binding.read() for binding in swapped_bindings if binding.key is not None}
        return NameSnapshot(
            values, dict(self._copier.origin_ids), tuple(binding.holder for binding in swapped_bindings)
        )

    def functions(self) -> list[types.FunctionType]:
        """Return the copies of functions."""
        return list(self._copier.functions)

    def weak_referents(self) -> tuple[Any, ...]:
        """Return the copies to which other copies have weak references."""
        references = [copy() for copy in self._copier.memo.values() if type(copy) is weakref.ref]
        return tuple(copy for copy in references if copy is not None)

    def state(self, memo: dict[Any, Any] | None = None) -> dict[str, Any]:
        """Return a copy, for comparison, of everything that a call may have changed, by name."""
        memo = self.unchanged_memo() if memo is None else memo
        return {name or "self": self.snapshot(value, memo) for name, value in self.roots()}

    def snapshot(self, value: Any, memo: dict[Any, Any]) -> Any:
        """Return a copy for comparison only, in which digests replace large tensors."""
        return clone(value, memo, digests=self.memory.digests)

    def unchanged_memo(self) -> dict[Any, Any]:
        """Return a memo that makes ``copies.clone`` share memory that no run has changed."""
        return self.memory.unchanged_memo()

    def copy_arguments(self, arguments: Arguments) -> Arguments:
        """Return copies of arguments for a run, with this subject's copies of functions and of the state's objects."""
        return self._copy_with_memory(arguments, self.memory.memo(self._detached_keys))

    def copy_arguments_for_comparison(self, arguments: Arguments) -> Arguments:
        """Return copies of arguments for comparison only, which share memory that no run has changed."""
        return self._copy_with_memory(arguments, self.unchanged_memo())

    def _copy_with_memory(self, arguments: Arguments, memory_memo: dict[Any, Any]) -> Arguments:
        memo = self.state_memo()
        copied_objects = {
            original: copy
            for original, copy in self._copier.memo.items()
            if isinstance(original, int)
            and (id(copy) in memo or (is_instance(copy, types.FunctionType) and not _has_weak_reference(copy)))
        }
        copies = memo | copied_objects | memory_memo
        return arguments.copy(copies, lambda function: _copy_function_with_weak_reference(function, copies))

    def save_arguments(self, arguments: Arguments) -> SavedState:
        """Save the content of a run's arguments, except the state, to restore it in place.

        :meth:`restore_memory_of_arguments` restores the memory of large tensors.
        """
        state_keys = self._state_keys()
        return SavedState(
            arguments.values(),
            lambda storage: self.memory.restores(storage) or memory_key(storage) in state_keys,
            excluded_objects=[value for key, value in self.state_memo().items() if isinstance(key, int)],
        )

    def restore_memory_of_arguments(self) -> bool:
        """Undo changes to the memory of large tensors that are not part of the state; return whether there were any."""
        state_keys = self._state_keys()
        return self.memory.restore({key for key in self.memory.memo() if key not in state_keys})

    def _state_keys(self) -> set[Any]:
        return set(map(memory_key, self._saved_state.storages()))

    def replace_with_copies(self, arguments: Arguments) -> Arguments:
        """Return arguments in which this subject's copies replace the values that it has copied."""
        if self._original_arguments is None or self.arguments is None:
            return arguments
        pairs = zip(self._original_arguments.values(), self.arguments.values(), strict=True)
        copies_by_id = {id(value): copy for value, copy in pairs}
        return arguments.map_values(lambda value: copies_by_id.get(id(value), value))

    def detach_changed_memory(self) -> None:
        """Move changed memory out of the shared memory, so that other subjects do not see the change.

        Call this after a run, before a different subject runs.
        """
        for initial_storage, changed_storage in self.memory.changed_storages():
            self._saved_state.move(changed_storage, changed_storage.clone(), initial_storage)
            self._detached_keys.add(memory_key(changed_storage))
        self.memory.restore()

    def restore(self) -> None:
        """Undo the changes that runs have made, and return to the system the memory that they have freed."""
        new_tensors = self._saved_state.new_optimizer_tensors()
        self.undo_changes()
        release_content(new_tensors)  # compiled code may keep the tensors, although it is not used without them
        self.memory.return_free_memory()

    @contextlib.contextmanager
    def restore_on_exit(self) -> Iterator[None]:
        """Restore the subject when the context is closed, to free the objects that the last run has created."""
        try:
            yield
        finally:
            self.restore()

    def undo_changes(self) -> None:
        """Restore the initial state in place, because captured programs refer to the objects."""
        self._copier.clear_caches()
        for binding, value in self._values:
            binding.write(value_to_restore(value))
        self.memory.restore()
        self._saved_state.restore()

    def keep_definitions(self, names: Container[str]) -> None:
        """Make :meth:`restore` keep the current values of the given variables, because a change has defined them."""
        self._values = [
            (binding, value_to_save(binding.read()) if binding.name in names else value)
            for binding, value in self._values
        ]

    def variables(self) -> dict[str, tuple[Any, Callable[[Any], None]]]:
        """Return the numbers, flags, strings and tensors that the code reads besides its arguments, with setters."""
        result: dict[str, tuple[Any, Callable[[Any], None]]] = {}
        for binding in self._bindings:
            if _is_variable(binding.read()):
                setters = [
                    other_binding.write
                    for other_binding in self._bindings
                    if other_binding is binding or (other_binding.key == binding.key is not None)
                ]
                result.setdefault(binding.name, (binding.read(), functools.partial(_write_all, setters)))
        for name, root in self.roots():
            parts = root.named_modules() if is_instance(root, torch.nn.Module) else [("", root)]
            for path, part in parts:
                if is_instance(part, torch.nn.RNNBase):
                    continue  # RNN kernels do not check its attributes, so a wrong number of layers ends the process
                namespace = (
                    part if type(part) is dict else (attribute_of(part, "__dict__") or {}) if is_data(part) else {}
                )
                for key, value in namespace.items() if not is_instance(part, torch.Tensor) else ():
                    if isinstance(key, str) and not key.startswith("_") and key != "training" and _is_variable(value):
                        dotted_name = ".".join(step for step in (name or "self", path, key) if step)
                        result.setdefault(dotted_name, (value, functools.partial(namespace.__setitem__, key)))
        return result

    def set_variables(self, values: Mapping[str, Any]) -> None:
        """Set variables, given by name, to copies of values, until :meth:`restore` undoes this."""
        variables = self.variables() if values else {}
        for name, value in values.items():
            if name in variables:
                variables[name][1](clone(value))

    def state_memo(self) -> dict[Any, Any]:
        """Return a memo that makes ``copies.clone`` share every object of the state."""
        visited_ids: set[int] = set()
        return identity_memo(item for name, root in self.roots() for _, item in named_objects(root, name, visited_ids))

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Apply the modes of the entry's call and swap the copies in while the context is open.

        Code that is not copied, such as methods, then reads the copies, as in :meth:`UncopiedCode.swap_copies_in`. A
        TrialStoppedError is raised if the code leaves a lock locked, or waits for a lock that only the code itself
        could release.
        """
        with (
            self._uncopied_code.swap_copies_in(),
            self.modes.apply(),
            release_leftover_locks(self._locks, self.function),
        ):
            yield

    def prevent_effects(self, *further_callables: Any) -> contextlib.AbstractContextManager[None]:
        """Stop the code in the context, which runs these callables, before it has an effect outside the copies."""
        return prevent_effects(self.function, *further_callables, changeable_parts=self.changeable_parts)


def _import_modules(fn: Callable[..., Any]) -> None:
    """Import the user modules that a function will import, so that their state is copied and restored."""
    for name in unloaded_modules(user_code_objects(fn)):
        with contextlib.suppress(Exception), prevent_effects():  # the function's own import fails, or is stopped, again
            importlib.import_module(name)


def _is_variable(value: Any) -> bool:
    return type(value) in {bool, int, float, str, torch.Tensor}


def _write_all(setters: list[Callable[[Any], None]], value: Any) -> None:
    for write in setters:
        write(value)

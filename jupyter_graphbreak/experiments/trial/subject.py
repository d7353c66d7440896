"""A copied function with copies of everything it may change, so that every run starts from the same state."""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import logging
import re
import sys
import threading
import types
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.separate_cache import (
    copied_module,
    copy_fx_wraps,
    forget_fx_wraps,
    is_allowed_in_graph,
)
from jupyter_graphbreak.experiments.trial.assigned_attributes import (
    LibraryAttribute,
    LibraryPart,
    assigned_attributes,
    is_library_owner,
    is_user_module,
    library_parts,
    sets_attributes,
)
from jupyter_graphbreak.experiments.trial.copies import Uncopied, clone, identity_memo, memory_key
from jupyter_graphbreak.experiments.trial.effects import all_filters, all_handlers
from jupyter_graphbreak.experiments.trial.object_kinds import is_atom, is_bound_to_data, is_code, is_data
from jupyter_graphbreak.experiments.trial.places import named_objects
from jupyter_graphbreak.experiments.trial.process_state import find_changing_line
from jupyter_graphbreak.experiments.trial.run_setup import current_setup
from jupyter_graphbreak.experiments.trial.saved_state import SavedState, from_slot, to_slot
from jupyter_graphbreak.experiments.trial.shared_names import KeptNames, functions_in, global_names, with_functions
from jupyter_graphbreak.experiments.trial.side_effects import ObservedEffect, TrialStoppedError
from jupyter_graphbreak.experiments.trial.state_parts import StateChange
from jupyter_graphbreak.experiments.trial.unaudited_functions import REFUSABLE
from jupyter_graphbreak.recording.targets import is_own, reached
from jupyter_graphbreak.recording.threads_at_work import thread_at_work
from jupyter_graphbreak.records.attributes import attribute_of, is_instance
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.copies import MemoryProvider
    from jupyter_graphbreak.experiments.trial.shared_names import VariableKey

_MISSING = object()
_OWN_PACKAGE = __name__.partition(".")[0]
#: The type of a function decorated with ``functools.lru_cache``.
_LRU_CACHE = type(functools.lru_cache(len))


_LOGGING = frozenset({"logging", "logging.handlers"})
#: Names in modules and classes that trials leave unchanged.
_OF_MODULES = re.compile("__")
_OF_CLASSES = re.compile("__annotations|__annotate|__abstractmethods__$|_abc_impl$|__dict__$|__weakref__$")
#: Attributes with which ``ctypes`` describes classes, and which cannot be set again.
_LAYOUT = frozenset({"_fields_", "_anonymous_", "_pack_", "_align_", "_layout_", "_length_", "_type_"})
#: The lists of loggers and handlers that Python itself keeps; trials restore them.
_OF_LOGGING = frozenset({"handlers", "filters", "buffer"})


class ThreadSeesCopyError(Exception):
    """A copy cannot run now: another thread would see the objects that are swapped in for it."""


@dataclass(frozen=True)
class _NamedPlace:
    """A name that code reads or writes: a global, a variable of an outer function, an attribute of a class."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]
    #: The variable; ``None`` for an object that stays in its place.
    key: VariableKey | None = None
    #: The namespace, cell or owner whose id the key contains, unless it is a copy.
    holder: Any = None


class _SwappedPlace:
    """A name read by code that is not copied, such as a method: it refers to the copy only while a program runs."""

    def __init__(self, place: _NamedPlace, inside: Any, *, is_function: bool = False) -> None:
        self._is_function = is_function
        self.name = place.name
        self.key, self.holder = place.key, place.holder
        self._place = place
        self._inactive_value = inside
        self._is_original = inside is place.read()
        self._entered = False

    def read(self) -> Any:
        return self._place.read() if self._entered else self._inactive_value

    def write(self, value: Any) -> None:
        if not self._entered:
            self._inactive_value = value
        elif value is not self._place.read():
            self._place.write(value)

    @property
    def is_constant(self) -> bool:
        """Whether the value is the original, such as a number: nothing is swapped until a run assigns to the name."""
        return self._is_original or (is_code(self._inactive_value) and not self._is_function)

    def exchange(self) -> None:
        content = self._place.read()
        if content is not self._inactive_value:
            self._place.write(self._inactive_value)
        self._entered, self._inactive_value = not self._entered, content


def _has_weak_reference(function: types.FunctionType) -> bool:
    """Return whether a function has a closure variable that is a weak reference."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # the cell is empty
            if is_instance(cell.cell_contents, weakref.ReferenceType):
                return True
    return False


def _with_copied_closure(function: types.FunctionType, memo: dict[Any, Any]) -> types.FunctionType:
    """Return a copy of a function that refers weakly to an object; any other function is returned unchanged."""
    if not _has_weak_reference(function):
        return function
    cells = tuple(types.CellType(clone(cell.cell_contents, memo)) for cell in function.__closure__ or ())
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    vars(copy).update(vars(function))
    return copy


class Subject:
    """A callable that leaves no trace when it runs: the functions, closures, globals and modules behind it are copies.

    Its code objects are new, so Dynamo has compiled none of them. Methods of classes are not copied; the globals they
    read are swapped for copies while a program runs, see :meth:`activated`.

    Parameters
    ----------
    fn : callable
        A function, a method, a module or another callable object.
    arguments : Arguments, optional
        The arguments of its calls. They are copied with the rest, so shared objects and shared memory stay shared.
    blocks : MemoryProvider, optional
        The copies of large memory, for a copy that is kept and never runs.
    kept : KeptNames, optional
        What names referred to when the copied function was called; by default, those of the entry that runs.

    Attributes
    ----------
    call : callable
        The copy.
    arguments : Arguments or None
        The copies of the arguments, to pass to runs.
    initial : dict
        A copy of the initial state, by name.
    modes : CallModes
        The modes of the calls.
    memory : Memory
        Large memory shared with other subjects.
    shared : list of str
        Objects that could not be copied, with name, type and reason. Runs use the originals, which are restored after
        each run.
    assigned : list of LibraryPart
        The parts of packages that the code may change, by the names in it.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        arguments: Arguments | None = None,
        blocks: MemoryProvider | None = None,
        kept: KeptNames | None = None,
    ) -> None:
        self._memo: dict[Any, Any] = {}
        setup = current_setup()
        self._kept = setup.kept if kept is None else kept
        self.modes, self.memory = setup.modes, setup.memory
        self._blocks = self.memory if blocks is None else blocks
        self._separate: set[Any] = set()
        self._uncopied: list[Any] = []
        self.assigned: list[LibraryPart] = []
        #: The copied namespaces by the ids of their originals, and the other way round.
        self._globals: dict[int, dict[str, Any]] = {}
        self._modules: list[types.ModuleType] = []
        self._origins: dict[int, int] = {}
        self._functions: list[types.FunctionType] = []
        self._copied_methods: set[types.FunctionType] = set()
        self._copied_globals: set[VariableKey] = set()
        self._places: list[_NamedPlace | _SwappedPlace] = []
        self._entered = 0
        self._before: list[tuple[Any, frozenset[str], dict[str, Any]]] = []
        self._codes_before: list[tuple[types.FunctionType, types.CodeType]] = []
        self._caches: list[Any] = []
        self._destroys: ObservedEffect | None = None
        #: User modules, classes and functions that the code may change, and the names swapped in each.
        self._namespaces: list[tuple[types.ModuleType | type | types.FunctionType, frozenset[str]]] = []
        self.shared: list[str] = []
        self.call: Any = self._copy(fn, _name(fn))
        self.owner: Any = None
        if not is_instance(self.call, types.FunctionType | types.BuiltinFunctionType | type):
            self.owner = getattr(self.call, "__self__", self.call)
        self.arguments = None
        self._given = arguments
        if arguments is not None:
            for name, value in arguments.named(fn).items():
                self._copy(value, name)
            self.arguments = arguments.mapped(lambda value: self._copy(value, "the arguments"))
        #: Copies of logging handlers whose classes the user wrote, by the ids of the originals.
        self.handlers = self._copy_handlers()
        #: Copies of the filters of loggers, by the ids of the originals.
        self.filters = self._copy_filters()
        self._swap_uncopied_state()
        self._saved_uncopied = SavedState(self._uncopied)
        if blocks is not None:
            return
        self._values = [(place, to_slot(place.read())) for place in self._places]
        self._saved = SavedState((value for _, value in self.roots()), self.memory.restores)
        self.initial = self.state()

    def roots(self) -> Iterator[tuple[str, Any]]:
        """Yield the objects that a call may change, by name; the name of the module or instance itself is empty."""
        if self.owner is not None:
            yield "", self.owner
        variables: set[VariableKey] = set()
        known: dict[str, list[Any]] = {}
        for place in self._places:
            value, others = place.read(), known.setdefault(place.name, [])
            is_new = place.key not in variables if place.key is not None else all(value is not it for it in others)
            if value is _MISSING or not is_new or (not is_atom(value) and any(value is it for it in others)):
                continue
            others.append(value)
            if place.key is not None:
                variables.add(place.key)
            yield (place.name if len(others) == 1 else f"{place.name} ({len(others)})"), value

    def kept_names(self) -> KeptNames:
        """Return the copies to which names refer while this subject runs, for code that is not copied."""
        swapped = [place for place in self._places if isinstance(place, _SwappedPlace)]
        values = {place.key: place.read() for place in swapped if place.key is not None}
        return KeptNames(values, dict(self._origins), tuple(place.holder for place in swapped))

    def functions(self) -> list[types.FunctionType]:
        """Return the copied functions."""
        return list(self._functions)

    def weakly_held(self) -> tuple[Any, ...]:
        """Return the copies to which other copies have weak references."""
        held = [copy() for copy in self._memo.values() if type(copy) is weakref.ref]
        return tuple(copy for copy in held if copy is not None)

    def state(self, memo: dict[Any, Any] | None = None) -> dict[str, Any]:
        """Return a copy, for comparison, of everything that a call may have changed, by name."""
        memo = self.unchanged_memo() if memo is None else memo
        return {name or "self": self.snapshot(value, memo) for name, value in self.roots()}

    def snapshot(self, value: Any, memo: dict[Any, Any]) -> Any:
        """Return a copy for comparison only: digests replace large tensors."""
        return clone(value, memo, digests=self.memory.digests)

    def unchanged_memo(self) -> dict[Any, Any]:
        """Return a memo with which ``copies.clone`` skips memory that no run has changed."""
        return self.memory.unchanged_memo()

    def copies_of(self, arguments: Arguments) -> Arguments:
        """Return copies of arguments for a run; functions, and objects of the state, are this subject's copies.

        A function that refers weakly to an object belongs to that object, such as the ``step`` of an optimizer with a
        scheduler, and is copied with it.
        """
        memo = self.state_memo()
        known = {
            original: copy
            for original, copy in self._memo.items()
            if isinstance(original, int)
            and (id(copy) in memo or (is_instance(copy, types.FunctionType) and not _has_weak_reference(copy)))
        }
        copies = memo | known | self.memory.memo(self._separate)
        return arguments.copy(copies, lambda function: _with_copied_closure(function, copies))

    def with_copies(self, arguments: Arguments) -> Arguments:
        """Return arguments in which values are replaced with this subject's copies of them."""
        if self._given is None or self.arguments is None:
            return arguments
        given = (*self._given.args, *self._given.kwargs.values())
        copies = (*self.arguments.args, *self.arguments.kwargs.values())
        by_id = {id(value): copy for value, copy in zip(given, copies, strict=True)}
        return arguments.mapped(lambda value: by_id.get(id(value), value))

    def detach_changed_memory(self) -> None:
        """Move memory that a run has changed out of the shared memory, so that other subjects do not see the change.

        Call this after a run, before a different subject runs.
        """
        for before, work in self.memory.changed():
            self._saved.move(work, work.clone(), before)
            self._separate.add(memory_key(work))
        self.memory.restore()

    def restore(self) -> None:
        """Restore the initial state; the objects stay the same, because captured programs refer to them."""
        for cached in self._caches:
            cached.cache_clear()
        for place, value in self._values:
            place.write(from_slot(value))
        self.memory.restore()
        self._saved.restore()

    def keep_definitions(self, names: Container[str]) -> None:
        """Make :meth:`restore` keep the functions that variables refer to now: a change has defined them."""
        self._values = [
            (place, to_slot(place.read()) if place.name in names else value) for place, value in self._values
        ]

    def variables(self) -> dict[str, tuple[Any, Callable[[Any], None]]]:
        """Return the numbers, flags, strings and tensors that the code reads besides its arguments, with their setters.

        They are globals, closure variables, instance attributes and dict items, by their places.
        """
        result: dict[str, tuple[Any, Callable[[Any], None]]] = {}
        for place in self._places:
            if _is_variable(place.read()):
                same = [it.write for it in self._places if it is place or (it.key == place.key is not None)]
                result.setdefault(place.name, (place.read(), functools.partial(_write_all, same)))
        for name, root in self.roots():
            parts = root.named_modules() if is_instance(root, torch.nn.Module) else [("", root)]
            for path, part in parts:
                if is_instance(part, torch.nn.RNNBase):
                    continue  # its kernels trust its own sizes: a wrong number of layers ends the process
                holder = part if type(part) is dict else (attribute_of(part, "__dict__") or {}) if is_data(part) else {}
                for key, value in holder.items() if not is_instance(part, torch.Tensor) else ():
                    if isinstance(key, str) and not key.startswith("_") and key != "training" and _is_variable(value):
                        whole = ".".join(step for step in (name or "self", path, key) if step)
                        result.setdefault(whole, (value, functools.partial(holder.__setitem__, key)))
        return result

    def assign(self, values: Mapping[str, Any]) -> None:
        """Set variables by their places to copies of values; :meth:`restore` undoes it."""
        variables = self.variables() if values else {}
        for place, value in values.items():
            if place in variables:
                variables[place][1](clone(value))

    def state_memo(self) -> dict[Any, Any]:
        """Return a memo with which ``copies.clone`` keeps every object of the state."""
        seen: set[int] = set()
        return identity_memo(item for name, root in self.roots() for _, item in named_objects(root, name, seen))

    @contextlib.contextmanager
    def activated(self) -> Iterator[None]:
        """Apply the modes of the entry's call, and swap the copies in, while the context is open.

        Methods and other code that is not copied read the copies in the meantime. On exit, objects that could not be
        copied are restored.

        Raises
        ------
        ThreadSeesCopyError
            If another user thread is running, which would see the copies.
        TrialStoppedError
            If the code creates objects whose destructors may run after the context has ended.
        """
        if self._destroys is not None:
            raise TrialStoppedError(self._destroys)
        swapped = [place for place in self._places if isinstance(place, _SwappedPlace)]
        shared = next((place.name for place in swapped if not place.is_constant), None)
        if shared is not None and (thread := thread_at_work()) is not None:
            raise ThreadSeesCopyError(
                f"one of your other threads is running ({thread}), and would see copies of {shared}"
            )
        self._entered += 1
        if self._entered == 1:
            for place in swapped:
                place.exchange()
            self._before = [(owner, names, dict(vars(owner))) for owner, names in self._namespaces]
            # A trial of a change gives functions their changed code before it runs them.
            functions = (owner for owner, _ in self._namespaces if isinstance(owner, types.FunctionType))
            self._codes_before = [(function, function.__code__) for function in functions]
        try:
            with self.modes.entered():
                yield
        finally:
            self._entered -= 1
            if not self._entered:
                self._restore_namespaces()
                for place in swapped:
                    place.exchange()
                self._saved_uncopied.restore()

    def _restore_namespaces(self) -> None:
        """Undo changes of modules, classes and functions that a run made without naming them, as with ``setattr``.

        Attributes that Dynamo adds to modules, and Python to classes, are kept.
        """
        for owner, swapped, before in self._before:
            ignored = _OF_CLASSES if is_instance(owner, type) else _OF_MODULES
            write: Any = next(kind for kind in (type, types.ModuleType, types.FunctionType) if is_instance(owner, kind))
            now = vars(owner)
            for name in [name for name in now if name not in before and not ignored.match(name)]:
                write.__delattr__(owner, name)
            for name, value in before.items():
                if name not in swapped and not ignored.match(name) and now.get(name, _MISSING) is not value:
                    write.__setattr__(owner, name, value)
        for function, code in self._codes_before:
            if function.__code__ is not code:
                function.__code__ = code

    def _copy(self, value: Any, name: str) -> Any:
        if id(value) in self._memo:
            return self._memo[id(value)]
        if value is _MISSING or is_atom(value):
            return value
        if is_instance(value, _LRU_CACHE):
            return self._copy_cache(value, name)
        failed: list[Uncopied] = []
        result = clone(value, self._memo, failed, self._copy_function, self._blocks)
        for item, reason in failed:
            self._uncopied.append(item)
            own = "" if item is value else f"{_name(type(item))} in "
            self.shared.append(f"`{name}` ({own}{type(value).__name__}) cannot be copied: {reason}")
        return result

    def _copy_cache(self, cached: Any, name: str) -> Any:
        """Return a function with its own empty cache."""
        parameters = cached.cache_parameters()
        result = functools.lru_cache(parameters["maxsize"], parameters["typed"])(self._copy(cached.__wrapped__, name))
        self._memo[id(cached)] = self._memo[id(result)] = result
        self._caches.append(result)
        return result

    def _copy_function(self, function: types.FunctionType) -> types.FunctionType:
        known: types.FunctionType | None = self._memo.get(id(function))
        if known is not None:
            return known
        library = self._is_library(function)
        if library and not (function.__closure__ and (is_own(function) or _closes_over_data(function))):
            return function  # front ends recognize some of PyTorch's functions by identity
        if is_allowed_in_graph(function):
            return function
        scope = function.__globals__ if library else self._copy_globals(function.__globals__)
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        result = types.FunctionType(function.__code__.replace(), scope, function.__name__, None, cells or None)
        self._memo[id(function)] = self._memo[id(result)] = result  # it may refer to itself
        name = function.__name__
        if function.__defaults__ is not None:
            result.__defaults__ = tuple(self._copy(value, name) for value in function.__defaults__)
        if function.__kwdefaults__ is not None:
            result.__kwdefaults__ = {key: self._copy(value, name) for key, value in function.__kwdefaults__.items()}
        self._functions.append(result)
        result.__annotations__ = dict(function.__annotations__)
        result.__qualname__ = function.__qualname__
        result.__module__ = function.__module__
        result.__doc__ = function.__doc__
        vars(result).update((key, self._copy(value, name)) for key, value in vars(function).items())
        for variable, cell, old in zip(function.__code__.co_freevars, cells, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                cell.cell_contents = self._copy(old.cell_contents, variable)
                if not library:
                    self._places.append(_NamedPlace(variable, *_cell_access(cell, old)))
        if not library:
            names = global_names(function.__code__)
            for variable in sorted(scope if names & _READ_ANY_GLOBAL else names):
                self._copy_global(variable, scope)
            self._places += _function_places(result)
        return result

    def _copy_handlers(self) -> dict[int, logging.Handler]:
        """Copy the handlers whose classes the user wrote; handlers that cannot be copied receive no records."""
        result: dict[int, logging.Handler] = {}
        for handler in all_handlers():
            kind = type(handler)
            # A copy of a stream handler would write to the user's stream.
            is_stream = is_instance(handler, logging.StreamHandler)
            home = kind.__module__.partition(".")[0]
            is_pythons = home in sys.stdlib_module_names
            if is_stream or is_pythons or home == _OWN_PACKAGE or not is_own(kind) or self._is_library_type(kind):
                continue
            failed: list[Any] = []
            copy: logging.Handler = object.__new__(kind)
            self._memo[id(handler)] = copy
            vars(copy).update((k, clone(v, self._memo, failed)) for k, v in vars(handler).items() if k != "lock")
            copy.createLock()
            if not failed:
                result[id(handler)] = copy
                name = f"the attributes of the handler {kind.__name__}"
                self._places.append(_NamedPlace(name, functools.partial(_identity, vars(copy)), _ignore))
        return result

    def _copy_filters(self) -> dict[int, Any]:
        """Copy the filters of loggers; filters that cannot be copied let every record pass."""
        result: dict[int, Any] = {}
        for original in all_filters():
            failed: list[Any] = []
            copy = clone(original, self._memo, failed, self._copy_function, self._blocks)
            if not failed:
                result[id(original)] = copy
                owner = getattr(copy, "__self__", copy)  # of a method
                if is_data(owner):
                    name = f"the attributes of the filter {type(owner).__name__}"
                    self._places.append(_NamedPlace(name, functools.partial(_identity, owner), _ignore))
        return result

    def _copy_globals(self, scope: dict[str, Any]) -> dict[str, Any]:
        origin = self._origin(scope)
        if origin not in self._globals:
            self._modules.append(copied_module(scope))
            self._globals[origin] = result = vars(self._modules[-1])
            self._origins[id(result)] = origin
            copy_fx_wraps(scope, result)
            weakref.finalize(self, forget_fx_wraps, id(result))  # a reference would keep it alive
        return self._globals[origin]

    def _origin(self, scope: dict[str, Any]) -> int:
        """Return the id of the namespace of which one is a copy, or its own id."""
        return self._origins.get(id(scope)) or self._kept.scopes.get(id(scope), id(scope))

    def _copy_global(self, name: str, scope: dict[str, Any]) -> None:
        key = self._origin(scope), name
        if key in self._copied_globals:  # by a different function
            return
        self._copied_globals.add(key)
        value = scope.get(name, _MISSING)
        if (refusing := REFUSABLE.instead_of(value)) is not None:
            scope[name] = refusing
            return
        if is_bound_to_data(value):
            scope[name] = method = self._copy(value, name)
            self._places.append(_NamedPlace(name, functools.partial(_identity, method.__self__), _ignore))
        if is_instance(value, types.ModuleType | types.BuiltinFunctionType | type):
            return
        if value is not _MISSING:
            scope[name] = self._copy(value, name)
        read, write, *_ = _item_access(scope, name)
        self._places.append(_NamedPlace(name, read, write, key))

    def _swap_uncopied_state(self) -> None:
        """Swap the globals, closures and class attributes that are used by code that is not copied."""
        copied = {id(scope) for scope in self._globals.values()}
        roots = [self.call, *self.handlers.values(), *self.filters.values(), *(value for _, value in self.roots())]
        modules = _used_modules(roots)
        roots += [vars(module)[name] for module, names in modules for name in names]
        if self.arguments is not None:
            roots += [*self.arguments.args, *self.arguments.kwargs.values()]
        parts = [vars(module)[name] for module, names in modules for name in names]
        kinds = dict.fromkeys(part for part in parts if is_instance(part, type))
        assigned: dict[tuple[int, str], Any] = {}
        functions = []
        stored: set[VariableKey] = set()
        assigns_attributes = False
        own: list[types.FunctionType] = []
        loggers: dict[int, logging.Filterer] = {}
        for item in list(reached(*roots)):
            kinds.update(dict.fromkeys(type(item).__mro__))
            if is_instance(item, logging.Filterer):
                loggers[id(item)] = item
            if is_instance(item, types.FunctionType) and not self._is_library(item) and is_own(item):
                loggers.update((id(named), named) for named in _named_loggers(item.__code__))
                names = global_names(item.__code__)
                kinds.update((value, None) for name in names if is_instance(value := item.__globals__.get(name), type))
                assigned.update(assigned_attributes(item))
                own.append(item)
                origin = self._origin(item.__globals__)
                stored.update((origin, name) for name in global_names(item.__code__, ("STORE", "DELETE")))
                assigns_attributes = assigns_attributes or sets_attributes(item.__code__)
                if id(item.__globals__) not in copied:
                    functions.append((item, names))
        destructible = [kind for kind in kinds if self._is_users_type(kind) and "__del__" in vars(kind)]
        self._destroys = next((effect for kind in destructible for effect in _effects_of_destructor(kind, own)), None)
        in_modules = self._swap_modules(modules)
        if assigns_attributes:
            self._namespaces = list(in_modules)
        known = {(id(vars(module)), name) for module, names in in_modules for name in names}
        stored |= self._callers_of(stored, own)
        methods = {kind: self._swap_methods(kind, stored) for kind in kinds if stored and self._is_users_type(kind)}
        self._swap_variables(functions, known)
        kinds.update((meta, None) for kind in list(kinds) for meta in inspect.getmro(type(kind)))
        for kind in kinds:
            if self._is_users_type(kind):
                swapped = self._swap_attributes(kind, with_members=assigns_attributes)
                swapped |= methods.get(kind, set())
                self._namespaces.append((kind, frozenset(name for _, name in swapped)))
                known |= swapped
        self._swap_parts(own, are_changed=assigns_attributes)
        self._swap_assigned(assigned, known)
        self.assigned += library_parts(own)
        self._swap_attached_data(loggers.values())

    def _swap_variables(self, functions: list[tuple[types.FunctionType, set[str]]], known: set[VariableKey]) -> None:
        """Swap the globals and closure variables of functions that are not copied, unless they are known."""
        for function, names in functions:
            if function in self._copied_methods:
                continue
            scope = function.__globals__
            accesses: list[Any] = [(name, scope, _item_access(scope, name)) for name in sorted(names)]
            cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            accesses += [(name, cell, _cell_access(cell)) for name, cell in cells if name != "__class__"]
            for name, holder, access in accesses:
                if (id(holder), name) not in known:
                    known.add((id(holder), name))
                    self._swap(_NamedPlace(name, *access))

    def _swap_attributes(self, kind: type, *, with_members: bool) -> set[tuple[int, str]]:
        """Swap the attributes of a class and, if requested, of an enumeration's members; return those swapped."""
        names = [name for name in vars(kind) if not name.startswith("__") and name not in _LAYOUT]
        names = [
            name for name in names if self._swap(_NamedPlace(f"{kind.__name__}.{name}", *_attribute_access(kind, name)))
        ]
        if with_members and issubclass(kind, enum.Enum):
            for member in kind.__members__.values():
                self._swap(_NamedPlace(f"{kind.__name__}.{member.name}", *_attributes_access(member)))
        return {(id(kind), name) for name in names}

    def _callers_of(self, variables: set[VariableKey], functions: list[types.FunctionType]) -> set[VariableKey]:
        """Return the names of the functions that use some of the variables, directly or by calling each other."""
        used: list[tuple[VariableKey, set[VariableKey]]] = []
        for function in functions if variables else ():
            origin = self._origin(function.__globals__)
            used.append(((origin, function.__name__), {(origin, name) for name in global_names(function.__code__)}))
        found: set[VariableKey] = set()
        while new := {key for key, names in used if key not in found and not names.isdisjoint(variables | found)}:
            found |= new
        return found

    def _swap_methods(self, kind: type, stored: set[VariableKey]) -> set[VariableKey]:
        """Swap copies in for the methods that share a global with copied functions if one of them assigns it."""
        swapped = set()
        for name, member in list(vars(kind).items()):
            used = [
                (self._origin(function.__globals__), name)
                for function in functions_in(member)
                if self._origin(function.__globals__) in self._globals and not self._is_library(function)
                for name in global_names(function.__code__)
            ]
            if not stored.isdisjoint(used):
                place = _NamedPlace(f"{kind.__name__}.{name}", *_attribute_access(kind, name))
                self._copied_methods.update(functions_in(member))
                copy = with_functions(member, self._copy_function)
                self._places.append(_SwappedPlace(place, copy, is_function=True))
                swapped.add((id(kind), name))
        return swapped

    def _swap_parts(self, functions: list[types.FunctionType], *, are_changed: bool) -> None:
        """Swap the data in the defaults and attributes of functions that are not copied, such as methods.

        Parameters
        ----------
        functions : list of FunctionType
        are_changed : bool
            Whether code sets attributes, perhaps of these functions.
        """
        copies = set(map(id, self._functions))
        for function in functions:
            if id(function) in copies:
                continue
            title = function.__qualname__
            for name in ("__defaults__", "__kwdefaults__"):
                value = getattr(function, name)
                inside = self._copy(value, title)
                if are_changed or inside is not value:
                    place = _NamedPlace(f"{title}.{name}", *_part_access(function, name))
                    self._places.append(_SwappedPlace(place, inside))
            attributes = vars(function)
            names = [name for name in attributes if not name.startswith("__")]
            swapped = [
                name for name in names if self._swap(_NamedPlace(f"{title}.{name}", *_item_access(attributes, name)))
            ]
            if are_changed:
                self._namespaces.append((function, frozenset(swapped)))

    def _swap_assigned(self, assigned: Mapping[tuple[int, str], Any], known: set[tuple[int, str]]) -> None:
        """Swap the attributes that code assigns to, unless they are swapped already."""
        for (_, name), owner in assigned.items():
            if is_library_owner(owner):
                self.assigned.append(LibraryAttribute(owner, name))
            elif (id(vars(owner) if is_instance(owner, types.ModuleType) else owner), name) not in known:
                place = _NamedPlace(f"{owner.__name__}.{name}", *_attribute_access(owner, name))
                value = place.read()
                self._places.append(_SwappedPlace(place, self._copy(value, place.name) if is_data(value) else value))

    def _swap_attached_data(self, loggers: Iterable[logging.Filterer]) -> None:
        """Swap the data in attributes of loggers, of Python's own handlers and of the thread, which are not copied.

        Handlers of other classes keep theirs: they may collect the records of other threads there.
        """
        own = [item for item in loggers if is_instance(item, logging.Logger) or type(item).__module__ in _LOGGING]
        for owner in {id(item): item for item in (*own, threading.current_thread(), threading.main_thread())}.values():
            attributes = vars(owner)
            title = getattr(owner, "name", None) or type(owner).__name__
            for name, value in list(attributes.items()):
                if name[:1] != "_" and name not in _OF_LOGGING and is_data(value):
                    self._swap_if_copied(_NamedPlace(f"{title}.{name}", *_item_access(attributes, name)), value)

    def _swap_modules(
        self, modules: list[tuple[types.ModuleType, list[str]]]
    ) -> list[tuple[types.ModuleType, frozenset[str]]]:
        """Swap names of modules; return those that were swapped."""
        swapped = []
        for module, names in modules:
            places = {
                name: _NamedPlace(f"{module.__name__}.{name}", *_item_access(vars(module), name)) for name in names
            }
            swapped.append((module, frozenset(name for name, place in places.items() if self._swap(place))))
        return swapped

    def _swap(self, place: _NamedPlace) -> bool:
        """Swap a copy in for the value at a place; return whether a run's assignments to it are undone with that."""
        try:
            value = place.read()
        except ValueError:  # an empty cell
            return False
        value = self._kept.values.get(place.key, value) if place.key is not None else value
        before = len(self._places)
        if value is _MISSING or is_atom(value):
            self._places.append(_SwappedPlace(place, value))
        elif (refusing := REFUSABLE.instead_of(value)) is not None:
            self._places.append(_SwappedPlace(place, refusing))
        elif is_instance(value, functools.singledispatchmethod) or (
            is_instance(value, types.FunctionType) and self._is_library(value)  # such as one with a registry
        ):
            self._swap_if_copied(place, value)
        elif is_data(value) or is_instance(value, _LRU_CACHE):
            self._places.append(_SwappedPlace(place, self._copy(value, place.name)))
        elif not is_code(value) and not hasattr(type(value), "__get__"):  # such as an iterator, a file or a queue
            self._swap_if_copied(place, value)
        return len(self._places) > before

    def _swap_if_copied(self, place: _NamedPlace, value: Any) -> None:
        failed: list[Uncopied] = []
        result = clone(value, self._memo, failed, self._copy_function, self._blocks)
        if result is not value and not failed:
            self._places.append(_SwappedPlace(place, result))

    def _is_library(self, function: types.FunctionType) -> bool:
        return is_library(function.__code__.co_filename)

    def _is_users_type(self, kind: type) -> bool:
        return is_own(kind) and not self._is_library_type(kind)

    def _is_library_type(self, kind: type) -> bool:
        home = getattr(sys.modules.get(kind.__module__), "__file__", None)
        return kind is object or is_library(home or "")


def _effects_of_destructor(kind: type, functions: Iterable[types.FunctionType]) -> Iterator[ObservedEffect]:
    """Yield the effect of functions, except its methods, that name a class with a destructor, which runs later."""
    what = f"creates a {kind.__name__}, whose destructor may run later"
    change = StateChange(what, frozenset({kind.__name__}), frozenset())
    others = [function for function in functions if not function.__qualname__.startswith(f"{kind.__qualname__}.")]
    place = find_changing_line(change, [function.__code__ for function in others], {})
    if place is not None:
        yield ObservedEffect("state", what, place)


#: Functions with which code reads or writes globals, or attributes, that it does not name.
_READ_ANY_GLOBAL = frozenset({"globals", "exec", "eval"})
_READ_ANY_ATTRIBUTE = _READ_ANY_GLOBAL | {"getattr", "attrgetter", "vars", "__dict__"}


def _is_variable(value: Any) -> bool:
    return type(value) in {bool, int, float, str, torch.Tensor}


def _used_modules(roots: list[Any]) -> list[tuple[types.ModuleType, list[str]]]:
    """Return the user's modules that code refers to, each with the names that the code uses from it."""
    functions = {id(item): item for item in reached(*roots) if is_instance(item, types.FunctionType) and is_own(item)}
    pending = list(functions.values())
    result: dict[str, tuple[types.ModuleType, dict[str, None]]] = {}
    while pending:
        function = pending.pop()
        names = set(_names(function.__code__))
        modules = [value for name in names if is_instance(value := function.__globals__.get(name), types.ModuleType)]
        imported = dict.fromkeys(_names(function.__code__, constants=True))
        modules += [sys.modules[name] for name in imported if name in sys.modules and name != "__main__"]
        if "modules" in names:
            own = sys.modules.get(str(function.__globals__.get("__name__")))
            modules += [own] if own is not None else []
        for module in modules:
            if not is_user_module(module):
                continue
            known = result.setdefault(module.__name__, (module, {}))[1]
            wanted = vars(module) if names & _READ_ANY_ATTRIBUTE else [name for name in names if name in vars(module)]
            used = [name for name in wanted if not name.startswith("__")]
            used += [name for name in ("__getattr__",) if name in vars(module)]  # it may provide others
            new = [vars(module)[name] for name in used if name not in known]
            modules += [part for part in new if is_instance(part, types.ModuleType)]
            known.update(dict.fromkeys(used))
            for item in reached(*(vars(module)[name] for name in used)):
                if is_instance(item, types.FunctionType) and is_own(item) and id(item) not in functions:
                    functions[id(item)] = item
                    pending.append(item)
    return [(module, list(names)) for module, names in result.values()]


def _names(code: types.CodeType, *, constants: bool = False) -> Iterator[str]:
    """Yield the names in code; with ``constants`` also its strings, which may name an imported module."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant, constants=constants)
        elif constants and isinstance(constant, str):
            yield constant


def _named_loggers(code: types.CodeType) -> Iterator[logging.Logger]:
    """Yield the loggers that code names, as in ``logging.getLogger("training")``."""
    known = logging.root.manager.loggerDict
    for name in _names(code, constants=True):
        if isinstance(log := known.get(name), logging.Logger):
            yield log


def _name(fn: Any) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))


def _function_places(function: types.FunctionType) -> Iterator[_NamedPlace]:
    """Yield the parts of a function that a call may change: its defaults and attributes."""
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if is_data(parameter.default) and not is_instance(parameter.default, type):
            yield _NamedPlace(parameter.name, functools.partial(_identity, parameter.default), _ignore)
    if vars(function) or function.__name__ in function.__code__.co_names:
        yield _NamedPlace(f"the attributes of {function.__name__}", lambda: vars(function), _ignore)


def _closes_over_data(function: types.FunctionType, depth: int = 3) -> bool:
    """Return whether the closure of a function contains a user's function, or an object that a call may change.

    It may do so through an inner function, like the functions that ``functools.singledispatch`` returns. PyTorch's
    decorators, such as ``torch.no_grad()``, return functions whose closure contains the decorated one.
    """
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            content = cell.cell_contents
            if depth and is_instance(content, types.FunctionType):
                is_users = is_own(content) and not is_library(content.__code__.co_filename)
                if is_users or _closes_over_data(content, depth - 1):
                    return True
            content = getattr(content, "__self__", content) if is_instance(content, types.MethodType) else content
            if is_instance(content, weakref.ref) or (is_data(content) and not is_instance(content, tuple)):
                return True
    return False


def _identity(value: Any) -> Any:
    return value


def _write_all(writes: list[Callable[[Any], None]], value: Any) -> None:
    for write in writes:
        write(value)


def _ignore(_: Any) -> None:
    """Write nothing, since the object stays in its place."""


_Access = tuple["Callable[[], Any]", "Callable[[Any], None]", "VariableKey", Any]


def _cell_access(cell: types.CellType, original: types.CellType | None = None) -> _Access:
    def write(value: Any) -> None:
        if value is not _MISSING:
            cell.cell_contents = value

    return lambda: cell.cell_contents, write, (id(original or cell), ""), original or cell


def _item_access(scope: dict[str, Any], name: str) -> _Access:
    def write(value: Any) -> None:
        if value is _MISSING:
            scope.pop(name, None)
        else:
            scope[name] = value

    return lambda: scope.get(name, _MISSING), write, (id(scope), name), scope


def _part_access(function: types.FunctionType, name: str) -> _Access:
    read, write = functools.partial(getattr, function, name), functools.partial(setattr, function, name)
    return read, write, (id(function), name), function


def _attributes_access(item: Any) -> _Access:
    """Return functions that read and replace all attributes of an object."""

    def write(attributes: Any) -> None:
        vars(item).clear()
        vars(item).update(attributes)

    return lambda: dict(vars(item)), write, (id(item), ""), item


def _attribute_access(kind: type | types.ModuleType, name: str) -> _Access:
    def write(value: Any) -> None:
        if value is not _MISSING:
            setattr(kind, name, value)
        elif name in vars(kind):
            delattr(kind, name)

    return lambda: vars(kind).get(name, _MISSING), write, (id(kind), name), kind

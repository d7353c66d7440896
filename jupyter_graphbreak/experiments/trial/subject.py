"""A function together with what it may change, copied, so that every run starts from the same state."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import logging
import sys
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.separate_cache import copy_fx_wraps, forget_fx_wraps, is_allowed_in_graph
from jupyter_graphbreak.experiments.trial.assigned_attributes import (
    AttributeOfLibrary,
    assigned_attributes,
    is_of_library,
)
from jupyter_graphbreak.experiments.trial.copies import (
    Saved,
    Uncopied,
    clone,
    filled,
    is_atom,
    is_code,
    is_data,
    is_shared,
    keeping,
    memory_key,
    slot,
)
from jupyter_graphbreak.experiments.trial.effects import all_handlers
from jupyter_graphbreak.experiments.trial.places import named
from jupyter_graphbreak.experiments.trial.run_setup import current_setup
from jupyter_graphbreak.recording.targets import is_own, reached
from jupyter_graphbreak.recording.threads_at_work import thread_at_work
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyter_graphbreak.experiments.trial.copies import Blocks
    from jupyter_graphbreak.experiments.trial.inputs import Arguments

_MISSING = object()
_OURS = __name__.partition(".")[0]
#: What ``functools.lru_cache`` makes of a function.
_CACHING = type(functools.lru_cache(len))


class OtherThreadError(Exception):
    """A copy cannot run now: another thread would see what is exchanged for it."""


@dataclass(frozen=True)
class _Place:
    """A name that code reads or writes: a global, a variable of an outer function, an attribute of a class."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]


class _Swapped:
    """A place of code that is not copied, such as a method: it holds the copy only while a program runs."""

    def __init__(self, place: _Place, inside: Any) -> None:
        self.name = place.name
        self._place = place
        self._other = inside
        self._entered = False

    def read(self) -> Any:
        return self._place.read() if self._entered else self._other

    def write(self, value: Any) -> None:
        if not self._entered:
            self._other = value
        elif value is not self._place.read():
            self._place.write(value)

    @property
    def is_constant(self) -> bool:
        """Whether it holds what never changes, such as a number: nothing is exchanged until a run assigns to it."""
        return is_atom(self._other) or is_code(self._other) or self._other is _MISSING

    def exchange(self) -> None:
        held = self._place.read()
        if held is not self._other:
            self._place.write(self._other)
        self._entered, self._other = not self._entered, held


class Subject:
    """A callable that leaves no trace when it runs: the functions, closures, globals and modules behind it are copies.

    Its code objects are new, too, so Dynamo has compiled none of them. The methods of classes are not copied; what they
    read by global names is exchanged for copies while a program runs, see :meth:`entered`.

    Parameters
    ----------
    fn : callable
        A function, a method, a module or another object that can be called.
    arguments : Arguments, optional
        What it is called with. Copied together with the rest: what is one object or one memory stays one.
    blocks : Blocks, optional
        For a copy that is kept and does not run itself: where the copies of its large memory lie.

    Attributes
    ----------
    call : callable
        The copy.
    arguments : Arguments or None
        The copies of the arguments, to be given to runs.
    initial : dict
        A copy of the state at the beginning, by name.
    modes : CallModes
        Those in which calls are made.
    memory : Memory
        Large memory that it shares with other subjects.
    shared : list of str
        What could not be copied, so that runs work on the user's own: name, type and reason. It is as before after
        each run.
    used_up : list of str
        The same of what a run would use up, such as a generator.
    assigned : list of AttributeOfLibrary
        The attributes of packages to which the code assigns.
    """

    def __init__(
        self, fn: Callable[..., Any], arguments: Arguments | None = None, blocks: Blocks | None = None
    ) -> None:
        self._memo: dict[Any, Any] = {}
        setup = current_setup()
        self.modes, self.memory = setup.modes, setup.memory
        self._blocks = self.memory if blocks is None else blocks
        self._separate: set[Any] = set()
        self._uncopied: list[Any] = []
        self.used_up: list[str] = []
        self.assigned: list[AttributeOfLibrary] = []
        self._globals: dict[int, dict[str, Any]] = {}
        self._functions: list[types.FunctionType] = []
        self._places: list[_Place | _Swapped] = []
        self._entered = 0
        self._caches: list[Any] = []
        self.shared: list[str] = []
        self.call: Any = self._fresh(fn, _name(fn))
        self.owner: Any = None
        if not isinstance(self.call, types.FunctionType | types.BuiltinFunctionType | type):
            self.owner = getattr(self.call, "__self__", self.call)
        self.arguments = None
        if arguments is not None:
            for name, value in arguments.named(fn).items():
                self._fresh(value, name)
            self.arguments = arguments.mapped(lambda value: self._fresh(value, "the arguments"))
        #: Copies of the handlers of loggers that are of the user's own classes, by the ids of the originals.
        self.handlers = self._copied_handlers()
        self._swap_what_is_not_copied()
        self._kept_outside = Saved(self._uncopied)
        if blocks is not None:
            return
        self._values = [(place, slot(place.read())) for place in self._places]
        self._saved = Saved((value for _, value in self.roots()), self.memory.holds)
        self.initial = self.state()

    def roots(self) -> Iterator[tuple[str, Any]]:
        """Yield what a call may change, by name; what belongs to the module or instance itself has no prefix."""
        if self.owner is not None:
            yield "", self.owner
        seen = set()
        for place in self._places:
            value = place.read()
            if value is not _MISSING and place.name not in seen:
                seen.add(place.name)
                yield place.name, value

    def functions(self) -> list[types.FunctionType]:
        """Return the functions that are copies."""
        return list(self._functions)

    def state(self, memo: dict[Any, Any] | None = None) -> dict[str, Any]:
        """Return a copy of everything that a call may have changed, by name, to be compared."""
        memo = self.unchanged() if memo is None else memo
        return {name or "self": self.seen(value, memo) for name, value in self.roots()}

    def seen(self, value: Any, memo: dict[Any, Any]) -> Any:
        """Return a copy that is only to be compared: digests stand for large tensors."""
        return clone(value, memo, digests=self.memory.digests)

    def unchanged(self) -> dict[Any, Any]:
        """Return a memo for ``copies.clone``: what no run has changed is not copied."""
        return self.memory.unchanged()

    def copies_of(self, arguments: Arguments) -> Arguments:
        """Return copies of arguments for a run, which stay one object with what the subject holds of them."""
        return arguments.copy(self.held() | self.memory.memo(self._separate))

    def separate_changed(self) -> None:
        """Give what a run has changed memory of its own, so that other subjects do not notice.

        To be called after a run, before another subject runs.
        """
        for before, work in self.memory.changed():
            self._saved.move(work, work.clone(), before)
            self._separate.add(memory_key(work))
        self.memory.restore()

    def restore(self) -> None:
        """Go back to the state at the beginning; the objects stay the same, because captured programs hold them."""
        for cached in self._caches:
            cached.cache_clear()
        for place, value in self._values:
            place.write(filled(value))
        self.memory.restore()
        self._saved.put_back()

    def variables(self) -> dict[str, tuple[Any, Callable[[Any], None]]]:
        """Return the numbers, flags and tensors that the code reads besides its arguments, each with what sets it.

        They are globals, variables of outer functions, attributes of instances, items of dicts, by their places.
        """
        found: dict[str, tuple[Any, Callable[[Any], None]]] = {}
        for place in self._places:
            if _is_variable(place.read()):
                found.setdefault(place.name, (place.read(), place.write))
        for name, root in self.roots():
            parts = root.named_modules() if isinstance(root, torch.nn.Module) else [("", root)]
            for path, part in parts:
                holder = part if type(part) is dict else getattr(part, "__dict__", {}) if is_data(part) else {}
                for key, value in holder.items() if not isinstance(part, torch.Tensor) else ():
                    if isinstance(key, str) and not key.startswith("_") and key != "training" and _is_variable(value):
                        whole = ".".join(step for step in (name or "self", path, key) if step)
                        found.setdefault(whole, (value, functools.partial(holder.__setitem__, key)))
        return found

    def assign(self, values: Mapping[str, Any]) -> None:
        """Set variables by their places; :meth:`restore` takes that back."""
        variables = self.variables() if values else {}
        for place, value in values.items():
            if place in variables:
                variables[place][1](value)

    def held(self) -> dict[Any, Any]:
        """Return every object of the state by its id, as a memo for ``copies.clone``."""
        seen: set[int] = set()
        return keeping(item for name, root in self.roots() for _, item in named(root, name, seen))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make calls in the modes of the entry's own call while the context is open.

        What methods and other code that is not copied read is exchanged for the copies meanwhile, and what could not be
        copied is as before afterwards.

        Raises
        ------
        OtherThreadError
            If another thread of the user's runs, which would see the copies.
        """
        swapped = [place for place in self._places if isinstance(place, _Swapped)]
        shared = next((place.name for place in swapped if not place.is_constant), None)
        if shared is not None and (thread := thread_at_work()) is not None:
            raise OtherThreadError(f"another thread of yours is running ({thread}), and would see copies of {shared}")
        self._entered += 1
        if self._entered == 1:
            for place in swapped:
                place.exchange()
        try:
            with self.modes.entered():
                yield
        finally:
            self._entered -= 1
            if not self._entered:
                for place in swapped:
                    place.exchange()
                self._kept_outside.put_back()

    def _fresh(self, value: Any, name: str) -> Any:
        if id(value) in self._memo:
            return self._memo[id(value)]
        if value is _MISSING or is_atom(value):
            return value
        if isinstance(value, _CACHING):
            return self._fresh_cache(value, name)
        failed: list[Uncopied] = []
        made = clone(value, self._memo, failed, self._fresh_function, self._blocks)
        for item, reason in failed:
            self._uncopied.append(item)
            own = "" if item is value else f"{_name(type(item))} in "
            sentence = f"`{name}` ({own}{type(value).__name__}) cannot be copied: {reason}"
            (self.used_up if _is_used_up(item) else self.shared).append(sentence)
        return made

    def _fresh_cache(self, cached: Any, name: str) -> Any:
        """Return a function with a cache of its own, empty: what a cache holds can be computed again."""
        parameters = cached.cache_parameters()
        made = functools.lru_cache(parameters["maxsize"], parameters["typed"])(self._fresh(cached.__wrapped__, name))
        self._memo[id(cached)] = self._memo[id(made)] = made
        self._caches.append(made)
        return made

    def _fresh_function(self, function: types.FunctionType) -> types.FunctionType:
        known: types.FunctionType | None = self._memo.get(id(function))
        if known is not None:
            return known
        library = self._is_library(function)
        if library and not (function.__closure__ and (is_own(function) or _leads_to_data(function))):
            return function  # front ends know some of PyTorch's functions by identity
        if is_allowed_in_graph(function):
            return function
        scope = function.__globals__ if library else self._own_globals(function.__globals__)
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        made = types.FunctionType(function.__code__.replace(), scope, function.__name__, None, cells or None)
        self._memo[id(function)] = self._memo[id(made)] = made  # it may refer to itself; others find it in the globals
        name = function.__name__
        if function.__defaults__ is not None:
            made.__defaults__ = tuple(self._fresh(value, name) for value in function.__defaults__)
        if function.__kwdefaults__ is not None:
            made.__kwdefaults__ = {key: self._fresh(value, name) for key, value in function.__kwdefaults__.items()}
        self._functions.append(made)
        made.__annotations__ = function.__annotations__
        made.__qualname__ = function.__qualname__
        made.__module__ = function.__module__
        made.__doc__ = function.__doc__
        vars(made).update((key, self._fresh(value, name)) for key, value in vars(function).items())
        for variable, cell, old in zip(function.__code__.co_freevars, cells, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                cell.cell_contents = self._fresh(old.cell_contents, variable)
                if not library:
                    self._places.append(_Place(variable, *_cell_access(cell)))
        if not library:
            for variable in sorted(_global_names(function.__code__)):
                self._fresh_global(variable, scope)
            self._places += _of_function(made)
        return made

    def _copied_handlers(self) -> dict[int, logging.Handler]:
        """Copy the handlers of the user's own classes; records go to no handler that cannot be copied."""
        made: dict[int, logging.Handler] = {}
        for handler in all_handlers():
            kind = type(handler)
            # One that writes to a stream would write to the user's.
            is_stream = isinstance(handler, logging.StreamHandler)
            home = kind.__module__.partition(".")[0]
            is_pythons = home in sys.stdlib_module_names
            if is_stream or is_pythons or home == _OURS or not is_own(kind) or self._is_library_class(kind):
                continue
            failed: list[Any] = []
            copy: logging.Handler = object.__new__(kind)
            self._memo[id(handler)] = copy
            vars(copy).update((k, clone(v, self._memo, failed)) for k, v in vars(handler).items() if k != "lock")
            copy.createLock()
            if not failed:
                made[id(handler)] = copy
                name = f"the attributes of the handler {kind.__name__}"
                self._places.append(_Place(name, functools.partial(_itself, vars(copy)), _nothing))
        return made

    def _own_globals(self, scope: dict[str, Any]) -> dict[str, Any]:
        if id(scope) not in self._globals:
            self._globals[id(scope)] = made = dict(scope)
            copy_fx_wraps(scope, made)
            weakref.finalize(self, forget_fx_wraps, made)
        return self._globals[id(scope)]

    def _fresh_global(self, name: str, scope: dict[str, Any]) -> None:
        value = scope.get(name, _MISSING)
        if isinstance(value, types.ModuleType | types.BuiltinFunctionType | type):
            return
        if value is not _MISSING:
            scope[name] = self._fresh(value, name)
        if all(place.name != name for place in self._places):
            self._places.append(_Place(name, *_item_access(scope, name)))

    def _swap_what_is_not_copied(self) -> None:
        """Find the globals, closures and attributes of the user's classes and of functions that were not copied."""
        copied = {id(scope) for scope in self._globals.values()}
        roots = [self.call, *self.handlers.values(), *(value for _, value in self.roots())]
        modules = _modules_used(roots)
        roots += [vars(module)[name] for module, names in modules for name in names]
        if self.arguments is not None:
            roots += [*self.arguments.args, *self.arguments.kwargs.values()]
        parts = [vars(module)[name] for module, names in modules for name in names]
        kinds = dict.fromkeys(part for part in parts if isinstance(part, type))
        assigned: dict[tuple[int, str], Any] = {}
        functions = []
        for item in list(reached(*roots)):
            kinds.update(dict.fromkeys(type(item).__mro__))
            if isinstance(item, types.FunctionType) and not self._is_library(item) and is_own(item):
                names = _global_names(item.__code__)
                kinds.update((value, None) for name in names if isinstance(value := item.__globals__.get(name), type))
                assigned.update(assigned_attributes(item))
                if id(item.__globals__) not in copied:
                    functions.append((item, names))
        self._swap_modules(modules)
        known: set[tuple[int, str]] = set()
        for function, names in functions:
            scope = function.__globals__
            accesses: list[Any] = [(name, scope, _item_access(scope, name)) for name in sorted(names)]
            cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            accesses += [(name, cell, _cell_access(cell)) for name, cell in cells if name != "__class__"]
            for name, holder, access in accesses:
                if (id(holder), name) not in known:
                    known.add((id(holder), name))
                    self._swap(_Place(name, *access))
        for kind in kinds:
            if is_own(kind) and not self._is_library_class(kind):
                for name in [name for name in vars(kind) if not name.startswith("__")]:
                    known.add((id(kind), name))
                    self._swap(_Place(f"{kind.__name__}.{name}", *_attribute_access(kind, name)))
        known.update((id(module), name) for module, names in modules for name in names)
        self._swap_assigned(assigned, known)

    def _swap_assigned(self, assigned: Mapping[tuple[int, str], Any], known: set[tuple[int, str]]) -> None:
        """Find the attributes to which code assigns and that are not known yet."""
        for (_, name), owner in assigned.items():
            if is_of_library(owner):
                self.assigned.append(AttributeOfLibrary(owner, name))
            elif (id(owner), name) not in known:
                place = _Place(f"{owner.__name__}.{name}", *_attribute_access(owner, name))
                value = place.read()
                self._places.append(_Swapped(place, self._fresh(value, place.name) if is_data(value) else value))

    def _swap_modules(self, modules: list[tuple[types.ModuleType, list[str]]]) -> None:
        for module, names in modules:
            for name in names:
                self._swap(_Place(f"{module.__name__}.{name}", *_item_access(vars(module), name)))

    def _swap(self, place: _Place) -> None:
        try:
            value = place.read()
        except ValueError:  # an empty cell
            return
        if value is _MISSING or is_atom(value):
            self._places.append(_Swapped(place, value))
        elif is_data(value) or isinstance(value, _CACHING):
            self._places.append(_Swapped(place, self._fresh(value, place.name)))

    def _is_library(self, function: types.FunctionType) -> bool:
        return is_library(function.__code__.co_filename)

    def _is_library_class(self, kind: type) -> bool:
        home = getattr(sys.modules.get(kind.__module__), "__file__", None)
        return kind is object or is_library(home or "")


def _is_variable(value: Any) -> bool:
    return type(value) in {bool, int, float, torch.Tensor}


def _modules_used(roots: list[Any]) -> list[tuple[types.ModuleType, list[str]]]:
    """Return the user's own modules that code uses as modules, each with what code names of it."""
    functions = {id(item): item for item in reached(*roots) if isinstance(item, types.FunctionType) and is_own(item)}
    pending = list(functions.values())
    found: dict[str, tuple[types.ModuleType, dict[str, None]]] = {}
    while pending:
        function = pending.pop()
        names = set(_names(function.__code__))
        modules = [value for name in names if isinstance(value := function.__globals__.get(name), types.ModuleType)]
        named = dict.fromkeys(_names(function.__code__, constants=True))
        modules += [sys.modules[name] for name in named if name in sys.modules and name != "__main__"]
        for module in modules:
            if is_library(getattr(module, "__file__", None) or "") or not hasattr(module, "__file__"):
                continue
            known = found.setdefault(module.__name__, (module, {}))[1]
            used = [name for name in names if name in vars(module) and not name.startswith("__")]
            new = [vars(module)[name] for name in used if name not in known]
            modules += [part for part in new if isinstance(part, types.ModuleType)]
            known.update(dict.fromkeys(used))
            for item in reached(*(vars(module)[name] for name in used)):
                if isinstance(item, types.FunctionType) and is_own(item) and id(item) not in functions:
                    functions[id(item)] = item
                    pending.append(item)
    return [(module, list(names)) for module, names in found.values()]


def _names(code: types.CodeType, *, constants: bool = False) -> Iterator[str]:
    """Yield the names that code has; with its constants, which may name a module that it imports in a function."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant, constants=constants)
        elif constants and isinstance(constant, str):
            yield constant


def _name(fn: Any) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))


def _of_function(function: types.FunctionType) -> Iterator[_Place]:
    """Yield what a function itself holds that a call may change: defaults, attributes."""
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if is_data(parameter.default) and not isinstance(parameter.default, type):
            yield _Place(parameter.name, functools.partial(_itself, parameter.default), _nothing)
    if vars(function) or function.__name__ in function.__code__.co_names:
        yield _Place(f"the attributes of {function.__name__}", lambda: vars(function), _nothing)


def _leads_to_data(function: types.FunctionType) -> bool:
    """Whether the closure of a function holds an object that a call may change, or refers to one."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            held = cell.cell_contents
            held = getattr(held, "__self__", held) if isinstance(held, types.MethodType) else held
            if isinstance(held, weakref.ref) or (is_data(held) and not isinstance(held, tuple)):
                return True
    return False


def _is_used_up(value: Any) -> bool:
    """Whether running something uses an object up: nobody can put back what a generator has yielded."""
    return isinstance(value, Iterator) and not is_shared(value)


def _itself(value: Any) -> Any:
    return value


def _nothing(_: Any) -> None:
    """Write nothing: the object stays in its place."""


def _global_names(code: types.CodeType) -> set[str]:
    """Return the names of the globals that a function, or one inside it, reads or writes."""
    names = {instr.argval for instr in dis.get_instructions(code) if instr.opname.endswith("_GLOBAL")}
    inner = [_global_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return names.union(*inner)


def _cell_access(cell: types.CellType) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def write(value: Any) -> None:
        if value is not _MISSING:
            cell.cell_contents = value

    return lambda: cell.cell_contents, write


def _item_access(scope: dict[str, Any], name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def write(value: Any) -> None:
        if value is _MISSING:
            scope.pop(name, None)
        else:
            scope[name] = value

    return lambda: scope.get(name, _MISSING), write


def _attribute_access(kind: type | types.ModuleType, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def write(value: Any) -> None:
        if value is not _MISSING:
            setattr(kind, name, value)
        elif name in vars(kind):
            delattr(kind, name)

    return lambda: vars(kind).get(name, _MISSING), write

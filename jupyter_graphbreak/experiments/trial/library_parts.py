"""The parts of packages that code may change, as parts of the process's state: objects, containers and globals."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.trial.assigned_attributes import (
    SETTERS,
    STATE_CHANGING_NAMES,
    belongs_to_library,
    find_object,
    is_user_module,
    loaded_paths,
    may_mention_sys_modules,
    passed_paths,
)
from jupyter_graphbreak.experiments.trial.object_kinds import belongs_to_process, is_code
from jupyter_graphbreak.experiments.trial.state_parts import (
    MISSING,
    Identities,
    StatePart,
    identity_reader,
    identity_writer,
)
from jupyter_graphbreak.experiments.trial.swapped_bindings import attribute_binding
from jupyter_graphbreak.records.attributes import attribute_of, is_instance
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: The names with which code sets attributes, and ``exec``, which runs code from a string.
_SETTERS_AND_EXEC = SETTERS | {"exec"}
#: Modules whose containers change for other reasons: imports, and ``warnings.catch_warnings``.
_UNWATCHED_MODULES = frozenset({"sys", "warnings"})
#: Packages whose objects belong to the process, or whose state other parts restore.
_UNWATCHED_PACKAGES = frozenset(
    {*sys.stdlib_module_names, __name__.partition(".")[0], "torch", "numpy", "IPython", "ipykernel"}
)
#: Matches the names of globals that are probably caches or locks. Changes to these globals are ignored.
_CACHE_NAMES = re.compile(r"cache|memo|lock", re.IGNORECASE)


def library_parts(functions: Iterable[types.FunctionType]) -> list[StatePart]:
    """Return the parts of packages, except individual attributes, that functions may change."""
    functions = list(functions)
    may_set_any_attribute = any(_SETTERS_AND_EXEC & {*function.__code__.co_names} for function in functions)
    parts: dict[int, StatePart] = {}
    for function in functions:
        parts.update(_changed_namespaces(function))
        parts.update(_mentioned_containers(function))
        if may_set_any_attribute:
            parts.update(_passed_owners(function))
        if may_mention_sys_modules(function.__code__):
            current, restore = LoadedModules.current, LoadedModules.restore
            parts[id(sys.modules)] = StatePart("changes sys.modules", current, restore, ("modules",), ("sys",))
    return list(parts.values())


def attribute_part(owner: Any, name: str) -> StatePart:
    """Return an attribute of a package, or of one of its classes or objects, to which the user's code assigns."""
    binding = attribute_binding(owner, name)
    read, write = identity_reader(binding.read), identity_writer(binding.write)
    return StatePart(f"sets {_title(owner, name)}", read, write, (name,), is_assigned=True)


def _title(owner: Any, name: str) -> str:
    """Return the dotted name of an attribute to show."""
    named_owner = owner if hasattr(owner, "__name__") else type(owner)
    module = f"{named_owner.__module__}." if is_instance(named_owner, type) else ""
    return f"{module}{named_owner.__name__}.{name}"


def _mentioned_containers(function: types.FunctionType) -> Iterator[tuple[int, StatePart]]:
    """Yield the lists, dicts and sets of packages that a function mentions, such as ``copyreg.dispatch_table``."""
    for root, path in loaded_paths(function.__code__):
        owner = find_object(function, root, ())
        for name in path:
            value = (attribute_of(owner, "__dict__") or {}).get(name)
            is_module = is_instance(owner, types.ModuleType) and owner.__name__ not in _UNWATCHED_MODULES
            if type(value) in {list, dict, set} and is_module and belongs_to_library(owner):
                read, write = functools.partial(_items_of, value), functools.partial(_set_items, value)
                yield id(value), StatePart(f"changes {_title(owner, name)}", read, write, (name,))
            owner = value


def _items_of(container: Any) -> Identities:
    """Return the items of a container, or a dict's keys and values alternately."""
    if isinstance(container, dict):
        return Identities(part for item in list(container.items()) for part in item)
    return Identities(container)


def _set_items(container: Any, items: Identities) -> None:
    """Replace a container's items with those that :func:`_items_of` returned."""
    if isinstance(container, list):
        container[:] = items.items
        return
    container.clear()
    container.update(items.as_dict() if isinstance(container, dict) else items.items)


def _changed_namespaces(function: types.FunctionType) -> Iterator[tuple[int, StatePart]]:
    """Yield the globals of the library modules that a function changes, judging by the names of called functions."""
    for root, path in loaded_paths(function.__code__):
        owner = find_object(function, root, path)
        if is_instance(owner, types.FunctionType) and STATE_CHANGING_NAMES.match(owner.__name__):
            variables = owner.__globals__
            if is_library(owner.__code__.co_filename) and "__name__" in variables:
                title, names = str(variables["__name__"]), {owner.__name__, (root, *path)[-1]}
                read, write = functools.partial(_Globals, variables), functools.partial(_set_globals, variables)
                yield id(variables), StatePart(f"changes the state of the module {title}", read, write, names)


class _Variables(dict[str, Any]):
    """The values of globals or attributes, compared by identity."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Variables)
            and len(self) == len(other)
            and all(other.get(name, MISSING) is value for name, value in self.items())
        )

    __hash__ = None


class _Globals:
    """The globals of a module, with the items of lists, dicts and sets, but without modules, caches and locks.

    They are treated as unchanged if modules were imported in between.
    """

    def __init__(self, variables: dict[str, Any]) -> None:
        self.values = _Variables(
            (name, value)
            for name, value in list(variables.items())
            if not name.startswith("__") and not is_instance(value, types.ModuleType) and not _CACHE_NAMES.search(name)
        )
        containers = {name: value for name, value in self.values.items() if type(value) in {list, dict, set}}
        self.items = {name: _items_of(value) for name, value in containers.items()}
        self._module_count = len(sys.modules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Globals) and (
            self._module_count != other._module_count or (self.values == other.values and self.items == other.items)
        )

    __hash__ = None  # type: ignore[assignment]


def _set_globals(variables: dict[str, Any], saved: _Globals) -> None:
    for name in _Globals(variables).values.keys() - saved.values.keys():
        del variables[name]
    for name, value in saved.values.items():
        if name in saved.items and saved.items[name] != _items_of(value):
            _set_items(value, saved.items[name])
        if variables.get(name, MISSING) is not value:
            variables[name] = value


def _passed_owners(function: types.FunctionType) -> Iterator[tuple[int, StatePart]]:
    """Yield the modules and classes of libraries that a function passes to other code, which may set attributes."""
    for root, path in passed_paths(function.__code__):
        owner = find_object(function, root, path)
        if is_instance(owner, types.ModuleType | type) and owner is not sys and belongs_to_library(owner):
            read, write = functools.partial(_OwnerAttributes.of, owner), functools.partial(_set_attributes, owner)
            name = str(owner.__name__)
            yield id(owner), StatePart(f"sets attributes of {name}", read, write, (name.rpartition(".")[2],))


class _OwnerAttributes(dict[str, Any]):
    """The attributes of a module or class, except special ones such as ``__doc__``.

    Code that a library adds on its first use, such as an imported submodule, is not a change.
    """

    @classmethod
    def of(cls, owner: Any) -> _OwnerAttributes:
        """Return the current attributes of a module or class."""
        return cls((name, value) for name, value in list(vars(owner).items()) if not name.startswith("__"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OwnerAttributes) and all(
            self[name] is other.get(name, MISSING) if name in self else _is_library_code(other[name])
            for name in {**self, **other}
        )

    __hash__ = None


def _set_attributes(owner: Any, attributes: _OwnerAttributes) -> None:
    """Restore the attributes of a module or class, but keep new library code."""
    current = _OwnerAttributes.of(owner)
    for name in current.keys() - attributes.keys():
        if not _is_library_code(current[name]):
            delattr(owner, name)
    for name, value in attributes.items():
        if current.get(name, MISSING) is not value:
            setattr(owner, name, value)


def _is_library_code(value: Any) -> bool:
    """Return whether an object is a module, class or function from a library."""
    return is_instance(value, types.ModuleType | type | types.FunctionType) and belongs_to_library(value)


class LoadedModules(dict[str, types.ModuleType]):
    """The content of ``sys.modules``, for code that may mention this dict. Imports are not treated as changes."""

    @classmethod
    def current(cls) -> LoadedModules:
        """Return the current content."""
        return cls(sys.modules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoadedModules) and not (
            other.added_since(self) or any(other.get(name) is not module for name, module in self.items())
        )

    __hash__ = None

    def added_since(self, earlier_modules: LoadedModules) -> list[str]:
        """Return the names of the entries that are not in ``earlier_modules`` and that no import added."""
        return [name for name in self.keys() - earlier_modules.keys() if not self._is_imported(name, earlier_modules)]

    def _is_imported(self, name: str, earlier_modules: LoadedModules) -> bool:
        """Return whether an import added an entry, under the module's own name or within a new package."""
        package = name.partition(".")[0]
        is_own_name = getattr(attribute_of(self[name], "__spec__"), "name", None) == name
        return is_own_name or package not in {name, *earlier_modules}

    def restore(self) -> None:
        """Undo all changes to ``sys.modules`` since :meth:`current` was called, except imports."""
        for name in self.current().added_since(self):
            del sys.modules[name]
        sys.modules.update((name, module) for name, module in self.items() if sys.modules.get(name) is not module)


def library_objects(packages: Iterable[str]) -> StatePart:
    """Return the attributes of the objects among the globals of packages, given by name, as one part.

    A package may set them, for example on first use. If an eager run set them permanently, compiled code would not
    reach the error that setting them raises in Dynamo. The part has no names, because this is not an effect of the
    caller.
    """
    packages = frozenset(packages) - _UNWATCHED_PACKAGES
    owners = _objects_of_packages(packages, len(sys.modules)) if packages else ()

    def write(saved_attributes: list[_Variables]) -> None:
        for owner, attributes in zip(owners, saved_attributes, strict=True):
            current = vars(owner)
            for name in current.keys() - attributes.keys():
                del current[name]
            current.update(
                (name, value) for name, value in attributes.items() if current.get(name, MISSING) is not value
            )

    return StatePart("sets attributes of library objects", lambda: [_Variables(vars(owner)) for owner in owners], write)


@contextlib.contextmanager
def restore_library_objects(parts: Iterable[StatePart]) -> Iterator[Callable[[], None]]:
    """Restore the part of :func:`library_objects` at the end of the context; yield a function that does so earlier."""
    saved_values = [(part, part.read()) for part in parts if not part.names]

    def restore() -> None:
        for part, value in saved_values:
            part.write(value)

    try:
        yield restore
    finally:
        restore()


@functools.lru_cache(maxsize=8)
def _objects_of_packages(packages: frozenset[str], _: int) -> tuple[Any, ...]:
    """Return the objects among the globals of packages; the number of loaded modules only invalidates the cache."""
    owners: dict[int, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages and type(module) is types.ModuleType and not is_user_module(module):
            owners.update((id(value), value) for value in list(vars(module).values()) if _has_attributes(value))
    return tuple(owners.values())


def _has_attributes(value: Any) -> bool:
    """Return whether a value is an object of the program with attributes, and is neither code nor a class."""
    return type(attribute_of(value, "__dict__")) is dict and not is_code(value) and not belongs_to_process(value)

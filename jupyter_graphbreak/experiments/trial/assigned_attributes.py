"""Find the parts of packages that a function may change: attributes, containers, globals and ``sys.modules``."""

from __future__ import annotations

import dis
import functools
import re
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jupyter_graphbreak.recording.targets import walk_code_objects
from jupyter_graphbreak.records.attributes import attribute_of, is_instance
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MISSING = object()
#: Names that code uses to change attributes of objects by means other than ``owner.name = value``.
_SETTERS = frozenset({"setattr", "delattr", "vars", "__dict__", "__setattr__", "__delattr__"})
#: The names in ``_SETTERS``, and ``exec``, which runs code from a string.
_SETTERS_AND_EXEC = _SETTERS | {"exec"}


class LibraryAttribute(NamedTuple):
    """An attribute of a package, or of one of its classes or objects, to which the user's code assigns."""

    owner: Any
    name: str

    @property
    def title(self) -> str:
        """The dotted name to show."""
        named_owner = self.owner if hasattr(self.owner, "__name__") else type(self.owner)
        module = f"{named_owner.__module__}." if is_instance(named_owner, type) else ""
        return f"{module}{named_owner.__name__}.{self.name}"

    def read(self) -> Any:
        """Return the attribute's value, or a marker if the attribute does not exist."""
        return vars(self.owner).get(self.name, _MISSING)

    def write(self, value: Any) -> None:
        """Set the attribute to a value that :meth:`read` returned."""
        if value is not _MISSING:
            setattr(self.owner, self.name, value)
        elif self.name in vars(self.owner):
            delattr(self.owner, self.name)


class LibraryContainer(NamedTuple):
    """A package's list, dict or set that the user's code mentions."""

    owner: Any
    name: str
    container: Any

    @property
    def title(self) -> str:
        """The dotted name to show."""
        return LibraryAttribute(self.owner, self.name).title

    def content(self) -> list[Any]:
        """Return the container's items, or a dict's keys and values alternately."""
        if isinstance(self.container, dict):
            return [part for item in list(self.container.items()) for part in item]
        return list(self.container)

    def restore(self, content: list[Any]) -> None:
        """Replace the container's items with those that :meth:`content` returned."""
        if isinstance(self.container, list):
            self.container[:] = content
            return
        self.container.clear()
        self.container.update(
            zip(content[::2], content[1::2], strict=True) if isinstance(self.container, dict) else content
        )


#: The parts of packages that code may change.
LibraryPart: TypeAlias = (
    "LibraryAttribute | LibraryContainer | LibraryNamespace | LibraryModuleOrClass | LibraryObjects | LoadedModules"
)


class LibraryObjects(NamedTuple):
    """Objects in the globals of packages. A package may set their attributes, for example on first use.

    If an eager run set them permanently, compiled code would not reach the error that setting them raises in Dynamo.
    """

    owners: tuple[Any, ...]

    @property
    def title(self) -> str:
        """The description to show."""
        return "objects of libraries"

    def content(self) -> list[dict[str, Any]]:
        """Return the attributes of each object, by name."""
        return [dict(vars(owner)) for owner in self.owners]

    def restore(self, content: list[dict[str, Any]]) -> None:
        """Restore the attributes that :meth:`content` returned."""
        for owner, attributes in zip(self.owners, content, strict=True):
            current = vars(owner)
            for name in current.keys() - attributes.keys():
                del current[name]
            current.update(
                (name, value) for name, value in attributes.items() if current.get(name, _MISSING) is not value
            )


def have_same_values(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two dicts contain the same objects under the same names."""
    return len(one) == len(other) and all(other.get(name, _MISSING) is value for name, value in one.items())


class LibraryModuleOrClass(NamedTuple):
    """A library's module or class that the user's code passes to other code, which may set its attributes."""

    owner: Any

    @property
    def title(self) -> str:
        """The name to show."""
        return str(self.owner.__name__)

    def content(self) -> dict[str, Any]:
        """Return the owner's attributes by name, except special ones such as ``__doc__``."""
        return {name: value for name, value in list(vars(self.owner).items()) if not name.startswith("__")}

    def restore(self, content: dict[str, Any]) -> None:
        """Restore the content that :meth:`content` returned, but keep new library code, such as imported submodules."""
        current = self.content()
        for name in current.keys() - content.keys():
            if not is_library_code(current[name]):
                delattr(self.owner, name)
        for name, value in content.items():
            if current.get(name, _MISSING) is not value:
                setattr(self.owner, name, value)


class LibraryNamespace(NamedTuple):
    """The globals of a library module that user code may change by calling a function such as ``register``.

    ``function_names`` contains the function's name, and the name that the user's code uses for it.
    """

    variables: dict[str, Any]
    function_names: frozenset[str]

    @property
    def title(self) -> str:
        """The module's name."""
        return str(self.variables["__name__"])

    def content(self) -> dict[str, Any]:
        """Return each global by name, with the items of a list, dict or set; no modules, caches or locks."""
        result: dict[str, Any] = {}
        for name, value in list(self.variables.items()):
            if not name.startswith("__") and not is_instance(value, types.ModuleType) and not _CACHE_NAMES.search(name):
                container = LibraryContainer(None, name, value)
                result[name] = value, container.content() if type(value) in {list, dict, set} else None
        return result

    def restore(self, content: dict[str, Any]) -> None:
        """Restore the content that :meth:`content` returned."""
        for name in self.content().keys() - content.keys():
            del self.variables[name]
        for name, (value, items) in content.items():
            container = LibraryContainer(None, name, value)
            if items is not None and [*map(id, items)] != [*map(id, container.content())]:
                container.restore(items)
            if self.variables.get(name, _MISSING) is not value:
                self.variables[name] = value


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


#: Matches the names of functions that probably change the state of their module.
STATE_CHANGING_NAMES = re.compile(
    r"_?(?:(?:un|de)?register|add|set|reset|(?:un)?install|remove|push|pop|insert|append|update|clear|configure|use|define|"
    r"declare|(?:de)?activate)(?:_|$|[A-Z])"
)
#: Matches the names of globals that are probably caches or locks. Changes to these globals are ignored.
_CACHE_NAMES = re.compile(r"cache|memo|lock", re.IGNORECASE)


def is_user_module(module: types.ModuleType) -> bool:
    """Return whether a module is ``__main__``, comes from a user's file, or was created without an import."""
    if module.__name__ == "__main__":
        return True
    file = getattr(module, "__file__", None)
    if file is None:
        return type(module) is types.ModuleType and module.__spec__ is None
    return not is_library(file) and not file.startswith(OWN_FOLDER)


def is_library_code(value: Any) -> bool:
    """Return whether an object is a module, class or function of a library."""
    return is_instance(value, types.ModuleType | type | types.FunctionType) and belongs_to_library(value)


def belongs_to_library(owner: Any) -> bool:
    """Return whether a module, class, function or object belongs to the standard library or to an installed package."""
    module = owner if is_instance(owner, types.ModuleType) else sys.modules.get(owner.__module__)
    return isinstance(module, types.ModuleType) and not is_user_module(module)


def assigned_attributes(function: types.FunctionType) -> dict[tuple[int, str], Any]:
    """Return the owners of attributes that a function assigns to, by the owner's id and the attribute's name.

    The owners are modules and classes, and functions and objects of libraries. An owner is found only if the code
    reaches it from a global name, an imported name or a local alias of one of these, as in ``json.dumps = other``,
    ``torch.nn.Linear.calls += 1`` and ``setattr(reprlib.aRepr, "maxlist", 9)``.
    """
    result = {}
    for root, path in _assignments(function.__code__):
        owner, parent = _find_object(function, root, path[:-1]), _find_object(function, root, path[:-2])
        is_function = is_instance(owner, types.FunctionType) and is_library(owner.__code__.co_filename)
        if is_function or is_instance(owner, types.ModuleType | type) or _is_library_object(owner, parent):
            result[id(owner), path[-1]] = owner
    return result


def _find_object(function: types.FunctionType, root: str, path: tuple[str, ...]) -> Any:
    """Return the object to which a path of attributes leads from a global or a module, or ``None`` if there is none."""
    value: Any = function.__globals__.get(root, sys.modules.get(root))
    for name in path:
        value = (attribute_of(value, "__dict__") or {}).get(name)
    return value


def _is_library_object(item: Any, parent: Any) -> bool:
    """Return whether an object has attributes and belongs to the library module that contains it."""
    is_in_library_module = is_instance(parent, types.ModuleType) and parent is not sys and belongs_to_library(parent)
    return is_in_library_module and type(getattr(item, "__dict__", None)) is dict and belongs_to_library(type(item))


def library_parts(functions: Iterable[types.FunctionType]) -> list[LibraryPart]:
    """Return the parts of packages, except individual attributes, that functions may change."""
    functions = list(functions)
    may_set_any_attribute = any(_SETTERS_AND_EXEC & {*function.__code__.co_names} for function in functions)
    parts: dict[int, LibraryPart] = {}
    for function in functions:
        parts.update((id(namespace.variables), namespace) for namespace in _changed_namespaces(function))
        parts.update((id(container.container), container) for container in _mentioned_containers(function))
        if may_set_any_attribute:
            parts.update((id(owner.owner), owner) for owner in _passed_owners(function))
        if _may_mention_sys_modules(function.__code__):
            parts[id(sys.modules)] = LoadedModules()
    return list(parts.values())


def _passed_owners(function: types.FunctionType) -> Iterator[LibraryModuleOrClass]:
    """Yield the modules and classes of libraries that a function passes to other code, not those that it only uses."""
    for root, path in _passed_paths(function.__code__):
        owner = _find_object(function, root, path)
        if is_instance(owner, types.ModuleType | type) and owner is not sys and belongs_to_library(owner):
            yield LibraryModuleOrClass(owner)


@functools.lru_cache(maxsize=1024)
def _passed_paths(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the root name and attribute path of each object that code passes on, including as its ``__dict__``."""
    result: dict[tuple[str, tuple[str, ...]], None] = {}
    loaded_path: tuple[str, tuple[str, ...]] | None = None
    for instruction in _all_instructions(code):
        # Python 3.11 and 3.12 write "NULL + name" for a function that is called next. Python 3.13 writes "name + NULL".
        is_callee = instruction.opname == "LOAD_METHOD" or "NULL" in re.split(r" \+ |\|", instruction.argrepr)
        if instruction.opname in {"LOAD_ATTR", "LOAD_METHOD"} and loaded_path is not None and not is_callee:
            if instruction.argval != "__dict__":
                loaded_path = loaded_path[0], (*loaded_path[1], instruction.argval)
            continue
        if loaded_path is not None and not (is_callee and "GLOBAL" not in instruction.opname):
            result[loaded_path] = None
        is_global = instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"} and not is_callee
        loaded_path = (instruction.argval, ()) if is_global else None
    return tuple(result)


def _all_instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    """Yield the instructions of code and of the functions inside it."""
    for inner in walk_code_objects(code):
        yield from dis.get_instructions(inner)


def _changed_namespaces(function: types.FunctionType) -> Iterator[LibraryNamespace]:
    """Yield the namespaces of libraries that a function changes, judging by the names of functions that it calls."""
    for root, path in _loaded_paths(function.__code__):
        owner = _find_object(function, root, path)
        if is_instance(owner, types.FunctionType) and STATE_CHANGING_NAMES.match(owner.__name__):
            variables = owner.__globals__
            if is_library(owner.__code__.co_filename) and "__name__" in variables:
                yield LibraryNamespace(variables, frozenset({owner.__name__, (root, *path)[-1]}))


#: Modules whose containers change for other reasons: imports, and ``warnings.catch_warnings``.
_UNWATCHED_MODULES = frozenset({"sys", "warnings"})


@functools.lru_cache(maxsize=1024)
def _may_mention_sys_modules(code: types.CodeType) -> bool:
    """Return whether code, or a function inside it, contains the name ``modules``, which may mean ``sys.modules``."""
    return any("modules" in inner.co_names or "modules" in inner.co_consts for inner in walk_code_objects(code))


def _mentioned_containers(function: types.FunctionType) -> Iterator[LibraryContainer]:
    """Yield the lists, dicts and sets of packages that a function mentions, such as ``copyreg.dispatch_table``."""
    for root, path in _loaded_paths(function.__code__):
        owner = _find_object(function, root, ())
        for name in path:
            value = (attribute_of(owner, "__dict__") or {}).get(name)
            is_module = is_instance(owner, types.ModuleType) and owner.__name__ not in _UNWATCHED_MODULES
            if type(value) in {list, dict, set} and is_module and belongs_to_library(owner):
                yield LibraryContainer(owner, name, value)
            owner = value


@functools.lru_cache(maxsize=1024)
def _loaded_paths(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the root name and attribute path of each global that code reads, and of each attribute of a global."""
    result: dict[tuple[str, tuple[str, ...]], None] = {}
    root: str | None = None
    path: tuple[str, ...] = ()
    for instruction in _all_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            root, path = instruction.argval, ()
            result[root, path] = None
        elif instruction.opname in {"LOAD_ATTR", "LOAD_METHOD"} and root is not None:
            path = (*path, instruction.argval)
            result[root, path] = None
        else:
            root = None
    return tuple(result)


@functools.lru_cache(maxsize=1024)
def sets_attributes(code: types.CodeType) -> bool:
    """Return whether code, or a function inside it, sets or deletes attributes of objects."""
    if any(_SETTERS & {*inner.co_names} for inner in walk_code_objects(code)):
        return True
    return any(instruction.opname in {"STORE_ATTR", "DELETE_ATTR"} for instruction in _all_instructions(code))


@functools.lru_cache(maxsize=1024)
def _assignments(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the root name and attribute path of each attribute that code assigns to."""
    result: list[tuple[str, tuple[str, ...]]] = []
    for inner in walk_code_objects(code):
        result += _direct_assignments(inner)
        if _SETTERS & {*inner.co_names}:
            result += _assignments_by_name(inner)
    return tuple(dict.fromkeys(result))


def _assignments_by_name(code: types.CodeType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the root name and attribute path of each assignment by a call such as ``setattr(owner, "name", 1)``."""
    is_in_setter_call = False
    root: str | None = None
    path: tuple[str, ...] = ()
    aliases = _aliases(code)
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        match instruction.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                is_in_setter_call, root, path = (True, None, ()) if name in _SETTERS else (is_in_setter_call, name, ())
            case "LOAD_FAST" | "LOAD_FAST_CHECK" | "LOAD_FAST_BORROW" | "LOAD_DEREF" if name in aliases:
                root, path = aliases[name]
            case "LOAD_ATTR":
                path = (*path, name)
            case "LOAD_CONST" if is_in_setter_call:
                is_in_setter_call = False
                if root is not None and isinstance(name, str):
                    yield root, (*path, name)


def _aliases(code: types.CodeType) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the root name and attribute path that each local name stands for, as in ``F = torch.nn.functional``."""
    aliases: dict[str, tuple[str, tuple[str, ...]]] = {}
    loaded_path: tuple[str, tuple[str, ...]] | None = None
    constant: Any = None
    module, imports_names = "", False  # these describe the current import
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        match instruction.opname:
            case "LOAD_CONST":
                constant, loaded_path = name, None
            case "IMPORT_NAME":
                module, imports_names = name, constant is not None
                loaded_path = module.partition(".")[0], ()
            case "IMPORT_FROM":
                loaded_path = module, (name,) if imports_names else ()
            case "LOAD_GLOBAL" | "LOAD_NAME":
                loaded_path = name, ()
            case "LOAD_ATTR" if loaded_path is not None:
                loaded_path = loaded_path[0], (*loaded_path[1], name)
            case "STORE_FAST" | "STORE_NAME" | "STORE_GLOBAL" | "STORE_DEREF" if loaded_path is not None:
                aliases[name], loaded_path = loaded_path, None
            case "SWAP" | "ROT_TWO" | "POP_TOP" if module and not imports_names:
                pass  # part of `import a.b as c`
            case _:
                loaded_path = None
    return aliases


def _direct_assignments(code: types.CodeType) -> Iterator[tuple[str, tuple[str, ...]]]:
    aliases = _aliases(code)
    unresolved_path: tuple[None, tuple[str, ...]] = None, ()
    root: str | None
    root, path = unresolved_path
    # The owner in `owner.name += 1`: the code loads it once and uses it twice.
    copied_reference: tuple[str, tuple[str, ...]] | None = None
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        match instruction.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                root, path = name, ()
            case "LOAD_FAST" | "LOAD_FAST_CHECK" | "LOAD_FAST_BORROW" | "LOAD_DEREF":
                root, path = aliases.get(name, unresolved_path)
            case "LOAD_ATTR" | "LOAD_METHOD":
                path = (*path, name)
            case "COPY" | "DUP_TOP" if root is not None:
                copied_reference = root, path
            case "SWAP" | "ROT_TWO" if copied_reference is not None:
                root, path = copied_reference
            case "STORE_ATTR" | "DELETE_ATTR":
                if root is not None:
                    yield root, (*path, name)
                root = copied_reference = None

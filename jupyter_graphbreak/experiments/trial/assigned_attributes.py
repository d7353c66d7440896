"""Find the attributes of packages and their classes that a function assigns to."""

from __future__ import annotations

import dis
import functools
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Iterator

_MISSING = object()
#: Names by which code changes the attributes of objects without an assignment.
_SETTERS = frozenset({"setattr", "delattr", "vars", "__dict__", "__setattr__", "__delattr__"})


class LibraryAttribute(NamedTuple):
    """An attribute of a package, or of one of its classes, to which the user's code assigns."""

    owner: Any
    name: str

    @property
    def title(self) -> str:
        """The dotted name to show."""
        module = f"{self.owner.__module__}." if isinstance(self.owner, type) else ""
        return f"{module}{self.owner.__name__}.{self.name}"

    def read(self) -> Any:
        """Return its value, or a marker if it has none."""
        return vars(self.owner).get(self.name, _MISSING)

    def write(self, value: Any) -> None:
        """Set it to a value that :meth:`read` returned."""
        if value is not _MISSING:
            setattr(self.owner, self.name, value)
        elif self.name in vars(self.owner):
            delattr(self.owner, self.name)


class LibraryContainer(NamedTuple):
    """A list, dict or set of a package that the user's code names."""

    owner: Any
    name: str
    container: Any

    @property
    def title(self) -> str:
        """The dotted name to show."""
        return LibraryAttribute(self.owner, self.name).title

    def content(self) -> list[Any]:
        """Return its items; for a dict, keys and values in turn."""
        if isinstance(self.container, dict):
            return [part for item in list(self.container.items()) for part in item]
        return list(self.container)

    def refill(self, content: list[Any]) -> None:
        """Replace its items by those that :meth:`content` returned."""
        if isinstance(self.container, list):
            self.container[:] = content
            return
        self.container.clear()
        self.container.update(
            zip(content[::2], content[1::2], strict=True) if isinstance(self.container, dict) else content
        )


def is_library_owner(owner: types.ModuleType | type | types.FunctionType) -> bool:
    """Return whether a module, class or function belongs to the standard library or to an installed package."""
    module = owner if isinstance(owner, types.ModuleType) else sys.modules.get(owner.__module__)
    if getattr(module, "__name__", "__main__") == "__main__":
        return False
    file = getattr(module, "__file__", None)
    return file is None or is_library(file)


def assigned_attributes(function: types.FunctionType) -> dict[tuple[int, str], Any]:
    """Return the modules and classes whose attributes a function assigns to, by their ids and the attributes' names.

    Only assignments that name the owner are found: ``json.dumps = other``, ``torch.nn.Linear.calls += 1``.
    """
    result = {}
    for root, path in _assignments(function.__code__):
        owner = function.__globals__.get(root, sys.modules.get(root))
        for name in path[:-1]:
            owner = getattr(owner, "__dict__", {}).get(name)
        is_function = isinstance(owner, types.FunctionType) and is_library(owner.__code__.co_filename)
        if is_function or isinstance(owner, types.ModuleType | type):
            result[id(owner), path[-1]] = owner
    return result


#: Modules whose containers change for other reasons: imports, and contexts of warnings.
_NOT_WATCHED = frozenset({"sys", "warnings"})


def named_containers(function: types.FunctionType) -> Iterator[LibraryContainer]:
    """Yield the lists, dicts and sets of packages that a function names, such as ``copyreg.dispatch_table``."""
    for root, path in _loads(function.__code__):
        owner: Any = function.__globals__.get(root, sys.modules.get(root))
        for name in path:
            value = getattr(owner, "__dict__", {}).get(name)
            is_module = isinstance(owner, types.ModuleType) and owner.__name__ not in _NOT_WATCHED
            if type(value) in {list, dict, set} and is_module and is_library_owner(owner):
                yield LibraryContainer(owner, name, value)
            owner = value


@functools.lru_cache(maxsize=1024)
def _loads(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the first name and the attribute path of each name that code reads."""
    result: dict[tuple[str, tuple[str, ...]], None] = {}
    root: str | None = None
    path: tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            root, path = instruction.argval, ()
        elif instruction.opname in {"LOAD_ATTR", "LOAD_METHOD"} and root is not None:
            path = (*path, instruction.argval)
            result[root, path] = None
        else:
            root = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            result.update(dict.fromkeys(_loads(constant)))
    return tuple(result)


@functools.lru_cache(maxsize=1024)
def sets_attributes(code: types.CodeType) -> bool:
    """Return whether code, or a function inside it, sets or deletes attributes of objects."""
    if _SETTERS & {*code.co_names}:
        return True
    if any(instruction.opname in {"STORE_ATTR", "DELETE_ATTR"} for instruction in dis.get_instructions(code)):
        return True
    return any(sets_attributes(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))


@functools.lru_cache(maxsize=1024)
def _assignments(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the first name and the attribute path of each assignment to an attribute."""
    result = [*_assignments_in(code)]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            result += _assignments(constant)
    if _SETTERS & {*code.co_names}:
        result += _named_assignments(code)
    return tuple(dict.fromkeys(result))


def _named_assignments(code: types.CodeType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the same for calls such as ``setattr(owner, "name", 1)``."""
    begun = False
    root: str | None = None
    path: tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        match instruction.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                begun, root, path = (True, None, ()) if name in _SETTERS else (begun, name, ())
            case "LOAD_ATTR":
                path = (*path, name)
            case "LOAD_CONST" if begun:
                begun = False
                if root is not None and isinstance(name, str):
                    yield root, (*path, name)


def _assignments_in(code: types.CodeType) -> Iterator[tuple[str, tuple[str, ...]]]:
    imported: dict[str, str] = {}
    module = ""
    root: str | None = None
    path: list[str] = []
    copied: tuple[str, tuple[str, ...]] | None = None  # the owner in `owner.name += 1`, loaded once and used twice
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        match instruction.opname:
            case "IMPORT_NAME":
                module = name
            case "STORE_FAST" | "STORE_NAME" | "STORE_GLOBAL" | "STORE_DEREF":
                if module:
                    imported[name] = module
                module = ""
            case "LOAD_GLOBAL" | "LOAD_NAME":
                root, path = name, []
            case "LOAD_FAST" | "LOAD_FAST_CHECK" | "LOAD_FAST_BORROW" | "LOAD_DEREF":
                root, path = imported.get(name), []
            case "LOAD_ATTR" | "LOAD_METHOD":
                path.append(name)
            case "COPY" | "DUP_TOP" if root is not None:
                copied = root, tuple(path)
            case "SWAP" | "ROT_TWO" if copied is not None:
                root, path = copied[0], [*copied[1]]
            case "STORE_ATTR" | "DELETE_ATTR":
                if root is not None:
                    yield root, (*path, name)
                root = copied = None

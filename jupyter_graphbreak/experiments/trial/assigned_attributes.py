"""Find the attributes that a function assigns to, and the paths of the objects that it reads and passes on."""

from __future__ import annotations

import dis
import functools
import re
import sys
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.recording.targets import walk_code_objects
from jupyter_graphbreak.records.attributes import attribute_of, is_instance
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Names that code uses to change attributes of objects by means other than ``owner.name = value``.
SETTERS = frozenset({"setattr", "delattr", "vars", "__dict__", "__setattr__", "__delattr__"})
#: Matches the names of functions that probably change the state of their module.
STATE_CHANGING_NAMES = re.compile(
    r"_?(?:(?:un|de)?register|add|set|reset|(?:un)?install|remove|push|pop|insert|append|update|clear|configure|use|define|"
    r"declare|(?:de)?activate)(?:_|$|[A-Z])"
)


def is_user_module(module: types.ModuleType) -> bool:
    """Return whether a module is ``__main__``, comes from a user's file, or was created without an import."""
    if module.__name__ == "__main__":
        return True
    file = getattr(module, "__file__", None)
    if file is None:
        return type(module) is types.ModuleType and module.__spec__ is None
    return not is_library(file) and not file.startswith(OWN_FOLDER)


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
        owner, parent = find_object(function, root, path[:-1]), find_object(function, root, path[:-2])
        is_function = is_instance(owner, types.FunctionType) and is_library(owner.__code__.co_filename)
        if is_function or is_instance(owner, types.ModuleType | type) or _is_library_object(owner, parent):
            result[id(owner), path[-1]] = owner
    return result


def find_object(function: types.FunctionType, root: str, path: tuple[str, ...]) -> Any:
    """Return the object to which a path of attributes leads from a global or a module, or ``None`` if there is none."""
    value: Any = function.__globals__.get(root, sys.modules.get(root))
    for name in path:
        value = (attribute_of(value, "__dict__") or {}).get(name)
    return value


def _is_library_object(item: Any, parent: Any) -> bool:
    """Return whether an object has attributes and belongs to the library module that contains it."""
    is_in_library_module = is_instance(parent, types.ModuleType) and parent is not sys and belongs_to_library(parent)
    return is_in_library_module and type(getattr(item, "__dict__", None)) is dict and belongs_to_library(type(item))


@functools.lru_cache(maxsize=1024)
def passed_paths(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
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


@functools.lru_cache(maxsize=1024)
def may_mention_sys_modules(code: types.CodeType) -> bool:
    """Return whether code, or a function inside it, contains the name ``modules``, which may mean ``sys.modules``."""
    return any("modules" in inner.co_names or "modules" in inner.co_consts for inner in walk_code_objects(code))


@functools.lru_cache(maxsize=1024)
def loaded_paths(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
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
    if any(SETTERS & {*inner.co_names} for inner in walk_code_objects(code)):
        return True
    return any(instruction.opname in {"STORE_ATTR", "DELETE_ATTR"} for instruction in _all_instructions(code))


@functools.lru_cache(maxsize=1024)
def _assignments(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the root name and attribute path of each attribute that code assigns to."""
    result: list[tuple[str, tuple[str, ...]]] = []
    for inner in walk_code_objects(code):
        result += _direct_assignments(inner)
        if SETTERS & {*inner.co_names}:
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
                is_in_setter_call, root, path = (True, None, ()) if name in SETTERS else (is_in_setter_call, name, ())
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

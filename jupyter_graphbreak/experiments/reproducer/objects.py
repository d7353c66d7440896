"""Classify objects: who wrote them, what they contain, and where they can be imported from."""

from __future__ import annotations

import ast
import inspect
import sys
import types
from typing import Any

import torch

from jupyter_graphbreak.experiments.reproducer.definitions import class_node
from jupyter_graphbreak.records.attributes import attribute_of
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library

MISSING = object()
#: The attributes of a module that PyTorch itself sets.
_OF_MODULES = frozenset(vars(torch.nn.Module()))
#: The classes of PyTorch's operators.
_OPERATORS = {"OpOverload", "OpOverloadPacket", "_OpNamespace"}


def is_of_user(value: Any) -> bool:
    """Return whether a function or a class was written by the user: in a cell or a file, not in a package."""
    code = attribute_of(value, "__code__")
    if code is not None:
        return not is_library(code.co_filename) and not code.co_filename.startswith((OWN_FOLDER, "<frozen"))
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)
        if module is None or value.__module__ == "builtins":
            return module is None
        file = getattr(module, "__file__", None)
        return value.__module__ == "__main__" if file is None else not is_library(file)
    return False


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object; for a module, also its parameters, buffers and submodules."""
    attributes = dict(vars(value)) if hasattr(value, "__dict__") else {}
    if isinstance(value, torch.nn.Module):
        attributes |= {**vars(value)["_parameters"], **vars(value)["_buffers"], **vars(value)["_modules"]}
    return attributes


def parameters_of(kind: type) -> list[inspect.Parameter] | None:
    """Return the parameters of a class's constructor, or of its base's if it passes them on like ``torch.nn.LSTM``."""
    try:
        parameters = list(inspect.signature(kind).parameters.values())
        if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL and issubclass(kind, torch.nn.RNNBase):
            parameters = [
                parameter
                for name, parameter in inspect.signature(torch.nn.RNNBase).parameters.items()
                if name != "mode"
            ]
    except (TypeError, ValueError):
        return None
    return parameters


def state_of(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes that are needed to make an object."""
    if not isinstance(value, torch.nn.Module):
        slots = [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
        return [*((name, getattr(value, name)) for name in slots), *getattr(value, "__dict__", {}).items()]
    own = {name: part for name, part in vars(value).items() if name not in _OF_MODULES and not name.startswith("__")}
    return [
        *vars(value)["_parameters"].items(),
        *vars(value)["_buffers"].items(),
        *vars(value)["_modules"].items(),
        *own.items(),
    ]


def _slots(kind: type) -> list[str]:
    """Return the attributes of a class that are slots."""
    given = vars(kind).get("__slots__", ())
    names = [given] if isinstance(given, str) else list(given)
    return [name for name in names if not name.startswith("__")]


def own_methods(kind: type) -> set[str]:
    """Return the methods in the text of a user's dataclass, without those that Python adds."""
    return {part.name for part in class_node(kind).body if isinstance(part, ast.FunctionDef)}


def is_equal(value: Any, default: Any) -> bool:
    """Return whether a value is certainly equal to a default."""
    try:
        return value is default or (type(value) is type(default) and bool(value == default))
    except Exception:  # noqa: BLE001 - a class of a package
        return False


def content(cell: Any) -> Any:
    """Return the value of a closure variable, ``MISSING`` if it has none."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def own_function(function: types.FunctionType) -> types.FunctionType | None:
    """Return the user's function behind a function, which a package may have wrapped; ``None`` if there is none."""
    if is_of_user(function):
        wrapped = inspect.unwrap(function)
        return wrapped if isinstance(wrapped, types.FunctionType) and is_of_user(wrapped) else function
    unwrapped = inspect.unwrap(function)
    if unwrapped is not function and isinstance(unwrapped, types.FunctionType) and is_of_user(unwrapped):
        return unwrapped
    for cell in function.__closure__ or ():
        closed_over = content(cell)
        if isinstance(closed_over, types.FunctionType) and is_of_user(closed_over):
            return closed_over
    return None


def is_library_callable(value: Any) -> bool:
    """Return whether an object is a function of a package that is not written in Python."""
    return type(value).__name__ in {*_OPERATORS, "ufunc", "method_descriptor"}


#: The modules to search for functions whose ``__module__`` does not contain them.
_HOMES = ("torch", "torch.nn.functional", "torch._dynamo", "math", "operator", "numpy")


def home_of(value: Any, wanted: str) -> tuple[str | None, str]:
    """Return the module and the name from which something of a package can be imported."""
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None) or wanted
    if type(value).__name__ in _OPERATORS:
        return "torch", f"ops.{str(value).removeprefix('torch.ops.')}"
    names = {wanted, getattr(value, "__name__", wanted)}
    candidates = [(module, path)] if isinstance(module, str) else []
    candidates += [(home, name) for home in _HOMES for name in names]
    for home, name in candidates:
        if _lookup(home, name) is value:
            return _most_public(home, name, value), name
    for home, loaded in sys.modules.copy().items():
        if is_library(getattr(loaded, "__file__", None) or ""):
            found = next((name for name in names if vars(loaded).get(name) is value), None)
            if found is not None:
                return home, found
    return None, path


def is_reached_from_torch(module: str) -> bool:
    """Return whether ``import torch`` suffices to use one of its modules."""
    value: Any = torch
    for part in module.split(".")[1:]:
        value = getattr(value, part, None)
    return value is sys.modules.get(module)


def _most_public(home: str, name: str, value: Any) -> str:
    """Return the outermost package from which an object can be imported."""
    parents = home.split(".")
    packages = [".".join(parents[:count]) for count in range(1, len(parents))]
    return next((package for package in packages if _lookup(package, name) is value), home)


def _lookup(home: str, path: str) -> Any:
    value: Any = sys.modules.get(home)
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def is_own_module(value: Any) -> bool:
    """Return whether an object is a module that the user wrote: its file is not installed with a package."""
    file = getattr(value, "__file__", None) if isinstance(value, types.ModuleType) else None
    return isinstance(value, types.ModuleType) and file is not None and not is_library(file)


def lower(name: str) -> str:
    """Return the name of a variable for an instance of a class."""
    text = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).strip("_")
    return text if text != name else f"a_{text}"

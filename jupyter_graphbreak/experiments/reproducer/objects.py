"""Classify objects: who wrote them, what they contain, and from which module they can be imported."""

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
_MODULE_ATTRIBUTES = frozenset(vars(torch.nn.Module()))
#: The classes of PyTorch's operators.
_OPERATOR_CLASSES = {"OpOverload", "OpOverloadPacket", "_OpNamespace"}


def is_written_by_user(value: Any) -> bool:
    """Return whether the user wrote a function or a class, in a cell or in a file that is not part of a package."""
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


def parameters_of(class_: type) -> list[inspect.Parameter] | None:
    """Return the parameters of a class's constructor or, as for ``torch.nn.LSTM``, of its base class's, if known."""
    try:
        parameters = list(inspect.signature(class_).parameters.values())
        if (
            parameters
            and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
            and issubclass(class_, torch.nn.RNNBase)
        ):
            parameters = [
                parameter
                for name, parameter in inspect.signature(torch.nn.RNNBase).parameters.items()
                if name != "mode"
            ]
    except (TypeError, ValueError):
        return None
    return parameters


def attributes_to_set(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes to set on an object that is created without a call to its constructor."""
    if not isinstance(value, torch.nn.Module):
        slots = [name for class_ in type(value).__mro__ for name in _slots(class_) if hasattr(value, name)]
        return [*((name, getattr(value, name)) for name in slots), *getattr(value, "__dict__", {}).items()]
    attributes = {
        name: part for name, part in vars(value).items() if name not in _MODULE_ATTRIBUTES and not name.startswith("__")
    }
    return [
        *vars(value)["_parameters"].items(),
        *vars(value)["_buffers"].items(),
        *vars(value)["_modules"].items(),
        *attributes.items(),
    ]


def _slots(class_: type) -> list[str]:
    """Return the names of the slots that a class itself defines."""
    slots = vars(class_).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if not name.startswith("__")]


def methods_in_source(class_: type) -> set[str]:
    """Return the names of the methods in a class's source, without methods that Python adds to a dataclass."""
    return {part.name for part in class_node(class_).body if isinstance(part, ast.FunctionDef)}


def is_certainly_equal(value: Any, default: Any) -> bool:
    """Return whether a value is certainly equal to a default."""
    try:
        return value is default or (type(value) is type(default) and bool(value == default))
    except Exception:  # noqa: BLE001 - a package may define the class
        return False


def cell_content(cell: Any) -> Any:
    """Return the value of a closure variable; ``MISSING`` if the variable has no value."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def user_function_of(function: types.FunctionType) -> types.FunctionType | None:
    """Return the user's function that a function wraps, or the function itself if it is the user's; else ``None``."""
    unwrapped_function = inspect.unwrap(function)
    if isinstance(unwrapped_function, types.FunctionType) and is_written_by_user(unwrapped_function):
        return unwrapped_function
    if is_written_by_user(function):
        return function
    for cell in function.__closure__ or ():
        closure_value = cell_content(cell)
        if isinstance(closure_value, types.FunctionType) and is_written_by_user(closure_value):
            return closure_value
    return None


def is_library_callable(value: Any) -> bool:
    """Return whether an object is a PyTorch operator, a NumPy ufunc, or a method that is not written in Python."""
    return type(value).__name__ in {*_OPERATOR_CLASSES, "ufunc", "method_descriptor"}


#: The modules to search for functions whose ``__module__`` does not contain them.
_PUBLIC_MODULES = ("torch", "torch.nn.functional", "torch._dynamo", "math", "operator", "numpy")


def find_import(value: Any, preferred_name: str) -> tuple[str | None, str]:
    """Return the module from which an object can be imported, or ``None``, and the object's name in this module."""
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None) or preferred_name
    if type(value).__name__ in _OPERATOR_CLASSES:
        return "torch", f"ops.{str(value).removeprefix('torch.ops.')}"
    names = {preferred_name, getattr(value, "__name__", preferred_name)}
    candidates = [(module, path)] if isinstance(module, str) else []
    candidates += [(module_name, name) for module_name in _PUBLIC_MODULES for name in names]
    for module_name, name in candidates:
        if _lookup(module_name, name) is value:
            return _outermost_package(module_name, name, value), name
    for module_name, loaded_module in sys.modules.copy().items():
        if is_library(getattr(loaded_module, "__file__", None) or ""):
            attribute_name = next((name for name in names if vars(loaded_module).get(name) is value), None)
            if attribute_name is not None:
                return module_name, attribute_name
    return None, path


def is_available_in_torch(module: str) -> bool:
    """Return whether a PyTorch module can be used after ``import torch`` alone."""
    value: Any = torch
    for part in module.split(".")[1:]:
        value = getattr(value, part, None)
    return value is sys.modules.get(module)


def _outermost_package(module_name: str, name: str, value: Any) -> str:
    """Return the outermost package from which an object can be imported."""
    parents = module_name.split(".")
    packages = [".".join(parents[:count]) for count in range(1, len(parents))]
    return next((package for package in packages if _lookup(package, name) is value), module_name)


def _lookup(module_name: str, path: str) -> Any:
    value: Any = sys.modules.get(module_name)
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def is_user_module(value: Any) -> bool:
    """Return whether an object is a module that the user wrote, that is, whose file is not part of a package."""
    file = getattr(value, "__file__", None) if isinstance(value, types.ModuleType) else None
    return isinstance(value, types.ModuleType) and file is not None and not is_library(file)


def variable_name_for(class_name: str) -> str:
    """Return the name of a variable for an instance of a class."""
    text = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in class_name).strip("_")
    return text if text != class_name else f"a_{text}"

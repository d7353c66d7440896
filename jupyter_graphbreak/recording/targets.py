"""Find the functions and modules that a piece of code uses, and those that are already compiled."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat import compiled
from jupyter_graphbreak._torch_compat.operations import python_kernels
from jupyter_graphbreak.records.attributes import attribute_of, is_instance, proxy_target, unwrap
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Packages where the search for functions stops, because their code is not the user's. This package is one of them: it
#: wraps functions such as ``Thread.start`` during a run.
_FOREIGN_PACKAGES = frozenset(
    {
        "torch", "numpy", "builtins", "functools", "typing", "collections", "IPython", "ipykernel",
        __name__.partition(".")[0],
    }
)  # fmt: skip
#: Foreign packages with decorators: the closure of a decorated function contains the original function.
_DECORATING_PACKAGES = frozenset({"torch", "functools"})
_MAX_DEPTH = 12
_SCALAR_TYPES = frozenset({str, bytes, int, float, bool, type(None)})
#: Types whose values have no user-defined methods; an instance of a user's subclass may have some.
_PLAIN_TYPES = _SCALAR_TYPES | {list, tuple, dict, set}
#: The types of attributes that are searched, besides objects.
_FUNCTIONS_AND_CONTAINERS = (types.FunctionType, types.MethodType, list, tuple, set, frozenset, deque, dict)
#: The packages whose objects refer to all variables of a notebook.
_HOST_PACKAGES = frozenset({"IPython", "ipykernel"})
_TENSOR_TYPES = frozenset({("torch", "Tensor"), ("torch.nn.parameter", "Parameter")})
#: The attributes of a module that are dicts of tensors or modules.
_MODULE_DICTS = frozenset({"_modules", "_parameters", "_buffers"})
#: The types of PyTorch's operators.
_OPERATOR_TYPES = frozenset({"OpOverload", "OpOverloadPacket"})
#: The type that ``functools.lru_cache`` returns.
_LRU_CACHE_TYPE = type(functools.lru_cache(len))
#: The maximum number of items to examine in a container.
_MAX_ITEMS = 100
#: The maximum number of items to examine in all containers together: a data set of nested lists has millions.
_MAX_TOTAL_ITEMS = 10_000


def is_compiled(value: Any) -> bool:
    """Return whether an object is a compiled function or module."""
    return compiled.compiled_callable(value) is not None


def any_uses_torch_compile(values: Iterable[Any]) -> bool:
    """Return whether any of the objects is compiled, is ``torch.compile`` itself, or uses such an object."""
    return any(
        compiled.is_torch_compile(value) or (is_compiled(value) and not compiled.is_dynamo_disabled(value))
        for value in reachable_objects(*values)
    )


def forget_compiled_code(*values: Any) -> None:
    """Discard the compiled code of all functions that the objects use, so that they are compiled from scratch.

    Code that torch shares between functions, such as the wrapper of ``@error_on_graph_break``, stays, and so does code
    that the user has excluded from compilation.
    """
    compiled.forget_code_objects(user_code_objects(*values))


def forget_all_compiled_code() -> None:
    """Discard all compiled code of this process, except a backend's files, so that all is compiled from scratch."""
    import torch

    torch.compiler.reset()


def user_code_objects(*values: Any) -> Iterator[types.CodeType]:
    """Yield the code objects of functions that the objects use, without PyTorch's and those that the user excludes."""
    yield from _code_objects_of(
        value
        for value in reachable_objects(*values)
        if may_be_user_defined(value) and not compiled.is_dynamo_disabled(value)
    )


def functions_by_name(values: Iterable[Any]) -> dict[str, tuple[str, str]]:
    """Return the module and ``__name__`` of each function that the objects use, by the global that refers to it."""
    functions: dict[str, tuple[str, str]] = {}
    for value in reachable_objects(*values):
        if is_instance(value, types.FunctionType) and may_be_user_defined(value):
            for name, referenced_object in _globals(value).items():
                if is_instance(referenced_object, types.FunctionType | types.BuiltinFunctionType):
                    functions[name] = str(referenced_object.__module__), referenced_object.__name__
    return functions


def with_used_globals(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given objects by name, and the globals that their functions use directly or indirectly."""
    objects = dict(values)
    for value in reachable_objects(*values.values()):
        if is_instance(value, types.FunctionType) and may_be_user_defined(value):
            for name, referenced_object in _globals(value).items():
                objects.setdefault(name, referenced_object)
    return objects


def names_not_compiled_again(values: Mapping[str, Any], started_functions: Iterable[tuple[str, str, int]]) -> list[str]:
    """Return the names of compiled objects that only have code from an earlier run.

    ``started_functions`` contains the name, file and first line of each code object that was compiled in this run.
    """
    compiled_now = set(started_functions)
    names = []
    for name, value in values.items():
        inner = compiled.compiled_callable(value)
        code_objects = list(_code_objects_of(reachable_objects(inner))) if inner is not None else []
        is_fresh = any((code.co_name, code.co_filename, code.co_firstlineno) in compiled_now for code in code_objects)
        if code_objects and not is_fresh and any(compiled.has_cached_code(code) for code in code_objects):
            names.append(name)
    return names


def _code_objects_of(values: Iterable[Any]) -> Iterator[types.CodeType]:
    """Yield the code objects of functions, and those of the functions that they define."""
    visited_code_objects: set[types.CodeType] = set()
    for value in values:
        code = attribute_of(value, "__code__")
        if isinstance(code, types.CodeType) and code not in visited_code_objects:
            new_code_objects = [inner for inner in walk_code_objects(code) if inner not in visited_code_objects]
            visited_code_objects.update(new_code_objects)
            yield from new_code_objects


def _unwrap_functools(value: Any) -> Any:
    """Return the function inside a ``functools`` wrapper; ``None`` for any other object."""
    if is_instance(value, functools.partial):
        return value.func
    return value.__wrapped__ if is_instance(value, _LRU_CACHE_TYPE) else None


def _proxied_objects(value: Any) -> Iterator[Any]:
    """Yield the object that a proxy stands for, and the function that a ``wrapt`` wrapper calls in its place."""
    if (target := proxy_target(value)) is not None:
        yield target
        yield attribute_of(value, "_self_wrapper")


def _implementations(value: Any) -> Iterator[Any]:
    """Yield the functions that may implement an operator: those of a custom operator, or else all Python kernels."""
    if type(value).__name__ == "CustomOpDef" and type(value).__module__.startswith("torch."):
        attributes = vars(value)
        yield from (attributes.get(name) for name in ("_init_fn", "_backward_fn", "_setup_context_fn"))
        yield from attributes.get("_backend_fns", {}).values()
    if type(value).__name__ in _OPERATOR_TYPES and type(value).__module__ == "torch._ops":
        yield from python_kernels()


def reachable_objects(*values: Any) -> Iterator[Any]:
    """Yield the functions, modules and instances that objects use, through closures, attributes and global names."""
    visited_ids: set[int] = set()
    searched_item_count = 0
    pending = [(value, 0) for value in values]
    while pending:
        value, depth = pending.pop()
        if id(value) in visited_ids or depth > _MAX_DEPTH:
            continue
        visited_ids.add(id(value))
        wrapped_objects = (
            _unwrap_functools(value), compiled.compiled_callable(value), *_proxied_objects(value),
            *_implementations(value),
        )  # fmt: skip
        pending += [(inner, depth + 1) for inner in wrapped_objects if inner is not None and inner is not value]
        if searched_item_count < _MAX_TOTAL_ITEMS:
            items = _container_items(value)
            searched_item_count += len(items)
            pending += [(item, depth) for item in items]
        if is_instance(value, types.MethodType):
            pending += [(value.__func__, depth + 1), (value.__self__, depth + 1)]
        elif is_instance(value, types.FunctionType):
            yield value
            if may_be_user_defined(value):
                pending += [(referenced_object, depth + 1) for referenced_object in _references(value)]
            elif _package_of(value) in _DECORATING_PACKAGES:
                pending += [(referenced_object, depth + 1) for referenced_object in closure_values(value)]
        elif compiled.is_torch_compile(value):
            yield value
        elif is_instance(value, type):
            if may_be_user_defined(value):
                pending += [(member, depth + 1) for member in _members(value)]
                pending += [
                    (class_, depth + 1) for class_ in inspect.getmro(type(value)) if may_be_user_defined(class_)
                ]
        elif _is_searched_object(value):
            yield value
            pending += [(class_, depth + 1) for class_ in type(value).__mro__ if may_be_user_defined(class_)]
            pending += [(part, depth + 1) for part in _attribute_values(value)]


def _container_items(value: Any) -> list[Any]:
    """Return the first items of a container, or values of a dict, that may refer to code.

    Methods that a subclass overrides are not called.
    """
    for container_type in (list, tuple, set, frozenset, deque, dict):
        if is_instance(value, container_type):
            with contextlib.suppress(RuntimeError):  # another thread changes the container
                items = dict.values(value) if container_type is dict else container_type.__iter__(value)
                return [item for item in itertools.islice(items, _MAX_ITEMS) if not _is_plain_data(type(item))]
    return []


def _is_plain_data(class_: type) -> bool:
    """Return whether the instances of a class refer to no code, such as numbers, strings and PyTorch's tensors."""
    return class_ in _SCALAR_TYPES or (class_.__module__, class_.__name__) in _TENSOR_TYPES


def _members(class_: type) -> Iterator[Any]:
    """Yield the functions of a class, including those in its properties, and the descriptors that users wrote."""
    for member in vars(class_).values():
        if is_instance(member, property):
            yield from (
                function for function in (member.fget, member.fset, member.fdel) if inspect.isfunction(function)
            )
            continue
        function = attribute_of(member, "__func__", member)  # static and class methods have one
        function = function.func if is_instance(function, functools.cached_property) else function
        if inspect.isfunction(function):
            yield inspect.unwrap(function)
        elif hasattr(type(member), "__get__") and _is_searched_object(member):
            yield member


def closure_values(function: Any) -> Iterator[Any]:
    """Yield the objects in the closure of a function; none for an object without a closure."""
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield cell.cell_contents


def _references(function: types.FunctionType) -> Iterator[Any]:
    """Yield the objects in a function's closure, defaults and code, and the function that it wraps."""
    yield from closure_values(function)
    yield from function.__defaults__ or ()
    if hasattr(function, "__wrapped__"):
        yield function.__wrapped__
    yield from _globals(function).values()
    if "ops" in function.__code__.co_names:  # torch.ops.my_library.my_operator
        operators = sys.modules.get("torch._library.custom_ops")
        yield from list(getattr(operators, "OPDEFS", {}).values())
        yield from python_kernels()


def walk_code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object, and those of the functions and classes that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from walk_code_objects(constant)


def names_in_code(code: types.CodeType) -> set[str]:
    """Return the names of globals and attributes in a code object and in those of functions inside it."""
    return {name for inner in walk_code_objects(code) for name in inner.co_names}


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """Return the globals that the code of a function mentions, by name."""
    names = sorted(names_in_code(function.__code__))
    return {name: function.__globals__[name] for name in names if name in function.__globals__}


def _is_searched_object(value: Any) -> bool:
    """Return whether to search an object because it is an instance of a user's class or a torch module."""
    class_ = type(value)
    if class_ in _PLAIN_TYPES or is_instance(value, types.ModuleType):
        return False
    return any(may_be_user_defined(base) for base in class_.__mro__[:-1]) or attribute_of(value, "_modules") is not None


def _attribute_values(value: Any) -> Iterator[Any]:
    attributes = attribute_of(value, "__dict__")
    if not is_instance(attributes, dict) or type(value).__module__.partition(".")[0] in _HOST_PACKAGES:
        return
    for name, part in attributes.items():
        is_object = _is_searched_object(part) and not is_instance(part, type)
        is_empty = type(part) in _PLAIN_TYPES and not part
        if is_object or (is_instance(part, _FUNCTIONS_AND_CONTAINERS) and not is_empty and name not in _MODULE_DICTS):
            yield part
    modules = attributes.get("_modules")
    if is_instance(modules, dict):
        yield from (module for module in modules.values() if module is not None)


def is_user_written(value: Any) -> bool:
    """Return whether an object is a torch module, or its code does not belong to an installed package."""
    inner = compiled.compiled_callable(value)
    value = value if inner is None else inner
    while is_instance(value, functools.partial):
        value = value.func
    if attribute_of(value, "_modules") is not None:
        return not is_instance(value, type)
    function = unwrap(attribute_of(value, "__func__", value))
    if not is_instance(function, types.FunctionType):
        function = vars(type(value)).get("__call__")
    code = getattr(function, "__code__", None)
    return code is not None and not is_library(code.co_filename)


def may_be_user_defined(value: Any) -> bool:
    """Return whether a function or a class does not belong to PyTorch or another package where the search stops."""
    return _package_of(value) not in {"", *_FOREIGN_PACKAGES}


def is_user_class(class_: type) -> bool:
    """Return whether a class is defined in the user's code, not in an installed package or in Python."""
    file = getattr(sys.modules.get(class_.__module__), "__file__", None)
    return may_be_user_defined(class_) and not is_library(file or "")


def _package_of(value: Any) -> str:
    """Return the package of a class, or of a function's globals: ``functools.wraps`` copies a wrong ``__module__``."""
    namespace = attribute_of(value, "__globals__")
    module_name = namespace.get("__name__") if isinstance(namespace, dict) else attribute_of(value, "__module__")
    return module_name.partition(".")[0] if isinstance(module_name, str) else ""

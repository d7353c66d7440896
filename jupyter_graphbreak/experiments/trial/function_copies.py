"""Copy functions with the globals, closure variables and defaults that they use."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.separate_cache import (
    copy_fx_wraps,
    copy_namespace_to_module,
    forget_fx_wraps,
    is_allowed_in_graph,
)
from jupyter_graphbreak.experiments.trial.copies import UncopiedObject, clone
from jupyter_graphbreak.experiments.trial.effects import all_filters, all_handlers
from jupyter_graphbreak.experiments.trial.object_kinds import is_bound_to_data, is_data, is_immutable
from jupyter_graphbreak.experiments.trial.swapped_bindings import (
    ANY_GLOBAL_READERS,
    MISSING,
    Binding,
    SwappedBinding,
    cell_binding,
    fixed_binding,
    function_bindings,
    global_names,
    item_binding,
)
from jupyter_graphbreak.experiments.trial.unaudited_functions import TRIAL_REPLACEMENTS
from jupyter_graphbreak.faults import finalize
from jupyter_graphbreak.recording.targets import closure_values, is_user_class, may_be_user_defined
from jupyter_graphbreak.records.attributes import is_instance
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_graphbreak.experiments.trial.copies import MemoryProvider
    from jupyter_graphbreak.experiments.trial.swapped_bindings import VariableKey

_THIS_PACKAGE = __name__.partition(".")[0]
#: The type of a function decorated with ``functools.lru_cache``.
LRU_CACHE = type(functools.lru_cache(len))


class FunctionCopier:
    """Copies functions and objects so that the copies share what the originals share.

    ``bindings`` are those of the names that the copied functions read or write. ``origin_ids``, of this copier and of
    earlier ones, are the ids of the original namespaces, by the ids of their copies. The descriptions of objects that
    could not be copied consist of the name, the type and the reason.
    """

    def __init__(self, earlier_origin_ids: Mapping[int, int], memory_provider: MemoryProvider) -> None:
        self._earlier_origin_ids = earlier_origin_ids
        self.memory_provider = memory_provider
        self.memo: dict[Any, Any] = {}
        self.bindings: list[Binding | SwappedBinding] = []
        self.functions: list[types.FunctionType] = []
        self.origin_ids: dict[int, int] = {}
        self.uncopied_objects: list[Any] = []
        self.uncopied_descriptions: list[str] = []
        #: The copied namespaces, by the ids of their originals.
        self._copied_namespaces: dict[int, dict[str, Any]] = {}
        self._modules: list[types.ModuleType] = []
        self._copied_globals: set[VariableKey] = set()
        self._caches: list[Any] = []

    def clear_caches(self) -> None:
        """Clear the caches of the copies of functions decorated with ``functools.lru_cache``."""
        for function in self._caches:
            function.cache_clear()

    def copy(self, value: Any, name: str) -> Any:
        """Return a copy of an object; ``name`` is its name in messages."""
        if id(value) in self.memo:
            return self.memo[id(value)]
        if value is MISSING or is_immutable(value):
            return value
        if is_instance(value, LRU_CACHE):
            return self._copy_cache(value, name)
        failed_objects: list[UncopiedObject] = []
        result = clone(value, self.memo, failed_objects, self.copy_function, self.memory_provider)
        for item, reason in failed_objects:
            self.uncopied_objects.append(item)
            prefix = "" if item is value else f"{name_of(type(item))} in "
            self.uncopied_descriptions.append(f"`{name}` ({prefix}{type(value).__name__}) cannot be copied: {reason}")
        return result

    def _copy_cache(self, function: Any, name: str) -> Any:
        """Return a copy of a cached function, with a new empty cache."""
        parameters = function.cache_parameters()
        result = functools.lru_cache(parameters["maxsize"], parameters["typed"])(self.copy(function.__wrapped__, name))
        self.memo[id(function)] = self.memo[id(result)] = result
        self._caches.append(result)
        return result

    def copy_function(self, function: types.FunctionType) -> types.FunctionType:
        """Return a copy of a user's function, or of one that closes over the user's data.

        Other functions stay unchanged, as do those that ``torch.compiler.allow_in_graph`` marks.
        """
        known_copy: types.FunctionType | None = self.memo.get(id(function))
        if known_copy is not None:
            return known_copy
        is_in_library = is_library_function(function)
        if is_in_library and not (
            function.__closure__ and (may_be_user_defined(function) or _closes_over_data(function))
        ):
            return function  # front ends recognize some of PyTorch's functions by identity
        if is_allowed_in_graph(function):
            return function
        namespace = function.__globals__ if is_in_library else self._copy_globals(function.__globals__)
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        result = types.FunctionType(function.__code__.replace(), namespace, function.__name__, None, cells or None)
        self.memo[id(function)] = self.memo[id(result)] = result  # it may refer to itself
        name = function.__name__
        if function.__defaults__ is not None:
            result.__defaults__ = tuple(self.copy(value, name) for value in function.__defaults__)
        if function.__kwdefaults__ is not None:
            result.__kwdefaults__ = {key: self.copy(value, name) for key, value in function.__kwdefaults__.items()}
        self.functions.append(result)
        result.__annotations__ = dict(function.__annotations__)
        result.__qualname__ = function.__qualname__
        result.__module__ = function.__module__
        result.__doc__ = function.__doc__
        vars(result).update((key, self.copy(value, name)) for key, value in vars(function).items())
        for variable, cell, original_cell in zip(
            function.__code__.co_freevars, cells, function.__closure__ or (), strict=True
        ):
            with contextlib.suppress(ValueError):  # an empty cell
                cell.cell_contents = self.copy(original_cell.cell_contents, variable)
                if not is_in_library:
                    self.bindings.append(cell_binding(variable, cell, original_cell))
        if not is_in_library:
            names = global_names(function.__code__)
            for variable in sorted(namespace if names & ANY_GLOBAL_READERS else names):
                self._copy_global(variable, namespace)
            self.bindings += function_bindings(result)
        return result

    def copy_handlers(self) -> dict[int, logging.Handler]:
        """Copy the handlers of the user's classes, by the originals' ids; those without a copy receive no records."""
        result: dict[int, logging.Handler] = {}
        for handler in all_handlers():
            cls = type(handler)
            # A copy of a stream handler would write to the user's stream.
            is_stream = is_instance(handler, logging.StreamHandler)
            package = cls.__module__.partition(".")[0]
            is_in_stdlib = package in sys.stdlib_module_names
            if is_stream or is_in_stdlib or package == _THIS_PACKAGE or not is_user_class(cls):
                continue
            failed_objects: list[Any] = []
            copy: logging.Handler = object.__new__(cls)
            self.memo[id(handler)] = copy
            vars(copy).update(
                (key, clone(value, self.memo, failed_objects)) for key, value in vars(handler).items() if key != "lock"
            )
            copy.createLock()
            if not failed_objects:
                result[id(handler)] = copy
                self.bindings.append(fixed_binding(f"the attributes of the handler {cls.__name__}", vars(copy)))
        return result

    def copy_filters(self) -> dict[int, Any]:
        """Copy logger filters, except those that cannot be copied, and return them by the originals' ids."""
        result: dict[int, Any] = {}
        for original in all_filters():
            failed_objects: list[Any] = []
            copy = clone(original, self.memo, failed_objects, self.copy_function, self.memory_provider)
            if not failed_objects:
                result[id(original)] = copy
                owner = getattr(copy, "__self__", copy)  # only a method has a different owner
                if is_data(owner):
                    self.bindings.append(fixed_binding(f"the attributes of the filter {type(owner).__name__}", owner))
        return result

    def _copy_globals(self, namespace: dict[str, Any]) -> dict[str, Any]:
        origin = self.origin_id(namespace)
        if origin not in self._copied_namespaces:
            self._modules.append(copy_namespace_to_module(namespace))
            self._copied_namespaces[origin] = result = vars(self._modules[-1])
            self.origin_ids[id(result)] = origin
            copy_fx_wraps(namespace, result)
            # A reference to the namespace itself would keep it alive.
            finalize(self, "forgetting a copy", forget_fx_wraps, id(result))
        return self._copied_namespaces[origin]

    def origin_id(self, namespace: dict[str, Any]) -> int:
        """Return the id of the namespace that a namespace was copied from, or its own id if it is no copy."""
        return self.origin_ids.get(id(namespace)) or self._earlier_origin_ids.get(id(namespace), id(namespace))

    def _copy_global(self, name: str, namespace: dict[str, Any]) -> None:
        key = self.origin_id(namespace), name
        if key in self._copied_globals:  # it was copied for another function
            return
        self._copied_globals.add(key)
        value = namespace.get(name, MISSING)
        if (refusing_function := TRIAL_REPLACEMENTS.replacement_of(value)) is not None:
            namespace[name] = refusing_function
            return
        if is_bound_to_data(value):
            namespace[name] = method = self.copy(value, name)
            self.bindings.append(fixed_binding(name, method.__self__))
        if is_instance(value, types.ModuleType | types.BuiltinFunctionType | type):
            return
        if value is not MISSING:
            namespace[name] = self.copy(value, name)
        self.bindings.append(dataclasses.replace(item_binding(name, namespace, name), key=key, holder=None))

    def has_copied_globals_of(self, function: types.FunctionType) -> bool:
        """Return whether the globals that a function reads were copied, or are a copy."""
        return self.origin_id(function.__globals__) in self._copied_namespaces

    def reads_copies(self, function: types.FunctionType) -> bool:
        """Return whether the globals that a function reads are copies."""
        return any(function.__globals__ is namespace for namespace in self._copied_namespaces.values())


def _closes_over_data(function: types.FunctionType, depth: int = 3) -> bool:
    """Return whether the closure of a function contains a user's function, or an object that a call may change.

    The closure may contain it through an inner function, as in functions that ``functools.singledispatch`` returns.
    PyTorch's decorators, such as ``torch.no_grad()``, return functions whose closure contains the decorated function.
    """
    for content in closure_values(function):
        if depth and is_instance(content, types.FunctionType):
            is_user_function = may_be_user_defined(content) and not is_library_function(content)
            if is_user_function or _closes_over_data(content, depth - 1):
                return True
        owner = content.__self__ if is_instance(content, types.MethodType) else content
        if is_instance(owner, weakref.ref) or (is_data(owner) and not is_instance(owner, tuple)):
            return True
    return False


def is_library_function(function: types.FunctionType) -> bool:
    """Return whether a function's code is part of an installed package or of Python."""
    return is_library(function.__code__.co_filename)


def name_of(fn: Any) -> str:
    """Return the name of a function or class, or the name of an object's class."""
    return str(getattr(fn, "__name__", type(fn).__name__))

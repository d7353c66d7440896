"""Decide which of the user's functions to compile for a report: those to which a user would apply torch.compile."""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import itertools
import logging
import types
from typing import TYPE_CHECKING, Any, Literal

import torch

from jupyter_graphbreak._torch_compat.module_calls import overrides_call
from jupyter_graphbreak.recording.targets import (
    closure_values,
    is_user_written,
    may_be_user_defined,
    names_in_code,
    walk_code_objects,
)
from jupyter_graphbreak.records.attributes import attribute_of, is_instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: How to treat a call. ``compile``: compile the function; ``look inside``: run it uncompiled and route its own calls;
#: ``leave``: leave it unchanged, because it is not the user's tensor code.
CallTreatment = Literal["compile", "look inside", "leave"]

#: Names used by code that trains, starts a library's loop, changes process settings, or inspects the interpreter. A
#: function that uses one of them is not compiled, but the functions that it calls are.
_NAMES_NOT_TO_COMPILE = frozenset(
    {
        # training, and libraries' own loops
        "backward", "zero_grad", "fit", "generate",
        # settings of the process
        "set_grad_enabled", "use_deterministic_algorithms", "set_deterministic_debug_mode", "set_default_device",
        "set_default_dtype", "set_stance", "set_logs", "settrace", "setprofile", "detect_anomaly",
        "set_detect_anomaly", "Thread", "ThreadPoolExecutor",
        # the interpreter
        "_getframe", "currentframe", "format_exc", "print_exc", "print_stack", "format_stack", "extract_stack",
        "exc_info", "getrefcount", "get_referrers", "get_objects", "get_ipython", "globals", "locals", "exec",
        "weakref",
    }
)  # fmt: skip
#: Names used by code around computation: clocks, files, logs, progress bars, seeds, modes of modules. A function that
#: uses one of them is not compiled if it calls a module or a function of the user.
_NAMES_AROUND_COMPUTATION = frozenset(
    {
        "time", "perf_counter", "perf_counter_ns", "monotonic", "process_time", "sleep", "open", "tqdm", "trange",
        "getLogger", "basicConfig", "simplefilter", "filterwarnings", "catch_warnings", "manual_seed", "save", "load",
        "train", "eval", "synchronize", "Event",
    }
)  # fmt: skip
#: Packages for plots, tables, files and logs. A function that uses one of them is not compiled.
_PACKAGES_AROUND_COMPUTATION = frozenset(
    {
        "IPython", "PIL", "csv", "json", "logging", "matplotlib", "mlflow", "os", "pandas", "pathlib", "pickle",
        "plotly", "requests", "seaborn", "shutil", "subprocess", "sys", "tensorboard", "threading", "tqdm", "wandb",
    }
)  # fmt: skip
#: Names used by code that only shows or stores the values of a tensor.
_READING_NAMES = frozenset(
    {"item", "tolist", "numpy", "detach", "cpu", "shape", "size", "dim", "ndim", "numel", "dtype", "device", "append",
     "extend", "add_scalar", "format", "join", "info", "debug", "warning", "write"}
)  # fmt: skip
#: A function that uses both names of one of these pairs is not compiled. In a graph, ``torch.full`` turns Python's
#: random integers into floats.
_PAIRS_NOT_TO_COMPILE = ({"autograd", "grad"}, {"inspect", "stack"}, {"full", "randint"}, {"full", "randrange"})
#: The names in ``_READING_NAMES`` that extract values from a tensor.
_EXTRACTING_NAMES = frozenset({"item", "tolist", "numpy"})
_BUILTINS = frozenset(vars(builtins))
_DATA_TYPES = (bool, int, float, str, list, tuple, dict, set, logging.Logger)
_CALCULATING_INSTRUCTIONS = frozenset({"BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE", "BINARY_SUBSCR", "BINARY_SLICE"})
_UNCOMPILABLE_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
#: The maximum depth and the maximum total number of a function's helpers that are examined.
_MAX_DEPTH, _MAX_FUNCTIONS = 4, 200
#: The maximum number of items to examine in a container.
_MAX_ITEMS = 50


def may_be_compiled(callable_: Any) -> bool:
    """Return whether a callable is a function, a method, a partial, or an instance with a ``__call__`` in Python.

    Modules are included only if their class overrides ``__call__``; the others are intercepted in
    ``nn.Module.__call__``.
    """
    if is_instance(callable_, types.FunctionType | types.MethodType | functools.partial):
        return True
    if is_instance(callable_, torch.nn.Module):
        return overrides_call(callable_)
    if is_instance(callable_, type | types.BuiltinFunctionType):
        return False
    return is_instance(getattr(type(callable_), "__call__", None), types.FunctionType)  # noqa: B004 - looks for the method of the class


def treatment_of(callable_: Any) -> CallTreatment | None:
    """Return how to treat calls to a callable that may be compiled; ``None`` if that depends on the arguments."""
    while is_instance(callable_, functools.partial):
        callable_ = callable_.func
    if not may_be_compiled(callable_) or not is_user_code(callable_):
        return "leave"
    function = plain_function(callable_)
    if function is None:
        return None  # a torch.func transform of a module
    if function.__code__.co_flags & _UNCOMPILABLE_FLAGS:
        return "look inside"
    names = _Uses(function, _receiver_of(callable_)).names
    is_excluded = bool(names & _NAMES_NOT_TO_COMPILE) or any(pair <= names for pair in _PAIRS_NOT_TO_COMPILE)
    return "look inside" if is_excluded else None


def treatment_with_arguments(callable_: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> CallTreatment:
    """Return how to treat a call to a callable for which :func:`treatment_of` returns ``None``, except a partial."""
    if is_instance(callable_, torch.nn.Module):
        return "leave"  # calls to modules are compiled elsewhere
    function = plain_function(callable_)
    if function is None:
        return "compile"
    uses = _Uses(function, _receiver_of(callable_))
    handled_values = [*args, *kwargs.values(), *uses.values]
    if is_transform(callable_):  # Dynamo cannot begin to trace within a transform
        return "leave" if any(map(_trains_or_supplies_data, handled_values)) else "compile"
    if (
        any(map(_trains_or_supplies_data, handled_values))
        or not any(map(_contains_tensor, handled_values))
        or _computes_in_numpy(uses)
    ):
        return "look inside"
    if any(map(_is_from_package_around_computation, uses.values)) or not uses.computes:
        return "look inside"
    has_module = any(is_instance(value, torch.nn.Module) for value in handled_values)
    return (
        "look inside"
        if uses.names & _NAMES_AROUND_COMPUTATION and (uses.calls_user_functions or has_module)
        else "compile"
    )


def _receiver_of(callable_: Any) -> Any:
    """Return the instance whose method or ``__call__`` is called; ``None`` for a function."""
    if is_instance(callable_, types.FunctionType):
        return None
    return getattr(callable_, "__self__", callable_)


def trains_in_forward(module: torch.nn.Module) -> bool:
    """Return whether the ``forward`` of a user's module trains, for example with a backward pass or an optimizer."""
    forward: Any = getattr(type(module), "forward", None)
    if not is_instance(forward, types.FunctionType) or not is_user_written(forward):
        return False
    names = names_in_code(forward.__code__)
    used_values = [value for name, value in vars(module).items() if name in names]
    return "backward" in names or "set_stance" in names or any(map(_trains_or_supplies_data, used_values))


def is_metric(module: torch.nn.Module) -> bool:
    """Return whether a module is a torchmetrics metric, which only collects values and is not compiled."""
    return any(class_.__module__.startswith("torchmetrics.") for class_ in type(module).__mro__)


def is_user_code(callable_: Any) -> bool:
    """Return whether a callable is the user's code, possibly in a wrapper such as ``torch.no_grad()`` or ``vmap``."""
    if is_instance(callable_, types.FunctionType) and is_instance(inspect.unwrap(callable_), torch.nn.Module):
        return True
    return is_user_written(callable_)


def is_transform(callable_: Any) -> bool:
    """Return whether a callable is a ``torch.func`` transform, such as ``grad(loss)`` or ``vmap(model)``."""
    module_name = callable_.__globals__.get("__name__") if is_instance(callable_, types.FunctionType) else None
    return isinstance(module_name, str) and module_name.startswith("torch._functorch.")


def plain_function(callable_: Any) -> types.FunctionType | None:
    """Return the Python function that a method, partial, callable instance or wrapper runs, or the function itself."""
    if is_instance(callable_, functools.partial):
        return plain_function(callable_.func)
    function = inspect.unwrap(getattr(callable_, "__func__", callable_))
    if not is_instance(function, types.FunctionType):
        function = inspect.unwrap(getattr(type(function), "__call__", function))  # noqa: B004 - looks for the method of the class
    return function if is_instance(function, types.FunctionType) else None


class _Uses:
    """The names and objects that a function uses, directly or in the user's helpers that it calls.

    ``values`` are those of its globals and closure, and of the attributes of its instance that it may use. ``computes``
    tells whether it may do more with a tensor than show or store its values.
    """

    def __init__(self, function: types.FunctionType, receiver: Any) -> None:
        self.names: set[str] = set()
        self.values: list[Any] = []
        self.calls_user_functions = False
        self.computes = _calculates(function)
        visited_code_objects: set[types.CodeType] = set()
        pending: list[tuple[types.FunctionType, Any, int]] = [(function, receiver, 0)]
        while pending and len(visited_code_objects) < _MAX_FUNCTIONS:
            current, instance, depth = pending.pop()
            if current.__code__ in visited_code_objects:
                continue
            visited_code_objects.add(current.__code__)
            names = names_in_code(current.__code__)
            self.names |= names
            attributes = getattr(instance, "__dict__", {})
            values = [*_named_values(current, names), *(attributes[name] for name in sorted(names & attributes.keys()))]
            self.values += values
            methods = (
                [] if instance is None else [(getattr(type(instance), name, None), instance) for name in sorted(names)]
            )
            for value, helper_receiver in [*((value, None) for value in values), *methods]:
                helper: Any = inspect.unwrap(value) if is_instance(value, types.FunctionType) else None
                if is_instance(helper, types.FunctionType) and may_be_user_defined(helper) and is_user_written(helper):
                    self.calls_user_functions = True
                    self.computes = self.computes or _calculates(helper)
                    if depth < _MAX_DEPTH:
                        pending.append((helper, helper_receiver, depth + 1))


def _computes_in_numpy(uses: _Uses) -> bool:
    """Return whether a function continues in NumPy, where compiled code would have arrays instead of numbers."""
    modules = {value.__name__ for value in uses.values if is_instance(value, types.ModuleType)}
    return "numpy" in modules and "numpy" in uses.names


def _calculates(function: types.FunctionType) -> bool:
    """Return whether code calculates with tensors, or uses more than builtins, data and functions that read tensors."""
    code_objects = walk_code_objects(function.__code__)
    instructions = [(part.opname, part.argval) for code in code_objects for part in dis.get_instructions(code)]
    attributes = {name for operation, name in instructions if operation in {"LOAD_ATTR", "LOAD_METHOD"}}
    used_names = {name for operation, name in instructions if operation in {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"}}
    data = {name for name in used_names if is_instance(function.__globals__.get(name), _DATA_TYPES)}
    if attributes - _READING_NAMES or used_names - data - _BUILTINS:
        return True
    calculates = any(operation in _CALCULATING_INSTRUCTIONS for operation, _ in instructions)
    return calculates and not attributes & _EXTRACTING_NAMES


def _is_from_package_around_computation(value: Any) -> bool:
    return is_instance(value, types.ModuleType) and value.__name__.partition(".")[0] in _PACKAGES_AROUND_COMPUTATION


def _named_values(function: types.FunctionType, names: set[str]) -> Iterator[Any]:
    for name in names:
        if name in function.__globals__:
            yield function.__globals__[name]
    yield from closure_values(function)


def _contains_tensor(value: Any, depth: int = 0) -> bool:
    if is_instance(value, torch.Tensor):
        return True
    if depth > 2:  # noqa: PLR2004 - a batch is no deeper
        return False
    items: Iterable[Any] = ()
    if is_instance(value, list | tuple | set):
        items = value
    elif is_instance(value, dict) or type(value).__name__ == "BatchEncoding":
        items = dict(value).values()
    elif may_be_user_defined(type(value)) and not is_instance(value, type | torch.nn.Module | types.ModuleType):
        items = list((attribute_of(value, "__dict__") or {}).values())
    return any(_contains_tensor(item, depth + 1) for item in itertools.islice(items, _MAX_ITEMS))


def _trains_or_supplies_data(value: Any) -> bool:
    """Return whether an object trains or supplies data, such as an optimizer or a data loader, or has a finalizer."""
    class_ = type(value)
    if is_instance(value, type):  # while tracing, Dynamo creates its own instance and drops it
        return attribute_of(value, "__del__") is not None
    if is_instance(value, torch.optim.Optimizer | torch.utils.data.DataLoader | torch.utils.data.Dataset):
        return True
    if is_instance(value, torch.amp.GradScaler | torch.optim.lr_scheduler.LRScheduler | types.GeneratorType):
        return True
    package = class_.__module__.partition(".")[0]
    if is_instance(value, torch.nn.Module | torch.Tensor | types.ModuleType | types.FunctionType):
        return False
    if package in {"builtins", "torch", "numpy", "functools", "collections"} or is_user_written(class_.__init__):
        return False
    attributes = attribute_of(value, "__dict__")
    return is_instance(attributes, dict) and any(
        is_instance(part, torch.nn.Module | torch.optim.Optimizer) for part in list(attributes.values())[:_MAX_ITEMS]
    )

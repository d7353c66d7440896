"""Distinguish the objects that a call may change from immutable objects, code, and objects of the whole process."""

from __future__ import annotations

import array
import contextvars
import enum
import inspect
import io
import logging
import re
import struct
import sys
import threading
import types
import typing
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.trial.stand_ins import stream_in_memory
from jupyter_graphbreak.recording.targets import may_be_user_defined
from jupyter_graphbreak.records.attributes import attribute_of, is_instance, proxy_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Classes without attributes that are not heap types.
_PLAIN_BASES = frozenset({typing.Generic})
#: The flag ``Py_TPFLAGS_HEAPTYPE``: the class was created at run time, for example by a ``class`` statement.
_HEAP_TYPE = 1 << 9
_CHANGEABLE_TYPES = (
    torch.Tensor, torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler,
    list, dict, set, tuple, deque, types.SimpleNamespace,
)  # fmt: skip
_IMMUTABLE_TYPES = (
    str, bytes, int, float, complex, type(None), torch.dtype, torch.device, torch.Size, frozenset, enum.Enum,
    re.Pattern, inspect.Signature,
)  # fmt: skip
#: Types of objects that belong to the process rather than to the program. Copies share these objects.
_PROCESS_TYPES = (
    logging.Filterer, logging.Manager, threading.Thread, contextvars.ContextVar,
    contextvars.Token, types.FrameType, types.TracebackType, types.CodeType,
)  # fmt: skip
#: Logging packages, whose loggers refer to threads, streams and settings.
_LOGGING_PACKAGES = frozenset({"loguru", "structlog", "absl"})
#: PyTorch modules whose objects belong to the process: operators, compilers, device streams.
_TORCH_MODULES = (
    "torch._C", "torch._dynamo", "torch._higher_order_ops", "torch._inductor", "torch._library", "torch._ops",
    "torch.library", "torch.cuda.graphs", "torch.cuda.streams", "torch.distributed", "triton",
)  # fmt: skip
#: The types of locks, and the functions that create them.
LOCK_CONSTRUCTORS: dict[type, Callable[[], Any]] = {type(make()): make for make in (threading.Lock, threading.RLock)}
#: The types of objects whose memory a ``memoryview`` may expose.
BUFFER_TYPES = (bytearray, array.array)


def is_bound_to_data(method: Any) -> bool:
    """Return whether an object is a built-in method of a list, dict, set, deque, tensor or lock."""
    return is_instance(method, types.BuiltinMethodType) and (
        is_instance(method.__self__, list | dict | set | deque | torch.Tensor)
        or type(method.__self__) in LOCK_CONSTRUCTORS
    )


def slot_descriptors(cls: type) -> Iterator[Any]:
    """Yield the descriptors of the ``__slots__`` of a class."""
    for base in cls.__mro__:
        if base.__flags__ & _HEAP_TYPE and "__slots__" in vars(base):
            yield from (member for member in vars(base).values() if is_instance(member, types.MemberDescriptorType))


def is_plain_tensor(value: torch.Tensor) -> bool:
    """Return whether a tensor is an ordinary dense tensor or parameter."""
    return type(value) in {torch.Tensor, torch.nn.Parameter} and value.layout == torch.strided and not value.is_nested


def is_immutable(value: Any) -> bool:
    """Return whether an object counts as immutable, such as a number, a string, ``None`` or an enumeration member."""
    cls: Any = type(value)
    # An instance of a subclass may have attributes.
    has_attributes = cls.__dictoffset__ and not is_instance(value, enum.Enum)
    return cls is object or (is_instance(value, _IMMUTABLE_TYPES) and not has_attributes)


def is_code(value: Any) -> bool:
    """Return whether an object is a function, method, class or Python module, or an FX graph."""
    return is_instance(
        value,
        type | types.ModuleType | types.FunctionType | types.MethodType | types.BuiltinFunctionType | torch.fx.Graph,
    )


def belongs_to_process(value: Any) -> bool:
    """Return whether an object belongs to the process rather than the program, as loggers, threads and streams do."""
    if is_instance(value, torch.Generator):
        return _is_default_generator(value)
    if is_instance(value, _PROCESS_TYPES) or (is_instance(value, io.IOBase) and stream_in_memory(value) is None):
        return True
    module: Any = type(value).__module__
    # A class may define ``__module__`` as a property. A compiled module is copied with the module that it calls.
    if not isinstance(module, str) or is_instance(value, torch.nn.Module):
        return False
    return module.partition(".")[0] in _LOGGING_PACKAGES or any(
        module == package or module.startswith(f"{package}.") for package in _TORCH_MODULES
    )


def _is_default_generator(value: torch.Generator) -> bool:
    """Return whether a generator is a device's default one; each run seeds these generators."""
    defaults = [torch.default_generator]
    for module in (torch.cuda, torch.xpu):
        defaults += getattr(module, "default_generators", ())
    return any(value is default for default in defaults)


def is_array(value: Any) -> bool:
    """Return whether an object is a NumPy array."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and is_instance(value, numpy.ndarray)


def is_data(value: Any) -> bool:
    """Return whether a call may change an object, such as a tensor, module, optimizer, container or user instance."""
    if is_instance(value, (*_CHANGEABLE_TYPES, *BUFFER_TYPES, threading.local)) or proxy_target(value) is not None:
        return True
    if is_instance(value, memoryview):
        return is_data(value.obj)
    if is_instance(value, torch.Generator):
        return not _is_default_generator(value)
    if is_array(value):
        return True
    cls = type(value)
    # Objects of the standard library, such as streams, refer to almost everything.
    return (
        not is_code(value)
        and not belongs_to_process(value)
        and attribute_of(value, "__dict__") is not None
        and may_be_user_defined(cls)
        and cls.__module__.partition(".")[0] not in sys.stdlib_module_names
    )


def has_attributes_only(cls: type) -> bool:
    """Return whether the instances of a class consist of attributes only."""
    return all(_adds_attributes_only(base) or base in _PLAIN_BASES for base in cls.__mro__[:-1])


def _adds_attributes_only(cls: type) -> bool:
    """Return whether a class adds nothing but attributes to the memory of its base's instances.

    Instances of nanobind classes need more memory. Their methods end the process if ``__init__`` has not run.
    """
    base = cls.__base__
    if not cls.__flags__ & _HEAP_TYPE or base is None:
        return False
    attributes = [
        name
        for name, member in vars(cls).items()
        if is_instance(member, types.MemberDescriptorType) or name in {"__dict__", "__weakref__"}
    ]
    return cls.__basicsize__ - base.__basicsize__ <= struct.calcsize("P") * len(attributes)

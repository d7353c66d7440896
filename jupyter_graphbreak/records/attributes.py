"""Read the type and the attributes of any object without running ``__getattr__`` or a property of its class."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections import OrderedDict
from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import UnionType

WEAK_PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
#: The types of descriptors that return an attribute without running Python code.
_MEMBER_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType)


def is_instance(value: Any, types: type | UnionType | tuple[Any, ...]) -> bool:
    """Return whether the real type of an object is one of the given types, whatever the object claims in ``__class__``.

    Proxies and mocks with a specification claim a different class: they have neither the memory of a tensor nor the
    items of a list, and reading their ``__class__`` may raise.
    """
    return issubclass(type(value), types)


def stored_items(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the items of a mapping in its own order. Methods that a subclass of dict overrides are not called.

    Such a method may do more than read, such as import the module of each value.
    """
    if is_instance(mapping, OrderedDict):
        return list(OrderedDict.items(mapping))  # type: ignore[arg-type]
    return list(dict.items(mapping) if is_instance(mapping, dict) else mapping.items())  # type: ignore[arg-type]


def is_hashable(value: Any) -> bool:
    """Return whether an object has a hash.

    The code objects that Dynamo creates may have none, because their constants may contain a dict.
    """
    try:
        hash(value)
    except TypeError:
        return False
    return True


def is_dataclass(value: Any) -> bool:
    """Return whether the type of an object is a dataclass."""
    return any("__dataclass_fields__" in vars(class_) for class_ in type(value).__mro__)


def proxy_member(proxy_class: type) -> Any:
    """Return the descriptor through which instances of a proxy class such as ``wrapt``'s refer to an object, if any."""
    base = next((base for base in proxy_class.__mro__ if "__wrapped__" in vars(base)), object)
    member = vars(base).get("__wrapped__")
    # A lazy proxy, which has a factory, creates its object when ``__wrapped__`` is read.
    is_proxy = type(member) in _MEMBER_DESCRIPTORS and "__class__" in vars(base) and "__factory__" not in vars(base)
    return member if is_proxy else None


def proxy_target(value: Any) -> Any:
    """Return the object to which a proxy, weak or not, refers; ``None`` for any other object."""
    if type(value) in WEAK_PROXIES:
        with contextlib.suppress(ReferenceError, AttributeError):  # the object was freed
            return value.__reduce_ex__.__self__
    if (member := proxy_member(type(value))) is not None:
        with contextlib.suppress(ValueError, AttributeError):  # the proxy has no object yet
            return member.__get__(value)
    return None


def attribute_of(value: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of any object, without running ``__getattr__``, ``__getattribute__`` or a property.

    The default is returned if there is no such attribute, or if only these methods could return it.
    """
    class_ = type(value)
    class_attribute = next((vars(base)[name] for base in class_.__mro__ if name in vars(base)), None)
    if isinstance(class_attribute, property | functools.cached_property):
        return default
    # The attributes of a thread-local object belong to the current thread.
    base: Any = next((base for base in (type, threading.local) if issubclass(class_, base)), object)
    try:
        return base.__getattribute__(value, name)
    except AttributeError:
        return default


def unwrap(value: Any) -> Any:
    """Return the function inside the wrappers that ``functools.wraps`` marks."""
    wrappers = [value]
    while (inner := attribute_of(value, "__wrapped__")) is not None and all(inner is not outer for outer in wrappers):
        wrappers.append(inner)
        value = inner
    return value


def globals_of(function: Any) -> dict[str, Any] | None:
    """Return the globals of the function inside a callable's wrappers, such as ``torch.no_grad()``; ``None`` if none.

    The wrapper of a library has the globals of the library.
    """
    innermost_function = unwrap(getattr(function, "__func__", function))
    return getattr(innermost_function, "__globals__", None)

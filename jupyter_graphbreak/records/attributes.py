"""Read an attribute of any object without running the code of its class."""

from __future__ import annotations

import functools
from typing import Any


def attribute_of(value: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of any object, even one whose ``__getattr__`` raises or counts its calls.

    Neither ``__getattr__`` and ``__getattribute__`` of its class nor a property runs.

    Parameters
    ----------
    value : object
    name : str
    default : object, optional
        The result if there is no such attribute, or if only code of the class could return it.
    """
    kind = type(value)
    of_class = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    if isinstance(of_class, property | functools.cached_property):
        return default
    read = type.__getattribute__ if issubclass(kind, type) else object.__getattribute__
    try:
        return read(value, name)
    except AttributeError:
        return default


def unwrapped(value: Any) -> Any:
    """Return the function inside the wrappers that ``functools.wraps`` marks."""
    seen = [value]
    while (inner := attribute_of(value, "__wrapped__")) is not None and all(inner is not outer for outer in seen):
        seen.append(inner)
        value = inner
    return value

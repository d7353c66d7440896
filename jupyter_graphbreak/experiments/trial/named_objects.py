"""Find the tensors and other objects inside values, with their paths, such as ``encoder.0.weight``."""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.trial.object_kinds import is_data
from jupyter_graphbreak.experiments.trial.values import YieldedItems, attributes, short_repr
from jupyter_graphbreak.records.attributes import is_instance, stored_items

if TYPE_CHECKING:
    from collections.abc import Iterator


#: The first part of the paths into the returned value.
RESULT_PATH = "the result"


def named_objects(value: Any, name: str, visited_ids: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the objects in a value that a call may change, each after its path, and once for each path.

    The name is the beginning of the paths; it is empty for a module whose parameters have no prefix. ``visited_ids``
    are those of objects that have been searched; the set is updated.
    """
    visited_ids = set() if visited_ids is None else visited_ids
    pending = [(name, value)]
    while pending:
        path, item = pending.pop()
        if not is_data(item) and not is_instance(item, YieldedItems):
            continue
        if not is_instance(item, tuple):
            yield path, item
        if id(item) not in visited_ids:
            visited_ids.add(id(item))
            pending += [(f"{path}{step}".removeprefix("."), part) for step, part in reversed(list(_parts(item)))]


def named_tensors(value: Any, name: str, visited_ids: set[int] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in a value, with their paths."""
    return ((path, item) for path, item in named_objects(value, name, visited_ids) if is_instance(item, torch.Tensor))


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and other leaves in a value, each with its first path.

    For a container or an instance, the name of its class comes first, so that empty ones are included.
    """
    visited_ids: set[int] = set()
    pending = [(name, value)]
    while pending:
        path, item = pending.pop()
        if is_instance(item, torch.Tensor) or not is_data(item):
            # The methods of two copies are bound to different objects.
            yield path, item.__func__ if is_instance(item, types.MethodType) else item
        elif id(item) not in visited_ids:
            visited_ids.add(id(item))
            yield path, type(item).__qualname__
            pending += [(f"{path}{step}".removeprefix("."), part) for step, part in reversed(list(_parts(item)))]


def memory_address(value: Any) -> int | None:
    """Return the address of the memory that a tensor or array shares with its views; ``None`` if that is unknown."""
    try:
        if is_instance(value, torch.Tensor):
            return value.untyped_storage().data_ptr() or None
        numpy = sys.modules.get("numpy")
        if numpy is not None and is_instance(value, numpy.ndarray):
            while is_instance(value.base, numpy.ndarray):
                value = value.base
            return int(value.__array_interface__["data"][0]) if value.size else None
    except Exception:  # noqa: BLE001 - sparse and fake tensors and users' subclasses may have no memory
        return None
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an object, with the path step to each."""
    if is_instance(value, torch.Tensor):
        return
    elif is_instance(value, torch.optim.Optimizer):
        yield ".param_groups", value.param_groups
        yield ".state", value.state
    elif is_instance(value, YieldedItems):
        yield from ((f"[{index}]", part) for index, part in enumerate(value.items))
    elif is_instance(value, Mapping):
        for index, (key, part) in enumerate(stored_items(value)):
            yield f"[{index if is_data(key) else short_repr(key)}]", part
    elif is_instance(value, list | tuple | deque):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    elif is_instance(value, AbstractSet):
        yield from (("{}", part) for part in value)
    else:
        yield from ((f".{key}", part) for key, part in attributes(value).items())

"""The tensors and other objects inside values, each with the name of its place: "batch['ids']", "encoder.0.weight"."""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.trial.copies import is_data
from jupyter_graphbreak.experiments.trial.values import Yielded, attributes, show

if TYPE_CHECKING:
    from collections.abc import Iterator


#: How places in what a call returns begin.
RESULT = "the result"


def named(value: Any, name: str, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield every object in a value that a call can change, by its place; one that is met again is yielded again.

    Parameters
    ----------
    name : str
        How the value itself is called; empty for a module whose parameters go by their own names.
    seen : set of int
        The ids of objects whose parts are not looked for again; it is added to.
    """
    seen = set() if seen is None else seen
    pending = [(name, value)]
    while pending:
        place, item = pending.pop()
        if not is_data(item) and not isinstance(item, Yielded):
            continue
        if not isinstance(item, tuple):
            yield place, item
        if id(item) not in seen:
            seen.add(id(item))
            pending += [(f"{place}{step}".removeprefix("."), part) for step, part in reversed(list(_parts(item)))]


def tensors(value: Any, name: str, seen: set[int] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in a value by their places."""
    return ((place, item) for place, item in named(value, name, seen) if isinstance(item, torch.Tensor))


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and all else in a value that holds nothing more, each by the first of its places.

    Of what holds something it is the name of its class, so that one that is empty does not go unseen.
    """
    seen: set[int] = set()
    pending = [(name, value)]
    while pending:
        place, item = pending.pop()
        if isinstance(item, torch.Tensor) or not is_data(item):
            # A method is bound to the copy of its object.
            yield place, item.__func__ if isinstance(item, types.MethodType) else item
        elif id(item) not in seen:
            seen.add(id(item))
            yield place, type(item).__qualname__
            pending += [(f"{place}{step}".removeprefix("."), part) for step, part in reversed(list(_parts(item)))]


def memory(value: Any) -> int | None:
    """Return where the elements of a tensor or an array lie; views of one tensor lie at the same place."""
    try:
        if isinstance(value, torch.Tensor):
            return value.untyped_storage().data_ptr() or None
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            while isinstance(value.base, numpy.ndarray):
                value = value.base
            return int(value.__array_interface__["data"][0]) if value.size else None
    except Exception:  # noqa: BLE001 - tensors without memory: sparse ones, fake ones, subclasses of the user's
        return None
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds, with the step that leads there."""
    match value:
        case torch.Tensor():
            return
        case torch.optim.Optimizer():
            yield ".param_groups", value.param_groups
            yield ".state", value.state
        case Yielded():
            yield from ((f"[{index}]", part) for index, part in enumerate(value.items))
        case Mapping():
            for index, (key, part) in enumerate(value.items()):
                yield f"[{index if is_data(key) else show(key)}]", part
        case list() | tuple() | deque():
            yield from ((f"[{index}]", part) for index, part in enumerate(value))
        case AbstractSet():
            yield from (("{}", part) for part in value)
        case _:
            yield from ((f".{key}", part) for key, part in attributes(value).items())

"""Copies of objects that share nothing which can change."""

from __future__ import annotations

import contextlib
import copy
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import torch

from jupyter_graphbreak._torch_compat.patching import patched_here
from jupyter_graphbreak.recording.targets import is_own
from jupyter_graphbreak.trial.stand_ins import stand_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: A view of a storage with more bytes is copied by itself.
_LARGEST_STORAGE = 1 << 26
#: Python's flag for a class made by a ``class`` statement.
_HEAP_TYPE = 1 << 9
_CONTAINERS = (
    torch.Tensor, torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler,
    list, dict, set, tuple, deque, types.SimpleNamespace,
)  # fmt: skip
_ATOMS = (str, bytes, int, float, complex, type(None), torch.dtype, torch.device, torch.Size, frozenset)


def clone(value: Any, memo: dict[Any, Any] | None = None, failed: list[Any] | None = None) -> Any:
    """Return a copy that shares nothing which can change; what cannot be copied is returned as it is.

    Parameters
    ----------
    memo : dict
        The copies made so far, by the ids of the originals: what is one object stays one.
    failed : list
        Objects that could not be copied are added to it.
    """
    memo = {} if memo is None else memo
    if is_atom(value):
        return value
    if id(value) in memo:
        return memo[id(value)]
    made: Any
    match value:
        case torch.Tensor():
            made = _clone_tensor(value, memo, failed)
        case dict() if type(value) is dict:
            made = memo[id(value)] = {}
            made.update((key, clone(item, memo, failed)) for key, item in value.items())
        case list() if type(value) is list:
            made = memo[id(value)] = []
            made.extend(clone(item, memo, failed) for item in value)
        case tuple() if type(value) is tuple or hasattr(value, "_fields"):
            parts = [clone(item, memo, failed) for item in value]
            made = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        case _ if is_code(value):
            made = value
        case _ if (instead := stand_in(value, lambda part: clone(part, memo, failed))) is not None:
            made = instead
        case _:
            made = _clone_object(value, memo, failed)
    memo[id(value)] = made
    memo.setdefault(id(memo), []).append(value)  # keep the object alive: its id would go to another one
    return made


def _clone_tensor(value: torch.Tensor, memo: dict[Any, Any], failed: list[Any] | None) -> torch.Tensor:
    """Return a leaf with the same elements, the same ``.grad`` and the same attributes; views share memory again."""
    if not _is_plain(value):
        return cast("torch.Tensor", _clone_object(value, memo, failed))
    made = _clone_elements(value, memo)
    if isinstance(value, torch.nn.Parameter):
        made = torch.nn.Parameter(made, value.requires_grad)
    elif value.requires_grad:
        made.requires_grad_()
    memo[id(value)] = made
    if value.is_leaf and value.grad is not None:
        made.grad = clone(value.grad, memo, failed)
    vars(made).update((key, clone(item, memo, failed)) for key, item in vars(value).items())
    return made


def _is_plain(value: torch.Tensor) -> bool:
    return type(value) in {torch.Tensor, torch.nn.Parameter} and value.layout == torch.strided and not value.is_nested


def _clone_elements(value: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    detached = value.detach()
    storage = _storage(detached)
    if storage is None:
        return detached.clone()
    key = ("memory", storage.data_ptr(), str(value.device))
    if key not in memo:
        memo[key] = storage.clone()
    made = torch.empty(0, dtype=value.dtype, device=value.device)
    return made.set_(memo[key], detached.storage_offset(), detached.size(), detached.stride())


def _storage(value: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the memory of a tensor that others may share; ``None`` where that does not matter or cannot be had."""
    if value.is_meta or value.is_quantized or value.is_inference() or value.is_conj() or value.is_neg():
        return None
    storage = value.untyped_storage()
    small_part = storage.nbytes() > max(_LARGEST_STORAGE, 4 * value.nbytes)
    return storage if storage.data_ptr() and not small_part else None


def _clone_object(value: Any, memo: dict[Any, Any], failed: list[Any] | None) -> Any:
    known = len(memo)
    try:
        with _leaves(failed):
            return copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - locks, open files, whatever the user's __deepcopy__ does
        for key in list(memo)[known:]:
            del memo[key]  # what it had begun
        if _has_attributes_only(value):
            with contextlib.suppress(Exception):
                return _clone_attributes(value, memo, failed)
    if failed is not None:
        failed.append(value)
    return value


def _has_attributes_only(value: Any) -> bool:
    """Whether an instance is of Python classes all through, which leave its copying to Python."""
    return (
        not hasattr(value, "__deepcopy__")
        and isinstance(getattr(value, "__dict__", None), dict)
        and all(kind.__flags__ & _HEAP_TYPE for kind in type(value).__mro__[:-1])
    )


def _clone_attributes(value: Any, memo: dict[Any, Any], failed: list[Any] | None) -> Any:
    """Return a copy of an instance one of whose attributes cannot be copied: that one alone is shared."""
    made = object.__new__(type(value))
    memo[id(value)] = made
    vars(made).update((key, clone(item, memo, failed)) for key, item in vars(value).items())
    return made


@contextlib.contextmanager
def _leaves(failed: list[Any] | None) -> Iterator[None]:
    """Have ``copy.deepcopy`` copy tensors as :func:`clone` does.

    Torch refuses to copy a tensor that is no leaf, as a module keeps it after its forward pass, and forgets the
    ``.grad`` of a parameter.
    """
    of_tensors, of_parameters = (vars(kind)["__deepcopy__"] for kind in (torch.Tensor, torch.nn.Parameter))

    def deepcopy(tensor: torch.Tensor, memo: dict[Any, Any]) -> Any:
        if id(tensor) in memo:
            return memo[id(tensor)]
        if _is_plain(tensor):
            return _clone_tensor(tensor, memo, failed)
        return (of_parameters if isinstance(tensor, torch.nn.Parameter) else of_tensors)(tensor, memo)

    with (
        patched_here(torch.Tensor, "__deepcopy__", deepcopy),
        patched_here(torch.nn.Parameter, "__deepcopy__", deepcopy),
    ):
        yield


class Saved:
    """The content of everything that some objects lead to; each object can get its content back, and stays itself."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self._contents: list[tuple[Any, Any]] = []
        self._tensors: list[tuple[torch.Tensor, torch.Tensor, bool, torch.Tensor | None]] = []
        self._memory: dict[int, tuple[torch.Tensor, Any]] = {}
        self._seen: dict[int, Any] = {}
        pending = list(roots)
        while pending:
            value = pending.pop()
            if id(value) in self._seen or not is_data(value):
                continue
            self._seen[id(value)] = value
            pending += self._save(value)

    def put_back(self) -> None:
        """Give each object the content that it had."""
        for container, content in self._contents:
            _refill(container, content)
        for alias, elements in self._memory.values():
            with torch.no_grad():
                if isinstance(elements, torch.UntypedStorage):
                    alias.untyped_storage().copy_(elements)
                else:
                    alias.copy_(elements)
        for tensor, alias, requires_grad, grad in self._tensors:
            if not tensor.is_leaf:
                tensor.detach_()
            if tensor.data_ptr() != alias.data_ptr() or tensor.shape != alias.shape or tensor.dtype != alias.dtype:
                tensor.data = alias
            if tensor.requires_grad != requires_grad:
                tensor.requires_grad_(requires_grad)
            tensor.grad = grad

    def _save(self, value: Any) -> list[Any]:
        """Save the content of one object; return what it holds."""
        if isinstance(value, torch.Tensor):
            return self._save_tensor(value)
        if isinstance(value, tuple):
            return list(value)
        parts: list[Any] = []
        if isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, type):
            attributes = vars(value)
            self._contents.append((attributes, {key: slot(part) for key, part in attributes.items()}))
            parts += attributes.values()
        match value:
            case dict():
                self._contents.append((value, {key: slot(part) for key, part in value.items()}))
                parts += [*value.keys(), *value.values()]
            case list() | deque():
                self._contents.append((value, list(map(slot, value))))
                parts += value
            case set():
                self._contents.append((value, set(value)))
            case _ if hasattr(value, "__array_interface__"):
                self._contents.append((value, value.copy()))
        return parts

    def _save_tensor(self, tensor: torch.Tensor) -> list[Any]:
        alias = tensor.detach()
        lies_at = 0
        if _is_plain(tensor) and not tensor.is_meta:
            lies_at = alias.untyped_storage().data_ptr()
        if lies_at:
            if lies_at not in self._memory:
                self._memory[lies_at] = alias, alias.untyped_storage().clone()
        elif not _is_plain(tensor):
            self._memory[id(tensor)] = alias, alias.clone()
        grad = tensor.grad if tensor.is_leaf else None
        if _is_plain(tensor):
            self._tensors.append((tensor, alias, tensor.requires_grad, grad))
        attributes = vars(tensor)
        self._contents.append((attributes, dict(attributes)))
        return [*attributes.values(), *([grad] if grad is not None else [])]


class _Opaque:
    """A copy of an object whose content cannot be read, such as an iterator; another copy will take its place."""

    def __init__(self, value: Any) -> None:
        self.copy = value


def slot(value: Any) -> Any:
    """Return what holds the place of an object: itself if its content is saved elsewhere, or else a copy."""
    if is_atom(value) or is_data(value) or is_code(value):
        return value
    made = clone(value)
    return value if made is value else _Opaque(made)


def filled(saved: Any) -> Any:
    """Return an object, or another copy of it, from what :func:`slot` returned."""
    return clone(saved.copy) if isinstance(saved, _Opaque) else saved


def _refill(container: Any, content: Any) -> None:
    match container:
        case dict():
            if len(container) == len(content) and all(container.get(key, content) is content[key] for key in content):
                return  # Dynamo's guards notice when a dict is written to
            container.clear()
            container.update((key, filled(saved)) for key, saved in content.items())
        case list():
            container[:] = map(filled, content)
        case deque():
            container.clear()
            container.extend(map(filled, content))
        case set():
            container.clear()
            container.update(content)
        case _:
            container[...] = content


def keeping(objects: Iterable[Any]) -> dict[Any, Any]:
    """Return a memo with which :func:`clone` keeps some objects, and the memory of those that are tensors."""
    memo: dict[Any, Any] = {}
    for item in objects:
        memo[id(item)] = item
        if isinstance(item, torch.Tensor) and _is_plain(item) and (storage := _storage(item)) is not None:
            memo["memory", storage.data_ptr(), str(item.device)] = storage
    return memo


def is_atom(value: Any) -> bool:
    """Whether an object never changes."""
    return isinstance(value, _ATOMS) or type(value) is object


def is_code(value: Any) -> bool:
    """Whether an object is a function, a class or a package: nothing that a call changes."""
    return isinstance(
        value, type | types.ModuleType | types.FunctionType | types.MethodType | types.BuiltinFunctionType
    )


def is_data(value: Any) -> bool:
    """Whether a call may change an object: tensors, modules, optimizers, containers, the user's instances."""
    if isinstance(value, _CONTAINERS):
        return True
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return True
    kind = type(value)
    # Loggers, streams and threads of Python's lead to everything that there is.
    return (
        not is_code(value)
        and hasattr(value, "__dict__")
        and is_own(kind)
        and kind.__module__.partition(".")[0] not in sys.stdlib_module_names
    )

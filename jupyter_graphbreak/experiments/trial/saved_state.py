"""Save the content of objects and restore it in place."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.tensor_values import disable_gradients_and_overrides
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.object_kinds import (
    BUFFER_TYPES,
    LOCK_CONSTRUCTORS,
    belongs_to_process,
    is_array,
    is_code,
    is_data,
    is_immutable,
    is_plain_tensor,
    slot_descriptors,
)
from jupyter_graphbreak.records.attributes import attribute_of, is_instance, proxy_target, stored_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class SavedState:
    """The content of all objects that are reachable from the given roots. It can be restored in place.

    The content of excluded objects, and of storages that are saved elsewhere, is not saved.
    """

    def __init__(
        self,
        roots: Iterable[Any],
        is_saved_elsewhere: Callable[[torch.UntypedStorage], bool] = lambda _: False,
        excluded_objects: Iterable[Any] = (),
    ) -> None:
        self._is_saved_elsewhere = is_saved_elsewhere
        self._contents: list[tuple[Any, Any]] = []
        self._slot_descriptors: list[tuple[Any, Any, Any]] = []
        self._optimizers: list[torch.optim.Optimizer] = []
        self._tensors: list[tuple[torch.Tensor, torch.Tensor, bool, torch.Tensor | None]] = []
        self._memory: dict[int, tuple[torch.Tensor, Any]] = {}
        self._visited_objects: dict[int, Any] = {id(value): value for value in excluded_objects}
        pending = list(roots)
        with disable_gradients_and_overrides():
            while pending:
                value = pending.pop()
                if id(value) in self._visited_objects or not is_data(value):
                    continue
                self._visited_objects[id(value)] = value
                if is_instance(value, torch.optim.Optimizer):
                    self._optimizers.append(value)
                pending += self._save(value)

    def restore(self) -> None:
        """Restore the saved content of each object."""
        with disable_gradients_and_overrides(), torch.inference_mode(mode=False):
            for container, content in self._contents:
                _restore_content(container, content)
            for item, descriptor, content in self._slot_descriptors:
                descriptor.__set__(item, value_to_restore(content))
            for alias, elements in self._memory.values():
                with torch.no_grad():
                    if is_instance(elements, torch.UntypedStorage):
                        memory = alias.untyped_storage()
                        if memory.nbytes() != elements.nbytes():
                            memory.resize_(elements.nbytes())
                        memory.copy_(elements)
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

    def new_optimizer_tensors(self) -> list[torch.Tensor]:
        """Return the tensors that runs have added to the states of optimizers."""
        states = [
            state
            for optimizer in self._optimizers
            for state in vars(optimizer).get("state", {}).values()
            if is_instance(state, dict)
        ]
        return [
            part
            for state in states
            for part in state.values()
            if is_instance(part, torch.Tensor) and id(part) not in self._visited_objects
        ]

    def storages(self) -> list[torch.UntypedStorage]:
        """Return the storages of the saved tensors."""
        return [alias.untyped_storage() for _, alias, _, _ in self._tensors]

    def move(
        self, storage: torch.UntypedStorage, new_storage: torch.UntypedStorage, saved_content: torch.UntypedStorage
    ) -> None:
        """Move the tensors in a storage to a new storage, whose content to restore is ``saved_content``."""
        address = storage.data_ptr()
        for index, (tensor, alias, requires_grad, grad) in enumerate(self._tensors):
            if alias.untyped_storage().data_ptr() == address:
                new_alias = torch.empty(0, dtype=alias.dtype, device=alias.device)
                new_alias.set_(new_storage, alias.storage_offset(), alias.size(), alias.stride())
                if tensor.data_ptr() == alias.data_ptr():
                    tensor.data = new_alias
                self._tensors[index] = tensor, new_alias, requires_grad, grad
                self._memory[new_storage.data_ptr()] = new_alias, saved_content

    def _save(self, value: Any) -> list[Any]:
        """Save the content of one object, and return the objects that it refers to."""
        if is_instance(value, torch.Tensor):
            return self._save_tensor(value)
        if is_instance(value, tuple):
            return [*tuple.__iter__(value)]
        if (target := proxy_target(value)) is not None:
            return [target]
        parts: list[Any] = []
        attributes = attribute_of(value, "__dict__")
        if isinstance(attributes, dict) and not is_instance(value, type):
            self._contents.append((attributes, {key: value_to_save(part) for key, part in attributes.items()}))
            parts += attributes.values()
        for descriptor in slot_descriptors(type(value)):
            with contextlib.suppress(AttributeError):  # an unset slot
                part = descriptor.__get__(value, type(value))
                self._slot_descriptors.append((value, descriptor, value_to_save(part)))
                parts.append(part)
        if is_instance(value, dict):
            items = stored_items(value)
            self._contents.append((value, {key: value_to_save(part) for key, part in items}))
            parts += itertools.chain.from_iterable(items)
        elif is_instance(value, list | deque):
            self._contents.append((value, list(map(value_to_save, value))))
            parts += value
        elif is_instance(value, set):
            self._contents.append((value, set(value)))
            parts += value
        elif is_instance(value, torch.Generator):
            self._contents.append((value, value.get_state()))
        elif is_instance(value, memoryview):
            parts.append(value.obj)
        elif is_instance(value, BUFFER_TYPES) or is_array(value):
            self._contents.append((value, copy.copy(value)))
        return parts

    def _save_tensor(self, tensor: torch.Tensor) -> list[Any]:
        alias = tensor.detach()
        address = 0
        if is_plain_tensor(tensor) and not tensor.is_meta:
            address = alias.untyped_storage().data_ptr()
        if address:
            if address not in self._memory and not self._is_saved_elsewhere(alias.untyped_storage()):
                self._memory[address] = alias, alias.untyped_storage().clone()
        elif not is_plain_tensor(tensor):
            self._memory[id(tensor)] = alias, alias.clone()
        grad = tensor.grad if tensor.is_leaf else None
        if is_plain_tensor(tensor):
            self._tensors.append((tensor, alias, tensor.requires_grad, grad))
        attributes = vars(tensor)
        self._contents.append((attributes, dict(attributes)))
        return [*attributes.values(), *([grad] if grad is not None else [])]


class _OpaqueCopy:
    """A copy of an object whose content cannot be read, such as an iterator. Each restoration copies this copy."""

    def __init__(self, value: Any) -> None:
        self.copy = value


def value_to_save(value: Any) -> Any:
    """Return the value to save for a reference: the object if its content is saved separately, or else a copy."""
    if (
        is_immutable(value)
        or is_data(value)
        or is_code(value)
        or belongs_to_process(value)
        or _is_lock_or_reference(value)
    ):
        return value
    result = clone(value)
    return value if result is value else _OpaqueCopy(result)


def _is_lock_or_reference(value: Any) -> bool:
    """Return whether an object is a lock, or only refers to objects that are saved."""
    return is_instance(value, weakref.ref | functools.partial) or type(value) in LOCK_CONSTRUCTORS


def value_to_restore(saved_value: Any) -> Any:
    """Return the object, or a new copy of the object, for a value that :func:`value_to_save` returned."""
    return clone(saved_value.copy) if is_instance(saved_value, _OpaqueCopy) else saved_value


def _restore_content(container: Any, content: Any) -> None:
    if is_instance(container, dict):
        if len(container) == len(content) and all(container.get(key, content) is content[key] for key in content):
            return  # Dynamo's guards detect every write to a dict
        container.clear()
        container.update((key, value_to_restore(saved_value)) for key, saved_value in content.items())
    elif is_instance(container, list):
        container[:] = map(value_to_restore, content)
    elif is_instance(container, BUFFER_TYPES):
        container[:] = content
    elif is_instance(container, deque):
        container.clear()
        container.extend(map(value_to_restore, content))
    elif is_instance(container, set):
        container.clear()
        container.update(content)
    elif is_instance(container, torch.Generator):
        container.set_state(content)
    else:
        container[...] = content

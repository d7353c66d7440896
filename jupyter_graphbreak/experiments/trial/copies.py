"""Copies of objects that share nothing which can change."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import enum
import functools
import inspect
import io
import logging
import re
import sys
import threading
import types
import typing
import weakref
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import torch

from jupyter_graphbreak._torch_compat.patching import patched_here
from jupyter_graphbreak.experiments.trial.digests import digest, is_large, note_shape
from jupyter_graphbreak.experiments.trial.stand_ins import stand_in
from jupyter_graphbreak.recording.targets import is_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    #: Kinds of objects, and how each is copied.
    _Ways = tuple[tuple[Any, Callable[[Any, Any], Any]], ...]

#: A view of a storage with more bytes is copied by itself.
_LARGEST_STORAGE = 1 << 26
#: Python's flag for a class made by a ``class`` statement.
_HEAP_TYPE = 1 << 9
_CONTAINERS = (
    torch.Tensor, torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler,
    list, dict, set, tuple, deque, types.SimpleNamespace,
)  # fmt: skip
_ATOMS = (
    str, bytes, int, float, complex, type(None), torch.dtype, torch.device, torch.Size, frozenset, enum.Enum,
    re.Pattern, inspect.Signature,
)  # fmt: skip
#: What belongs to the process rather than to the program: copies share it.
_OF_PROCESS = (
    logging.Filterer, logging.LoggerAdapter, logging.Manager, threading.Thread, threading.local, contextvars.ContextVar,
    contextvars.Context, contextvars.Token, types.FrameType, types.TracebackType, types.CodeType,
)  # fmt: skip
#: Loggers of packages, by the packages' names: what they hold leads to threads, streams and settings.
_LOGGING_PACKAGES = frozenset({"loguru", "structlog", "absl"})
#: Where the classes are of what PyTorch registers for a process: operators, compilers, streams of devices.
_OF_TORCH = (
    "torch._C", "torch._dynamo", "torch._higher_order_ops", "torch._inductor", "torch._library", "torch._ops",
    "torch.library", "torch.cuda.graphs", "torch.cuda.streams", "torch.distributed", "triton",
)  # fmt: skip
_LOCKS: dict[type, Callable[[], Any]] = {type(make()): make for make in (threading.Lock, threading.RLock)}
#: Classes without attributes of their own that are no heap types.
_PLAIN = frozenset({typing.Generic})
#: The key in a memo of the keys of memory that is as before all runs.
UNCHANGED = "unchanged"
_IN_MEMORY = (io.StringIO, io.BytesIO)


class Uncopied(NamedTuple):
    """An object that cannot be copied, and why, as the end of a sentence."""

    value: Any
    reason: str


class Blocks(Protocol):
    """Says where the copies of large memory lie, so that several copies can share it."""

    def copy_of(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.UntypedStorage | None:
        """Return the memory of a copy; ``None`` if it is to be copied as any other."""


def clone(
    value: Any,
    memo: dict[Any, Any] | None = None,
    failed: list[Uncopied] | None = None,
    functions: Callable[[types.FunctionType], Any] | None = None,
    blocks: Blocks | None = None,
    digests: dict[Any, torch.Tensor] | None = None,
) -> Any:
    """Return a copy that shares nothing which can change; what cannot be copied is returned as it is.

    References stay references: what is one object in the original is one in the copy, also behind bound methods, weak
    references and functions that objects hold. Loggers, threads and code are shared.

    Parameters
    ----------
    memo : dict
        The copies made so far, by the ids of the originals: what is one object stays one.
    failed : list
        Objects that could not be copied are added to it.
    functions : callable
        Copies a function that an object holds; without it functions are shared.
    blocks : Blocks
        Says where the copies of large memory lie.
    digests : dict
        For a copy that is only to be compared, in which digests stand for large tensors: those of memory that the memo
        knows, to be used again.
    """
    with torch.inference_mode(mode=False), torch.no_grad():
        return _Copier({} if memo is None else memo, failed, functions, blocks, digests).copy(value)


class _Copier:
    def __init__(
        self,
        memo: dict[Any, Any],
        failed: list[Uncopied] | None,
        functions: Callable[[types.FunctionType], Any] | None,
        blocks: Blocks | None,
        digests: dict[Any, torch.Tensor] | None,
    ) -> None:
        self._memo = memo
        self._failed = failed
        self._functions = functions
        self._blocks = blocks
        self._digests = digests

    def copy(self, value: Any) -> Any:
        if is_atom(value):
            return value
        memo = self._memo
        if id(value) in memo:
            return memo[id(value)]
        made = self._copy(value)
        memo[id(value)] = made
        memo.setdefault(id(memo), []).append(value)  # keep the object alive: its id would go to another one
        return made

    def _copy(self, value: Any) -> Any:
        if isinstance(value, types.BuiltinMethodType) and _belongs_to_data(value):
            return self._builtin_method(value)
        for kinds, way in self._first_ways:
            if isinstance(value, kinds):
                return way(self, value)
        if is_code(value):
            return value
        if (instead := stand_in(value, self.copy)) is not None:
            return instead
        if is_shared(value):
            return value
        for kinds, way in self._ways:
            if isinstance(value, kinds):
                return way(self, value)
        return self._object(value)

    def _function(self, value: types.FunctionType) -> Any:
        return value if self._functions is None else self._functions(value)

    def _method(self, value: types.MethodType) -> Any:
        owner = self.copy(value.__self__)
        return value if owner is value.__self__ else types.MethodType(value.__func__, owner)

    def _partial(self, value: functools.partial[Any]) -> Any:
        if type(value) is not functools.partial:
            return self._object(value)
        arguments = [self.copy(item) for item in value.args]
        return functools.partial(
            self.copy(value.func), *arguments, **{key: self.copy(item) for key, item in value.keywords.items()}
        )

    def _lock(self, value: Any) -> Any:
        """Return a lock that nobody holds: a trial waits for no thread of the user's."""
        return _LOCKS[type(value)]()

    def _generator(self, value: torch.Generator) -> Any:
        return value.clone_state()

    def _weak_mapping(self, value: Any) -> Any:
        made = type(value)()
        for key, item in list(value.items()):
            made[self.copy(key)] = self.copy(item)
        return made

    def _weak_set(self, value: Any) -> Any:
        return type(value)(self.copy(item) for item in list(value))

    def _builtin_method(self, value: types.BuiltinMethodType) -> Any:
        owner = self.copy(value.__self__)
        return value if owner is value.__self__ else getattr(owner, value.__name__)

    def _reference(self, value: weakref.ref[Any]) -> Any:
        if isinstance(value, weakref.WeakMethod):
            method = value()
            made = self.copy(method) if method is not None else None
            return value if made is method or made is None else weakref.WeakMethod(made)
        referent = value()
        made = self.copy(referent) if referent is not None else None
        if made is None or made is referent:
            return value
        return weakref.ref(made)

    def _container(self, value: Any) -> Any:
        """Return a copy of a dict, list, tuple or set, also of one of the user's classes, with its attributes."""
        kind: Any = type(value)
        if _has_own_copy(kind):
            return self._object(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        try:
            made = kind.__new__(kind)
        except Exception:  # noqa: BLE001 - a class that wants to be made otherwise
            return self._object(value)
        self._memo[id(value)] = made
        if isinstance(value, defaultdict):
            made.default_factory = self.copy(value.default_factory)
        if isinstance(value, dict):
            # Not by the class's own methods: they may do more than to hold an item.
            put = OrderedDict.__setitem__ if isinstance(value, OrderedDict) else dict.__setitem__
            for key, item in list(dict.items(value)):
                put(made, self.copy(key), self.copy(item))
        elif isinstance(value, list):
            list.extend(made, map(self.copy, list(value)))
        else:
            set.update(made, map(self.copy, list(value)))
        self._fill(value, made)
        return made

    def _tuple(self, value: Any) -> Any:
        kind: Any = type(value)
        held = [*tuple.__iter__(value)]  # not by the class's own methods, which may refuse
        parts = [self.copy(item) for item in held]
        if id(value) in self._memo:  # it holds itself
            return self._memo[id(value)]
        if all(part is item for part, item in zip(parts, held, strict=True)):
            return value
        if kind is tuple:
            return tuple(parts)
        try:
            made = tuple.__new__(kind, parts)
        except TypeError:  # those that torch returns, for one
            return kind(parts)
        self._fill(value, made)
        return made

    def _object(self, value: Any) -> Any:
        kind: Any = type(value)
        known = len(self._memo)
        reason = "it has a destructor, which would run for the copy, too"
        if not any("__del__" in vars(base) for base in kind.__mro__):
            if not _has_own_copy(kind) and _has_attributes_only(kind):
                with contextlib.suppress(TypeError):  # a class whose instances Python does not make
                    return self._attributes(value)
            try:
                with self._leaves():
                    return copy.deepcopy(value, self._memo)
            except Exception as error:  # noqa: BLE001 - open files, whatever the user's __deepcopy__ does
                reason = _in_words(error)
                for key in list(self._memo)[known:]:
                    del self._memo[key]  # what it had begun
        if self._failed is not None:
            self._failed.append(Uncopied(value, reason))
        return value

    def _attributes(self, value: Any) -> Any:
        """Return a copy of an instance of Python classes all through, attribute by attribute."""
        self._memo[id(value)] = made = object.__new__(type(value))
        self._fill(value, made)
        return made

    def _fill(self, value: Any, made: Any) -> None:
        """Copy the attributes of an object to another one of its class."""
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict):
            vars(made).update((key, self.copy(item)) for key, item in list(held.items()))
        for descriptor in _slots(type(value)):
            with contextlib.suppress(AttributeError):  # one that is not set
                descriptor.__set__(made, self.copy(descriptor.__get__(value, type(value))))

    def _tensor(self, value: torch.Tensor) -> Any:
        """Return a leaf with the same elements, ``.grad`` and attributes; views share memory again."""
        if not _is_plain(value):
            return self._unusual_tensor(value)
        stands_for_it = self._digests is not None and is_large(value)
        made = self._digest(value) if stands_for_it else self._elements(value)
        if isinstance(value, torch.nn.Parameter):
            made = torch.nn.Parameter(made, value.requires_grad)
        elif value.requires_grad:
            made.requires_grad_()
        self._memo[id(value)] = made
        if value.is_leaf and value.grad is not None:
            made.grad = self.copy(value.grad)
        vars(made).update((key, self.copy(item)) for key, item in vars(value).items())
        if stands_for_it:
            note_shape(made, value)
        return made

    def _unusual_tensor(self, value: torch.Tensor) -> Any:
        try:
            with self._leaves():
                return copy.deepcopy(value, self._memo)
        except Exception as error:  # noqa: BLE001 - most of those that are no leaves
            with contextlib.suppress(Exception):
                return value.detach().clone().requires_grad_(value.requires_grad)
            if self._failed is not None:
                self._failed.append(Uncopied(value, _in_words(error)))
            return value

    def _digest(self, value: torch.Tensor) -> torch.Tensor:
        """Return what stands for a large tensor; its attributes are those of the tensor, as far as they are copied."""
        key = memory_key(value.untyped_storage())
        if self._digests is None or key not in self._memo.get(UNCHANGED, ()):
            return digest(value)
        part = key, value.storage_offset(), tuple(value.shape), value.stride(), value.dtype
        if part not in self._digests:
            self._digests[part] = digest(value)
        return self._digests[part].detach()

    def _elements(self, value: torch.Tensor) -> torch.Tensor:
        detached = value.detach()
        storage = _storage(detached)
        if storage is None:
            with torch.inference_mode(value.is_inference()):
                return detached.clone()
        key = memory_key(storage)
        if key not in self._memo:
            shared = self._blocks.copy_of(value, storage) if self._blocks is not None else None
            self._memo[key] = storage.clone() if shared is None else shared
        made = torch.empty(0, dtype=value.dtype, device=value.device)
        return made.set_(self._memo[key], detached.storage_offset(), detached.size(), detached.stride())

    @contextlib.contextmanager
    def _leaves(self) -> Iterator[None]:
        """Have ``copy.deepcopy`` copy tensors as this does, in this thread.

        Torch refuses to copy a tensor that is no leaf, as a module keeps it after its forward pass, and forgets the
        ``.grad`` of a parameter.
        """
        of_tensors, of_parameters = (vars(kind)["__deepcopy__"] for kind in (torch.Tensor, torch.nn.Parameter))

        def deepcopy(tensor: torch.Tensor, memo: dict[Any, Any]) -> Any:
            if id(tensor) in memo:
                return memo[id(tensor)]
            if _is_plain(tensor) and memo is self._memo:
                return self._tensor(tensor)
            return (of_parameters if isinstance(tensor, torch.nn.Parameter) else of_tensors)(tensor, memo)

        with (
            patched_here(torch.Tensor, "__deepcopy__", deepcopy),
            patched_here(torch.nn.Parameter, "__deepcopy__", deepcopy),
        ):
            yield

    _first_ways: ClassVar[_Ways] = (
        (torch.Tensor, _tensor),
        (types.MethodType, _method),
        (types.FunctionType, _function),
    )
    _ways: ClassVar[_Ways] = (
        (weakref.ref, _reference),
        (functools.partial, _partial),
        (tuple(_LOCKS), _lock),
        (torch.Generator, _generator),
        ((weakref.WeakKeyDictionary, weakref.WeakValueDictionary), _weak_mapping),
        (weakref.WeakSet, _weak_set),
        ((dict, list, tuple, set), _container),
    )


def memory_key(storage: torch.UntypedStorage) -> tuple[str, int, str]:
    """Return what identifies some memory in a memo."""
    return "memory", storage.data_ptr(), str(storage.device)


def _in_words(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return type(error).__name__


def _belongs_to_data(method: types.BuiltinMethodType) -> bool:
    """Whether a method of one of Python's own classes is bound to an object that is copied."""
    return isinstance(method.__self__, list | dict | set | deque | torch.Tensor) or type(method.__self__) in _LOCKS


def _has_own_copy(kind: type) -> bool:
    """Whether a class says itself how it is copied."""
    return getattr(kind, "__deepcopy__", None) is not None


def _has_attributes_only(kind: type) -> bool:
    """Whether the instances of a class hold nothing but what Python's classes hold: attributes."""
    return all(base.__flags__ & _HEAP_TYPE or base in _PLAIN for base in kind.__mro__[:-1])


def _slots(kind: type) -> Iterator[Any]:
    """Yield what gets and sets the attributes of a class that are not in ``__dict__``."""
    for base in kind.__mro__:
        if base.__flags__ & _HEAP_TYPE and "__slots__" in vars(base):
            yield from (member for member in vars(base).values() if isinstance(member, types.MemberDescriptorType))


def _is_plain(value: torch.Tensor) -> bool:
    return type(value) in {torch.Tensor, torch.nn.Parameter} and value.layout == torch.strided and not value.is_nested


def _storage(value: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the memory of a tensor that others may share; ``None`` where that does not matter or cannot be had."""
    if value.is_meta or value.is_quantized or value.is_inference() or value.is_conj() or value.is_neg():
        return None
    storage = value.untyped_storage()
    small_part = storage.nbytes() > max(_LARGEST_STORAGE, 4 * value.nbytes)
    return storage if storage.data_ptr() and not small_part else None


class Saved:
    """The content of everything that some objects lead to; each object can get its content back, and stays itself.

    Parameters
    ----------
    roots : iterable
    is_kept : callable
        Whether the elements in some memory are kept elsewhere.
    """

    def __init__(self, roots: Iterable[Any], is_kept: Callable[[torch.UntypedStorage], bool] = lambda _: False) -> None:
        self._is_kept = is_kept
        self._contents: list[tuple[Any, Any]] = []
        self._slots: list[tuple[Any, Any, Any]] = []
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
        with torch.inference_mode(mode=False):
            self._put_back()

    def _put_back(self) -> None:
        for container, content in self._contents:
            _refill(container, content)
        for item, descriptor, content in self._slots:
            descriptor.__set__(item, filled(content))
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

    def move(self, memory: torch.UntypedStorage, to: torch.UntypedStorage, elements: torch.UntypedStorage) -> None:
        """Have the tensors in some memory lie in another one from now on, for which elements are saved, too."""
        lies_at = memory.data_ptr()
        for index, (tensor, alias, requires_grad, grad) in enumerate(self._tensors):
            if alias.untyped_storage().data_ptr() == lies_at:
                moved = torch.empty(0, dtype=alias.dtype, device=alias.device)
                moved.set_(to, alias.storage_offset(), alias.size(), alias.stride())
                if tensor.data_ptr() == alias.data_ptr():
                    tensor.data = moved
                self._tensors[index] = tensor, moved, requires_grad, grad
                self._memory[to.data_ptr()] = moved, elements

    def _save(self, value: Any) -> list[Any]:
        """Save the content of one object; return what it holds."""
        if isinstance(value, torch.Tensor):
            return self._save_tensor(value)
        if isinstance(value, tuple):
            return [*tuple.__iter__(value)]
        parts: list[Any] = []
        if isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, type):
            attributes = vars(value)
            self._contents.append((attributes, {key: slot(part) for key, part in attributes.items()}))
            parts += attributes.values()
        for descriptor in _slots(type(value)):
            with contextlib.suppress(AttributeError):  # one that is not set
                part = descriptor.__get__(value, type(value))
                self._slots.append((value, descriptor, slot(part)))
                parts.append(part)
        match value:
            case dict():
                self._contents.append((value, {key: slot(part) for key, part in value.items()}))
                parts += [*value.keys(), *value.values()]
            case list() | deque():
                self._contents.append((value, list(map(slot, value))))
                parts += value
            case set():
                self._contents.append((value, set(value)))
                parts += value
            case _ if hasattr(value, "__array_interface__"):
                self._contents.append((value, value.copy()))
        return parts

    def _save_tensor(self, tensor: torch.Tensor) -> list[Any]:
        alias = tensor.detach()
        lies_at = 0
        if _is_plain(tensor) and not tensor.is_meta:
            lies_at = alias.untyped_storage().data_ptr()
        if lies_at:
            if lies_at not in self._memory and not self._is_kept(alias.untyped_storage()):
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
    if is_atom(value) or is_data(value) or is_code(value) or is_shared(value) or _only_refers(value):
        return value
    made = clone(value)
    return value if made is value else _Opaque(made)


def _only_refers(value: Any) -> bool:
    """Whether an object holds nothing itself: it refers to others, which are saved."""
    return isinstance(value, weakref.ref | functools.partial) or type(value) in _LOCKS


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


def is_shared(value: Any) -> bool:
    """Whether an object belongs to the process rather than to the program: a logger, a thread, an open stream."""
    if isinstance(value, _OF_PROCESS) or (isinstance(value, io.IOBase) and not isinstance(value, _IN_MEMORY)):
        return True
    home: Any = type(value).__module__
    if not isinstance(home, str):  # a class may have a property of that name
        return False
    return home.partition(".")[0] in _LOGGING_PACKAGES or any(
        home == package or home.startswith(f"{package}.") for package in _OF_TORCH
    )


def is_data(value: Any) -> bool:
    """Whether a call may change an object: tensors, modules, optimizers, containers, the user's instances."""
    if isinstance(value, _CONTAINERS):
        return True
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return True
    kind = type(value)
    # Streams and the like of Python's lead to everything that there is.
    return (
        not is_code(value)
        and not is_shared(value)
        and hasattr(value, "__dict__")
        and is_own(kind)
        and kind.__module__.partition(".")[0] not in sys.stdlib_module_names
    )

"""Copy objects so that the original and the copy share no mutable state.

In copies for comparison only, digests may replace large tensors.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import gc
import io
import math
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.patching import patch_on_thread
from jupyter_graphbreak._torch_compat.tensor_values import disable_gradients_and_overrides, overrides_torch_dispatch
from jupyter_graphbreak.experiments.trial.object_kinds import (
    LOCK_CONSTRUCTORS,
    belongs_to_process,
    has_attributes_only,
    is_bound_to_data,
    is_code,
    is_data,
    is_immutable,
    is_plain_tensor,
    slot_descriptors,
)
from jupyter_graphbreak.experiments.trial.stand_ins import make_stand_in, stand_in_of_iterator
from jupyter_graphbreak.experiments.trial.unaudited_functions import TRIAL_REPLACEMENTS
from jupyter_graphbreak.faults import error_headline
from jupyter_graphbreak.records.attributes import (
    WEAK_PROXIES,
    attribute_of,
    is_instance,
    proxy_member,
    proxy_target,
    stored_items,
)
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    #: Types of objects, and the functions that copy them.
    _Copiers = tuple[tuple[Any, Callable[[Any, Any], Any]], ...]

#: If a storage is larger than this and a view uses only a small part of it, only the view is copied.
_MAX_STORAGE_BYTES = 1 << 26
#: The memo entry that holds the keys of the memory that no run has changed.
UNCHANGED_MEMORY = "unchanged"
_MEMORY_STREAMS = (io.StringIO, io.BytesIO)
#: Python's hash modules, whose objects only their own ``copy`` method can copy.
_HASH_MODULES = frozenset({"_blake2", "_hashlib", "_hmac", "_md5", "_sha1", "_sha2", "_sha256", "_sha3", "_sha512"})
#: The name of PIL's type for the content of an image, which has no module.
_IMAGE_CLASS = "ImagingCore"
_MISSING = object()


class UncopiedObject(NamedTuple):
    """An object that cannot be copied, with the reason, worded as the end of a sentence."""

    value: Any
    reason: str


class MemoryProvider:
    """Provides the memory for copies of tensors, for example to let several copies share that of a large tensor."""

    def copy_storage(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.UntypedStorage | None:
        """Return a copy of a tensor's storage, or ``None`` if the caller has to copy it."""
        del tensor, storage
        return None

    def copy_elements(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a copy of a detached tensor in a different dtype, or ``None`` if the caller has to copy it."""
        del tensor
        return None


def clone(
    value: Any,
    memo: dict[Any, Any] | None = None,
    failures: list[UncopiedObject] | None = None,
    copy_function: Callable[[types.FunctionType], Any] | None = None,
    memory_provider: MemoryProvider | None = None,
    digests: dict[Any, torch.Tensor] | None = None,
) -> Any:
    """Return a copy of a value. Only objects that cannot be copied, or must not be, are shared with the original.

    An object that occurs several times stays a single object in the copy, even behind bound methods, weak references
    and functions that objects refer to. Loggers, threads and code are not copied, functions only by ``copy_function``.
    ``failures`` collects the objects that could not be copied. The memory for copies of large tensors comes from the
    provider, if there is one. With ``digests``, the copy is for comparison only, and digests replace large tensors; the
    dict caches the digests of unchanged memory.
    """
    with disable_gradients_and_overrides(), torch.inference_mode(mode=False):
        return _Copier({} if memo is None else memo, failures, copy_function, memory_provider, digests).copy(value)


class _Copier:
    def __init__(
        self,
        memo: dict[Any, Any],
        failures: list[UncopiedObject] | None,
        copy_function: Callable[[types.FunctionType], Any] | None,
        memory_provider: MemoryProvider | None,
        digests: dict[Any, torch.Tensor] | None,
    ) -> None:
        self._memo = memo
        self._failures = failures
        self._copy_user_function = copy_function
        self._memory_provider = memory_provider
        self._digests = digests

    def copy(self, value: Any) -> Any:
        if is_immutable(value):
            return value
        memo = self._memo
        if id(value) in memo:
            return memo[id(value)]
        result = self._copy(value)
        memo[id(value)] = result
        memo.setdefault(id(memo), []).append(value)  # keep the object alive, so that its id is not reused
        return result

    def _copy(self, value: Any) -> Any:
        if (refusing_function := TRIAL_REPLACEMENTS.replacement_of(value)) is not None:
            return refusing_function
        if is_bound_to_data(value):
            return self._copy_builtin_method(value)
        for kinds, copier in self._first_copiers:
            if is_instance(value, kinds):
                return copier(self, value)
        if is_code(value):
            return value
        if (stand_in := make_stand_in(value, self.copy)) is not None:
            return stand_in
        if belongs_to_process(value):
            return value
        for kinds, copier in self._copiers:
            if is_instance(value, kinds):
                return copier(self, value)
        return self._copy_object(value)

    def _copy_function(self, value: types.FunctionType) -> Any:
        if self._digests is not None:
            return _without_namespaces(value)
        return value if self._copy_user_function is None else self._copy_user_function(value)

    def _copy_method(self, value: types.MethodType) -> Any:
        owner = self.copy(value.__self__)
        return value if owner is value.__self__ else types.MethodType(value.__func__, owner)

    def _copy_partial(self, value: functools.partial[Any]) -> Any:
        if type(value) is not functools.partial:
            return self._copy_object(value)
        arguments = [self.copy(item) for item in value.args]
        return functools.partial(
            self.copy(value.func), *arguments, **{key: self.copy(item) for key, item in value.keywords.items()}
        )

    def _copy_proxy(self, value: Any, target: Any) -> Any:
        """Return a proxy of the same class for a copy of the target, or the given proxy if that is impossible."""
        result = self.copy(target)
        if result is target:
            return value
        cls: Any = type(value)
        if cls in WEAK_PROXIES:
            return weakref.proxy(result, functools.partial(_keep_alive, result))
        try:
            proxy = cls.__new__(cls)
            if hasattr(value, "_self_wrapper"):  # the proxy calls this function instead of the method of its class
                wrapper, enabled = self.copy(value._self_wrapper), self.copy(value._self_enabled)  # noqa: SLF001 - wrapt has no public name
                initialize = next(vars(base)["__init__"] for base in cls.__mro__ if _is_builtin_init(base))
                initialize(proxy, result, wrapper, enabled)
            else:
                proxy_member(cls).__set__(proxy, result)
            proxy_attributes = next(
                (part for part in gc.get_referents(value) if type(part) is dict and part is not target), {}
            )
            for name, item in proxy_attributes.items():
                setattr(proxy, name, self.copy(item))
        except Exception as error:  # noqa: BLE001 - a subclass may need further arguments
            if self._failures is not None:
                self._failures.append(UncopiedObject(value, error_headline(error)))
            return value
        return proxy

    def _copy_generator(self, value: torch.Generator) -> Any:
        result = torch.Generator(value.device)
        result.set_state(value.get_state())
        return result

    def _copy_thread_local(self, value: threading.local) -> Any:
        """Return a copy of a thread-local object with the attributes that this thread sees."""
        result: Any = threading.local.__new__(type(value))
        self._memo[id(value)] = result
        self._fill_attributes(value, result)
        return result

    def _copy_memory_view(self, value: memoryview) -> Any:
        buffer = self.copy(value.obj)
        if buffer is value.obj or not value.c_contiguous:
            return self._copy_object(value)  # records the failure
        is_part = value.nbytes != memoryview(buffer).nbytes
        if is_part and (value.readonly or not value.nbytes):
            return self._copy_object(value)
        start = _address_of(value) - _address_of(memoryview(value.obj)) if is_part else 0
        view: Any = memoryview(buffer).cast("B")[start : start + value.nbytes]
        return view.cast(value.format, value.shape)

    def _copy_read_only_mapping(self, value: types.MappingProxyType[Any, Any]) -> Any:
        """Return a view of a copied dict. A view of a class's attributes stays unchanged."""
        (mapping,) = gc.get_referents(value)
        return value if "__module__" in value else types.MappingProxyType(self.copy(mapping))

    def _copy_weak_mapping(self, value: Any) -> Any:
        result = type(value)()
        for key, item in list(value.items()):
            result[self.copy(key)] = self.copy(item)
        return result

    def _copy_builtin_method(self, value: types.BuiltinMethodType) -> Any:
        owner = self.copy(value.__self__)
        return value if owner is value.__self__ else getattr(owner, value.__name__)

    def _copy_reference(self, value: weakref.ref[Any]) -> Any:
        if is_instance(value, weakref.WeakMethod):
            method = value()
            result = self.copy(method) if method is not None else None
            return value if result is method or result is None else weakref.WeakMethod(result)
        referent = value()
        result = self.copy(referent) if referent is not None else None
        if result is None or result is referent:
            return value
        return weakref.ref(result)

    def _copy_container(self, value: Any) -> Any:
        """Return a copy of a dict, list, tuple or set, or of a subclass with its attributes."""
        cls: Any = type(value)
        if _defines_copying(cls):
            return self._copy_object(value)
        if is_instance(value, tuple):
            return self._copy_tuple(value)
        return self._copy_item_by_item(value)

    def _copy_item_by_item(self, value: Any) -> Any:
        """Return a copy of a dict, list or set, created item by item."""
        cls: Any = type(value)
        try:
            result = cls.__new__(cls)
        except Exception:  # noqa: BLE001 - `__new__` may need arguments
            return self._copy_object(value)
        self._memo[id(value)] = result
        if is_instance(value, defaultdict):
            result.default_factory = self.copy(value.default_factory)
        if is_instance(value, dict):
            # Bypass the methods of a subclass, which may do more than store an item.
            set_item = OrderedDict.__setitem__ if is_instance(value, OrderedDict) else dict.__setitem__
            for key, item in stored_items(value):
                set_item(result, self.copy(key), self.copy(item))
        elif is_instance(value, list):
            list.extend(result, map(self.copy, list(value)))
        else:
            set.update(result, map(self.copy, list(value)))
        self._fill_attributes(value, result)
        return result

    def _copy_tuple(self, value: Any) -> Any:
        cls: Any = type(value)
        content = [*tuple.__iter__(value)]  # bypasses the methods of a subclass
        parts = [self.copy(item) for item in content]
        if id(value) in self._memo:  # it contains itself
            return self._memo[id(value)]
        if all(part is item for part, item in zip(parts, content, strict=True)):
            return value
        if cls is tuple:
            return tuple(parts)
        try:
            result = tuple.__new__(cls, parts)
        except TypeError:  # such as PyTorch's named tuples
            return cls(parts)
        self._fill_attributes(value, result)
        return result

    def _copy_object(self, value: Any) -> Any:
        if (target := proxy_target(value)) is not None:
            return self._copy_proxy(value, target)
        cls: Any = type(value)
        memo_size = len(self._memo)
        reason = "it has a destructor, which would also run for the copy"
        if cls in _MEMORY_STREAMS or not any("__del__" in vars(base) for base in cls.__mro__):
            if not _defines_copying(cls) and has_attributes_only(cls):
                with contextlib.suppress(TypeError):  # a class that Python cannot instantiate
                    return self._copy_instance(value)
            try:
                with self._patch_deepcopy():
                    result = copy.deepcopy(value, self._memo)
                return (
                    self._copy_object_with_identity_deepcopy(value)
                    if result is value
                    else self._separate_attributes(value, result)
                )
            except Exception as error:  # noqa: BLE001 - open files cannot be copied, and the user's `__deepcopy__` may fail
                reason = error_headline(error)
                for key in list(self._memo)[memo_size:]:
                    del self._memo[key]  # discard the unfinished copy
        if cls.__module__ in _HASH_MODULES or cls.__name__ == _IMAGE_CLASS:
            return value.copy()
        if (stand_in := stand_in_of_iterator(value)) is not None:
            return stand_in
        if self._failures is not None:
            self._failures.append(UncopiedObject(value, reason))
        return value

    def _separate_attributes(self, value: Any, result: Any) -> Any:
        """Copy the data that the result of ``__deepcopy__`` still shares with the original, and return the result."""
        if _defines_copying(type(value)) and attribute_of(value, "__dict__") is not None:
            original_attributes = vars(value)
            shared_attributes = {
                key: item for key, item in vars(result).items() if original_attributes.get(key, _MISSING) is item
            }
            vars(result).update({key: self.copy(item) for key, item in shared_attributes.items() if is_data(item)})
        return result

    def _copy_object_with_identity_deepcopy(self, value: Any) -> Any:
        """Return a copy of an object that a run may change, although ``copy.deepcopy`` returned the object itself.

        Constants of a library are returned unchanged, because the library compares them by identity.
        """
        module = sys.modules.get(type(value).__module__)
        if is_library(getattr(module, "__file__", None) or "") and any(
            constant is value for constant in list(vars(module).values())
        ):
            return value
        if is_instance(value, dict | list | set):
            return self._copy_item_by_item(value)
        has_state = attribute_of(value, "__dict__") or any(slot_descriptors(type(value)))
        return self._copy_instance(value) if has_state and has_attributes_only(type(value)) else value

    def _copy_instance(self, value: Any) -> Any:
        """Return a copy, attribute by attribute, of an instance whose classes are all written in Python."""
        self._memo[id(value)] = result = object.__new__(type(value))
        self._fill_attributes(value, result)
        return result

    def _fill_attributes(self, value: Any, result: Any) -> None:
        """Copy the attributes of an object to a new instance of its class."""
        content = attribute_of(value, "__dict__")
        if isinstance(content, dict) and id(content) in self._memo:  # instances of the class share their attributes
            result.__dict__ = self._memo[id(content)]
        elif isinstance(content, dict):
            self._memo[id(content)] = copied_attributes = attribute_of(result, "__dict__")
            self._memo.setdefault(id(self._memo), []).append(content)
            copied_attributes.update((key, self.copy(item)) for key, item in list(content.items()))
        for descriptor in slot_descriptors(type(value)):
            with contextlib.suppress(AttributeError):  # an unset slot
                descriptor.__set__(result, self.copy(descriptor.__get__(value, type(value))))

    def _copy_tensor(self, value: torch.Tensor) -> Any:
        """Return a leaf tensor with copies of the ``.grad``, of the attributes, and of the elements or their digest.

        If tensors share memory, so do their copies, unless a tensor uses only a small part of a large storage.
        """
        if not is_plain_tensor(value):
            return self._copy_unusual_tensor(value)
        uses_digest = self._digests is not None and is_large(value)
        result = self._digest_of(value) if uses_digest else self._copy_elements(value)
        if is_instance(value, torch.nn.Parameter):
            result = torch.nn.Parameter(result, value.requires_grad)
        elif value.requires_grad:
            result.requires_grad_()
        self._memo[id(value)] = result
        if (value.is_leaf or value.retains_grad) and value.grad is not None:
            result.grad = self.copy(value.grad)
        vars(result).update((key, self.copy(item)) for key, item in vars(value).items())
        if uses_digest:
            store_shape(result, value)
        return result

    def _copy_unusual_tensor(self, value: torch.Tensor) -> Any:
        differs_only_in_class = _differs_only_in_class(value)
        if differs_only_in_class and _has_default_copying(type(value)):
            return self._copy_subclass_tensor(value)
        try:
            with self._patch_deepcopy():
                result = copy.deepcopy(value, self._memo)
            if result is not value:
                return result
            return self._copy_subclass_tensor(value) if differs_only_in_class else _detached_copy(value)
        except Exception as error:  # noqa: BLE001 - most non-leaf tensors cannot be copied
            with contextlib.suppress(Exception):
                return _detached_copy(value)
            if self._failures is not None:
                self._failures.append(UncopiedObject(value, error_headline(error)))
            return value

    def _copy_subclass_tensor(self, value: torch.Tensor) -> Any:
        """Return a copy of a tensor of a user's class without running code of that class."""
        self._memo[id(value)] = result = self._copy_elements(value).as_subclass(type(value))
        if value.requires_grad:
            result.requires_grad_()
        if (value.is_leaf or value.retains_grad) and value.grad is not None:
            result.grad = self.copy(value.grad)
        self._fill_attributes(value, result)
        return result

    def _digest_of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the digest of a large tensor, from the cache if the tensor's memory is unchanged."""
        key = memory_key(value.untyped_storage())
        if self._digests is None or key not in self._memo.get(UNCHANGED_MEMORY, ()):
            return digest(value)
        digest_key = key, value.storage_offset(), tuple(value.shape), value.stride(), value.dtype
        if digest_key not in self._digests:
            self._digests[digest_key] = digest(value)
        return self._digests[digest_key].detach()

    def _copy_elements(self, value: torch.Tensor) -> torch.Tensor:
        detached_tensor = value.detach()
        if self._memory_provider is not None:
            converted_copy = self._memory_provider.copy_elements(detached_tensor)
            if converted_copy is not None:
                return converted_copy
        storage = storage_to_share(detached_tensor)
        if storage is None:
            with torch.inference_mode(value.is_inference()):
                return detached_tensor.clone()
        key = memory_key(storage)
        if key not in self._memo:
            provided_storage = (
                self._memory_provider.copy_storage(value, storage) if self._memory_provider is not None else None
            )
            self._memo[key] = storage.clone() if provided_storage is None else provided_storage
        result = torch.empty(0, dtype=value.dtype, device=value.device)
        return result.set_(
            self._memo[key], detached_tensor.storage_offset(), detached_tensor.size(), detached_tensor.stride()
        )

    @contextlib.contextmanager
    def _patch_deepcopy(self) -> Iterator[None]:
        """Make ``copy.deepcopy`` use this copier for plain tensors in this thread.

        PyTorch refuses to copy a non-leaf tensor, such as one that a module keeps after its forward pass, and does not
        copy the ``.grad`` of a parameter.
        """
        copy_tensor, copy_parameter = (vars(cls)["__deepcopy__"] for cls in (torch.Tensor, torch.nn.Parameter))

        def deepcopy(tensor: torch.Tensor, memo: dict[Any, Any]) -> Any:
            if id(tensor) in memo:
                return memo[id(tensor)]
            if is_plain_tensor(tensor) and memo is self._memo:
                return self._copy_tensor(tensor)
            return (copy_parameter if is_instance(tensor, torch.nn.Parameter) else copy_tensor)(tensor, memo)

        with (
            patch_on_thread(torch.Tensor, "__deepcopy__", deepcopy),
            patch_on_thread(torch.nn.Parameter, "__deepcopy__", deepcopy),
        ):
            yield

    _first_copiers: ClassVar[_Copiers] = (
        (torch.Tensor, _copy_tensor),
        (torch.fx.GraphModule, _copy_instance),  # `copy.deepcopy` would generate its class again
        (types.MethodType, _copy_method),
        (types.FunctionType, _copy_function),
    )
    _copiers: ClassVar[_Copiers] = (
        (weakref.ref, _copy_reference),
        (functools.partial, _copy_partial),
        # The copy is unlocked, because a trial must not wait for other threads.
        (tuple(LOCK_CONSTRUCTORS), lambda _, value: LOCK_CONSTRUCTORS[type(value)]()),
        (torch.Generator, _copy_generator),
        (threading.local, _copy_thread_local),
        (memoryview, _copy_memory_view),
        (contextvars.Context, lambda _, value: value.copy()),
        (types.MappingProxyType, _copy_read_only_mapping),
        ((weakref.WeakKeyDictionary, weakref.WeakValueDictionary), _copy_weak_mapping),
        (weakref.WeakSet, lambda self, value: type(value)(map(self.copy, list(value)))),
        ((dict, list, tuple, set), _copy_container),
    )


def memory_key(storage: torch.UntypedStorage) -> tuple[str, int, str]:
    """Return the memo key of a storage."""
    return "memory", storage.data_ptr(), str(storage.device)


def _without_namespaces(function: types.FunctionType) -> types.FunctionType:
    """Return a function with the same code, for comparison only, that keeps no globals or closure variables alive."""
    cells = tuple(types.CellType() for _ in function.__code__.co_freevars)
    return types.FunctionType(function.__code__, {}, function.__name__, None, cells)


def _defines_copying(cls: type) -> bool:
    """Return whether a class defines how it is copied."""
    return getattr(cls, "__deepcopy__", None) is not None


def _address_of(view: memoryview) -> int:
    return torch.frombuffer(view.cast("B"), dtype=torch.uint8).data_ptr()


def _keep_alive(*_: Any) -> None:
    """Do nothing. As the callback of a weak proxy, this keeps its bound argument, a copy, alive with the proxy."""


def _is_builtin_init(cls: type) -> bool:
    """Return whether a class has an ``__init__`` that is not written in Python."""
    return isinstance(vars(cls).get("__init__"), types.WrapperDescriptorType)


def _differs_only_in_class(value: torch.Tensor) -> bool:
    """Return whether a tensor is an ordinary dense tensor apart from its class."""
    is_dense = value.layout == torch.strided and not (value.is_nested or value.is_quantized or value.is_meta)
    return is_dense and not overrides_torch_dispatch(type(value))


def _has_default_copying(cls: type[torch.Tensor]) -> bool:
    """Return whether a class of tensors does not define how it is copied."""
    own_classes = cls.__mro__[: cls.__mro__.index(torch.Tensor)]
    return not any("__deepcopy__" in vars(base) for base in own_classes if base is not torch.nn.Parameter)


def _detached_copy(value: torch.Tensor) -> torch.Tensor:
    return value.detach().clone().requires_grad_(value.requires_grad)


def storage_to_share(value: torch.Tensor) -> torch.UntypedStorage | None:
    """Return a tensor's storage if copies of the tensors in it should share one copy of the storage, else ``None``."""
    if value.is_meta or value.is_quantized or value.is_inference() or value.is_conj() or value.is_neg():
        return None
    storage = value.untyped_storage()
    uses_small_part = storage.nbytes() > max(_MAX_STORAGE_BYTES, 4 * value.nbytes)
    return storage if storage.data_ptr() and not uses_small_part else None


def identity_memo(objects: Iterable[Any]) -> dict[Any, Any]:
    """Return a memo that makes :func:`clone` share the given objects, and the memory of tensors among them."""
    memo: dict[Any, Any] = {}
    for item in objects:
        memo[id(item)] = item
        if (
            is_instance(item, torch.Tensor)
            and is_plain_tensor(item)
            and (storage := storage_to_share(item)) is not None
        ):
            memo[memory_key(storage)] = storage
    return memo


#: The smallest number of elements of a tensor that a digest replaces. It does not depend on the dtype, so that a result
#: and the same result in double precision are treated alike.
_MIN_ELEMENTS = 1 << 18
_ROW_ELEMENTS = 1024
#: The number of weighted sums to which a row is reduced.
_ROW_SUMS = 8
#: The number of rows to reduce at once.
_CHUNK_ROWS = 512
#: The attribute of a digest that stores the shape of its tensor.
_SHAPE_ATTRIBUTE = "_graphbreak_shape"


def is_large(value: torch.Tensor) -> bool:
    """Return whether a digest can replace a tensor and needs less memory."""
    return (
        type(value) in {torch.Tensor, torch.nn.Parameter}
        and value.layout == torch.strided
        and value.dtype in {torch.float32, torch.float64}  # in smaller dtypes, rounding would hide one element
        and not (value.is_nested or value.is_meta or value.is_quantized)
        and value.numel() >= _MIN_ELEMENTS
    )


def digest(value: torch.Tensor) -> torch.Tensor:
    """Return a small tensor that represents a large one.

    Each element of the digest is a randomly weighted sum of neighboring elements, of the same magnitude as an element.
    The last elements, which do not fill a row, are appended unchanged. If two digests agree up to rounding, so do the
    tensors that they represent, except by chance. The digest of a zero tensor is zero.
    """
    elements = value.detach().reshape(-1)
    elements_in_rows = elements.numel() // _ROW_ELEMENTS * _ROW_ELEMENTS
    rows = elements[:elements_in_rows].view(-1, _ROW_ELEMENTS)
    # Neither autocast nor the matmul precision settings affect double precision.
    weights = _random_weights().to(value.device)
    sum_count = len(rows) * _ROW_SUMS
    rest = elements[elements_in_rows:]
    result = torch.empty(sum_count + rest.numel(), dtype=value.dtype, device=value.device)
    sums = result[:sum_count].view(-1, _ROW_SUMS)
    # All chunks use one buffer: small results between large temporaries would keep the C library from reusing memory.
    buffer = torch.empty(_CHUNK_ROWS, _ROW_ELEMENTS, dtype=torch.float64, device=value.device)
    for chunk, chunk_sums in zip(rows.split(_CHUNK_ROWS), sums.split(_CHUNK_ROWS), strict=True):
        chunk_sums.copy_(buffer[: len(chunk)].copy_(chunk) @ weights)
    result[sum_count:].copy_(rest)
    return result


def store_shape(tensor_digest: torch.Tensor, value: torch.Tensor) -> None:
    """Store the shape of a tensor in its digest."""
    setattr(tensor_digest, _SHAPE_ATTRIBUTE, value.shape)


def shape_of(value: torch.Tensor) -> torch.Size:
    """Return the shape of a tensor, or of the tensor that a digest represents."""
    shape: Any = vars(value).get(_SHAPE_ATTRIBUTE, value.shape)
    return torch.Size(shape)


@functools.cache
def _random_weights() -> torch.Tensor:
    generator = torch.Generator().manual_seed(20)
    numbers = torch.randn(_ROW_ELEMENTS, _ROW_SUMS, generator=generator, device="cpu", dtype=torch.float64)
    return numbers / math.sqrt(_ROW_ELEMENTS)

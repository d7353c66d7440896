"""Recognize PyTorch's operators, find the functions that implement them, and observe the operations of a call."""

from __future__ import annotations

import gc
import importlib
import sys
import types
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import frames_outward
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

#: The code of the methods through which modules are called.
MODULE_CALL_CODE = frozenset(getattr(torch.nn.Module, name).__code__ for name in ("_wrapped_call_impl", "_call_impl"))
#: The file with the wrapper through which the steps of all optimizers are called.
OPTIMIZER_FILE = torch.optim.Optimizer.profile_hook_step.__code__.co_filename
TENSOR_METHODS = frozenset(dir(torch.Tensor))
#: PyTorch functions that take indices or counts. Some do not check them, and end the process by writing
#: outside of their result: ``repeat_interleave`` with counts such as [-4, 0, 6], sparse tensors with negative indices.
LOOKUP_FUNCTIONS = frozenset(
    {
        "embedding", "gather", "index_select", "one_hot", "scatter", "take_along_dim", "cross_entropy", "ctc_loss",
        "repeat_interleave", "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor", "sparse_coo_tensor",
        "sparse_csc_tensor", "sparse_csr_tensor",
    }
)  # fmt: skip
#: The number of registered kernels during the last search, and the functions that the search returned.
_last_search: tuple[int, list[weakref.ref[types.FunctionType]]] = 0, []


def custom_operator_functions(value: Any) -> tuple[Any, Any] | None:
    """Return the function of a ``torch.library.custom_op`` and its function for fake tensors, or ``None``."""
    if type(value).__name__ != "CustomOpDef" or not hasattr(value, "_init_fn"):
        return None
    return value._init_fn, getattr(value, "_abstract_fn", None)


def python_kernels() -> Iterator[types.FunctionType]:
    """Yield the user's functions that C++ code refers to, such as those that ``torch.library.Library.impl`` registers.

    The dispatcher does not reveal which functions it calls. They are recognized because there are more references to
    them than Python's objects account for.
    """
    global _last_search  # noqa: PLW0603 - a search looks at all objects, so its result is kept
    registered_count = len(getattr(sys.modules.get("torch.library"), "_impls", ()))
    if registered_count != _last_search[0]:
        _last_search = registered_count, [weakref.ref(function) for function in _functions_referenced_outside_python()]
    yield from (function for reference in _last_search[1] if (function := reference()) is not None)


def _functions_referenced_outside_python() -> list[types.FunctionType]:
    """Return the user's functions that have more references outside Python's objects than functions usually have."""
    running_code = _running_code()  # a running call refers to its function, unknown to the garbage collector
    functions = {
        id(item): item for item in gc.get_objects() if _is_user_function(item) and item.__code__ not in running_code
    }
    reference_counts = Counter(id(item) for item in gc.get_referents(*gc.get_objects()) if id(item) in functions)
    outside_counts = [
        (sys.getrefcount(function) - reference_counts[ident], function) for ident, function in functions.items()
    ]
    frequencies = Counter(count for count, _ in outside_counts)
    usual_count = max(frequencies, key=lambda count: frequencies[count], default=0)
    return [function for count, function in outside_counts if count > usual_count]


def _running_code() -> set[types.CodeType]:
    """Return the code objects of the calls that are running in any thread."""
    innermost_frames = sys._current_frames().values()
    return {frame.f_code for innermost in innermost_frames for frame in frames_outward(innermost)}


def _is_user_function(value: Any) -> bool:
    return type(value) is types.FunctionType and not is_library(value.__code__.co_filename)


class OperationListener(TorchDispatchMode):
    """Calls a function for each operation on this thread, except those of backward passes.

    The function receives whether gradients are recorded and one of the operation's tensors requires a gradient.
    """

    def __init__(self, on_operation: Callable[[bool], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._on_operation = on_operation
        self._current_task_id = importlib.import_module("torch._C")._current_graph_task_id

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._current_task_id() == -1:
            tensors = (value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor))
            is_recorded = torch.is_grad_enabled() and func is not torch.ops.aten.detach.default
            self._on_operation(is_recorded and any(tensor.requires_grad for tensor in tensors))
        return func(*args, **(kwargs or {}))


class AllocationTracker(TorchDispatchMode, Generic[_T]):
    """Notes the memory that operations allocate for their results, until it is freed.

    ``describe`` is called after each operation that has allocated memory; it returns the value to store for it.
    """

    def __init__(self, describe: Callable[[], _T]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._describe = describe
        self._allocations: dict[int, tuple[StorageWeakRef, _T, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        argument_storages = {reference.cdata for reference, _ in _storages((args, kwargs))}
        for reference, nbytes in _storages(result):
            allocation = self._allocations.get(reference.cdata)
            if reference.cdata not in argument_storages and (allocation is None or allocation[0].expired()):
                self._allocations[reference.cdata] = reference, self._describe(), nbytes
        return result

    def live_allocations(self) -> list[tuple[_T, int]]:
        """Return the values stored for memory that is not yet freed, each with the number of bytes."""
        return [
            (description, nbytes)
            for reference, description, nbytes in self._allocations.values()
            if not reference.expired()
        ]


def _storages(values: Any) -> Iterator[tuple[StorageWeakRef, int]]:
    for value in tree_leaves(values):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            storage = value.untyped_storage()
            yield StorageWeakRef(storage), storage.nbytes()

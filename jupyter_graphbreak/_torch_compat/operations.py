"""What PyTorch offers to recognize operators and to count the operations of a call."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable

#: The code through which modules are called.
MODULE_CALLS = frozenset(getattr(torch.nn.Module, name).__code__ for name in ("_wrapped_call_impl", "_call_impl"))
#: The file through which the steps of all optimizers are called.
OPTIMIZERS = torch.optim.Optimizer.profile_hook_step.__code__.co_filename


def custom_operator(value: Any) -> tuple[Any, Any] | None:
    """Return the function of an operator that ``torch.library.custom_op`` made, and that for fake tensors, if any.

    Returns
    -------
    tuple or None
        ``None`` if the object is no such operator.
    """
    if type(value).__name__ != "CustomOpDef" or not hasattr(value, "_init_fn"):
        return None
    return value._init_fn, getattr(value, "_abstract_fn", None)


class OperationCounter(TorchDispatchMode):
    """Calls a function for each operation on this thread, except those of backward passes.

    Parameters
    ----------
    count : callable
    """

    def __init__(self, count: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._count = count
        self._task = importlib.import_module("torch._C")._current_graph_task_id

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._task() == -1:
            self._count()
        return func(*args, **(kwargs or {}))

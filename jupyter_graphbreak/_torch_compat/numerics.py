"""Settings of PyTorch that bring the values of compiled code closer to those of eager code."""

from __future__ import annotations

import contextlib
import functools
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

#: Settings of inductor to switch on; each release has some of them. Fused code otherwise keeps more digits than float16
#: and bfloat16 have.
_SETTINGS = ("emulate_precision_casts",)
#: Settings of the code that inductor generates for CUDA devices.
_CUDA_SETTINGS = (
    "eager_numerics.division_rounding", "eager_numerics.disable_ftz", "eager_numerics.use_pytorch_libdevice",
)  # fmt: skip


@dataclass(frozen=True)
class SettingChange:
    """A change of PyTorch's settings.

    Parameters
    ----------
    code : str
        The statement that makes the change.
    applied : callable
        Returns a context in which the change is made.
    """

    code: str
    applied: Callable[[], AbstractContextManager[Any]]


def inductor_changes(operation: str | None, *, uses_cuda: bool) -> list[SettingChange]:
    """Return changes of inductor that the process has not made.

    Parameters
    ----------
    operation : str or None
        The name of the first wrong operation in a graph, such as ``silu_1``; its decomposition is switched off.
    uses_cuda : bool
        Whether the code runs on a CUDA device.
    """
    config: Any = importlib.import_module("torch._inductor.config")
    current = config.get_config_copy()
    changes = [
        SettingChange(f"torch._inductor.config.{name} = True", functools.partial(config.patch, {name: True}))
        for name in (*_SETTINGS, *(_CUDA_SETTINGS if uses_cuda else ()))
        if current.get(name) is False
    ]
    if uses_cuda and torch.get_float32_matmul_precision() != "highest":
        changes.append(SettingChange('torch.set_float32_matmul_precision("highest")', _with_highest_precision))
    overloads = _decomposed(operation)
    if overloads:
        table = "torch._inductor.decomposition.decompositions"
        code = "; ".join(f"{table}.pop(torch.ops.{overload})" for overload in overloads)
        changes.append(SettingChange(code, functools.partial(_without_decompositions, overloads)))
    return changes


@contextlib.contextmanager
def _with_highest_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _decomposed(operation: str | None) -> list[Any]:
    """Return the operators that inductor decomposes for an operation."""
    name = (operation or "").rstrip("0123456789").rstrip("_")
    names = {f"aten::{name}", f"aten::_{name}", f"aten::native_{name}"} if name else set()
    table = importlib.import_module("torch._inductor.decomposition").decompositions
    schemas = ((overload, getattr(overload, "_schema", None)) for overload in table)
    return [overload for overload, schema in schemas if schema and schema.name in names and not schema.is_mutable]


@contextlib.contextmanager
def _without_decompositions(overloads: list[Any]) -> Iterator[None]:
    module = importlib.import_module("torch._inductor.decomposition")
    config: Any = importlib.import_module("torch._inductor.config")
    removed = {overload: module.decompositions[overload] for overload in overloads}
    clear = getattr(getattr(module, "fast_random_decomps", None), "cache_clear", lambda: None)
    try:
        for overload in removed:
            del module.decompositions[overload]
        clear()
        # The key of AOTAutograd's cache does not contain the table.
        with config.patch(force_disable_caches=True):
            yield
    finally:
        module.decompositions.update(removed)
        clear()

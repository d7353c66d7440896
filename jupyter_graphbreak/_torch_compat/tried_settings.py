"""Settings of PyTorch that a trial changes: for values closer to those of eager code, for memory, and for the cache."""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

#: Settings of inductor to switch on; each release has some of them. Fused code otherwise keeps more digits than float16
#: and bfloat16 have.
_SETTINGS = ("emulate_precision_casts",)
#: Settings of the code that inductor generates for CUDA devices.
_CUDA_SETTINGS = (
    "eager_numerics.division_rounding", "eager_numerics.disable_ftz", "eager_numerics.use_pytorch_libdevice",
)  # fmt: skip
#: Shares of the memory that inductor would keep; with less, it computes more again in the backward pass.
_BUDGETS = (0.5, 0.2)
#: The operation in a graph for a ``torch.autograd.Function``, which has its own setting.
_CUSTOM_FUNCTION = "autograd_function_apply"
_ALLOWED = "autograd_cache_allow_custom_autograd_functions"
_CACHEABLE = "unsafe_marked_cacheable_functions"
#: The name of an operation in a reason, from ``check_node_safe`` in PyTorch's autograd_cache.py.
_OPERATION_NAME = re.compile(r"Function module: (?P<module>[\w.]+),\s*Function name: (?P<name>\w+)")


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
    """Return changes of inductor's settings that the process has not made.

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
        # The key of AOTAutograd's cache does not contain the table of decompositions.
        with config.patch(force_disable_caches=True):
            yield
    finally:
        module.decompositions.update(removed)
        clear()


def memory_changes() -> list[SettingChange]:
    """Return changes of settings that may save memory, and that the process has not made."""
    config: Any = importlib.import_module("torch._functorch.config")
    current = config.get_config_copy()
    wanted: list[tuple[str, Any]] = []
    if current.get("donated_buffer") is False:
        wanted.append(("donated_buffer", True))
    if current.get("activation_memory_budget") == 1.0:
        wanted += [("activation_memory_budget", budget) for budget in _BUDGETS]
    return [
        SettingChange(f"torch._functorch.config.{name} = {value}", functools.partial(config.patch, {name: value}))
        for name, value in wanted
    ]


@dataclass(frozen=True)
class CacheSettings:
    """Settings to change.

    Parameters
    ----------
    allows_functions : bool
        Whether graphs with a ``torch.autograd.Function`` are kept.
    operations : tuple of str
        Operations that are marked as cacheable.
    """

    allows_functions: bool = False
    operations: tuple[str, ...] = ()

    def extended(self, reasons: Iterable[str]) -> CacheSettings:
        """Return these settings, extended by those that avoid further bypasses.

        Parameters
        ----------
        reasons : iterable of str
            PyTorch's reasons for the bypasses.
        """
        allows, operations = self.allows_functions, dict.fromkeys(self.operations)
        for reason in reasons:
            named = _OPERATION_NAME.search(reason)
            if named is not None and named["name"] == _CUSTOM_FUNCTION:
                allows = True
            elif named is not None:
                operations[f"{named['module']}.{named['name']}"] = None
        return CacheSettings(allows, tuple(operations))

    @property
    def code(self) -> str:
        """The statements that change the settings."""
        lines = [f"torch._functorch.config.{_ALLOWED} = True"] if self.allows_functions else []
        if self.operations:
            marked = ", ".join(f'"{name}": "1"' for name in self.operations)
            lines.append(f"torch._inductor.config.{_CACHEABLE}.update({{{marked}}})")
        return "; ".join(lines)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Change the settings while the context is open.

        Raises
        ------
        AttributeError
            If this PyTorch does not have a setting.
        """
        functions: Any = importlib.import_module("torch._functorch.config")
        inductor: Any = importlib.import_module("torch._inductor.config")
        marked = {**getattr(inductor, _CACHEABLE), **dict.fromkeys(self.operations, "1")}
        allows = getattr(functions, _ALLOWED) or self.allows_functions
        with functions.patch({_ALLOWED: allows}), inductor.patch({_CACHEABLE: marked}):
            yield

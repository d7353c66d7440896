"""Change PyTorch's settings in a trial: for values closer to eager mode, for memory, and for the caches on disk."""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.patching import patch_on_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

#: Inductor's settings to switch on, if the release has them. Otherwise fused code computes with more digits than
#: float16 and bfloat16 have.
_PRECISION_SETTINGS = ("emulate_precision_casts",)
#: Settings of the code that Inductor generates for CUDA devices.
_CUDA_PRECISION_SETTINGS = (
    "eager_numerics.division_rounding", "eager_numerics.disable_ftz", "eager_numerics.use_pytorch_libdevice",
)  # fmt: skip
#: Fractions of the memory that compiled code would keep for the backward pass. With less memory, it recomputes more.
_MEMORY_BUDGETS = (0.5, 0.2)
#: A graph's operation for a ``torch.autograd.Function``; such operations have their own setting.
_CUSTOM_FUNCTION = "autograd_function_apply"
_ALLOW_FUNCTIONS_SETTING = "autograd_cache_allow_custom_autograd_functions"
_CACHEABLE_OPERATIONS_SETTING = "unsafe_marked_cacheable_functions"
#: The name of an operation in a reason, from ``check_node_safe`` in PyTorch's autograd_cache.py.
_OPERATION_NAME = re.compile(r"Function module: (?P<module>[\w.]+),\s*Function name: (?P<name>\w+)")


@dataclass(frozen=True)
class SettingChange:
    """A change of PyTorch's settings."""

    code: str
    apply: Callable[[], AbstractContextManager[Any]]


def precision_changes(operation: str | None, *, uses_cuda: bool) -> list[SettingChange]:
    """Return the setting changes not yet in force that may make Inductor's code compute like eager mode.

    If ``operation`` is given, the first one with a wrong result, such as ``silu_1``, one change switches off its
    decomposition.
    """
    config: Any = importlib.import_module("torch._inductor.config")
    current = config.get_config_copy()
    changes = [
        SettingChange(f"torch._inductor.config.{name} = True", functools.partial(config.patch, {name: True}))
        for name in (*_PRECISION_SETTINGS, *(_CUDA_PRECISION_SETTINGS if uses_cuda else ()))
        if current.get(name) is False
    ]
    if uses_cuda and torch.get_float32_matmul_precision() != "highest":
        changes.append(SettingChange('torch.set_float32_matmul_precision("highest")', _set_highest_precision))
    overloads = _decomposed_operators(operation)
    if overloads:
        table = "torch._inductor.decomposition.decompositions"
        code = "; ".join(f"{table}.pop(torch.ops.{overload})" for overload in overloads)
        changes.append(SettingChange(code, functools.partial(_remove_decompositions, overloads)))
    return changes


@contextlib.contextmanager
def _set_highest_precision() -> Iterator[None]:
    precision_before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision_before)


def _decomposed_operators(operation: str | None) -> list[Any]:
    """Return the operators that implement an operation and that Inductor decomposes."""
    name = (operation or "").rstrip("0123456789").rstrip("_")
    names = {f"aten::{name}", f"aten::_{name}", f"aten::native_{name}"} if name else set()
    table = importlib.import_module("torch._inductor.decomposition").decompositions
    schemas = ((overload, getattr(overload, "_schema", None)) for overload in table)
    return [overload for overload, schema in schemas if schema and schema.name in names and not schema.is_mutable]


@contextlib.contextmanager
def _remove_decompositions(overloads: list[Any]) -> Iterator[None]:
    module = importlib.import_module("torch._inductor.decomposition")
    config: Any = importlib.import_module("torch._inductor.config")
    removed_decompositions = {overload: module.decompositions[overload] for overload in overloads}
    clear_cache = getattr(getattr(module, "fast_random_decomps", None), "cache_clear", lambda: None)
    try:
        for overload in removed_decompositions:
            del module.decompositions[overload]
        clear_cache()
        # The key of AOTAutograd's cache does not contain the table of decompositions.
        with config.patch(force_disable_caches=True):
            yield
    finally:
        module.decompositions.update(removed_decompositions)
        clear_cache()


def memory_changes() -> list[SettingChange]:
    """Return the setting changes not yet in force that may save memory."""
    config: Any = importlib.import_module("torch._functorch.config")
    current = config.get_config_copy()
    changes: list[tuple[str, Any]] = []
    if current.get("donated_buffer") is False:
        changes.append(("donated_buffer", True))
    if current.get("activation_memory_budget") == 1.0:
        changes += [("activation_memory_budget", budget) for budget in _MEMORY_BUDGETS]
    return [
        SettingChange(f"torch._functorch.config.{name} = {value}", functools.partial(config.patch, {name: value}))
        for name, value in changes
    ]


@dataclass(frozen=True)
class CacheSettings:
    """Settings that let PyTorch's caches store graphs that they would otherwise bypass.

    ``allows_functions`` tells whether graphs with a ``torch.autograd.Function`` are stored.
    """

    allows_functions: bool = False
    operations: tuple[str, ...] = ()

    def extend_for_bypasses(self, reasons: Iterable[str]) -> CacheSettings:
        """Return a copy of these settings that also avoids the bypasses for which PyTorch gave the reasons."""
        allows, operations = self.allows_functions, dict.fromkeys(self.operations)
        for reason in reasons:
            operation = _OPERATION_NAME.search(reason)
            if operation is not None and operation["name"] == _CUSTOM_FUNCTION:
                allows = True
            elif operation is not None:
                operations[f"{operation['module']}.{operation['name']}"] = None
        return CacheSettings(allows, tuple(operations))

    @property
    def code(self) -> str:
        """The statements that change the settings."""
        lines = [f"torch._functorch.config.{_ALLOW_FUNCTIONS_SETTING} = True"] if self.allows_functions else []
        if self.operations:
            cacheable_operations = ", ".join(f'"{name}": "1"' for name in self.operations)
            lines.append(f"torch._inductor.config.{_CACHEABLE_OPERATIONS_SETTING}.update({{{cacheable_operations}}})")
        return "; ".join(lines)

    @contextlib.contextmanager
    def apply(self) -> Iterator[None]:
        """Change the settings while the context is open."""
        functorch_config: Any = importlib.import_module("torch._functorch.config")
        inductor_config: Any = importlib.import_module("torch._inductor.config")
        cacheable_operations = {
            **getattr(inductor_config, _CACHEABLE_OPERATIONS_SETTING),
            **dict.fromkeys(self.operations, "1"),
        }
        allows_functions = getattr(functorch_config, _ALLOW_FUNCTIONS_SETTING) or self.allows_functions
        with (
            functorch_config.patch({_ALLOW_FUNCTIONS_SETTING: allows_functions}),
            inductor_config.patch({_CACHEABLE_OPERATIONS_SETTING: cacheable_operations}),
        ):
            yield


@contextlib.contextmanager
def disable_caches() -> Iterator[None]:
    """Disable PyTorch's caches of compiled code, for reading and writing, while the context is open.

    Without the caches, Inductor puts its files into new folders, which it never removes. These folders are removed when
    the context ends; code that was loaded from them still runs.
    """
    config: Any = importlib.import_module("torch._inductor.config")
    if not hasattr(config, "force_disable_caches"):  # not in this PyTorch
        yield
        return
    importlib.import_module("torch._inductor.compile_fx")
    compile_fx = sys.modules["torch._inductor.compile_fx"]  # the package has a function of this name
    with (
        tempfile.TemporaryDirectory(prefix="graphbreak_", ignore_cleanup_errors=True) as folder,
        patch_on_thread(compile_fx, "cache_dir", lambda: folder),
        config.patch(force_disable_caches=True),
    ):
        yield

"""Settings of PyTorch with which compiled code keeps less memory for the backward pass."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from jupyter_graphbreak._torch_compat.numerics import SettingChange

#: The shares of the memory that inductor would keep; for the rest it computes again in the backward pass.
_BUDGETS = (0.5, 0.2)


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

"""Settings with which AOTAutograd's cache keeps graphs that it bypasses otherwise."""

from __future__ import annotations

import contextlib
import importlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: The operation that Dynamo makes of a ``torch.autograd.Function``; it has a setting of its own.
_CUSTOM_FUNCTION = "autograd_function_apply"
_ALLOWED = "autograd_cache_allow_custom_autograd_functions"
_CACHEABLE = "unsafe_marked_cacheable_functions"
#: The name of an operation in a reason, from ``check_node_safe`` in PyTorch's autograd_cache.py.
_NAME = re.compile(r"Function module: (?P<module>[\w.]+),\s*Function name: (?P<name>\w+)")


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
        """Return these settings together with those against further bypasses.

        Parameters
        ----------
        reasons : iterable of str
            PyTorch's reasons for the bypasses.
        """
        allows, operations = self.allows_functions, dict.fromkeys(self.operations)
        for reason in reasons:
            named = _NAME.search(reason)
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

"""Settings of PyTorch by their dotted names, for a while."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def settings_applied(settings: Mapping[str, Any]) -> Iterator[None]:
    """Apply settings while the context is open.

    Parameters
    ----------
    settings : mapping
        Dotted names in full (``torch._dynamo.config.capture_scalar_outputs``) and their values. A list of dotted names
        of functions is added to the set that the setting holds.

    Raises
    ------
    LookupError
        If this torch does not have such a setting, or there is no such function.
    """
    before: list[tuple[Any, str, Any]] = []
    try:
        for dotted, value in settings.items():
            home, _, name = dotted.rpartition(".")
            module = importlib.import_module(home)
            if not hasattr(module, name):
                raise LookupError(f"this torch has no setting {dotted}")
            old = getattr(module, name)
            new = type(old)([*old, *map(named_object, value)]) if isinstance(value, list) else value
            before.append((module, name, old))
            setattr(module, name, new)
        yield
    finally:
        for module, name, old in reversed(before):
            setattr(module, name, old)


def named_object(dotted: str) -> Any:
    """Return the object of a dotted name.

    Raises
    ------
    LookupError
        If there is none.
    """
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        try:
            for part in parts[count:]:
                found = getattr(found, part)
        except AttributeError:
            continue
        return found
    raise LookupError(f"there is no {dotted}")

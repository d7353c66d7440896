"""Replace functions of torch for a while."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Give a module or a class another attribute while the context is open."""
    original = inspect.getattr_static(owner, name)
    try:
        setattr(owner, name, replacement)
        yield
    finally:
        # Somebody who patched after us keeps their patch; it calls ours, which calls the original.
        if inspect.getattr_static(owner, name, None) is replacement:
            setattr(owner, name, original)


@contextlib.contextmanager
def patched_inherited(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Give a class a method that it inherits so far, while the context is open."""
    if name in vars(owner):
        with patched(owner, name, replacement):
            yield
        return
    try:
        setattr(owner, name, replacement)
        yield
    finally:
        if vars(owner).get(name) is replacement:
            delattr(owner, name)

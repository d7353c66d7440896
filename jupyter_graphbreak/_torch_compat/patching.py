"""Replace functions of torch for a while, and give what they show to an observer."""

from __future__ import annotations

import contextlib
import inspect
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Emit(Protocol):
    """Receives what the hooks see: the kind of the record, its data, the envelope's context."""

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        """Take one observation."""


class Observe(Protocol):
    """Calls ``look`` for the data of a record of some kind, and passes it on."""

    def __call__(self, kind: str, look: Callable[[], dict[str, Any] | None]) -> None:
        """Look, and pass on what there is; ``None`` is nothing."""


def guarded(emit: Emit, spent: Callable[[float], None]) -> Observe:
    """Wrap ``emit`` so that observing neither fails nor goes unmeasured."""

    def observe(kind: str, look: Callable[[], dict[str, Any] | None]) -> None:
        start = time.perf_counter()
        try:
            data = look()
            if data is not None:
                emit(kind, data)
        except Exception as error:  # noqa: BLE001 - the user's program must not notice us
            with contextlib.suppress(Exception):
                emit("graphbreak_fault", {"hook": kind, "message": f"{type(error).__name__}: {error}"})
        finally:
            spent(time.perf_counter() - start)

    return observe


@contextlib.contextmanager
def patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    original = inspect.getattr_static(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        # Somebody who patched after us keeps their patch; it calls ours, which calls the original.
        if inspect.getattr_static(owner, name) is replacement:
            setattr(owner, name, original)


@contextlib.contextmanager
def patched_inherited(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Give a class a method that it inherits so far."""
    if name in vars(owner):
        with patched(owner, name, replacement):
            yield
        return
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if vars(owner).get(name) is replacement:
            delattr(owner, name)

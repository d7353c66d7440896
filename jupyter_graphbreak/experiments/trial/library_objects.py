"""Find the objects of packages whose attributes a package may set, for example on first use."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.trial.assigned_attributes import LibraryObjects, is_user_module
from jupyter_graphbreak.experiments.trial.object_kinds import belongs_to_process, is_code
from jupyter_graphbreak.records.attributes import attribute_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jupyter_graphbreak.experiments.trial.assigned_attributes import LibraryPart

#: Packages whose objects belong to the process, or whose state other parts restore.
_UNWATCHED_PACKAGES = frozenset(
    {*sys.stdlib_module_names, __name__.partition(".")[0], "torch", "numpy", "IPython", "ipykernel"}
)


def library_objects(packages: Iterable[str]) -> LibraryObjects:
    """Return the objects among the globals of packages, given by name; see :class:`LibraryObjects`."""
    packages = frozenset(packages) - _UNWATCHED_PACKAGES
    return LibraryObjects(_objects_of_packages(packages, len(sys.modules)) if packages else ())


@contextlib.contextmanager
def restore_library_objects(parts: Iterable[LibraryPart]) -> Iterator[Callable[[], None]]:
    """Restore the attributes of objects when the context is closed; yield a function that restores them earlier."""
    saved_contents = [(part, part.content()) for part in parts if isinstance(part, LibraryObjects)]

    def restore() -> None:
        for part, content in saved_contents:
            part.restore(content)

    try:
        yield restore
    finally:
        restore()


@functools.lru_cache(maxsize=8)
def _objects_of_packages(packages: frozenset[str], _: int) -> tuple[Any, ...]:
    """Return the objects among the globals of packages; the number of loaded modules only invalidates the cache."""
    owners: dict[int, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages and type(module) is types.ModuleType and not is_user_module(module):
            owners.update((id(value), value) for value in list(vars(module).values()) if _has_attributes(value))
    return tuple(owners.values())


def _has_attributes(value: Any) -> bool:
    """Return whether a value is an object with attributes that belongs to the program, and neither code nor a class."""
    return type(attribute_of(value, "__dict__")) is dict and not is_code(value) and not belongs_to_process(value)

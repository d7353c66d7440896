"""Track the file descriptors that a trial creates, and close those that it leaves open."""

from __future__ import annotations

import contextlib
import gc
import io
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class FileDescriptors:
    """The file descriptors that the current trial has created and not yet closed."""

    def __init__(self) -> None:
        self._usable_descriptors: set[int] = set()
        #: The device and inode of each descriptor to close. The system may reuse a number for a different file.
        self._to_close: dict[int, tuple[int, int]] = {}

    def note(self, descriptor: int, *, has_own_position: bool, closes_leftover: bool) -> None:
        """Remember a descriptor that the trial created.

        Parameters
        ----------
        has_own_position : bool
            Whether the descriptor has its own file position. A duplicate shares that of the original.
        closes_leftover : bool
            Whether to close the descriptor if the trial leaves it open.
        """
        if has_own_position:
            self._usable_descriptors.add(descriptor)
        if closes_leftover:
            self._to_close[descriptor] = _file_of(descriptor)

    def is_usable(self, descriptor: object) -> bool:
        """Return whether the trial created a descriptor that does not duplicate one that was open before."""
        return descriptor in self._usable_descriptors

    def was_created(self, descriptor: object) -> bool:
        """Return whether the trial created a descriptor."""
        return descriptor in self._usable_descriptors or descriptor in self._to_close

    def forget(self, descriptor: Any) -> None:
        """Forget a descriptor, because it was closed."""
        self._usable_descriptors.discard(descriptor)
        self._to_close.pop(descriptor, None)

    @contextlib.contextmanager
    def close_leftovers(self) -> Iterator[None]:
        """On exit, close the descriptors that a trial in the context has created and left open."""
        usable_descriptors, to_close = self._usable_descriptors, self._to_close
        self._usable_descriptors, self._to_close = set(usable_descriptors), {}
        try:
            yield
        finally:
            leftovers, self._usable_descriptors, self._to_close = self._to_close, usable_descriptors, to_close
            _close_all(leftovers)


def _close_all(files: dict[int, tuple[int, int]]) -> None:
    owned_descriptors = _owned_by_files() if files else frozenset()
    for descriptor, file in files.items():
        with contextlib.suppress(OSError):  # it was closed by other means
            if descriptor not in owned_descriptors and _file_of(descriptor) == file:
                os.close(descriptor)


def _file_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _owned_by_files() -> frozenset[int]:
    """Return the descriptors that open files will close."""
    files = [item for item in gc.get_objects() if issubclass(type(item), io.FileIO)]
    return frozenset(item.fileno() for item in files if not item.closed and item.closefd)


#: The descriptors of the current trial, and of the trials that contain it.
trial_descriptors = FileDescriptors()

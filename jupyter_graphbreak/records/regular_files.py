"""Read only regular files, with an optional size limit, and replace a file only with a complete new one.

The path of a log, a notebook or a baseline comes from the user or from a file, so it may lead to anything: a pipe
without a writer, an endless device, a folder. Reading never blocks on these.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


# Of the flags after ``O_RDONLY``, Windows has only the last one; its file system has no pipes.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


def open_regular(path: str | Path, *, follow_links: bool = True) -> io.FileIO:
    """Open a regular file for reading, unbuffered, or raise an OSError.

    Only with ``follow_links`` may the last part of the path be a symbolic link.
    """
    _require_regular(path, Path(path).stat(follow_symlinks=follow_links))  # before opening, which can affect a device
    flags = _FLAGS if follow_links else _FLAGS | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags)
    try:
        _require_regular(path, os.fstat(descriptor))
        return io.FileIO(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, max_bytes: int, *, follow_links: bool = True) -> bytes:
    """Return the content of a regular file; raise an OSError if that fails or if the file is too large."""
    with open_regular(path, follow_links=follow_links) as file, io.BufferedReader(file) as stream:
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes >> 20} MiB", str(path))
    return content


@contextlib.contextmanager
def atomic_replacement(path: str | Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which replaces the file at ``path`` when the context ends without an error.

    The new file is complete on disk before it replaces the old one, and gets its permissions. If the path is a
    symbolic link, the target of the link is replaced.
    """
    target = Path(os.path.realpath(path))
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(_permissions(target))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _permissions(path: Path) -> int:
    """Return the permissions of a file; for a new file, the default permissions."""
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _require_regular(path: str | Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))

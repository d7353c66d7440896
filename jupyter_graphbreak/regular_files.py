"""Open files that others name: regular files only, no more of them than asked for, and never by waiting.

A log, a notebook or a baseline may name anything: a pipe that nobody writes to, a device without an end, a folder.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

# Windows has no pipes in its file system, and none of these but the last.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


def open_regular(path: str | Path, *, follow_links: bool = True) -> io.FileIO:
    """Open a regular file for reading, unbuffered.

    Parameters
    ----------
    path : str or Path
    follow_links : bool
        Whether the last part of the path may be a symbolic link.

    Raises
    ------
    OSError
        If it cannot be opened or is not a regular file.
    """
    _check(path, Path(path).stat(follow_symlinks=follow_links))  # before it is opened, which some devices notice
    flags = _FLAGS if follow_links else _FLAGS | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags)
    try:
        _check(path, os.fstat(descriptor))
        return io.FileIO(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, most: int, *, follow_links: bool = True) -> bytes:
    """Return the content of a regular file.

    Parameters
    ----------
    path : str or Path
    most : int
        The size in bytes from which on the file is too large.
    follow_links : bool
        Whether the last part of the path may be a symbolic link.

    Raises
    ------
    OSError
        If it cannot be read, is not a regular file, or is too large.
    """
    with open_regular(path, follow_links=follow_links) as file, io.BufferedReader(file) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))
    return content


def _check(path: str | Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))

"""The file of a baseline: read as a whole or not at all, and replaced in one step."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from jupyter_graphbreak.gate.baseline import Baseline, MalformedBaseline, read_baseline, write_baseline
from jupyter_graphbreak.regular_files import read_regular

_LARGEST = 64 << 20


def load_baseline(path: Path) -> Baseline:
    """Read the file of a baseline.

    Raises
    ------
    OSError
        If it cannot be read.
    MalformedBaseline
        If it holds no baseline.
    """
    try:
        return read_baseline(read_regular(path, _LARGEST).decode())
    except (UnicodeDecodeError, RecursionError) as error:
        raise MalformedBaseline(" ".join(str(error).split())) from None


def save_baseline(path: Path, baseline: Baseline) -> None:
    """Write the file of a baseline; until the new one is complete on the disk, the old one stays.

    The file keeps its permissions. If the path is a symbolic link, the file that it leads to is replaced.

    Raises
    ------
    OSError
        If it cannot be written.
    MalformedBaseline
        If there is a file that is no baseline: it is not replaced.
    """
    target = Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        load_baseline(target)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(write_baseline(baseline))
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(_mode_of(target))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode_of(path: Path) -> int:
    """Return the permissions of a file, of a new one those that Python would give it."""
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask

"""Read the file of a baseline, and replace it atomically."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from jupyter_graphbreak.gate.baseline import Baseline, MalformedBaseline, read_baseline, write_baseline
from jupyter_graphbreak.regular_files import read_regular

_MAX_BYTES = 64 << 20


def load_baseline(path: Path) -> Baseline:
    """Read the file of a baseline.

    Raises
    ------
    OSError
        If the file cannot be read.
    MalformedBaseline
        If the file is not a baseline.
    """
    try:
        return read_baseline(read_regular(path, _MAX_BYTES).decode())
    except (UnicodeDecodeError, RecursionError) as error:
        raise MalformedBaseline(" ".join(str(error).split())) from None


def save_baseline(path: Path, baseline: Baseline) -> None:
    """Write the file of a baseline; the old file stays until the new one is complete on disk.

    The file keeps its permissions. If the path is a symbolic link, its target is replaced.

    Raises
    ------
    OSError
        If the file cannot be written.
    MalformedBaseline
        If there is a file that is not a baseline; it is not replaced.
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
    """Return the permissions of a file; for a new file, the default permissions."""
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask

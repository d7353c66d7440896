"""Where the code of libraries is: code that the reader has not written."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from pathlib import Path


def library_roots() -> list[str]:
    """Return the folders of libraries: the standard library, and wherever packages are installed.

    Besides Python's own folders these are the folders of the search path that hold an installed package
    (``*.dist-info``), as ``pip install --target`` makes them.
    """
    return list(_roots(tuple(sys.path)))


def is_library(filename: str) -> bool:
    """Whether a file is a library's."""
    return filename.startswith(tuple(f"{root}{os.sep}" for root in _roots(tuple(sys.path))))


@functools.lru_cache(maxsize=8)
def _roots(search_path: tuple[str, ...]) -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    own = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths}
    return tuple(sorted(own | {folder for folder in search_path if folder and _holds_packages(folder)}))


def _holds_packages(folder: str) -> bool:
    try:
        return next(Path(folder).glob("*.dist-info"), None) is not None
    except OSError:
        return False

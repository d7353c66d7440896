"""Find the folders of libraries in this process, that is, of code that the user has not written."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from pathlib import Path

from jupyter_graphbreak.recording.package_paths import PackagePaths

#: Packages that may be installed from source, outside the folders for packages.
_FROM_SOURCES = ("torch", "IPython", "ipykernel", "tornado", "traitlets", "zmq", "jupyter_client", "jupyter_graphbreak")


def library_roots() -> list[str]:
    """Return the folders of libraries: the standard library, and wherever packages are installed.

    Besides Python's own folders these are the folders of the search path that hold an installed package
    (``*.dist-info``), as ``pip install --target`` makes them.
    """
    return list(_roots(tuple(sys.path)))


def package_folders() -> list[str]:
    """Return the folders of PyTorch, Jupyter's packages and this package that are outside :func:`library_roots`."""
    loaded = tuple(getattr(sys.modules.get(name), "__file__", None) or "" for name in _FROM_SOURCES)
    return list(_folders(tuple(sys.path), loaded))


def package_paths() -> PackagePaths:
    """Return both kinds of folders, to determine the owner of a file."""
    return PackagePaths(tuple(library_roots()), tuple(package_folders()))


def is_library(filename: str) -> bool:
    """Return whether a file belongs to a library."""
    return filename.startswith(tuple(f"{root}{os.sep}" for root in _roots(tuple(sys.path))))


@functools.lru_cache(maxsize=8)
def _roots(search_path: tuple[str, ...]) -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    own = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths}
    found = own | {folder for folder in search_path if folder and _holds_packages(folder)}
    return tuple(sorted(found | {os.path.realpath(folder) for folder in found}))


@functools.lru_cache(maxsize=8)
def _folders(search_path: tuple[str, ...], loaded: tuple[str, ...]) -> tuple[str, ...]:
    known = PackagePaths(_roots(search_path))
    outside = {os.path.dirname(file) for file in loaded if file and known.module_path(file) is None}  # noqa: PTH120
    return tuple(sorted(outside | {os.path.realpath(folder) for folder in outside}))


def _holds_packages(folder: str) -> bool:
    try:
        return next(Path(folder).glob("*.dist-info"), None) is not None
    except OSError:
        return False

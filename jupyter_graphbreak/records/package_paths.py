"""Determine the owner of a file by its folder: a package, the standard library, or the user.

:class:`PackagePaths` reads nothing from disk, so it also works for the paths in a log from a different machine.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
from pathlib import Path

import msgspec

#: The folder of the standard library in a path from a different machine; the name of one of its modules must follow.
_STANDARD_LIBRARY = re.compile(
    r"(?:^|/)(?:lib(?:64)?/python3\.\d+t?|Python3\d+(?:-\w+)?/Lib)/(?P<module>(?P<top>\w+)(?:\.py$|/).*)"
)
_PACKAGE_FOLDERS = ("/site-packages/", "/dist-packages/")
#: A file with code that a package generated outside its own folder. Its name is the dotted name of a module that cannot
#: be imported, as in ``torch_geometric.nn.conv.gcn_conv_GCNConv_propagate_x1.py`` (PyG, ``module_from_template``).
_GENERATED_MODULE = re.compile(r"(?:^|[/\\])(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){2,})\.py$")


class PackagePaths(msgspec.Struct, frozen=True):
    """The folders of packages and of the standard library, and those of packages that are installed from source.

    Other folders of this kind, such as those of a different machine, are recognized by ``site-packages``,
    ``dist-packages`` or ``lib/python3.N`` in a path.
    """

    roots: tuple[str, ...] = ()
    source_package_folders: tuple[str, ...] = ()

    def module_path(self, filename: str) -> str | None:
        """Return the path of a library's file relative to Python's search path; ``None`` for one of the user's files.

        The path of ``/venv/lib/python3.12/site-packages/torch/fx/node.py`` is ``torch/fx/node.py``. Frozen modules
        keep their names: ``<frozen runpy>``.
        """
        return _module_path(self.roots, self.source_package_folders, filename)


@functools.lru_cache(maxsize=1 << 14)
def _module_path(roots: tuple[str, ...], source_package_folders: tuple[str, ...], filename: str) -> str | None:
    path = filename.replace("\\", "/")
    if path.startswith("<frozen "):
        return path
    for folder in map(as_folder, source_package_folders):
        if path.startswith(folder):
            parent = folder.rstrip("/").rpartition("/")[0]
            return path[len(parent) + 1 :]
    root = max((root for root in map(as_folder, roots) if path.startswith(root)), key=len, default="")
    path_in_root = path[len(root) :] if root else None
    # A folder of packages may be inside the folder of the standard library, or inside a package.
    package_starts = [f"/{path}".rfind(part) + len(part) - 1 for part in _PACKAGE_FOLDERS if part in f"/{path}"]
    if package_starts and max(package_starts) >= len(root):
        return path[max(package_starts) :]
    if path_in_root is not None:
        return path_in_root
    match = _STANDARD_LIBRARY.search(path)
    if match is not None and match["top"] in sys.stdlib_module_names:
        return match["module"]
    match = _GENERATED_MODULE.search(path)
    return match["module"].replace(".", "/") + ".py" if match is not None else None


def as_folder(path: str) -> str:
    """Return the path of a folder with forward slashes, including one at the end."""
    return path.replace("\\", "/").rstrip("/") + "/"


def is_standard_library(module_path: str) -> bool:
    """Return whether a path from :meth:`PackagePaths.module_path` belongs to the standard library."""
    top = module_path.partition("/")[0].removesuffix(".py")
    return module_path.startswith("<") or top in sys.stdlib_module_names


#: The folder of this package, with a separator at its end.
OWN_FOLDER = str(Path(__file__).parents[1]) + os.sep
#: Packages that may be installed from source, outside the folders for packages.
_SOURCE_INSTALLS = (
    "torch",
    "IPython",
    "ipykernel",
    "tornado",
    "traitlets",
    "zmq",
    "jupyter_client",
    "jupyter_graphbreak",
)


def library_roots() -> list[str]:
    """Return the folders of the standard library and of packages, such as those of ``pip install --target``."""
    return list(_roots(tuple(sys.path)))


def package_folders() -> list[str]:
    """Return the folders of PyTorch, Jupyter's packages and this package that are not below :func:`library_roots`."""
    loaded_files = tuple(getattr(sys.modules.get(name), "__file__", None) or "" for name in _SOURCE_INSTALLS)
    return list(_folders(tuple(sys.path), loaded_files))


def package_paths() -> PackagePaths:
    """Return this process's folders of libraries and of individual packages, which determine the owner of a file."""
    return PackagePaths(tuple(library_roots()), tuple(package_folders()))


#: The file names of code that a person typed in a Python or IPython session, and of examples in docstrings.
_TYPED_CODE = re.compile(r"<(?:stdin|console|i?python-input-[\w-]+|doctest .*)>")


def is_typed_code(filename: str) -> bool:
    """Return whether a file name is that of code typed in an interactive session, not of generated code."""
    return _TYPED_CODE.fullmatch(filename) is not None


def is_library(filename: str) -> bool:
    """Return whether a file belongs to a library.

    The standard library is treated as a library, including frozen modules such as ``<frozen os>``. A package that is
    installed from source, outside the folders of packages, is treated as the user's code.
    """
    roots = ("<frozen ", *(f"{root}{os.sep}" for root in _roots(tuple(sys.path))))
    return filename.startswith(roots) or _GENERATED_MODULE.search(filename) is not None


@functools.lru_cache(maxsize=8)
def _roots(search_path: tuple[str, ...]) -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    python_folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths}
    roots = python_folders | {folder for folder in search_path if folder and _contains_packages(folder)}
    return tuple(sorted(roots | {os.path.realpath(folder) for folder in roots}))


@functools.lru_cache(maxsize=8)
def _folders(search_path: tuple[str, ...], loaded_files: tuple[str, ...]) -> tuple[str, ...]:
    known_paths = PackagePaths(_roots(search_path))
    outside_folders = {os.path.dirname(file) for file in loaded_files if file and known_paths.module_path(file) is None}  # noqa: PTH120
    return tuple(sorted(outside_folders | {os.path.realpath(folder) for folder in outside_folders}))


def _contains_packages(folder: str) -> bool:
    try:
        return next(Path(folder).glob("*.dist-info"), None) is not None
    except OSError:
        return False

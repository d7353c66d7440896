"""Logs in object storage: list them, and copy one at a time to a temporary folder for reading.

Any storage that ``fsspec`` knows will do: ``s3://``, ``gs://``, ``abfs://``, ``hf://``, ``memory://``, ...
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.trace.limits import Limits
from jupyter_graphbreak.trace.processes import UnreadableTrace, rank_order

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 1 << 20
_LIMITS = Limits()


def is_url(path: str) -> bool:
    """Return whether this names storage that fsspec opens, rather than a local path."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and all(character.isalnum() or character in "+-.:" for character in scheme)


class RemoteFolder:
    """A folder of logs in object storage, or one log.

    Parameters
    ----------
    url : str
    limits : Limits
        The maximum number of files, and of bytes of one file.

    Raises
    ------
    UnreadableTrace
        If it cannot be opened, or has no files.
    """

    def __init__(self, url: str, limits: Limits = _LIMITS) -> None:
        self._limits = limits
        self.notes: list[str] = []
        try:
            import fsspec

            self._storage: Any
            self._storage, path = fsspec.core.url_to_fs(url)
            sizes = self._sizes(path)
        except ImportError as error:  # fsspec itself, or the package for this storage
            needed = "" if error.name != "fsspec" else ": pip install 'jupyter-graphbreak[storage]'"
            raise UnreadableTrace(f"{url}: {error}{needed}") from None
        except FileNotFoundError:
            raise UnreadableTrace(f"{url}: no such file or folder") from None
        except Exception as error:  # noqa: BLE001 - each storage raises errors of its own
            raise UnreadableTrace(f"{url}: {type(error).__name__}: {_one_line(error)}") from None
        if len(sizes) > limits.files:
            self.notes.append(f"Only {limits.files} files in {url} were checked: there are more.")
        chosen = sorted(itertools.islice(sizes, limits.files), key=lambda name: (*rank_order(name), name))
        if not chosen:
            raise UnreadableTrace(f"{url}: no structured trace in this folder; run the program with TORCH_TRACE=FOLDER")
        #: The size of each file in bytes, in the order in which to read them.
        self.sizes = {name: sizes[name] for name in chosen}

    def _sizes(self, path: str) -> dict[str, int]:
        """Return the files at a path, in its subfolders too, with their sizes."""
        if self._storage.isfile(path):
            return {path: int(self._storage.size(path) or 0)}
        below = self._storage.find(path, maxdepth=2, detail=True)
        if not below and not self._storage.exists(path):
            raise FileNotFoundError(path)
        return {
            name: int(details.get("size") or 0)
            for name, details in sorted(below.items())
            if not PurePosixPath(name).name.startswith(".") and PurePosixPath(name).name
        }

    def described(self, name: str) -> str:
        """Return the URL of one of the files."""
        url: str = self._storage.unstrip_protocol(name)
        return url

    @contextlib.contextmanager
    def copied(self, name: str) -> Iterator[Path]:
        """Copy a file to a temporary folder, which is removed at the end.

        Raises
        ------
        UnreadableTrace
            If it cannot be read, or is too large.
        """
        with tempfile.TemporaryDirectory(prefix="graphbreak-log-") as folder:
            copy = Path(folder) / PurePosixPath(name).name
            left = self._limits.download
            try:
                with self._storage.open(name, "rb") as source, copy.open("wb") as target:
                    while left >= 0 and (chunk := source.read(_CHUNK)):
                        target.write(chunk)
                        left -= len(chunk)
            except Exception as error:  # noqa: BLE001 - each storage raises errors of its own
                raise UnreadableTrace(f"{self.described(name)}: {type(error).__name__}: {_one_line(error)}") from None
            if left < 0:
                size = self._limits.download >> 20
                raise UnreadableTrace(f"{self.described(name)}: larger than {size} MiB; download it, and read the copy")
            yield copy


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]

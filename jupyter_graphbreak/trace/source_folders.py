"""Read the source files that a log mentions, but only text files in folders that the user trusts."""

from __future__ import annotations

import io
import os
import tokenize
from typing import TYPE_CHECKING

from jupyter_graphbreak.records.package_paths import library_roots
from jupyter_graphbreak.records.regular_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_MAX_SOURCE_BYTES = 4 << 20


class SourceFolders:
    """Reads source files in the working folder, in the folders of packages, and in additional folders."""

    def __init__(self, folders: Iterable[str | Path] = ()) -> None:
        real_paths = (os.path.realpath(os.fspath(folder)) for folder in (os.curdir, *library_roots(), *folders))
        self._folders = tuple({path.rstrip(os.sep) + os.sep for path in real_paths})

    def lines(self, filename: str) -> list[str] | None:
        """Return the lines of a source file with line ends; ``None`` if the file may not or cannot be read.

        For a symbolic link, the target must be in one of the folders.
        """
        try:
            path = os.path.realpath(filename, strict=True)
            if not path.startswith(self._folders):
                return None
            content = read_regular(path, _MAX_SOURCE_BYTES, follow_links=False)
            encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
            text = io.TextIOWrapper(io.BytesIO(content), encoding, newline=None).read()
        except (OSError, ValueError, SyntaxError, LookupError):
            return None
        return text.splitlines(keepends=True)

    def may_read(self, filename: str) -> bool:
        """Return whether a file with this name may be read, without checking whether it exists."""
        return os.path.abspath(filename).startswith(self._folders)  # noqa: PTH100 - Path.resolve would follow links

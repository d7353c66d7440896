"""The source files that a log may have read: those in folders that the reader trusts, and only text."""

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

_LARGEST_SOURCE = 4 << 20


class SourceFolders:
    """Reads source files in the working folder, in the folders of packages, and in others that are named.

    Parameters
    ----------
    folders : iterable of str or Path
        The others.
    """

    def __init__(self, folders: Iterable[str | Path] = ()) -> None:
        trusted = [os.curdir, *library_roots(), *folders]
        self._folders = tuple({_real(folder).rstrip(os.sep) + os.sep for folder in trusted})

    def lines(self, filename: str) -> list[str] | None:
        """Return the lines of a source file, each with its end; ``None`` for what is none or may not be read.

        A symbolic link counts as what it leads to.
        """
        try:
            path = os.path.realpath(filename, strict=True)
            if not path.startswith(self._folders):
                return None
            content = read_regular(path, _LARGEST_SOURCE, follow_links=False)
            encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
            text = io.TextIOWrapper(io.BytesIO(content), encoding, newline=None).read()
        except (OSError, ValueError, SyntaxError, LookupError):
            return None
        return text.splitlines(keepends=True)

    def may_hold(self, filename: str) -> bool:
        """Return whether a file of this name would be read, without looking whether there is one."""
        return os.path.abspath(filename).startswith(self._folders)  # noqa: PTH100 - resolves no link


def _real(path: str | Path) -> str:
    return os.path.realpath(path)

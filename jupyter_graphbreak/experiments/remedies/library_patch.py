"""Apply a patch to functions of this process that are defined in files, such as those of a library."""

from __future__ import annotations

import contextlib
import linecache
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.remedies.application import CannotApplyError, Program, applied
from jupyter_graphbreak.experiments.remedies.own_edits import apply_hunks, changed_files

if TYPE_CHECKING:
    from unidiff.patch import Hunk

#: IPython strips the end of a cell: a hunk may lack the blank lines with which it ends, at most three lines of context.
_STRIPPED_LINES = "\n" * 4


@dataclass(frozen=True, eq=False)
class AppliedPatch:
    """A patch that is active in this process.

    Parameters
    ----------
    files : tuple of str
        The files whose functions are changed; the files themselves are not.
    functions : int
        The number of functions whose code was replaced.
    """

    files: tuple[str, ...]
    functions: int
    _undo: contextlib.ExitStack = field(repr=False)

    def undo(self) -> None:
        """Restore the original code of the functions."""
        self._undo.close()
        if self in _active_patches:
            _active_patches.remove(self)


#: Keeps patches alive whose return value nobody keeps.
_active_patches: list[AppliedPatch] = []


def apply_patch(patch: str) -> AppliedPatch:
    """Change functions of this process according to a patch; no file is written.

    Code that is already compiled stays as it was compiled: explain the call afresh, or call
    ``torch.compiler.reset()``.

    Parameters
    ----------
    patch : str
        A unified diff, such as ``Remedy.patch``. Paths are relative to the folder of the packages or to the working
        directory.

    Returns
    -------
    AppliedPatch

    Raises
    ------
    ValueError
        If a file is not known, or does not have the lines that the patch changes.
    """
    hunks_by_path: dict[str, list[Hunk]] = {}
    for changed in changed_files(patch + _STRIPPED_LINES):
        hunks_by_path.setdefault(changed.path, []).extend(changed)
    if not hunks_by_path:
        raise ValueError("this is no unified diff: it names no file")
    files = {path: _filename(path) for path in hunks_by_path}
    texts = {path: "".join(linecache.getlines(file)).removesuffix("\n") for path, file in files.items()}
    new_texts = {path: _patched(path, texts[path], hunks) for path, hunks in hunks_by_path.items()}
    undo = contextlib.ExitStack()
    application = undo.enter_context(applied(Program(files, texts), new_texts))
    undo.enter_context(application.with_definitions())
    applied_patch = AppliedPatch(tuple(files.values()), len(application.functions), undo)
    _active_patches.append(applied_patch)
    return applied_patch


def _patched(path: str, text: str, hunks: list[Hunk]) -> str:
    try:
        return apply_hunks(text, path, hunks)
    except CannotApplyError:
        raise ValueError(f"{path} does not have the lines that the patch changes: it is another version") from None


def _filename(path: str) -> str:
    """Return the file of a loaded module, or of the working directory, to which a path of a patch refers."""
    for module in sys.modules.copy().values():
        filename = getattr(module, "__file__", None)
        if isinstance(filename, str) and filename.replace("\\", "/").endswith(f"/{path.lstrip('/')}"):
            return filename
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"no loaded module and no file is called {path}")
    return str(file.resolve())

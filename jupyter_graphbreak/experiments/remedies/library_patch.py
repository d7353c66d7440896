"""Apply a patch to functions of this process that stand in files, such as those of a library, until it is undone."""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_graphbreak.experiments.remedies.application import Program, applied

_FILE = re.compile(r"^\+\+\+ b/(?P<path>.+)$")
_HUNK = re.compile(r"^@@ -(?P<first>\d+)(?:,(?P<count>\d+))? \+\d+(?:,\d+)? @@")


@dataclass(frozen=True, eq=False)
class AppliedPatch:
    """A patch that is in force in this process.

    Parameters
    ----------
    files : tuple of str
        The files whose functions are changed; the files themselves are not.
    functions : int
        How many functions have another code.
    """

    files: tuple[str, ...]
    functions: int
    _undo: contextlib.ExitStack = field(repr=False)

    def undo(self) -> None:
        """Give the functions their own code again."""
        self._undo.close()
        if self in _in_force:
            _in_force.remove(self)


#: What nobody may hold on to and is in force all the same.
_in_force: list[AppliedPatch] = []


def apply_patch(patch: str) -> AppliedPatch:
    """Change functions of this process as a patch says; no file is written.

    What is compiled already stays as it was compiled: explain the call afresh, or call ``torch.compiler.reset()``.

    Parameters
    ----------
    patch : str
        A unified diff, as ``Remedy.patch`` has it. Paths count from the folder of the packages, or from the working
        directory.

    Returns
    -------
    AppliedPatch

    Raises
    ------
    ValueError
        If a file is not known, or does not have the lines that the patch changes.
    """
    files: dict[str, str] = {}
    texts: dict[str, str] = {}
    new: dict[str, str] = {}
    for path, hunks in _files(patch).items():
        filename = _filename(path)
        text = "".join(linecache.getlines(filename)).removesuffix("\n")
        files[path], texts[path], new[path] = filename, text, _patched(path, text, hunks)
    if not files:
        raise ValueError("this is no unified diff: it names no file")
    undo = contextlib.ExitStack()
    made = undo.enter_context(applied(Program(files, texts), new))
    undo.enter_context(made.defined())
    patched = AppliedPatch(tuple(files.values()), len(made.functions), undo)
    _in_force.append(patched)
    return patched


def _files(patch: str) -> dict[str, list[list[str]]]:
    """Return the hunks of each file of a patch, by its path."""
    files: dict[str, list[list[str]]] = {}
    hunks: list[list[str]] = []
    left = 0  # lines of the file that the hunk has yet to name
    for line in patch.split("\n"):
        if (named := _FILE.match(line)) is not None:
            hunks = files.setdefault(named["path"], [])
        elif (header := _HUNK.match(line)) is not None:
            hunks.append([line])
            left = int(header["count"] or 1)
        elif hunks and line[:1] in {" ", "+", "-"} and not line.startswith("--- a/"):
            hunks[-1].append(line)
            left -= line[0] != "+"
        elif hunks and not line and left > 0:
            # IPython takes the space away that an empty line of the file has in a diff.
            hunks[-1].append(" ")
            left -= 1
    return files


def _patched(path: str, text: str, hunks: list[list[str]]) -> str:
    lines = text.split("\n")
    for header, *changes in reversed(hunks):
        found = _HUNK.match(header)
        if found is None:
            raise AssertionError("a hunk begins with its header")
        old = [line[1:] for line in changes if line[0] in " -"]
        first = int(found["first"]) - (found["count"] != "0")
        there = slice(first, first + len(old))
        if lines[there] != old:
            raise ValueError(f"{path} does not have the lines that the patch changes: it is another version")
        lines[there] = [line[1:] for line in changes if line[0] in " +"]
    return "\n".join(lines)


def _filename(path: str) -> str:
    """Return the file of a loaded module, or of the working directory, that a path of a patch stands for."""
    for module in list(sys.modules.values()):
        filename = getattr(module, "__file__", None)
        if isinstance(filename, str) and filename.replace("\\", "/").endswith(f"/{path.lstrip('/')}"):
            return filename
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"no loaded module and no file is called {path}")
    return str(file.resolve())

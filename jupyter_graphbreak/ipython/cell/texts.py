"""Which cell a code object comes from, and its text as the editor has it."""

from __future__ import annotations

import linecache
import sys
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.ipython.cell.requests import asked_by
from jupyter_graphbreak.ipython.cell.rewriting import is_magic_line
from jupyter_graphbreak.records.source_texts import CellText

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_MAGIC = "compile_explain"  # of a cell or of a line in it


class CellTexts:
    """Tells which cell a code object's file name stands for.

    Parameters
    ----------
    shell : InteractiveShell
        Its compiler knows the names, its history the texts.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._current: tuple[str, str, int] | None = None

    def request(self) -> dict[str, Any] | None:
        """Return the message that the kernel is answering; a shell without a kernel has none."""
        get_parent = getattr(self._shell, "get_parent", None)
        request: dict[str, Any] | None = get_parent() if get_parent is not None else None
        return request

    @property
    def running(self) -> str | None:
        """The file name of the cell that is running, as far as it was noted."""
        return self._current[0] if self._current is not None else None

    def enter(self, filename: str) -> None:
        """Note the cell that is running now; its text is not in the history where the history is switched off."""
        self._current = (filename, self._running_text(filename), self._number(filename) or self._shell.execution_count)

    def enter_caller(self) -> None:
        """Note the cell whose code is running now, if any: it has called the magic of a line."""
        frame = sys._getframe(1)  # noqa: SLF001 - there is no other way to ask who calls
        while frame.f_back is not None and self._number(frame.f_code.co_filename) is None:
            frame = frame.f_back
        self._current = None
        if self._number(frame.f_code.co_filename) is not None:
            self.enter(frame.f_code.co_filename)

    def find(self, filename: str) -> CellText | None:
        """Return the cell that a file name stands for, ``None`` for a file."""
        if self._current is not None and filename == self._current[0]:
            _, text, number = self._current
        else:
            found = self._number(filename)
            if found is None:
                return None
            number = found
            history = self._shell.history_manager
            raw = history.input_hist_raw if history is not None else []
            text = raw[number] if 0 < number < len(raw) else ""
            inner = "".join(linecache.getlines(filename)).rstrip()
            if self._current is not None and inner and inner in self._current[1]:
                # A cell that a magic of this one runs, such as %%capture: its lines count from below that magic.
                _, text, number = self._current
                above = text.count("\n", 0, text.rindex(inner))
                return CellText(f"Cell In[{number}]", text.rstrip("\n"), above, 0)
        offset, indent = _cut_off(text)
        return CellText(f"Cell In[{number}]", text.rstrip("\n"), offset, indent)

    def _number(self, filename: str) -> int | None:
        known: dict[str, int] = getattr(self._shell.compile, "_filename_map", {})
        return known.get(filename)

    def _running_text(self, filename: str) -> str:
        """Return the text of the running cell as the editor has it: the request that the kernel is answering."""
        request = self.request()
        code = (request or {}).get("content", {}).get("code")
        if isinstance(code, str) and (_MAGIC in code or asked_by(request) is not None):
            return code
        history = self._shell.history_manager
        raw = history.input_hist_raw if history is not None else []
        if raw and _MAGIC in raw[-1]:
            return str(raw[-1])
        return "".join(linecache.getlines(filename))


def _cut_off(text: str) -> tuple[int, int]:
    """Return how many lines and columns IPython cuts off the front of a cell before it runs it."""
    lines = text.split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return 0, 0
    if is_magic_line(lines[first]):
        body = next((line for line in lines[first + 1 :] if line.strip()), "")
        return 0, len(body) - len(body.lstrip())
    return first, len(lines[first]) - len(lines[first].lstrip())

"""Find the cells of this process's IPython shell."""

from __future__ import annotations

import linecache
import sys

from jupyter_graphbreak.records.source_texts import CellText


def cell_of_shell(filename: str) -> CellText | None:
    """Return the cell with a given file name in this process's IPython shell, ``None`` if there is none.

    The text of the cell is the one that tracebacks show.
    """
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = find_shell() if find_shell is not None else None
    numbers: dict[str, int] = getattr(getattr(shell, "compile", None), "_filename_map", {})
    text = "".join(linecache.getlines(filename)) if filename in numbers else ""
    return CellText(f"Cell In[{numbers[filename]}]", text.rstrip("\n")) if text else None

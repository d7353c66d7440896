"""The other cells of a notebook that compile something: a function is often defined in one and compiled in another."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from jupyter_graphbreak.recording.source_texts import CellText, FindCell


def compiling_cells(known: Collection[str], find_cell: FindCell) -> dict[str, CellText]:
    """Return the cells that call ``compile``, by their file names; of a cell that ran more than once the last text.

    Parameters
    ----------
    known : collection of str
        File names of cells that are known already.
    find_cell : callable
        Given a file name, returns the cell that it stands for.
    """
    by_first_line: dict[str, tuple[str, CellText]] = {}
    for filename in list(linecache.cache):
        if filename in known:
            continue
        cell = find_cell(filename)
        if cell is not None and "compile" in cell.text:
            by_first_line[cell.text.strip().partition("\n")[0]] = filename, cell
    return dict(by_first_line.values())

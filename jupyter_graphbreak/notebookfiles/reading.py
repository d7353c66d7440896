"""Read notebooks, and the reports that their outputs carry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak.report.schema import MIME_TYPE, Report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FORMAT = 4


class UnreadableNotebook(ValueError):  # noqa: N818 - reads as the sentence it reports
    """A file that is no notebook of a known format; the message says in one line what it is."""


def read_cells(path: Path) -> dict[str, Any]:
    """Return a notebook as JSON has it.

    Raises
    ------
    UnreadableNotebook
        If there is no such file, or it is no notebook of format 4.
    """
    try:
        notebook = json.loads(path.read_bytes())
    except OSError as error:
        raise UnreadableNotebook(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError):
        raise UnreadableNotebook(f"{path}: not a notebook, since it is not JSON") from None
    if not isinstance(notebook, dict) or "nbformat" not in notebook:
        raise UnreadableNotebook(f"{path}: not a notebook, since it names no nbformat")
    if notebook["nbformat"] != _FORMAT:
        convert = "convert it with `jupyter nbconvert --to notebook`"
        raise UnreadableNotebook(f"{path}: a notebook of format {notebook['nbformat']!r}; {convert}")
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise UnreadableNotebook(f"{path}: not a notebook, since it has no list of cells")
    return notebook


def reports_in(notebook: dict[str, Any]) -> Iterator[Report]:
    """Yield the reports in a notebook's outputs, in order.

    Raises
    ------
    UnreadableNotebook
        If one of them was made by a release whose reports this one cannot read.
    """
    for number, cell in enumerate(notebook["cells"], start=1):
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            data = output.get("data") if isinstance(output, dict) else None
            if isinstance(data, dict) and MIME_TYPE in data:
                try:
                    yield Report.from_dict(data[MIME_TYPE])
                except msgspec.ValidationError as error:
                    raise UnreadableNotebook(f"the report in cell {number} cannot be read: {error}") from None

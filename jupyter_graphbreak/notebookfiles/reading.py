"""Read notebooks, and the reports that their outputs carry."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from jupyter_graphbreak.regular_files import read_regular
from jupyter_graphbreak.report.schema import MIME_TYPE, Report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FORMAT = 4
_LARGEST = 512 << 20
_MOST_REPORTS = 10_000
_MOST_WORDS = 300


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
        notebook = json.loads(read_regular(path, _LARGEST))
    except OSError as error:
        raise UnreadableNotebook(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError):  # a path with a zero byte is a ValueError, too
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


class NotebookReports(NamedTuple):
    """The reports in a notebook's outputs, in order, and what is to be said of others, one sentence each."""

    reports: list[Report]
    problems: list[str]


def reports_in(notebook: dict[str, Any]) -> NotebookReports:
    """Return the reports in a notebook's outputs; one that cannot be read leaves the others.

    Raises
    ------
    UnreadableNotebook
        If there are reports and none can be read.
    """
    reports: list[Report] = []
    failed: list[str] = []
    for number, data in itertools.islice(_carried(notebook), _MOST_REPORTS):
        try:
            reports.append(
                Report.from_json(msgspec.json.encode(data))
            )  # so that it can be written again: NaN becomes null
        except (ValueError, OverflowError, RecursionError) as error:  # ValueError: of msgspec, and of lone surrogates
            failed.append(f"the report in cell {number} cannot be read: {str(error)[:_MOST_WORDS]}")
    if failed and not reports:
        raise UnreadableNotebook(failed[0])
    more = f" ({len(failed)} reports cannot be read)" if len(failed) > 1 else ""
    return NotebookReports(reports, [failed[0] + more] if failed else [])


def _carried(notebook: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield what outputs hold as reports, with the number of the cell."""
    for number, cell in enumerate(notebook["cells"], start=1):
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            data = output.get("data") if isinstance(output, dict) else None
            if isinstance(data, dict) and MIME_TYPE in data:
                yield number, data[MIME_TYPE]

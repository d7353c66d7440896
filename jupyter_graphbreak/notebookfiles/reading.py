"""Read notebooks, and the reports in their outputs."""

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
_MAX_BYTES = 512 << 20
_MAX_REPORTS = 10_000
_MAX_ERROR_LENGTH = 300


class UnreadableNotebook(ValueError):  # noqa: N818 - reads as the sentence it reports
    """A file that is not a notebook of a known format; the message gives the reason in one line."""


def read_cells(path: Path) -> dict[str, Any]:
    """Return the parsed JSON of a notebook.

    Raises
    ------
    UnreadableNotebook
        If the file cannot be read or is not a notebook of format 4.
    """
    try:
        notebook = json.loads(read_regular(path, _MAX_BYTES))
    except OSError as error:
        raise UnreadableNotebook(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError):  # including the ValueError for a path with a zero byte
        raise UnreadableNotebook(f"{path}: not a notebook: it is not JSON") from None
    if not isinstance(notebook, dict) or "nbformat" not in notebook:
        raise UnreadableNotebook(f"{path}: not a notebook: it has no nbformat")
    if notebook["nbformat"] != _FORMAT:
        convert = "convert it with `jupyter nbconvert --to notebook`"
        raise UnreadableNotebook(f"{path}: the notebook has format {notebook['nbformat']!r}; {convert}")
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise UnreadableNotebook(f"{path}: not a notebook: it has no list of cells")
    return notebook


class NotebookReports(NamedTuple):
    """The reports in a notebook's outputs, in order, and one sentence about the unreadable ones, if any."""

    reports: list[Report]
    problems: list[str]


def reports_in(notebook: dict[str, Any]) -> NotebookReports:
    """Return the readable reports in a notebook's outputs.

    Raises
    ------
    UnreadableNotebook
        If there are reports but none can be read.
    """
    reports: list[Report] = []
    failed: list[str] = []
    for number, data in itertools.islice(_report_data(notebook), _MAX_REPORTS):
        try:
            # Encoding turns NaN into null, so that the report can be written again.
            reports.append(Report.from_json(msgspec.json.encode(data)))
        except (ValueError, OverflowError, RecursionError) as error:  # msgspec and lone surrogates raise ValueError
            failed.append(f"the report in cell {number} cannot be read: {str(error)[:_MAX_ERROR_LENGTH]}")
    if failed and not reports:
        raise UnreadableNotebook(failed[0])
    more = f" ({len(failed)} reports cannot be read)" if len(failed) > 1 else ""
    return NotebookReports(reports, [failed[0] + more] if failed else [])


def _report_data(notebook: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield the data of the reports in outputs, with the number of the cell."""
    for number, cell in enumerate(notebook["cells"], start=1):
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            data = output.get("data") if isinstance(output, dict) else None
            if isinstance(data, dict) and MIME_TYPE in data:
                yield number, data[MIME_TYPE]

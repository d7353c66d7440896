"""Read notebook files and the reports in them; run a notebook in a new kernel with every cell explained."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import nbformat

from jupyter_graphbreak.records.regular_files import read_regular
from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.views.html.bundle import read_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jupyter_graphbreak.report.schema import Report

_NOTEBOOK_FORMAT = 4
_MAX_BYTES = 512 << 20
_MAX_REPORTS = 1_000
_MAX_ERROR_LENGTH = 300
_MAX_FORMAT_LENGTH = 20
#: Parsed JSON needs up to a hundred times as much memory as its text, so the memory is estimated first: each entry of a
#: list or an object counts 1, and each list or object counts 5.
_MAX_WEIGHT = 20_000_000
_CONTAINER_WEIGHT = 5
_JSON_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class UnreadableNotebook(ValueError):  # noqa: N818 - the name already states an error
    """A file cannot be read or run as a notebook; the message states the reason in one line."""


def parse_notebook(path: Path) -> dict[str, Any]:
    """Return the parsed JSON of a notebook of format 4; raise an UnreadableNotebook if the file is not one."""
    try:
        content = read_regular(path, _MAX_BYTES)
    except (OSError, ValueError) as error:  # a path with a null byte raises ValueError
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableNotebook(f"{path}: {reason[:1].lower()}{reason[1:]}") from None
    if _estimated_weight(content) > _MAX_WEIGHT and _weight_without_strings(content) > _MAX_WEIGHT:
        raise UnreadableNotebook(f"{path} is too large: clear the outputs that have millions of numbers or entries")
    try:
        notebook = json.loads(content)
    except (ValueError, RecursionError):
        raise UnreadableNotebook(f"{path} is not a notebook: the file is not JSON") from None
    if not isinstance(notebook, dict) or "nbformat" not in notebook:
        raise UnreadableNotebook(f"{path} is not a notebook: the JSON has no `nbformat`")
    if notebook["nbformat"] != _NOTEBOOK_FORMAT:
        advice = "convert it with `jupyter nbconvert --to notebook`"
        raise UnreadableNotebook(f"{path} has format {_describe_format(notebook['nbformat'])}; {advice}")
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise UnreadableNotebook(f"{path} is not a notebook: the JSON has no list of cells")
    return notebook


def _estimated_weight(content: bytes) -> int:
    return content.count(b",") + _CONTAINER_WEIGHT * (content.count(b"{") + content.count(b"["))


def _weight_without_strings(content: bytes) -> int:
    return _estimated_weight(content) - sum(_estimated_weight(string[0]) for string in _JSON_STRING.finditer(content))


def _describe_format(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, list | dict) else repr(value)[:_MAX_FORMAT_LENGTH]


class NotebookReports(NamedTuple):
    """The reports in a notebook's outputs, in order, and sentences about reports that were not read."""

    reports: list[Report]
    problems: list[str]


def reports_in(notebook: dict[str, Any], max_reports: int | None = _MAX_REPORTS) -> NotebookReports:
    """Return the first ``max_reports`` reports in a notebook's outputs, without those that cannot be read.

    If ``max_reports`` is ``None``, all reports are read. An UnreadableNotebook is raised if none can be read.
    """
    reports: list[Report] = []
    failures: list[str] = []
    outputs = _outputs_with_reports(notebook)
    for number, data in itertools.islice(outputs, max_reports):
        try:
            reports.append(read_report(data))
        except (ValueError, OverflowError, RecursionError) as error:  # msgspec and lone surrogates raise ValueError
            failures.append(f"the report in cell {number} cannot be read: {str(error)[:_MAX_ERROR_LENGTH]}")
    if failures and not reports:
        raise UnreadableNotebook(failures[0])
    total = f" ({len(failures)} reports cannot be read in total)" if len(failures) > 1 else ""
    problems = [failures[0] + total] if failures else []
    if next(outputs, None) is not None:
        problems.append(f"only the first {max_reports:,} reports were read")
    return NotebookReports(reports, problems)


def _outputs_with_reports(notebook: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield the cell number and the data of each output that contains a report."""
    for number, cell in enumerate(notebook["cells"], start=1):
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            data = output.get("data") if isinstance(output, dict) else None
            if isinstance(data, dict) and MIME_TYPE in data:
                yield number, data


#: The metadata that our JupyterLab extension adds to the requests that run cells.
_REQUEST_METADATA = {"graphbreak": {"explain": "", "only_torch": True}}
_LOAD_EXTENSION = "__import__('jupyter_graphbreak').answer_requests(get_ipython())"
_MAX_RUN_ERROR_LENGTH = 200
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_WIDGET_STATE = "application/vnd.jupyter.widget-state+json"


def execute(
    path: Path, kernel: str | None = None, on_cell: Callable[[int, int], None] = lambda _done, _total: None
) -> tuple[dict[str, Any], str | None]:
    """Run a notebook up to the first cell that raises without the tag ``raises-exception``; the file stays unchanged.

    The default kernel is that of the notebook's metadata. ``on_cell`` is called before each cell runs, with the number
    of cells before it and the total number of cells. Return the executed notebook and, if the run ended early, the
    reason in one line: the exception of a cell, or that the kernel died. An UnreadableNotebook is raised if the file is
    not a valid notebook, if its kernel is not installed, or if the kernel cannot explain cells.
    """
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    content = parse_notebook(path)  # the file is read only once, so that nbformat gets the content that was checked
    try:
        notebook = nbformat.reads(json.dumps(content), as_version=4)
    except Exception as error:  # noqa: BLE001 - nbformat raises arbitrary exceptions
        reason = " ".join(str(error).split())[:_MAX_RUN_ERROR_LENGTH]
        raise UnreadableNotebook(f"{path} cannot be run: {reason or type(error).__name__}") from None
    options: dict[str, Any] = {"kernel_name": kernel} if kernel is not None else {}
    folder = str(path.resolve().parent)
    client: Any = NotebookClient(notebook, timeout=None, resources={"metadata": {"path": folder}}, **options)

    def add_request_metadata(cell: Any, cell_index: int) -> None:
        on_cell(cell_index, len(notebook.cells))
        client.kc.session.metadata = {**_REQUEST_METADATA, "cellId": cell.get("id", str(cell_index))}

    client.on_cell_start = add_request_metadata
    failure = None
    try:
        with client.setup_kernel():
            _load_extension(client)
            try:
                for index, cell in enumerate(notebook.cells):
                    client.execute_cell(cell, index)
            except CellExecutionError as error:
                failure = " ".join(f"{error.ename}: {error.evalue}".split())
            except DeadKernelError:
                failure = "the kernel died"
            client.set_widgets_metadata()
    except NoSuchKernel as error:
        raise UnreadableNotebook(f"{path}: the kernel {error.name!r} is not installed") from None
    except (AttributeError, KeyError, TypeError) as error:
        validation_error = _why_invalid(notebook)
        if validation_error is None:
            raise
        raise UnreadableNotebook(f"{path} cannot be run: {validation_error}") from error
    _remove_widgets(notebook)
    executed_notebook: dict[str, Any] = notebook
    return executed_notebook, failure


def _why_invalid(notebook: Any) -> str | None:
    """Return, in one line, why a notebook is invalid; ``None`` if it is valid."""
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        return " ".join(str(error).split())[:_MAX_RUN_ERROR_LENGTH]
    return None


def _load_extension(client: Any) -> None:
    """Load the extension in the kernel, which then answers requests for reports."""
    message = client.kc.execute(_LOAD_EXTENSION, silent=True, store_history=False)
    reply = client.wait_for_reply(message)
    if reply is None or reply["content"]["status"] != "ok":
        reason = (reply or {}).get("content", {}).get("evalue", "no reply")
        raise UnreadableNotebook(f"the notebook's kernel cannot explain cells: {reason}")


def _remove_widgets(notebook: Any) -> None:
    """Remove the widgets of reports, which do not work without their kernel."""
    removed_models = set()
    for cell in notebook.cells:
        for output in cell.get("outputs") or ():
            if MIME_TYPE in output.get("data", {}):
                removed_models.add(output.data.pop(_WIDGET_VIEW, {}).get("model_id"))
    state = notebook.metadata.get("widgets", {}).get(_WIDGET_STATE, {}).get("state", {})
    for model in removed_models:
        state.pop(model, None)

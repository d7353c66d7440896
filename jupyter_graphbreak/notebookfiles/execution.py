"""Run a notebook in a new kernel with every cell explained, like "Explain all" in JupyterLab."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import nbformat

from jupyter_graphbreak.notebookfiles.reading import UnreadableNotebook, read_cells
from jupyter_graphbreak.report.schema import MIME_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: The metadata that JupyterLab adds to its requests.
_REQUEST_METADATA = {"graphbreak": {"explain": "", "only_torch": True}}
_LOAD = "__import__('jupyter_graphbreak').answer_requests(get_ipython())"
_MAX_ERROR_LENGTH = 200
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_WIDGET_STATE = "application/vnd.jupyter.widget-state+json"


def execute(
    path: Path, kernel: str | None = None, on_cell: Callable[[int, int], None] = lambda _done, _all: None
) -> tuple[dict[str, Any], str | None]:
    """Run a notebook, up to the first cell that raises; the file stays unchanged.

    Parameters
    ----------
    path : Path
    kernel : str or None
        The name of the kernel; ``None`` uses the kernel that the notebook names.
    on_cell : callable
        Called before each cell with the number of cells before it and the total number of cells.

    Returns
    -------
    notebook : dict
        The executed notebook.
    failure : str or None
        The exception of a cell in one line.

    Raises
    ------
    UnreadableNotebook
        If the file is not a notebook, or if no kernel can run it.
    """
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    content = read_cells(path)  # read only once, so that nbformat gets exactly the content that was checked
    try:
        notebook = nbformat.reads(json.dumps(content), as_version=4)
    except Exception as error:  # noqa: BLE001 - nbformat raises arbitrary exceptions
        why = " ".join(str(error).split())[:_MAX_ERROR_LENGTH]
        raise UnreadableNotebook(f"{path}: the notebook cannot be run: {why or type(error).__name__}") from None
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
    _remove_widgets(notebook)
    executed: dict[str, Any] = notebook
    return executed, failure


def _load_extension(client: Any) -> None:
    """Load the extension in the kernel, so that it answers requests for reports."""
    message = client.kc.execute(_LOAD, silent=True, store_history=False)
    reply = client.wait_for_reply(message)
    if reply is None or reply["content"]["status"] != "ok":
        why = (reply or {}).get("content", {}).get("evalue", "no reply")
        raise UnreadableNotebook(f"the notebook's kernel cannot explain cells: {why}")


def _remove_widgets(notebook: Any) -> None:
    """Remove the widgets of reports, because their kernel is gone."""
    gone = set()
    for cell in notebook.cells:
        for output in cell.get("outputs") or ():
            if MIME_TYPE in output.get("data", {}):
                gone.add(output.data.pop(_WIDGET_VIEW, {}).get("model_id"))
    state = notebook.metadata.get("widgets", {}).get(_WIDGET_STATE, {}).get("state", {})
    for model in gone:
        state.pop(model, None)

"""A separate JupyterLab with this version of the package, for browser tests and benchmarks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

from jupyter_graphbreak.results import Job, Report
from jupyter_graphbreak.views.html.bundle import mime_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

#: JupyterLab's settings. News notifications would cover the panel in the lower right corner.
_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
}

#: The configuration of pages. By default, each page makes the server check with node whether a build is needed.
_PAGE_CONFIG = {"buildCheck": False}


@dataclass
class Lab:
    """A running JupyterLab and the folder that it shows."""

    url: str
    folder: Path

    def send_request(self, path: str, method: str = "GET", data: Any = None) -> Any:
        """Send a request to the server."""
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{self.url}/{path}", body, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read()
        return json.loads(text) if text else None

    def stop_kernels(self) -> None:
        """End every kernel."""
        for session in self.send_request("api/sessions"):
            self.send_request(f"api/sessions/{session['id']}", "DELETE")

    def store_settings(self, plugin: str, settings: dict[str, Any]) -> None:
        """Store the settings of a plugin, which a page reads when it is loaded."""
        self.send_request(f"lab/api/settings/{plugin}", "PUT", {"raw": json.dumps(settings)})

    def save(self, name: str, *cells: Any) -> None:
        """Write a notebook.

        Parameters
        ----------
        name : str
            The name of the file, without ``.ipynb``.
        *cells : str or Report or NotebookNode
            The cells: each is the code of a cell, a report (for a cell with the report's code and the report as its
            output), or a complete cell.
        """
        notebook = nbformat.v4.new_notebook(
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        )
        for execution_count, cell in enumerate(cells, start=1):
            if isinstance(cell, str):
                notebook.cells.append(nbformat.v4.new_code_cell(cell))
            elif isinstance(cell, Report):
                notebook.cells.append(report_cell(cell, execution_count))
            else:
                notebook.cells.append(cell)
        nbformat.write(notebook, self.folder / f"{name}.ipynb")


def report_cell(report: Report, execution_count: int = 1) -> Any:
    """Return a cell with a report in its output, whose widget belonged to a kernel that has ended."""
    cell_source = next(source for source in report.sources if source.kind == "cell")
    view = {"version_major": 2, "version_minor": 0, "model_id": "0" * 32}
    bundle = mime_bundle(report, None) | {"application/vnd.jupyter.widget-view+json": view}
    return _cell_with_output(cell_source.segments[0].text, bundle, execution_count)


def job_cell(job: Job, execution_count: int = 1) -> Any:
    """Return a cell whose output is a job, as after a run with ``--processes``."""
    bundle = mime_bundle(Report.of(job.processes[0].report), None) | job._repr_mimebundle_()
    return _cell_with_output("%%compile_explain --processes\nstart()", bundle, execution_count)


def _cell_with_output(source: str, bundle: dict[str, Any], execution_count: int) -> Any:
    output = nbformat.v4.new_output("display_data", bundle)
    return nbformat.v4.new_code_cell(source, execution_count=execution_count, outputs=[output])


@contextmanager
def jupyterlab(home: Path) -> Iterator[Lab]:
    """Run JupyterLab, with the Python that the environment variable ``LAB_PYTHON`` names if it is set.

    Parameters
    ----------
    home : Path
        An empty folder for JupyterLab's files.
    """
    folder = home / "work"
    folder.mkdir()
    (home / "settings").mkdir()
    (home / "settings" / "overrides.json").write_text(json.dumps(_SETTINGS))
    (home / "settings" / "page_config.json").write_text(json.dumps(_PAGE_CONFIG))
    extensions = home / "share" / "labextensions"
    extensions.mkdir(parents=True)
    (extensions / "jupyter-graphbreak").symlink_to(ROOT / "jupyter_graphbreak" / "labextension")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder_variables = ["JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"]
    folder_variables += ["JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"]
    environment = {
        **os.environ,
        **{name: str(home / name.lower()) for name in folder_variables},
        # The server and its kernels use this version of the package, even if it is not installed.
        "JUPYTER_PATH": os.pathsep.join(filter(None, [str(home / "share"), os.environ.get("JUPYTER_PATH")])),
        "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
    }
    python = os.environ.get("LAB_PYTHON", sys.executable)
    command = [python, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.password="]
    command += ["--ServerApp.disable_check_xsrf=True", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True"]
    command += [f"--LabServerApp.app_settings_dir={home / 'settings'}"]
    log = (home / "log").open("w")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    lab = Lab(f"http://127.0.0.1:{port}", folder)
    try:
        for _ in range(120):
            try:
                lab.send_request("api/status")
                break
            except (urllib.error.URLError, ConnectionError):
                if server.poll() is not None:
                    raise RuntimeError((home / "log").read_text()) from None
                time.sleep(0.5)
        else:
            raise RuntimeError((home / "log").read_text())
        yield lab
        lab.stop_kernels()
    finally:
        server.terminate()
        server.wait(20)
        log.close()

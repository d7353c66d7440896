"""Execute the demo notebook, print its reports as text and write everything to one page that needs no network."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter
from traitlets.config import Config

from jupyter_graphbreak.report.schema import MIME_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nbformat import NotebookNode

#: nbconvert's page without the scripts that it would load from elsewhere; our reports need none.
TEMPLATE = """
{%- extends 'index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
"""


def execute(notebook: NotebookNode) -> None:
    """Run the notebook's cells in a kernel of the running Python, without the user's configuration."""
    with tempfile.TemporaryDirectory() as folder:
        for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            os.environ[variable] = str(Path(folder) / variable)
        os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
        os.environ.pop("JUPYTER_PATH", None)
        os.environ["HF_HUB_OFFLINE"] = "1"
        NotebookClient(
            notebook,
            kernel_name="python3",
            # Without this, the kernel warns that its connection is not encrypted; it stays on this machine.
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
            timeout=600,
        ).execute()


def reports(notebook: NotebookNode) -> Iterator[str]:
    """Yield the text of each report that the notebook's outputs carry."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if MIME_TYPE in output.get("data", {}):
                yield output.data["text/plain"]


class _AddressCollector(HTMLParser):
    """Collects the addresses that a browser would load to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        loading_attributes = {"href"} if tag == "link" else {"src", "srcset", "data", "poster"}
        self.addresses += [value for name, value in attrs if name in loading_attributes and value]

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "style":
            self.addresses += re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", data)


def external_addresses(page: str) -> list[str]:
    """Return the addresses that a page loads from the network."""
    parser = _AddressCollector()
    parser.feed(page)
    return [address for address in parser.addresses if re.match(r"(https?:)?//", address)]


def make_page(notebook: NotebookNode) -> str:
    """Return the notebook as one page that needs no other file."""
    exporter = HTMLExporter(
        raw_template=TEMPLATE,
        template_name="lab",
        # The widget is left out: it repeats the HTML and adds a script.
        config=Config({"NbConvertBase": {"display_data_priority": ["text/html", "image/png", "text/plain"]}}),
    )
    page: str
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": "jupyter_graphbreak demo"}})
    return page


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write demo.html and demo.ipynb")
    folder: Path = parser.parse_args().folder

    notebook = jupytext.read(Path(__file__).with_name("demo.md"))
    failure = None
    try:
        execute(notebook)
    except CellExecutionError as error:
        failure = str(error)
    texts = list(reports(notebook))
    print("\n\n".join(texts))
    page = make_page(notebook)
    if failure is None and len(texts) != sum("%%compile_explain" in cell.source for cell in notebook.cells):
        failure = f"not every cell that asked for a report has one: {len(texts)} reports"
    if failure is None and (addresses := external_addresses(page)):
        failure = f"the page is not self-contained: {addresses}"
    if failure:
        print(failure, file=sys.stderr)
        return 1

    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder / "demo.ipynb")
    (folder / "demo.html").write_text(page, encoding="utf-8")
    print(f"\n{folder / 'demo.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

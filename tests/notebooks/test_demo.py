"""The demo of the README, run as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.results import Report
from notebooks.run_demo import external_addresses

if TYPE_CHECKING:
    from nbformat import NotebookNode

SCRIPT = Path(__file__).parents[2] / "notebooks" / "run_demo.py"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    process = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == str(folder / "demo.html")
    (folder / "printed.txt").write_text(process.stdout, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def notebook(folder: Path) -> NotebookNode:
    notebook: NotebookNode = nbformat.read(folder / "demo.ipynb", as_version=4)
    return notebook


def report_bundles(notebook: NotebookNode) -> list[dict[str, Any]]:
    """Return the MIME bundle of each output with a report."""
    bundles = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    return [data for data in bundles if MIME_TYPE in data]


def text_of(html: str) -> str:
    """Return the text of HTML without its tags, because nbconvert rewrites them."""
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_the_small_function_breaks_at_its_branch_and_at_its_print(notebook: NotebookNode) -> None:
    report = Report.from_dict(report_bundles(notebook)[0][MIME_TYPE])
    assert [b.location.code for b in report.breaks if b.location] == ["score > 3", 'print("mean:", y.mean())']


def test_six_events_of_the_model_fold_into_two_breaks_in_its_source(notebook: NotebookNode) -> None:
    report = Report.from_dict(report_bundles(notebook)[1][MIME_TYPE])
    names = {source.id: source.name for source in report.sources}
    assert [names[b.location.source] for b in report.breaks if b.location] == [
        "modeling_bart.py",
        "output_capturing.py",
    ]
    assert (report.summary.breaks, report.summary.events) == (2, 6)


def test_each_report_is_printed_as_text(folder: Path, notebook: NotebookNode) -> None:
    printed_text = (folder / "printed.txt").read_text(encoding="utf-8")
    for data in report_bundles(notebook):
        assert data["text/plain"] in printed_text


def test_the_page_shows_each_report_and_loads_nothing(folder: Path, notebook: NotebookNode) -> None:
    page = (folder / "demo.html").read_text(encoding="utf-8")
    assert external_addresses(page) == []
    for data in report_bundles(notebook):
        assert text_of(data["text/html"]) in text_of(page)


def test_the_check_finds_addresses_that_a_page_would_load() -> None:
    page = """
    <link href="https://a.test/a.css"><script src="//b.test/b.js"></script><img src="data:image/png;base64,AA">
    <style>@import "https://c.test/c.css"; p { background: url(https://d.test/d.png) }</style>
    <a href="https://e.test/">a link is not loaded</a>
    """
    assert external_addresses(page) == [
        "https://a.test/a.css",
        "//b.test/b.js",
        "https://c.test/c.css",
        "https://d.test/d.png",
    ]

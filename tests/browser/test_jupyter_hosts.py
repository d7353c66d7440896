"""Reports in Jupyter Notebook, and a documentation page opened as a notebook."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.pages import start_command, wait_for_kernel, wait_for_notebook
from tests.browser.test_marks import DEFINING_CELL, STEP, activate_cell, broken_marks, cell, explain
from tests.browser.test_panel import row, rows, show_panel, wait_for_line
from tests.support.sample_reports import hostile_report, two_breaks

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab

    Open = Callable[..., PageUnderTest]

#: Errors that Notebook 7.6 itself raises, because its notebook page has no file browser.
NOTEBOOK_ERRORS = {
    "Cannot read properties of undefined (reading 'schema')",
    "Command 'filebrowser:open-path' not registered.",
}

PAGE = Path(__file__).parents[2] / "notebooks" / "quickstart.md"


def test_panel_and_marks_work_in_jupyter_notebook(open_page: Open, lab: Lab) -> None:
    pytest.importorskip("notebook")
    lab.save("seven", DEFINING_CELL, STEP, hostile_report(), two_breaks())
    tested_page = open_page(f"{lab.url}/notebooks/seven.ipynb")
    page = tested_page.page
    wait_for_notebook(page)
    show_panel(page)
    expect(rows(page, 1).last).to_contain_text("2 breaks. Fix break 1 first")
    row(page, "^Break 2, log_stats").click()
    wait_for_line(page, 3, 5)
    tested_page.save_screenshot("panel-notebook7")
    assert tested_page.serious_violations(".jp-GraphBreakPanel") == []
    page.keyboard.press("F8")
    expect(row(page, "^Break 1, score > 3")).to_have_attribute("aria-selected", "true")

    wait_for_kernel(page)
    for index in (0, 1):
        activate_cell(page, index)
        explain(page)
    expect(broken_marks(cell(page, 1))).to_have_count(1, timeout=60_000)
    expect(broken_marks(cell(page, 0))).to_have_count(1)
    # Jupyter Notebook handles its shortcuts before the report receives a key.
    report = page.locator(".graphbreak.gb-live").last
    for element in (report.get_by_role("tab", name="Graphs"), report.locator(".gb-break summary").first):
        element.focus()
        for key in ("b", "x", "a"):
            page.keyboard.press(key)
        assert page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length") == 4
    tested_page.save_screenshot("marks-notebook7")
    cell_id = page.evaluate("jupyterapp.shell.currentWidget.content.widgets[2].model.id")
    start_command(page, "jupyter-graphbreak:open-source", cellId=cell_id, source="s2", line=5)
    expect(page.locator(".jp-GraphBreakSource .cm-line").first).to_be_visible()
    tested_page.save_screenshot("marks-notebook7-source")
    assert {error.splitlines()[0] for error in tested_page.errors} <= NOTEBOOK_ERRORS
    assert tested_page.complaints == []


@pytest.mark.exhaustive
def test_jupyter_notebook_shows_saved_reports(open_page: Open, lab: Lab) -> None:
    pytest.importorskip("notebook")
    show = "%load_ext jupyter_graphbreak\nfrom jupyter_graphbreak import Report\nfrom pathlib import Path"
    (lab.folder / "two.json").write_bytes(two_breaks().to_json())
    code = [
        nbformat.v4.new_code_cell(show),
        nbformat.v4.new_code_cell("Report.from_json(Path('two.json').read_bytes())"),
    ]
    notebook = nbformat.v4.new_notebook(
        cells=code, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    nbformat.write(notebook, lab.folder / "notebook7.ipynb")
    tested_page = open_page(f"{lab.url}/notebooks/notebook7.ipynb")
    page = tested_page.page
    page.wait_for_function(
        "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'", timeout=60_000
    )
    page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
    report = page.locator(".graphbreak.gb-live")
    expect(report).to_have_count(1, timeout=30_000)
    report.get_by_role("tab", name="Breaks").focus()
    page.keyboard.press("n")
    expect(report.locator(".gb-line[id].gb-broken.gb-related")).to_have_count(1)
    tested_page.save_screenshot("notebook7")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_documentation_page_opens_as_a_notebook_in_jupyterlab(open_page: Open, lab: Lab) -> None:
    shutil.copy(PAGE, lab.folder)
    page = open_page(f"{lab.url}/lab?reset").page
    page.wait_for_function("window.jupyterapp !== undefined")
    page.evaluate("window.jupyterapp.restored")
    # As with "Open With > Notebook" in the file menu.
    page.evaluate(
        "path => window.jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'})", PAGE.name
    )
    page.wait_for_function("window.jupyterapp?.shell.currentWidget?.content?.widgets?.length > 3", timeout=60_000)
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    expect(page.locator(".jp-Notebook .graphbreak.gb-live")).to_have_count(4, timeout=90_000)
    expect(page.locator(".jp-Notebook .gb-verdict").first).to_contain_text("1 break, line 8 in shorten")
    lab.stop_kernels()

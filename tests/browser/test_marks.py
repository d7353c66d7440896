"""Marks in cells, the commands that explain cells without changing them, and the library sources that open."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.pages import open_in_lab, start_command, switch_theme, wait_for_kernel
from tests.browser.test_panel import panel, row, show_panel
from tests.support.sample_reports import HOSTILE, hostile_report, two_breaks

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab

    Open = Callable[..., PageUnderTest]

DEFINING_CELL = """\
import torch
def shift(x):
    print("shift")
    return x - 1"""

STEP = """\
@torch.compile(backend="eager")
def step(x):
    y = x * 2
    if y.sum() > 3:
        y = shift(y)
    return torch.relu(y)
step(torch.ones(4))"""


def explain(page: Page, target: str = "cell") -> None:
    start_command(page, f"jupyter-graphbreak:explain-{target}")


def cell(page: Page, index: int) -> Locator:
    return page.locator(f".jp-Notebook .jp-Cell[data-windowed-list-index='{index}']")


def activate_cell(page: Page, index: int) -> None:
    page.evaluate("at => { jupyterapp.shell.currentWidget.content.activeCellIndex = at; }", index)


def line(within: Locator, text: str) -> Locator:
    return within.locator(".cm-line", has_text=text)


def lines_with_class(within: Locator, name: str) -> list[int]:
    """Return the numbers of the lines that have a class."""
    numbers: list[int] = within.locator(".cm-line").evaluate_all(
        "(lines, name) => lines.flatMap((line, at) => line.classList.contains(name) ? [at + 1] : [])", name
    )
    return numbers


def broken_marks(within: Locator) -> Locator:
    return within.locator(".jp-GraphBreakMark.jp-mod-broken")


def stale_marks(within: Locator) -> Locator:
    return within.locator(".jp-GraphBreakMark.jp-mod-stale")


def cell_sources(page: Page) -> list[str]:
    sources: list[str] = page.evaluate(
        "() => Array.from(jupyterapp.shell.currentWidget.content.model.cells, cell => cell.sharedModel.getSource())"
    )
    return sources


def expect_warning(page: Page, message: str) -> None:
    """Wait for a notification with a message. An earlier test may have caused the same one."""
    start_command(page, "apputils:display-notifications")
    expect(page.locator(".jp-Notification-List-Item", has_text=message).first).to_be_visible(timeout=30_000)
    page.get_by_title("Hide notifications").click()


def right_edge(element: Locator) -> float:
    edge: float = element.evaluate("element => element.getBoundingClientRect().right")
    return edge


#: JavaScript that records announcements, because CodeMirror removes each of them after a moment.
RECORD_ANNOUNCEMENTS = """element => {
    window.announced = [];
    const note = () => window.announced.push(element.textContent);
    new MutationObserver(note).observe(element, { childList: true, subtree: true, characterData: true });
}"""


def test_cells_are_explained_without_changes(open_page: Open, lab: Lab) -> None:
    """Explain all cells, one of which fails; then run a cell without explaining it, and explain it again."""
    lab.save("marks", DEFINING_CELL, STEP, "1 / 0\n", "later = True")
    tested_page = open_in_lab(open_page, lab, "marks", kernel=True)
    page = tested_page.page
    wait_for_kernel(page)
    explain(page, "all")
    step = cell(page, 1)
    expect(broken_marks(step)).to_have_count(1, timeout=60_000)
    # A function is marked in the cell that defines it. Cells that only define functions or fail have no report.
    expect(broken_marks(cell(page, 0))).to_have_count(1)
    expect(page.locator(".graphbreak")).to_have_count(1)
    assert cell_sources(page) == [DEFINING_CELL, STEP, "1 / 0\n", "later = True"]
    expect(page.get_by_text("ZeroDivisionError").first).to_be_visible()
    expect(cell(page, 3).locator(".jp-InputPrompt")).to_have_text("[ ]:")
    assert lines_with_class(step, "jp-mod-broken") == [4]
    assert lines_with_class(cell(page, 0), "jp-mod-broken") == [3]
    expect(step.locator(".jp-GraphBreakMark-cut")).to_have_text("y.sum() > 3")
    expect(step.locator(".jp-GraphBreakMark-note", has_text="✂1 Branch on a tensor's value")).to_be_visible()
    expect(stale_marks(page.locator(".jp-Notebook"))).to_have_count(0)
    tested_page.save_screenshot("marks-light")

    activate_cell(page, 1)
    start_command(page, "notebook:run-cell")
    expect(stale_marks(step)).not_to_have_count(0, timeout=30_000)
    assert lines_with_class(step, "jp-mod-stale") == lines_with_class(step, "jp-GraphBreakMark")
    tested_page.save_screenshot("marks-stale")
    explain(page)
    expect(stale_marks(page.locator(".jp-Notebook"))).to_have_count(0, timeout=30_000)
    expect(broken_marks(step)).to_have_count(1)
    # The marks appear before the kernel's reply, which would restore the number of a cleared cell.
    expect(step.locator(".jp-InputPrompt")).to_have_text(re.compile(r"\d"))
    start_command(page, "notebook:clear-cell-output")
    for index in (0, 1):
        expect(cell(page, index).locator(".jp-GraphBreakMark, .jp-GraphBreakMark-gutter")).to_have_count(0)
    assert tested_page.errors == []


@pytest.mark.exhaustive
def test_marks_follow_edits(open_page: Open, lab: Lab) -> None:
    lab.save("edit", two_breaks(), "x = 1")
    tested_page = open_in_lab(open_page, lab, "edit")
    page = tested_page.page
    editor_cell = cell(page, 0)
    expect(broken_marks(editor_cell)).to_have_count(2)
    expect(cell(page, 1).locator(".jp-GraphBreakMark-gutter")).to_have_count(0)
    assert lines_with_class(editor_cell, "jp-mod-forbidden") == [8, 9, 10, 11, 12, 16]
    tested_page.save_screenshot("marks-scopes")

    editor_cell.locator(".cm-line").first.click()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert lines_with_class(editor_cell, "jp-mod-broken") == [6, 15]
    expect(stale_marks(editor_cell)).to_have_count(0)
    line(editor_cell, "if score > 3").click()
    page.keyboard.press("End")
    page.keyboard.type("  # why")
    assert lines_with_class(editor_cell, "jp-mod-stale") == [15]
    expect(editor_cell.locator(".jp-GraphBreakMark-cut")).to_have_text("log_stats(x)")
    tested_page.save_screenshot("marks-edited")
    for _ in "  # why":
        page.keyboard.press("Backspace")
    expect(stale_marks(editor_cell)).to_have_count(0)

    start_command(page, "jupyter-graphbreak:toggle-marks")
    expect(page.locator(".jp-GraphBreakMark, .jp-GraphBreakMark-gutter")).to_have_count(0)
    start_command(page, "jupyter-graphbreak:toggle-marks")
    expect(broken_marks(editor_cell)).to_have_count(2)

    light_colour = broken_marks(editor_cell).first.evaluate("line => getComputedStyle(line).backgroundColor")
    switch_theme(page, "JupyterLab Dark")
    assert broken_marks(editor_cell).first.evaluate("line => getComputedStyle(line).backgroundColor") != light_colour
    tested_page.save_screenshot("marks-dark")
    assert [*tested_page.errors, *tested_page.complaints] == []


def test_marks_and_panel_select_each_other(open_page: Open, lab: Lab) -> None:
    lab.save("both", *["x = 1\n" * 30] * 4, two_breaks())
    tested_page = open_in_lab(open_page, lab, "both")
    page = tested_page.page
    show_panel(page)
    row(page, "^Break 2, log_stats").click()
    editor_cell = cell(page, 4)
    selected_line = editor_cell.locator(".jp-GraphBreakMark.jp-mod-selected")
    expect(selected_line).to_have_text(re.compile(r"^ +log_stats\(x\)"))
    expect(selected_line).to_be_in_viewport(ratio=1)
    editor_cell.locator(".cm-announced").evaluate(RECORD_ANNOUNCEMENTS)
    line(editor_cell, "if score > 3").click()
    expect(row(page, "^Break 1, score > 3")).to_have_attribute("aria-selected", "true")
    page.wait_for_function("window.announced.some(text => text.startsWith('Break 1: Branch on a tensor'))")
    line(editor_cell, "y = y / score").click()
    expect(panel(page).get_by_role("treeitem", selected=True)).to_have_accessible_name(re.compile("B"))
    editor_cell.locator(".jp-GraphBreakMark-sign", has_text="✂2").click()
    expect(row(page, "^Break 2, log_stats")).to_have_attribute("aria-selected", "true")
    editor_cell.locator(".jp-GraphBreakMark-cut", has_text="score > 3").hover()
    hint = page.locator(".jp-GraphBreakMark-hint")
    expect(hint).to_contain_text("Break 1: Branch on a tensor's value (GB0170)")
    expect(hint).to_contain_text("Do: ")
    tested_page.save_screenshot("marks-hint")
    page.mouse.move(1, 1)
    expect(hint).to_have_count(0)
    # Even near the edge, the tooltip does not cover the panel.
    page.set_viewport_size({"width": 840, "height": 800})
    editor_cell.locator(".jp-GraphBreakMark-note", has_text="Branch on").hover()
    expect(hint).to_contain_text("Break 1: Branch on a tensor's value (GB0170)")
    edges = [right_edge(hint), right_edge(page.locator(".jp-WindowedPanel-outer"))]
    assert edges == sorted(edges)
    assert [*tested_page.errors, *tested_page.complaints] == []


def test_a_librarys_source_opens_read_only(open_page: Open, lab: Lab) -> None:
    """The lines that are in the report have their original numbers, and hostile text is never markup."""
    lab.save("library", hostile_report())
    tested_page = open_in_lab(open_page, lab, "library")
    page = tested_page.page
    expect(broken_marks(cell(page, 0))).to_have_count(1)
    cell(page, 0).locator(".jp-GraphBreakMark-cut").first.hover()
    expect(page.locator(".jp-GraphBreakMark-hint")).to_contain_text(HOSTILE)
    cell_id = page.evaluate("jupyterapp.shell.currentWidget.content.widgets[0].model.id")
    start_command(page, "jupyter-graphbreak:open-source", cellId=cell_id, source="s2", line=5)
    view = page.locator(".jp-GraphBreakSource")
    expect(view.locator(".cm-line")).to_have_count(3)
    expect(view.locator(".cm-lineNumbers .cm-gutterElement", has_text="6")).to_be_visible()
    expect(view.locator(".jp-GraphBreakSource-gap")).to_have_text("3 lines that are not in the report")
    assert view.locator(".cm-content").get_attribute("aria-readonly") == "true"
    tested_page.save_screenshot("marks-source")
    assert page.evaluate("window.hacked") is None
    assert page.locator(":is(.jp-GraphBreakSource, .cm-editor) :is(img:not(.cm-widgetBuffer), script)").count() == 0
    start_command(page, "jupyter-graphbreak:open-source", cellId=cell_id, source="s2", line=5)
    expect(page.locator(".lm-TabBar-tab", has_text=HOSTILE[:8])).to_have_count(1)
    start_command(page, "jupyter-graphbreak:open-source", cellId=cell_id, source="none", line=5)
    expect_warning(page, "The report of this source no longer exists.")
    view.locator(".cm-content").focus()
    page.keyboard.press("F8")
    expect(cell(page, 0).locator(".cm-content")).to_be_focused()
    assert [*tested_page.errors, *tested_page.complaints] == []


@pytest.fixture
def kernel_without_the_package(lab: Lab) -> str:
    """Install a kernel in which the package cannot be imported, and return the kernel's name."""
    folder = lab.folder.parent / "share" / "kernels" / "bare"
    folder.mkdir(parents=True)
    package_folder = lab.folder.parent / "blocked"
    (package_folder / "jupyter_graphbreak").mkdir(parents=True)
    (package_folder / "jupyter_graphbreak" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'jupyter_graphbreak'\", name='jupyter_graphbreak')"
    )
    kernel = {
        "argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Bare",
        "language": "python",
        "env": {"PYTHONPATH": str(package_folder)},
    }
    (folder / "kernel.json").write_text(json.dumps(kernel))
    return "bare"


def test_a_cell_that_cannot_be_explained_is_not_run(open_page: Open, lab: Lab, kernel_without_the_package: str) -> None:
    lab.save("bare", "ran = 1", "%%bash\necho hi")
    tested_page = open_in_lab(open_page, lab, "bare")
    page = tested_page.page
    page.evaluate(
        "name => jupyterapp.shell.currentWidget.sessionContext.changeKernel({ name })", kernel_without_the_package
    )
    wait_for_kernel(page)
    explain(page)
    expect_warning(page, 'The kernel "bare" does not have jupyter-graphbreak: run pip install')
    expect(cell(page, 0).locator(".jp-InputPrompt")).to_have_text("[ ]:")
    assert tested_page.errors == []

"""The side panel in JupyterLab and Notebook 7."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from playwright.sync_api import expect

from jupyter_graphbreak.report.schema import MIME_TYPE
from tests.browser.pages import (
    NOTEBOOK_PLUGIN,
    open_in_lab,
    run_all,
    start_command,
    switch_theme,
    wait_for_kernel,
    wait_for_notebook,
)
from tests.support.lab_server import report_cell
from tests.support.sample_reports import HOSTILE, failed_run, hostile_report, no_breaks, remedies, two_breaks

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab

    Open = Callable[..., PageUnderTest]

CELL = """\
%%compile_explain
import torch
@torch.compile(backend="eager")
def step(x):
    y = x * 2
    print("mean")
    return torch.relu(y)
step(torch.ones(4))"""


#: JupyterLab 4.4's own errors after a cell was deleted: its table of contents still asks for the cell's outputs.
LAB_ERRORS = {"Cannot read properties of null (reading 'widgets')"}


def panel(page: Page) -> Locator:
    return page.get_by_role("region", name="Graph Breaks")


def rows(page: Page, level: int | None = None) -> Locator:
    items = panel(page).get_by_role("treeitem")
    return items if level is None else items.and_(page.locator(f"[aria-level='{level}']"))


def row(page: Page, name: str) -> Locator:
    return panel(page).get_by_role("treeitem", name=re.compile(name)).first


def show_panel(page: Page) -> None:
    start_command(page, "jupyter-graphbreak:show-panel")
    expect(panel(page)).to_be_visible()


def tab(page: Page) -> Locator:
    return page.locator(".lm-TabBar-tab[data-id='jupyter-graphbreak-panel']")


def show_notebook(page: Page, name: str) -> None:
    page.evaluate("path => void jupyterapp.commands.execute('docmanager:open', {path})", f"{name}.ipynb")
    page.wait_for_function(
        "path => jupyterapp.shell.currentWidget?.context?.path === path"
        " && jupyterapp.shell.currentWidget.context.isReady",
        arg=f"{name}.ipynb",
    )


def wait_for_line(page: Page, cell: int, line: int) -> None:
    """Wait until a cell is active and its cursor is on a line."""
    page.wait_for_function(
        "([cell, line]) => { const { activeCell, activeCellIndex } = jupyterapp.shell.currentWidget.content;"
        " return activeCellIndex === cell && activeCell.editor?.getCursorPosition().line === line - 1; }",
        arg=[cell, line],
    )


def edit_notebook(page: Page, script: str) -> None:
    """Run JavaScript that changes the current notebook. The variable `notebook` is its shared model."""
    page.evaluate(f"() => {{ const notebook = jupyterapp.shell.currentWidget.model.sharedModel; {script} }}")


@pytest.mark.exhaustive
def test_the_panel_follows_three_notebooks_and_their_cells(open_page: Open, lab: Lab) -> None:
    lab.save("first", "%load_ext jupyter_graphbreak", two_breaks(), failed_run(), "x = 1")
    lab.save("second", no_breaks())
    lab.save("third", "x = 1")
    tested_page = open_in_lab(open_page, lab, "first", is_fresh=True)
    page = tested_page.page
    show_panel(page)
    runs = rows(page, 1)
    expect(runs).to_have_count(2)
    expect(runs.nth(0)).to_contain_text(
        "2 breaks. Fix break 1 first: it adds 1 graph. Do: Make it branchless: torch.where("
    )
    expect(runs.nth(1)).to_contain_text(
        "Break 1 ended the run: torch._dynamo.graph_break(), line 5 in f. Do: Remove the"
    )
    reason = r"Branch on a tensor's value \(GB0170\)"
    expect(row(page, rf"^Break 1, score > 3, {reason} · line 14 · resumes at 15 \(B\) · in step$")).to_be_visible()
    expect(tab(page)).to_contain_text("3")
    assert tested_page.serious_violations(".jp-GraphBreakPanel") == []
    tested_page.save_screenshot("panel-light")

    show_notebook(page, "second")
    expect(runs).to_have_count(1)
    expect(runs).to_contain_text("No breaks: one graph.")
    expect(tab(page)).to_have_text("")
    show_notebook(page, "third")
    expect(panel(page).get_by_text("No reports yet")).to_be_visible()
    expect(panel(page).get_by_text("%%compile_explain")).to_be_visible()
    assert tested_page.serious_violations(".jp-GraphBreakPanel") == []
    tested_page.save_screenshot("panel-empty")
    show_notebook(page, "first")
    expect(runs).to_have_count(2)

    # The panel follows when cells are moved, edited, cleared and deleted.
    edit_notebook(page, "notebook.moveCell(2, 1);")
    expect(runs.nth(0)).to_contain_text("ended the run")
    edit_notebook(page, "notebook.cells[2].updateSource(0, 0, '# new\\n');")
    expect(runs.nth(1)).to_contain_text("Edited after this run")
    edit_notebook(page, "notebook.cells[2].updateSource(0, 6, '');")
    expect(runs.nth(1)).not_to_contain_text("Edited after this run")
    page.evaluate("jupyterapp.shell.currentWidget.content.widgets[1].model.clearExecution()")
    expect(runs).to_have_count(1)
    expect(tab(page)).to_contain_text("2")

    # A second view of the same notebook has the same reports. It is the one that scrolls.
    start_command(page, "docmanager:clone")
    page.wait_for_function("document.querySelectorAll('.jp-NotebookPanel:not(.lm-mod-hidden)').length === 2")
    expect(runs).to_have_count(1)
    row(page, "^Break 1").click()
    page.wait_for_function("jupyterapp.shell.currentWidget.content.activeCellIndex === 2")
    edit_notebook(page, "notebook.deleteCell(2);")
    expect(panel(page).get_by_text("No reports yet")).to_be_visible()
    assert {error.partition("\n")[0] for error in [*tested_page.errors, *tested_page.complaints]} <= LAB_ERRORS


@pytest.mark.exhaustive
def test_the_panel_is_restored_after_a_reload_and_readable_in_the_dark_theme(open_page: Open, lab: Lab) -> None:
    lab.save("reload", two_breaks(), failed_run())
    tested_page = open_in_lab(open_page, lab, "reload", is_fresh=True)
    page = tested_page.page
    show_panel(page)
    expect(rows(page, 1)).to_have_count(2)
    light_colour = page.evaluate("getComputedStyle(document.querySelector('.jp-GraphBreakPanel')).backgroundColor")
    switch_theme(page, "JupyterLab Dark")
    page.evaluate("jupyterapp.restored")
    # The layout is saved with a delay.
    with page.expect_response(re.compile("/lab/api/workspaces/")):
        page.evaluate("jupyterapp.shell.collapseLeft()")
    page.reload()
    wait_for_notebook(page)
    expect(rows(page, 1)).to_have_count(2)
    for name in ("Graphs", "Eager", "Scopes", "Recompiled functions", "Notes"):
        row(page, f"^{name}, ").click()
    tested_page.save_screenshot("panel-dark")
    dark_colour = page.evaluate("getComputedStyle(document.querySelector('.jp-GraphBreakPanel')).backgroundColor")
    assert dark_colour != light_colour
    assert tested_page.serious_violations(".jp-GraphBreakPanel") == []
    switch_theme(page, "JupyterLab Light")
    assert tested_page.serious_violations(".jp-GraphBreakPanel") == []
    assert [*tested_page.errors, *tested_page.complaints] == []


def test_the_panel_is_usable_with_the_keyboard(open_page: Open, lab: Lab) -> None:
    lab.save("keys", "x = 1", two_breaks(), failed_run())
    tested_page = open_in_lab(open_page, lab, "keys")
    page = tested_page.page
    keys = page.keyboard
    keys.press("Alt+g")
    expect(rows(page).first).to_be_focused()
    keys.press("End")
    expect(rows(page).last).to_be_focused()
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    expect(row(page, "did not compile again")).to_be_focused()
    keys.press("ArrowLeft")
    expect(row(page, "^Notes")).to_be_focused()
    keys.press("Home")
    keys.press("ArrowLeft")
    expect(rows(page).first).to_have_attribute("aria-expanded", "false")
    expect(row(page, "^Break 1, score > 3")).to_have_count(0)
    keys.press("ArrowRight")
    keys.press("ArrowDown")
    expect(row(page, "^Break 1, score > 3")).to_be_focused()

    # Typing filters; Escape first clears the filter and then leaves it.
    keys.type("score")
    filter_box = panel(page).get_by_role("searchbox", name="Filter by text")
    expect(filter_box).to_be_focused()
    expect(panel(page).get_by_role("status")).to_have_text("1 found")
    expect(rows(page)).to_have_count(2)
    tree_box = panel(page).get_by_role("tree").bounding_box()
    assert tree_box is not None
    page.mouse.click(tree_box["x"] + tree_box["width"] / 2, tree_box["y"] + tree_box["height"] - 5)
    expect(row(page, "^Break 1, score > 3")).to_be_focused()
    keys.type("y")
    expect(panel(page).get_by_role("status")).to_have_text("Nothing matches")
    keys.press("Escape")
    expect(filter_box).to_have_value("")
    keys.press("ArrowDown")
    expect(row(page, "^Break 1, score > 3")).to_be_focused()

    # Space shows the line, Enter moves the focus there.
    keys.press("Space")
    expect(row(page, "^Break 1, score > 3")).to_have_attribute("aria-selected", "true")
    expect(row(page, "^Break 1, score > 3")).to_be_focused()
    wait_for_line(page, 1, 14)
    keys.press("Enter")
    page.wait_for_function("document.activeElement.matches('.cm-content')")
    keys.press("F8")
    expect(row(page, "^Break 1, torch")).to_have_attribute("aria-selected", "true")
    page.wait_for_function("jupyterapp.shell.currentWidget.content.activeCellIndex === 2")
    keys.press("F8")
    page.wait_for_function("jupyterapp.shell.currentWidget.content.activeCellIndex === 1")
    keys.press("Shift+F8")
    page.wait_for_function("jupyterapp.shell.currentWidget.content.activeCellIndex === 2")
    assert tested_page.errors == []


def test_the_panel_keeps_the_focus(open_page: Open, lab: Lab) -> None:
    """A notebook may be activated after the panel was shown, and the report with the focus may be deleted."""
    lab.save("focus", "x = 1", failed_run())
    tested_page = open_in_lab(open_page, lab, "focus")
    page = tested_page.page
    page.evaluate(
        "jupyterapp.commands.execute('jupyter-graphbreak:show-panel')"
        ".then(() => jupyterapp.shell.currentWidget.content.activate())"
    )
    expect(rows(page).first).to_be_focused()
    edit_notebook(page, "notebook.deleteCell(1);")
    expect(panel(page).get_by_role("button", name="Explain the active cell")).to_be_focused()
    assert {error.partition("\n")[0] for error in tested_page.errors} <= LAB_ERRORS


@pytest.mark.exhaustive
def test_sections_can_be_hidden_and_sorted(open_page: Open, lab: Lab) -> None:
    lab.save("kinds", two_breaks())
    tested_page = open_in_lab(open_page, lab, "kinds", is_fresh=True)
    page = tested_page.page
    show_panel(page)
    breaks = panel(page).get_by_role("treeitem", name=re.compile("^Break "))
    expect(breaks).to_have_count(2)
    expect(breaks.first).to_contain_text("score > 3")  # what to fix first
    sort = panel(page).get_by_role("combobox", name="Sort")
    sort.select_option("by line")
    expect(breaks.first).to_contain_text("log_stats(x)")  # line 5 before line 14
    sort.select_option("by cause")
    expect(breaks.first).to_contain_text("log_stats(x)")  # "Call to" before "Data-dependent"
    sort.select_option("by cost")
    expect(breaks.first).to_contain_text("log_stats(x)")
    expect(breaks.first).to_contain_text("0.15 s")
    row(page, "^Graphs").click()
    graphs = panel(page).get_by_role("treeitem", name=re.compile("^Graph "))
    expect(graphs.first).to_have_attribute("aria-label", re.compile("^Graph A, step, .*ends at break 1 · 0.31 s$"))
    page.wait_for_function(
        "fetch('/lab/api/settings/jupyter-graphbreak:plugin').then(a => a.json()).then(a => a.settings.sort === 'cost')"
    )
    panel(page).get_by_role("button", name="Breaks 2").click()
    expect(breaks).to_have_count(0)
    expect(panel(page).get_by_role("button", name="Breaks 2")).to_have_attribute("aria-pressed", "false")
    expect(graphs).to_have_count(4)
    # The next break is shown despite the filter.
    start_command(page, "jupyter-graphbreak:next-break")
    expect(breaks).to_have_count(2)
    start_command(page, "settingeditor:open", query="Graph Breaks")
    expect(page.get_by_text("Order in the panel")).to_be_visible()
    tested_page.save_screenshot("panel-settings")
    page.locator(".jp-SettingsPanel select").select_option("By line")
    expect(sort).to_have_value("line")
    assert [*tested_page.errors, *tested_page.complaints] == []


@pytest.mark.exhaustive
def test_a_distant_line_is_scrolled_to_in_every_rendering_mode(open_page: Open, lab: Lab) -> None:
    lab.save("long", *(f"x = {number}\n" * 8 for number in range(30)), two_breaks(), *["y = 1"] * 10, failed_run())
    setting = lab.send_request(f"lab/api/settings/{NOTEBOOK_PLUGIN}")["schema"]["properties"]["windowingMode"]
    for mode in setting.get("enum") or [option["const"] for option in setting["oneOf"]]:
        tested_page = open_in_lab(open_page, lab, "long", is_fresh=True, windowing=mode)
        page = tested_page.page
        show_panel(page)
        for name, code in (("^Break 1, score", "if score > 3:"), ("^Break 1, torch", "torch._dynamo.graph_break()")):
            row(page, name).click()
            # A note next to a line may contain the same text, so match the start of the line.
            line = page.locator(".jp-Notebook .cm-line", has_text=re.compile(rf"^\s*{re.escape(code)}")).first
            expect(line).to_be_in_viewport(ratio=0.9, timeout=20_000)
        assert tested_page.errors == []


def test_unreadable_reports_are_named_and_do_no_harm(open_page: Open, lab: Lab) -> None:
    """Open an untrusted notebook with invalid data, other versions and hostile text."""

    def cell(data: Any, mime: str = MIME_TYPE) -> Any:
        cell_with_data = report_cell(two_breaks())
        cell_with_data.outputs[0].data = {mime: data, "text/plain": "as text"}
        return cell_with_data

    good_report = two_breaks().to_dict()
    damaged_report = json.loads(json.dumps(good_report))
    damaged_report["breaks"][0]["location"]["source"] = "s99"
    damaged_report["graphs"][0]["frame"] = "gone"
    damaged_report["breaks"][1]["resumes"] = ["none such"]
    lab.save(
        "elsewhere",
        cell("{broken"),
        cell(None),
        cell(good_report | {"breaks": {"not": "a list"}}),
        cell(good_report | {"schema_version": "2.0"}),
        cell({"anything": 1}, "application/vnd.graphbreak.report.v2+json"),
        cell({"status": "ok", "device": {"requested": "auto", "used": "cpu"}, "torch": "1.13"}),
        cell(damaged_report),
        hostile_report(),
    )
    tested_page = open_in_lab(open_page, lab, "elsewhere")
    page = tested_page.page
    show_panel(page)
    runs = rows(page, 1)
    expect(runs).to_have_count(8)
    expect(runs.nth(0)).to_contain_text("This report cannot be read: it is not a JSON object.")
    expect(runs.nth(1)).to_contain_text("it is not a JSON object")
    expect(runs.nth(2)).to_contain_text('its field "breaks" is missing or invalid')
    expect(runs.nth(3)).to_contain_text("format version 2.0")
    expect(runs.nth(4)).to_contain_text("format version 2")
    # Reports of an older version have no rows.
    expect(runs.nth(5)).to_contain_text("ok")
    expect(runs.nth(6)).to_contain_text("Breaks 2 · Graphs 4")
    for part in ("^1, score > 3", "^2, log_stats"):
        row(page, part).click()
    assert HOSTILE in panel(page).inner_text()
    assert page.evaluate("window.hacked") is None
    assert panel(page).locator("img, script").count() == 0
    tested_page.save_screenshot("panel-elsewhere")
    assert tested_page.serious_violations(".jp-GraphBreakPanel") == []
    assert [*tested_page.errors, *tested_page.complaints] == []


@pytest.mark.exhaustive
def test_two_runs_are_compared(open_page: Open, lab: Lab) -> None:
    report = two_breaks()
    slower_timing = msgspec.structs.replace(report.timing, compile_s=1.58)
    earlier_report = msgspec.structs.replace(
        report, timing=slower_timing, breaks=[*failed_run().breaks, *report.breaks[1:]]
    )
    report = msgspec.structs.replace(report, changes=earlier_report.diff(report))
    lab.save("compare", report, no_breaks())
    tested_page = open_in_lab(open_page, lab, "compare", is_fresh=True)
    page = tested_page.page
    start_command(page, "jupyter-graphbreak:compare")
    expect(rows(page, 1).first).to_contain_text("Since the last run: 1 break gone, 1 new")
    figures = row(page, r"breaks 2, graphs 4, .*compiling 1\.58 s → 0\.79 s")
    expect(figures).to_be_focused()
    expect(row(page, r"torch\._dynamo\.graph_break\(\), gone")).to_be_visible()
    row(page, "score > 3, new").click()
    page.wait_for_function("jupyterapp.shell.currentWidget.content.activeCell.editor.getCursorPosition().line === 13")
    tested_page.save_screenshot("panel-compare")
    page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    start_command(page, "jupyter-graphbreak:compare")
    expect(panel(page).get_by_role("status")).to_have_text(
        "There is no earlier run of this cell in this kernel to compare with."
    )
    # Copying uses the report of the right cell.
    row(page, r"^Cell \[1\]").click(button="right")
    page.get_by_role("menuitem", name="Copy Graph Break Report").click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text.startsWith('2 breaks'))")
    assert tested_page.errors == []


@pytest.mark.exhaustive
def test_a_setting_keeps_the_panel_from_opening(open_page: Open, lab: Lab) -> None:
    lab.save("closed", "%load_ext jupyter_graphbreak", CELL)
    page = open_in_lab(open_page, lab, "closed", is_fresh=True).page
    lab.store_settings("jupyter-graphbreak:plugin", {"open": False})
    page.reload()
    wait_for_notebook(page)
    run_all(page)
    expect(page.locator(".graphbreak.gb-live")).to_have_count(1, timeout=60_000)
    page.wait_for_timeout(1500)
    expect(panel(page)).to_be_hidden()
    lab.stop_kernels()


def test_the_result_of_an_edit_is_at_the_top(open_page: Open, lab: Lab) -> None:
    report = remedies()
    remedy = report.remedies[0]  # type: ignore[index]
    own_edit = msgspec.structs.replace(remedy, family="own", title="Your edit", verdict="works")
    lab.save("own-edit", msgspec.structs.replace(report, remedies=[own_edit]), no_breaks())
    tested_page = open_in_lab(open_page, lab, "own-edit")
    page = tested_page.page
    show_panel(page)
    result = panel(page).get_by_text("Your edit: same results, removes break 1")
    expect(result).to_be_visible()
    assert result.bounding_box()["y"] < rows(page).first.bounding_box()["y"]  # type: ignore[index]
    tested_page.save_screenshot("panel-own-edit")
    assert tested_page.serious_violations(".jp-GraphBreakPanel") == []


@pytest.mark.slow
def test_the_panel_stays_correct_until_the_end_of_its_kernel(open_page: Open, lab: Lab) -> None:
    """The panel opens once, without taking the focus, and stays correct through runs, a restart and a shutdown."""
    lab.save("kernel", "%load_ext jupyter_graphbreak", "%%compile_explain\nimport torch\ntorch.ones(2) + 1", CELL)
    tested_page = open_in_lab(open_page, lab, "kernel", is_fresh=True)
    page = tested_page.page
    run_all(page)
    expect(page.locator(".graphbreak.gb-live")).to_have_count(2, timeout=60_000)
    expect(panel(page)).to_be_visible()
    last_run = rows(page, 1).last
    expect(last_run).to_contain_text("step")
    expect(last_run).to_contain_text("1 break, line ")
    expect(tab(page)).to_contain_text("1")
    assert page.evaluate("!document.activeElement.closest('.jp-GraphBreakPanel')")

    page.evaluate("jupyterapp.shell.collapseRight()")
    run_all(page)
    expect(page.locator(".jp-InputPrompt", has_text="[6]")).to_have_count(1, timeout=60_000)
    page.wait_for_timeout(1500)
    expect(panel(page)).to_be_hidden()

    show_panel(page)
    edit_notebook(
        page, "notebook.cells[2].setSource(notebook.cells[2].getSource().replace('    print(\"mean\")\\n', ''));"
    )
    run_all(page)
    expect(last_run).to_contain_text("No breaks: one graph. Since the last run: 1 break gone", timeout=60_000)

    start_command(page, "notebook:restart-kernel")
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    wait_for_kernel(page)
    expect(last_run).to_contain_text("Since the last run: 1 break gone")
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    lab.stop_kernels()
    page.wait_for_function("!jupyterapp.shell.currentWidget.sessionContext.session?.kernel")
    expect(last_run).to_contain_text("Since the last run: 1 break gone")
    assert tested_page.errors == []


def test_the_installation_is_checked_on_request(open_page: Open, lab: Lab) -> None:
    # A program that only prints its arguments stands in for Python, because compiling the probes takes seconds.
    lab.save("no-compiler", "import sys\nsys.executable = '/bin/echo'", failed_run())
    tested_page = open_in_lab(open_page, lab, "no-compiler", kernel=True)
    page = tested_page.page
    show_panel(page)
    wait_for_kernel(page)
    page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 0")
    start_command(page, "notebook:run-cell")
    expect(page.locator(".jp-Cell .jp-InputPrompt").first).to_have_text("[1]:")
    page.get_by_role("button", name="Can PyTorch compile here?").click()
    dialog = page.get_by_role("dialog").filter(has_text="Can PyTorch compile here?")
    expect(dialog.get_by_role("status")).to_have_text("-m jupyter_graphbreak doctor\n")
    assert tested_page.serious_violations(".jp-Dialog") == []
    dialog.get_by_role("button", name="Close").click()
    assert tested_page.errors == []


def test_the_extension_is_enabled_and_compatible(lab: Lab) -> None:
    extensions = lab.send_request("lab/api/extensions")
    (extension,) = [extension for extension in extensions if extension["name"] == "jupyter-graphbreak"]
    assert extension["enabled"]
    assert extension["status"] == "ok"

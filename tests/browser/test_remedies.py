"""Remedies: applied to a notebook and undone, copied, offered without trials, and on pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

from jupyter_graphbreak.report.location import Segment, Source
from jupyter_graphbreak.report.remedies import Edit
from jupyter_graphbreak.report.reproducer import Reproducer
from jupyter_graphbreak.report.schema import CompiledCall
from tests.browser.pages import open_in_lab, run_all, start_command, switch_theme, trust, wait_for_kernel
from tests.browser.test_marks import cell_sources
from tests.support.sample_reports import cost, remedies, two_breaks

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab

    Open = Callable[..., PageUnderTest]

TEXT = two_breaks().sources[0].segments[0].text
WHERE_LINE = "        y = torch.where(score > 3, y / score, y)"


def clipboard_text(page: Page) -> str:
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def open_report_in_lab(
    open_page: Open, lab: Lab, name: str, report: Any, *, kernel: bool = False
) -> tuple[PageUnderTest, Locator]:
    lab.save(name, report)
    tested_page = open_in_lab(open_page, lab, name, kernel=kernel)
    trust(tested_page.page)
    report_element = tested_page.page.locator(".graphbreak.gb-live")
    expect(report_element).to_have_count(1)
    return tested_page, report_element


def open_card(report: Locator, number: int) -> Locator:
    card = report.locator(f".gb-break[id$='-b{number}']")
    if not card.locator("> details").evaluate("details => details.open"):
        card.locator("summary").first.click()
    return card


def wait_for_changes(page: Page) -> list[str]:
    """Return the headings of the dialog of changes, and its lines with their leading signs, once it is visible."""
    expect(page.locator(".jp-GraphBreakChanges")).to_be_visible()
    script = """[...document.querySelectorAll('.jp-GraphBreakChanges > h3, .jp-GraphBreakChanges pre > span')].map(
        line => line.matches('h3') ? line.textContent
            : line.querySelector('b').textContent + line.querySelector('code').textContent)"""
    lines: list[str] = page.evaluate(script)
    return lines


def wait_for_changed_lines(page: Page) -> list[str]:
    return [line for line in wait_for_changes(page) if not line.startswith(" ")]


def confirm(page: Page) -> None:
    page.locator(".jp-Dialog").get_by_role("button", name="Apply").click()


def test_remedies_are_applied_and_undone(open_page: Open, lab: Lab) -> None:
    tested_page, report = open_report_in_lab(open_page, lab, "applied", remedies())
    page = tested_page.page
    card = open_card(report, 1)
    button = card.get_by_role("button", name="Apply: Compute both branches with torch.where")
    button.scroll_into_view_if_needed()
    tested_page.save_screenshot("remedies-lab-light")
    assert tested_page.serious_violations() == []
    button.focus()
    page.keyboard.press("Enter")
    lines = TEXT.split("\n")
    assert wait_for_changes(page) == [
        "Cell In[1] (Cell In[7] in the report): lines 14-15",
        *(f" {line}" for line in lines[11:13]),
        *(f"-{line}" for line in lines[13:15]),
        f"+{WHERE_LINE}",
        *(f" {line}" for line in lines[15:17]),
    ]
    tested_page.save_screenshot("remedies-dialog")
    assert tested_page.serious_violations(".jp-Dialog") == []
    page.keyboard.press("Enter")
    expect(report.get_by_role("status")).to_contain_text("Applied")
    assert cell_sources(page) == ["\n".join([*lines[:13], WHERE_LINE, *lines[15:]])]
    # The cursor is on the change, so undo works with the next key.
    page.keyboard.press("Control+z")
    assert cell_sources(page) == [TEXT]
    page.keyboard.press("Control+Shift+z")
    assert WHERE_LINE in cell_sources(page)[0]
    page.keyboard.type("x")
    undo = report.get_by_role("button", name="Undo", exact=True)
    undo.click()
    expect(report.get_by_role("status")).to_have_text("Not undone: the notebook has changed in the meantime.")
    page.evaluate("text => jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.setSource(text)", TEXT)

    # Several edits are undone in one step.
    open_card(report, 2).get_by_role("button", name="Apply: Print after the call").click()
    assert wait_for_changed_lines(page) == [
        "Cell In[1] (Cell In[7] in the report): lines 5, 20",
        "-    log_stats(x)", "+    stats = x.mean(), x.std()", "+    # printed by the caller",
    ]  # fmt: skip
    confirm(page)
    expect(report.get_by_role("status")).to_contain_text("Applied")
    changed_source = cell_sources(page)[0]
    assert "stats = x.mean(), x.std()" in changed_source
    assert "    # printed by the caller\n        print(name" in changed_source
    page.keyboard.press("Control+z")
    assert cell_sources(page) == [TEXT]
    undo.click()
    expect(report.get_by_role("status")).to_have_text("Already undone")
    assert tested_page.errors == []


CELL_WITH_SIZES = """\
%%compile_explain --try --backend eager
import torch
@torch.compile
def pool(x):
    return torch.relu(x).mean(dim=0)
for length in [4, 6, 9]:
    pool(torch.ones(length, 8))"""
MARKED_LOOP = """\
    x = torch.ones(length, 8)
    torch._dynamo.mark_dynamic(x, 0)
    pool(x)"""


@pytest.mark.slow
def test_a_mark_is_applied_before_the_call_in_its_loop_and_ends_the_recompiles(open_page: Open, lab: Lab) -> None:
    lab.save("marked", "%load_ext jupyter_graphbreak", CELL_WITH_SIZES)
    tested_page = open_in_lab(open_page, lab, "marked", kernel=True)
    page = tested_page.page
    run_all(page)
    report = page.locator(".graphbreak.gb-live")
    verdict = report.locator(".gb-verdict")
    expect(verdict).to_contain_text("pool was compiled twice", timeout=120_000)
    expect(verdict).to_contain_text("Mark dimension 0 of x as dynamic: 1 compilation remains")
    expect(report).to_have_class(re.compile(r"\bgb-column\b"))
    button = report.get_by_role("button", name=re.compile("Apply: Mark dimension 0 of x as dynamic"))
    if not button.is_visible():
        report.get_by_role("tab", name=re.compile("Recompiles")).click()
    button.click(trial=True)  # scrolls, even if the report is rendered again in the meantime
    tested_page.save_screenshot("recompiles-lab-light")
    assert tested_page.serious_violations() == []
    button.click()
    assert wait_for_changed_lines(page)[-4:] == [
        "-    pool(torch.ones(length, 8))", *(f"+{line}" for line in MARKED_LOOP.split("\n"))
    ]  # fmt: skip
    confirm(page)
    expect(report.get_by_role("status")).to_contain_text("Applied")
    changed_source = CELL_WITH_SIZES.replace("    pool(torch.ones(length, 8))", MARKED_LOOP)
    assert cell_sources(page)[1] == changed_source
    page.keyboard.press("Control+z")
    assert cell_sources(page)[1] == CELL_WITH_SIZES
    page.keyboard.press("Control+Shift+z")
    assert cell_sources(page)[1] == changed_source
    run_all(page)
    expect(verdict).to_contain_text("No breaks", timeout=120_000)
    expect(verdict).not_to_contain_text("compiled twice")


@pytest.mark.exhaustive
def test_the_statement_that_compiles_is_inserted_and_undone(open_page: Open, lab: Lab) -> None:
    statement = "step = torch.compile(step)"
    line = f"{statement}  # delete this line to run it eagerly"
    compiled_calls = [CompiledCall("step", None, statement, Edit("s1", 22, 21, "", line)), CompiledCall("Net", "Net")]
    tested_page, report = open_report_in_lab(open_page, lab, "compiles", replace(two_breaks(), compiled=compiled_calls))
    page = tested_page.page
    expect(report).to_contain_text("compiled for this report: step, Net; the cell itself does not compile them")
    button = report.get_by_role("button", name=f"Apply: {statement}")
    button.scroll_into_view_if_needed()
    tested_page.save_screenshot("compiled-lab-light")
    assert tested_page.serious_violations() == []
    button.focus()
    page.keyboard.press("Enter")
    assert wait_for_changed_lines(page) == ["Cell In[1] (Cell In[7] in the report): line 22", f"+{line}"]
    confirm(page)
    expect(report.get_by_role("status")).to_contain_text("Applied")
    lines = TEXT.split("\n")
    assert cell_sources(page) == ["\n".join([*lines[:21], line, *lines[21:]])]
    page.keyboard.press("Control+z")
    assert cell_sources(page) == [TEXT]
    report.get_by_role("button", name=f"Copy code: {statement}").click()
    expect(report.get_by_role("status")).to_contain_text("Code copied")
    assert clipboard_text(page) == f"{line}\n"


def test_only_shown_and_confirmed_changes_are_applied(open_page: Open, lab: Lab) -> None:
    tested_page, report = open_report_in_lab(open_page, lab, "confirmed", remedies())
    page = tested_page.page
    button = open_card(report, 1).get_by_role("button", name="Apply: Compute both branches with torch.where")
    button.click()
    page.locator(".jp-Dialog").get_by_role("button", name="Cancel").click()
    expect(report.get_by_role("status")).to_have_text("Not applied")
    assert cell_sources(page) == [TEXT]
    # A collaborator changes the cell while the dialog is open.
    button.click()
    wait_for_changes(page)
    changed_source = TEXT.replace("def step", "def other")
    page.evaluate(
        "text => jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.setSource(text)", changed_source
    )
    confirm(page)
    expect(report.get_by_role("status")).to_contain_text("Not applied: the notebook has changed in the meantime")
    assert cell_sources(page) == [changed_source]


def test_a_change_in_two_cells_names_both(open_page: Open, lab: Lab) -> None:
    helper = "def helper(x):\n    return x.item()"
    report = remedies()
    edits = [
        Edit("s9", 2, 2, "    return x.item()", "    return x"), Edit("s1", 18, 18, "def log_stats(x):", "def log(x):"),
    ]  # fmt: skip
    remedy = replace(report.remedies[0], edits=edits, code="setting = True")  # type: ignore[index]
    source = Source("s9", "Cell In[2]", "cell", None, [Segment(1, helper)])
    report = replace(report, remedies=[remedy], sources=[*report.sources, source])
    lab.save("two-cells", helper, report)
    tested_page = open_in_lab(open_page, lab, "two-cells")
    page = tested_page.page
    trust(page)
    report_element = page.locator(".graphbreak.gb-live")
    open_card(report_element, 1).get_by_role("button", name="Insert as cell: Compute both branches").click()
    comment = [
        "# Compute both branches with `torch.where`: removes break 1.",
        "# To undo: delete this cell, undo the edits of the other cells, then restart the kernel",
    ]
    assert wait_for_changed_lines(page) == [
        "New cell above Cell In[2]", *(f"+{line}" for line in (*comment, "setting = True")),
        "Cell 1 of this notebook (Cell In[2] in the report): line 2", "-    return x.item()", "+    return x",
        "Cell In[2] (Cell In[7] in the report): line 18", "-def log_stats(x):", "+def log(x):",
    ]  # fmt: skip
    confirm(page)
    expect(report_element.get_by_role("status")).to_contain_text("Applied")
    assert cell_sources(page) == [
        helper.replace(".item()", ""),
        "\n".join([*comment, "setting = True"]),
        TEXT.replace("def log_stats(x):", "def log(x):"),
    ]


def test_hidden_characters_are_named_and_not_applied_by_enter(open_page: Open, lab: Lab) -> None:
    deceptive_line = "        y = y  #\u202e )(metsys.so ;x\u2066\u200b"
    report = remedies()
    remedy = report.remedies[0]  # type: ignore[index]
    remedy = replace(remedy, edits=[replace(remedy.edits[0], new=deceptive_line)])
    tested_page, report_element = open_report_in_lab(open_page, lab, "hidden", replace(report, remedies=[remedy]))
    page = tested_page.page
    open_card(report_element, 1).get_by_role("button", name="Apply: Compute both branches").click()
    assert "+        y = y  #U+202E )(metsys.so ;xU+2066U+200B" in wait_for_changes(page)
    expect(page.locator(".jp-Dialog").get_by_role("alert")).to_contain_text("invisible")
    assert tested_page.serious_violations(".jp-Dialog") == []
    page.keyboard.press("Enter")
    expect(report_element.get_by_role("status")).to_have_text("Not applied")
    assert cell_sources(page) == [TEXT]


#: A cell inserted by a remedy, which says what it does and how to undo it.
SWITCH_CELL = (
    "# Switch statistics off: removes breaks 1 and 2.\n# To undo: delete this cell, then restart the kernel\n"
    "model.config.log_stats = False"
)


def test_compatible_remedies_are_applied_together(open_page: Open, lab: Lab) -> None:
    """A remedy is left out if it is incompatible with a chosen one, or if a chosen one already removes its breaks."""
    tested_page, report = open_report_in_lab(open_page, lab, "all", remedies())
    page = tested_page.page
    report.get_by_role("button", name="Apply: Compatible remedies").click()
    assert wait_for_changed_lines(page) == [
        "New cell above Cell In[1]", *(f"+{line}" for line in SWITCH_CELL.split("\n")),
        "Cell In[1] (Cell In[7] in the report): line 18", "-def log_stats(x):", "+def log_stats(x: Tensor):",
    ]  # fmt: skip
    confirm(page)
    expect(report.get_by_role("status")).to_contain_text("Applied")
    assert cell_sources(page) == [
        SWITCH_CELL, TEXT.replace("def log_stats(x):", "def log_stats(x: Tensor):"),
    ]  # fmt: skip


def test_a_script_and_its_issue_are_copied(open_page: Open, lab: Lab) -> None:
    scripts = [
        Reproducer("r1", "recompile of f", reason="It cannot be written."),
        Reproducer("b1", "graph break GB0170", "import torch\n\nprint('<b>')\n", "### Bug\n\n```python\n```\n"),
        Reproducer("error", "ValueError: no", "raise ValueError('no')\n", "### Error\n"),
    ]
    tested_page, report = open_report_in_lab(open_page, lab, "scripts", replace(remedies(), reproducers=scripts))
    card = open_card(report, 1)
    card.get_by_role("button", name="Copy script: Script that shows break 1").click()
    expect(report.get_by_role("status")).to_have_text("Script copied")
    assert clipboard_text(tested_page.page) == scripts[1].script
    card.get_by_role("button", name="Copy issue: Script that shows break 1").click()
    expect(report.get_by_role("status")).to_have_text("Issue text copied")
    assert clipboard_text(tested_page.page) == scripts[1].issue
    report.locator("[data-reproducer='2'] button", has_text="Copy script").dispatch_event("click")
    expect(report.get_by_role("status")).to_have_text("Script copied")
    assert clipboard_text(tested_page.page) == scripts[2].script


def test_a_patch_for_a_file_and_a_card_are_copied(open_page: Open, lab: Lab) -> None:
    tested_page, report = open_report_in_lab(open_page, lab, "copied", remedies())
    page = tested_page.page
    card = open_card(report, 1)
    assert card.get_by_role("button", name="Apply: Keep the mean a tensor").count() == 0
    card.get_by_role("button", name="Copy patch: Keep the mean a tensor").click()
    expect(report.get_by_role("status")).to_have_text("Patch copied")
    assert clipboard_text(page).startswith("--- a/helpers.py\n+++ b/helpers.py\n@@ -1,2 +1,2 @@\n def centred(x):\n-")
    card.get_by_role("button", name="Copy as Markdown").click()
    expect(report.get_by_role("status")).to_have_text("Copied as Markdown")
    text = clipboard_text(page)
    assert text.startswith("**Graph break:** Branch on a tensor's value GB0170")
    for expected in (
        "\n>   14          if score > 3:\n",
        "allowed by `error_on_graph_break(False)`, line 13",
        "```diff\nlines 14 to 15\n-        if score > 3:\n",
        "Branch with `torch.cond` ✗ different result",
        "the gradient of `w` is 12, not 18",
    ):
        assert expected in text, expected


def test_the_button_try_remedies_requests_trials(open_page: Open, lab: Lab) -> None:
    tested_page, report = open_report_in_lab(open_page, lab, "offered", two_breaks(), kernel=True)
    page = tested_page.page
    wait_for_kernel(page)
    page.evaluate(
        """() => {
            const { kernel } = jupyterapp.shell.currentWidget.sessionContext.session;
            window.requests = [];
            const send = kernel.requestExecute;
            kernel.requestExecute = function (content, dispose, metadata) {
                window.requests.push(metadata?.graphbreak);
                return send.call(this, { ...content, code: 'pass' }, dispose, {});
            };
        }"""
    )
    report.get_by_role("button", name="Try remedies").click()
    page.wait_for_function("window.requests.some(request => request?.explain === '--try')")


def test_an_edit_is_tried_without_running_it(open_page: Open, lab: Lab) -> None:
    tested_page, _ = open_report_in_lab(open_page, lab, "edited", two_breaks(), kernel=True)
    page = tested_page.page
    wait_for_kernel(page)
    start_command(page, "jupyter-graphbreak:show-panel")
    button = page.get_by_role("button", name="Try the edited cell")
    expect(page.get_by_role("tree", name="Reports of this notebook")).to_be_visible()
    expect(button).to_have_count(0)
    edited_source = TEXT.replace("score > 3", "score > 4")
    page.evaluate(
        "text => jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.setSource(text)", edited_source
    )
    page.evaluate(
        """() => {
            const { kernel } = jupyterapp.shell.currentWidget.sessionContext.session;
            window.requests = [];
            const send = kernel.requestExecute;
            kernel.requestExecute = function (content, dispose, metadata) {
                window.requests.push([content.code, metadata?.graphbreak]);
                return send.call(this, { ...content, code: 'pass' }, dispose, {});
            };
        }"""
    )
    expect(button).to_be_visible()
    tested_page.save_screenshot("panel-edited")
    button.click()
    page.wait_for_function("window.requests.some(([, request]) => request?.edited)")
    ((code, request),) = [
        entry for entry in page.evaluate("window.requests") if entry[1] is not None and entry[0] != ""
    ]
    assert (code, request) == (TEXT, {"explain": "--try", "only_torch": False, "edited": [[TEXT, edited_source]]})
    assert cell_sources(page) == [edited_source]


@pytest.mark.exhaustive
def test_a_page_has_only_copy_buttons_and_its_bars_are_in_proportion(open_report: Open) -> None:
    tested_page = open_report(cost())
    page = tested_page.page
    card = page.locator(".gb-break").first
    expect(card.get_by_role("button", name=re.compile("^Apply|^Insert"))).to_have_count(0)
    expect(page.get_by_role("button", name="Apply: Compatible remedies")).to_have_count(0)
    card.locator("summary").first.click()
    card.get_by_role("button", name="Copy code: Switch statistics off").click()
    expect(page.get_by_role("status")).to_have_text("Code copied")
    assert clipboard_text(page) == (
        "# Switch statistics off: removes breaks 1 and 2.\n"
        "# To undo: delete this code, then restart the kernel\n"
        "model.config.log_stats = False\n"
    )
    bars = page.locator(".gb-bars li")
    boxes = [bars.nth(index).bounding_box() for index in range(4)]
    guards_width, first_width, outside_width, second_width = (box["width"] if box else 0.0 for box in boxes)
    assert outside_width > first_width > second_width > guards_width
    assert first_width / second_width == pytest.approx(1200 / 500, rel=0.1)
    page.get_by_role("button", name="by operations").click()
    expect(bars.filter(visible=True)).to_have_count(4)
    box, other = bars.nth(1).bounding_box(), bars.nth(3).bounding_box()
    assert box is not None
    assert other is not None
    assert box["width"] / other["width"] == pytest.approx(4, rel=0.1)
    tested_page.save_screenshot("remedies-page-light")
    assert tested_page.serious_violations() == []


@pytest.mark.exhaustive
def test_remedies_have_no_serious_violation_in_the_dark_theme(open_page: Open, lab: Lab) -> None:
    tested_page, report = open_report_in_lab(open_page, lab, "dark", replace(cost(), check=None))
    switch_theme(tested_page.page, "JupyterLab Dark")
    open_card(report, 2)
    report.scroll_into_view_if_needed()
    tested_page.save_screenshot("remedies-lab-dark")
    assert tested_page.serious_violations() == []

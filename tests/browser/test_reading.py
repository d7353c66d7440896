"""Reading a report with mouse and keyboard: cards, selection, focus and scrolling."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from playwright.sync_api import expect

from jupyter_graphbreak.results import Report
from tests.browser.pages import menu_button, open_in_lab, run_all, start_command, trust, wait_for_kernel
from tests.browser.test_marks import cell, line
from tests.browser.test_panel import row, show_panel
from tests.support.sample_reports import big_report, failed_run, report_with_everything, two_breaks
from tests.unit.views.test_words import library_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab

    Open = Callable[..., PageUnderTest]

SELECTED_CLASS = re.compile(r"\bgb-selected\b")
#: Keys of JupyterLab's command mode that change or run cells.
DANGEROUS_KEYS = ["x", "dd", "a", "b", "v", "m", "r", "y", "z", "00", "Shift+M", "Shift+Enter", "Control+Enter"]
_KEY_SEQUENCES = {"dd": ["d", "d"], "00": ["0", "0"]}


def press(page: Page, key: str) -> None:
    for single_key in _KEY_SEQUENCES.get(key, [key]):
        page.keyboard.press(single_key)


def keys_for_element(number: int) -> list[str]:
    """Return the keys that delete a cell, and two other dangerous keys, chosen by the element's number."""
    first, second, *others = DANGEROUS_KEYS
    return [first, second, *(others[(2 * number + offset) % len(others)] for offset in (0, 1))]


def toggle(page: Page, card: Any, key: str) -> None:
    """Open or close a card with a key, or with a click if the key is ``click``."""
    summary = card.locator("summary").first
    if key == "click":
        summary.click()
    else:
        summary.focus()
        page.keyboard.press(key)


def test_a_card_opens_and_closes(open_report: Open) -> None:
    page = open_report(big_report(breaks=10, ops=40)).page
    for kind in "bg":
        page.get_by_role("tab", name="Breaks" if kind == "b" else "Graphs").click()
        card = page.locator(f".gb-item[id$='-{kind}2'] > details")
        for key in ("click", "Enter", " ", "o"):
            expect(card).not_to_have_attribute("open", "")
            toggle(page, card, key)
            expect(card, key).to_have_attribute("open", "")
            page.wait_for_timeout(100)  # time for a delayed toggle
            expect(card, key).to_have_attribute("open", "")
            toggle(page, card, key)
            expect(card, key).not_to_have_attribute("open", "")


def test_a_report_has_few_tab_stops_and_arrow_keys_move_within_them(open_report: Open) -> None:
    page = open_report(two_breaks()).page
    page.wait_for_timeout(300)
    tab_stop_count = page.evaluate(
        "Array.from(document.querySelectorAll('.graphbreak *')).filter(e => e.tabIndex >= 0 && e.offsetParent).length"
    )
    assert tab_stop_count <= 8
    boxes = page.locator(".gb-strip a")
    boxes.first.focus()
    page.keyboard.press("ArrowRight")
    expect(boxes.nth(1)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(boxes.first).to_be_focused()


def test_arrow_keys_skip_folded_parts(open_report: Open) -> None:
    page = open_report(report_with_everything()).page
    card = page.locator(".gb-item[id$='-b1'] > details")
    card.locator("summary").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    last_button = card.get_by_role("button", name="Copy as Markdown")
    for _ in range(20):
        page.keyboard.press("ArrowDown")
        if last_button.evaluate("button => button === document.activeElement"):
            break
    expect(last_button).to_be_focused()


def test_a_break_and_its_line_are_in_view_together(open_report: Open) -> None:
    report = big_report(breaks=60, ops=60)
    page = open_report(report).page
    for number in range(1, 12):
        page.keyboard.press("n")
        expect(page.locator(f".gb-item[id$='-b{number}']")).to_be_in_viewport()
        expect(page.locator(f".gb-item[id$='-b{number}']")).to_have_class(SELECTED_CLASS)
        expect(page.locator(".gb-line[id].gb-broken.gb-related")).to_be_in_viewport(ratio=1)


def test_a_report_adds_no_landmarks_and_its_texts_can_be_focused(open_report: Open) -> None:
    page = open_report(failed_run()).page
    assert page.locator("header, footer").count() == 0
    assert page.locator("pre.gb-text:not([tabindex])").count() == 0


def test_the_pointer_selects_on_demand(open_report: Open) -> None:
    page = open_report(two_breaks()).page
    line = page.locator(".gb-line[id$='l0-14']")
    line.hover()
    expect(page.locator(".gb-selected")).to_have_count(0)
    menu_button(page, "Follow pointer").click()
    line.hover()
    expect(page.locator(".gb-item[id$='-b1']")).to_have_class(SELECTED_CLASS)
    page.locator(".gb-item[id$='-b2'] summary").first.hover()
    expect(page.locator(".gb-item[id$='-b2']")).to_have_class(SELECTED_CLASS)


def test_the_text_size_follows_jupyterlab(open_report: Open) -> None:
    page = open_report(two_breaks()).page
    size = "getComputedStyle(document.querySelector('{}')).fontSize"
    assert page.evaluate(size.format(".graphbreak")) == "13px"
    page.evaluate("document.documentElement.style.cssText = '--jp-ui-font-size1: 17px; --jp-code-font-size: 18px'")
    assert page.evaluate(size.format(".graphbreak")) == "17px"
    assert page.evaluate(size.format(".gb-code pre")) == "18px"
    assert float(page.evaluate(size.format(".gb-place")).removesuffix("px")) > 15


def test_one_tab_looks_selected_with_forced_colours(open_report: Open) -> None:
    tested_page = open_report(two_breaks())
    page = tested_page.page
    page.emulate_media(forced_colors="active")
    colours = page.get_by_role("tab").evaluate_all("tabs => tabs.map(tab => getComputedStyle(tab).borderBottomColor)")
    assert colours[0] not in colours[1:]
    assert len(set(colours[1:])) == 1
    tested_page.save_screenshot("page-forced-colours")


def test_minor_breaks_of_libraries_are_last_and_folded(open_report: Open) -> None:
    report = library_report()
    minor_breaks = [msgspec.structs.replace(report.breaks[1], id=f"b{number}") for number in range(10, 14)]
    order = [*report.order, *(minor_break.id for minor_break in minor_breaks)]
    report = msgspec.structs.replace(report, breaks=[*report.breaks, *minor_breaks], order=order)
    page = open_report(Report.of(report)).page
    expect(page.get_by_text("5 more breaks in libraries, none of which ends a graph")).to_be_visible()
    expect(page.locator(".gb-item[id$='-b3']")).to_be_hidden()
    for _ in range(3):
        page.keyboard.press("n")
    expect(page.locator(".gb-item[id$='-b3']")).to_be_visible()
    expect(page.locator(".gb-item[id$='-b3']")).to_have_class(SELECTED_CLASS)


def cell_contents(page: Page) -> list[str]:
    """Return the type of each cell, followed by its source."""
    contents: list[str] = page.evaluate(
        "() => jupyterapp.shell.currentWidget.content.widgets.map("
        "cell => `${cell.model.type} ${cell.model.sharedModel.getSource()}`)"
    )
    return contents


#: JavaScript that numbers one visible focusable element of each kind, and returns how many there are. A kind is a tag
#: name with a class and the class of the parent.
_NUMBER_KINDS = """report => {
    const kinds = new Set();
    for (const element of report.querySelectorAll('a[href], button, summary, input, [tabindex]')) {
        const kind = [element.tagName, element.className, element.parentElement.className].join();
        // Quoted lines come and go with the selection.
        if (element.checkVisibility() && !element.closest('.gb-excerpt') && !kinds.has(kind)) {
            kinds.add(kind);
            element.dataset.probe = kinds.size;
        }
    }
    return kinds.size;
}"""


@pytest.mark.slow
def test_no_key_pressed_in_a_report_reaches_the_notebook(open_page: Open, lab: Lab) -> None:
    lab.save("safe", "x = 1", report_with_everything(), "y = 2")
    page = open_in_lab(open_page, lab, "safe", kernel=True).page
    trust(page)
    contents_before = cell_contents(page)
    report = page.locator(".graphbreak.gb-live")
    expect(report.get_by_role("button", name="Apply: Compatible remedies")).to_be_visible()
    wait_for_kernel(page)
    page.wait_for_timeout(1000)  # outputs are rendered again after they are trusted and a kernel is connected
    report.locator(".gb-break > details > summary").first.click()
    report.get_by_role("button", name="More ?").click()
    kind_count = report.evaluate(_NUMBER_KINDS)
    assert kind_count > 12
    for kind in range(1, kind_count + 1):
        for key in keys_for_element(kind):
            report.evaluate("(report, kind) => report.querySelector(`[data-probe='${kind}']`).focus()", kind)
            press(page, key)
        report.get_by_label("Filter the pane").fill("")  # keys typed into the filter hide items
        assert cell_contents(page) == contents_before, report.locator(f"[data-probe='{kind}']").evaluate(
            "element => element.outerHTML"
        )
        expect(page.locator(".jp-Dialog")).to_have_count(0)
        expect(page.locator(".jp-Cell .jp-InputPrompt").first).to_have_text("[ ]:")
    # Shortcuts of the whole application still work.
    report.locator(".gb-tab").first.focus()
    page.keyboard.press("Control+Shift+C")
    expect(page.locator(".jp-ModalCommandPalette")).to_be_visible()


@pytest.mark.exhaustive
def test_no_key_pressed_in_an_untrusted_report_reaches_the_notebook(open_page: Open, lab: Lab) -> None:
    lab.save("plain", "x = 1", two_breaks(), "y = 2")
    page = open_in_lab(open_page, lab, "plain", kernel=True).page
    contents_before = cell_contents(page)
    report = page.locator(".graphbreak")
    expect(page.locator(".gb-live")).to_have_count(0)
    for target in ("summary", "a"):
        report.locator(target).first.focus()
        for key in DANGEROUS_KEYS:
            press(page, key)
        assert cell_contents(page) == contents_before
    page.keyboard.press("Escape")
    expect(page.locator(".jp-Cell", has=page.locator(".graphbreak"))).to_be_focused()


def test_an_output_contains_the_complete_report_without_a_kernel(open_page: Open, lab: Lab) -> None:
    lab.save("gone", big_report(breaks=120, ops=240))
    tested_page = open_in_lab(open_page, lab, "gone")
    page = tested_page.page
    trust(page)
    report = page.locator(".graphbreak.gb-live")
    items = report.locator("[data-list=places-0] > .gb-item")
    expect(items).to_have_count(10)
    # Showing more items leaves those on the page unchanged.
    page.evaluate("document.querySelector('[data-list=places-0] > .gb-item').dataset.kept = 'yes'")
    page.evaluate("document.querySelector('[data-more=places-0] button').click()")
    expect(items).to_have_count(60)
    expect(items.first).to_have_attribute("data-kept", "yes")
    assert tested_page.errors == []


def test_report_panel_and_cell_share_one_selection(open_page: Open, lab: Lab) -> None:
    lab.save("one", two_breaks())
    tested_page = open_in_lab(open_page, lab, "one")
    page = tested_page.page
    trust(page)
    show_panel(page)
    report = page.locator(".graphbreak.gb-live")
    editor_cell = cell(page, 0)
    marked_line = editor_cell.locator(".jp-GraphBreakMark.jp-mod-selected")
    expect(report).to_have_class(re.compile(r"\bgb-column\b"))
    # Select a break in the report.
    report.locator(".gb-item > details > summary").nth(1).click()
    expect(marked_line).to_have_text(re.compile(r"^ +log_stats\(x\)"))
    expect(row(page, "^Break 2, log_stats")).to_have_attribute("aria-selected", "true")
    # Select one in the cell.
    line(editor_cell, "if score > 3").click()
    expect(report.locator(".gb-item[id$='-b1']")).to_have_class(SELECTED_CLASS)
    expect(row(page, "^Break 1, score > 3")).to_have_attribute("aria-selected", "true")
    # Select one in the panel.
    row(page, "^Break 2, log_stats").click()
    expect(report.locator(".gb-item[id$='-b2']")).to_have_class(SELECTED_CLASS)
    expect(marked_line).to_have_text(re.compile(r"^ +log_stats\(x\)"))
    # Select one with the pointer, once this is enabled.
    start_command(page, "jupyter-graphbreak:follow-pointer")
    expect(menu_button(report, "Follow pointer")).to_have_attribute("aria-pressed", "true")
    line(editor_cell, "if score > 3").hover()
    expect(report.locator(".gb-item[id$='-b1']")).to_have_class(SELECTED_CLASS)
    # The report shows the source on request, and if marks are switched off.
    menu_button(report, "Source").click()
    expect(report.locator(".gb-line[id$='l0-14']")).to_be_visible()
    start_command(page, "jupyter-graphbreak:toggle-marks")
    expect(report).not_to_have_class(re.compile(r"\bgb-column\b"))
    start_command(page, "jupyter-graphbreak:toggle-marks")  # restore the setting for other tests
    expect(report).to_have_class(re.compile(r"\bgb-column\b"))
    assert [*tested_page.errors, *tested_page.complaints] == []


def is_in_view(page: Page, selector: str) -> bool:
    """Return whether an element that matches a selector lies completely within the visible part of the notebook."""
    is_visible: bool = page.evaluate(
        """selector => {
            const { top, bottom } = document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect();
            return Array.from(document.querySelectorAll(selector), element => element.getBoundingClientRect()).some(
                box => box.height > 0 && box.top >= top - 1 && box.bottom <= bottom + 1
            );
        }""",
        selector,
    )
    return is_visible


@pytest.mark.exhaustive
def test_the_breaks_of_a_run_are_scrolled_into_view(open_page: Open, lab: Lab) -> None:
    """Scroll only if the end of the cell is in view, and keep the top of the report in view."""
    program = (
        "import torch\n@torch.compile(backend='eager')\ndef f(x):\n    print('one')\n    return x + 1\nf(torch.ones(2))"
    )
    lab.save("shown", "%load_ext jupyter_graphbreak\n" + "one = 1\n" * 20, f"%%compile_explain\n{program}")
    page = open_in_lab(open_page, lab, "shown", kernel=True).page
    run_all(page)
    report = page.locator(".graphbreak.gb-live")
    expect(report).to_have_count(1, timeout=60_000)
    expect(report.locator(".gb-item summary .gb-do").first).to_be_in_viewport(ratio=1)
    expect(report.locator(".gb-head")).to_be_in_viewport(ratio=1)
    # A report from the file does not scroll the notebook.
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    page = open_in_lab(open_page, lab, "shown", kernel=True).page
    expect(page.locator(".graphbreak")).to_have_count(1, timeout=30_000)
    page.wait_for_timeout(1000)
    assert page.evaluate("document.querySelector('.jp-WindowedPanel-outer').scrollTop") == 0


@pytest.mark.exhaustive
def test_n_shows_row_and_line_of_every_break(open_page: Open, lab: Lab) -> None:
    """In a cell longer than the window, cards quote lines whose editor is out of sight."""
    lab.save("eleven", big_report(breaks=11, ops=22))
    page = open_in_lab(open_page, lab, "eleven").page
    trust(page)
    report = page.locator(".graphbreak.gb-live")
    expect(report).to_have_class(re.compile(r"\bgb-column\b"))
    report.get_by_role("tab", name="Breaks").focus()
    for number in range(1, 12):
        page.keyboard.press("n")
        expect(report.locator(f".gb-item[id$='-b{number}']")).to_have_class(SELECTED_CLASS)
        page.wait_for_timeout(100)  # time for marks and quotes to update
        assert is_in_view(page, f".gb-item[id$='-b{number}'] > details > summary"), number
        assert is_in_view(
            page, f".jp-GraphBreakMark.jp-mod-selected, .gb-item[id$='-b{number}'] .gb-excerpt .gb-selected"
        ), number
    page.keyboard.press("n")
    expect(report.locator(".gb-item[id$='-b1']")).to_have_class(SELECTED_CLASS)


@pytest.mark.exhaustive
def test_enter_before_the_first_word_moves_the_mark(open_page: Open, lab: Lab) -> None:
    lab.save("enter", two_breaks())
    page = open_in_lab(open_page, lab, "enter", kernel=True).page
    editor_cell = cell(page, 0)
    # Once the editor knows Python, Enter keeps the indentation.
    expect(line(editor_cell, "if score > 3").get_by_text("if", exact=True)).to_have_count(1)
    line(editor_cell, "if score > 3").click()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(editor_cell.locator(".jp-GraphBreakMark.jp-mod-broken").nth(1)).to_contain_text("if score > 3:")


def test_the_note_of_a_long_line_stays_within_the_editor(open_page: Open, lab: Lab) -> None:
    report = json.loads(two_breaks().to_json())
    text = report["sources"][0]["segments"][0]["text"]
    report["sources"][0]["segments"][0]["text"] = text.replace("if score > 3:", f"if score > 3:  # {'long ' * 60}")
    lab.save("wide", Report.from_dict(report))
    page = open_in_lab(open_page, lab, "wide").page
    editor_cell = cell(page, 0)
    # The editor moves the note after it has measured itself on the page.
    moved_note = editor_cell.locator(".jp-GraphBreakMark-note.jp-mod-below", has_text="Branch on")
    expect(moved_note).to_be_visible()
    note = moved_note.bounding_box()
    editor = editor_cell.locator(".cm-scroller").bounding_box()
    assert note is not None
    assert editor is not None
    assert note["x"] + note["width"] <= editor["x"] + editor["width"] + 1
    band = editor_cell.locator(".jp-GraphBreakMark-gutter .jp-mod-forbidden").first
    expect(band).to_be_visible()

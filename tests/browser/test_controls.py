"""Clicks and keys on the visible parts of a report, of the marks and of the panel."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from jupyter_graphbreak.results import Report
from tests.browser.pages import open_in_lab, run_all, start_command, switch_theme, trust, wait_for_kernel
from tests.browser.test_marks import broken_marks, cell, line
from tests.browser.test_panel import panel, row, rows, show_panel, wait_for_line
from tests.browser.test_reading import SELECTED_CLASS, cell_contents, keys_for_element, press
from tests.browser.test_remedies import SWITCH_CELL
from tests.support.lab_server import report_cell
from tests.support.sample_reports import big_report, hostile_report, remedies, report_with_everything, two_breaks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Locator, Page

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab

    Open = Callable[..., PageUnderTest]


def live_report(page: Page) -> Locator:
    """Trust a notebook, and return its report once JupyterLab has rendered it again."""
    trust(page)
    report = page.locator(".graphbreak.gb-live")
    expect(report).to_have_class(re.compile(r"\bgb-column\b"))
    page.wait_for_timeout(500)
    return report


def click_corner(page: Page, element: Locator) -> None:
    """Click an element near its bottom right corner, where it has no text and no control."""
    element.scroll_into_view_if_needed()
    box = element.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] - 3)


@pytest.mark.parametrize("trusted", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_keys_after_a_click_on_a_plain_area_stay_in_the_report(open_page: Open, lab: Lab, *, trusted: bool) -> None:
    lab.save("plain-areas", "x = 1", report_with_everything(), "y = 2")
    page = open_in_lab(open_page, lab, "plain-areas", kernel=True).page
    report = live_report(page) if trusted else page.locator(".graphbreak")
    cells_before = cell_contents(page)
    parts = (".gb-head", ".gb-foot", ".gb-strip", ".gb-panel" if trusted else ".gb-side", ".gb-brief")
    for number, part in enumerate(parts):
        click_corner(page, report.locator(part).filter(visible=True).first)
        for key in keys_for_element(number):
            press(page, key)
            assert cell_contents(page) == cells_before, (part, key)
    # The cell of the report is the active one, and Escape leads to it.
    assert page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex") == 1
    click_corner(page, report.locator(".gb-head"))
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator(".jp-Cell", has=page.locator(".graphbreak"))).to_be_focused()


#: A selector of the links within a report.
_LINKS = ".gb-panel a[href^='#'], .gb-strip a"
#: JavaScript that returns the addresses of links, with an empty string for each hidden link.
_ADDRESSES = "links => links.map(link => link.checkVisibility() ? link.getAttribute('href') : '')"
_LINE = re.compile(r"-l(\d+)-(\d+)$")


def links_of_all_kinds(report: Locator, tab: Locator) -> Iterator[tuple[Locator, str]]:
    """Yield one link and its address for each line and each kind of item that the links of a tab lead to."""
    seen_kinds: set[str] = set()
    while True:
        tab.click()
        links = report.locator(_LINKS)
        for index, href in enumerate(links.evaluate_all(_ADDRESSES)):
            target_kind = href if _LINE.search(href) else href.rstrip("0123456789")
            if href and target_kind not in seen_kinds:
                seen_kinds.add(target_kind)
                yield links.nth(index), href
                break  # cards quote the selected lines, so a click changes the links
        else:
            return


def test_every_link_to_a_line_leads_there(open_page: Open, lab: Lab) -> None:
    """A link moves the cursor to a line of the cell, or shows a line of a different source. The focus is never lost."""
    lab.save("links", "x = 1", report_with_everything(), "y = 2")
    tested_page = open_in_lab(open_page, lab, "links")
    page = tested_page.page
    report = live_report(page)
    line_link_count = 0
    for tab in report.get_by_role("tab").all():
        tab.click()
        report.evaluate("report => report.querySelectorAll('.gb-side details').forEach(each => { each.open = true; })")
        for link, href in links_of_all_kinds(report, tab):
            page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 0")
            link.click()
            target = _LINE.search(href)
            if target is None:
                page.wait_for_timeout(50)
                assert page.evaluate("document.activeElement !== document.body"), href
                assert page.evaluate("document.activeElement.checkVisibility()"), href
                continue
            line_link_count += 1
            if target[1] == "0":
                wait_for_line(page, 1, int(target[2]))
                expect(cell(page, 1).locator(".cm-content")).to_be_focused()
                expect(cell(page, 1).locator(".cm-line").nth(int(target[2]) - 1)).to_be_in_viewport()
            else:
                report_line = report.locator(f".gb-line[id$='-{target[0][1:]}']")
                expect(report_line).to_have_class(SELECTED_CLASS)
                expect(report_line).to_be_in_viewport()
                assert page.evaluate("document.activeElement !== document.body"), target[0]
    assert line_link_count > 15
    assert tested_page.errors == []


def test_without_the_cell_a_link_shows_the_line_in_the_report(open_page: Open, lab: Lab) -> None:
    lab.save("moved", "x = 1", two_breaks())
    page = open_in_lab(open_page, lab, "moved").page
    report = live_report(page)
    report.evaluate("report => report.addEventListener('graphbreak-visit', event => event.stopPropagation())")
    report.locator(".gb-break > details > summary").first.click()
    report.locator(".gb-break dl a[href$='-l0-15']").first.click()
    expect(report.locator(".gb-line[id$='-l0-15']")).to_have_class(SELECTED_CLASS)
    expect(report.locator(".gb-line[id$='-l0-15']")).to_be_in_viewport()


#: JavaScript that returns each note that covers text of an editor, even in part, together with the text.
_FIND_COVERED_TEXT = """() => {
    const covered = [];
    for (const editor of document.querySelectorAll('.jp-Notebook .cm-content')) {
        const view = editor.closest('.cm-scroller').getBoundingClientRect();
        const notes = Array.from(editor.querySelectorAll('.jp-GraphBreakMark-note'));
        const texts = document.createTreeWalker(editor, NodeFilter.SHOW_TEXT);
        while (texts.nextNode()) {
            const range = document.createRange();
            range.selectNodeContents(texts.currentNode);
            for (const note of notes.filter(note => !note.contains(texts.currentNode))) {
                const box = note.getBoundingClientRect();
                for (const text of range.getClientRects()) {
                    const right = Math.min(box.right, text.right, view.right);
                    const width = right - Math.max(box.left, text.left, view.left);
                    const height = Math.min(box.bottom, text.bottom) - Math.max(box.top, text.top);
                    if (width > 1 && height > 2) {
                        covered.push([note.textContent, texts.currentNode.textContent]);
                    }
                }
            }
        }
    }
    return covered;
}"""


def report_with_long_lines(comment_words: int) -> Report:
    """Return a report on a cell in which the lines of both breaks end with long comments."""
    report = json.loads(two_breaks().to_json())
    segment = report["sources"][0]["segments"][0]
    for code in ("if score > 3:", "log_stats(x)"):
        segment["text"] = segment["text"].replace(code, f"{code}  # {'long ' * comment_words}", 1)
    return Report.from_dict(report)


@pytest.mark.parametrize("comment_words", [22, pytest.param(40, marks=pytest.mark.exhaustive)])
def test_a_note_never_covers_text_or_the_cursor(open_page: Open, lab: Lab, comment_words: int) -> None:
    lab.save("long-lines", report_with_long_lines(comment_words), "x = 1")
    page = open_in_lab(open_page, lab, "long-lines").page
    editor_cell = cell(page, 0)
    note = editor_cell.locator(".jp-GraphBreakMark-note", has_text="Branch on")
    expect(note).to_be_in_viewport(ratio=1)
    page.wait_for_function(f"() => ({_FIND_COVERED_TEXT})().length === 0")
    line(editor_cell, "if score > 3").click()
    page.keyboard.press("End")
    for character in " # typed at the end":
        page.keyboard.type(character)
        page.wait_for_timeout(30)
    assert page.evaluate(_FIND_COVERED_TEXT) == []
    note_before_cursor = page.evaluate(
        """() => {
            const cursor = document.querySelector('.cm-focused .cm-cursor-primary');
            const { right, top, bottom } = cursor.getBoundingClientRect();
            return document.elementFromPoint(right - 4, (top + bottom) / 2).closest('.jp-GraphBreakMark-note');
        }"""
    )
    assert note_before_cursor is None
    # The arrow keys skip the note.
    line_index = page.evaluate("jupyterapp.shell.currentWidget.content.activeCell.editor.getCursorPosition().line")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    wait_for_line(page, 0, line_index + 2)


def test_in_the_side_by_side_view_a_note_never_covers_text(open_page: Open, lab: Lab) -> None:
    lab.save("beside", two_breaks(), hostile_report())
    tested_page = open_in_lab(open_page, lab, "beside")
    page = tested_page.page
    expect(broken_marks(cell(page, 0))).to_have_count(2)
    start_command(page, "notebook:toggle-render-side-by-side-current")
    expect(page.locator(".jp-mod-sideBySide")).to_have_count(1)
    page.wait_for_timeout(500)
    tested_page.save_screenshot("marks-side-by-side")
    assert page.evaluate(_FIND_COVERED_TEXT) == []
    expect(cell(page, 0).locator(".jp-GraphBreakMark-note", has_text="Branch on")).to_be_in_viewport(ratio=1)
    # In the report, the label of a scope never covers code.
    count_covered_labels = """() => Array.from(document.querySelectorAll('.graphbreak .gb-band')).filter(band => {
        const [code, words] = [band.previousElementSibling, band].map(each => each.getBoundingClientRect());
        return band.textContent.trim() !== '' && words.width > 0 && words.left < code.right - 1;
    }).length"""
    assert page.evaluate(count_covered_labels) == 0
    switch_theme(page, "JupyterLab Dark")
    assert page.evaluate(_FIND_COVERED_TEXT) == []


@pytest.mark.exhaustive
def test_a_click_on_a_note_selects_its_break(open_page: Open, lab: Lab) -> None:
    lab.save("note-clicks", two_breaks())
    page = open_in_lab(open_page, lab, "note-clicks").page
    report = live_report(page)
    show_panel(page)
    editor_cell = cell(page, 0)
    for text, number, cursor in (
        ("✂2 ", 2, 5),
        ("✂1 ", 1, 14),
        ("→ ✂2", 2, 12),
    ):
        editor_cell.locator(".jp-GraphBreakMark-note > *", has_text=text).first.click()
        expect(report.locator(f".gb-item[id$='-b{number}']")).to_have_class(SELECTED_CLASS)
        expect(row(page, f"^Break {number}, ")).to_have_attribute("aria-selected", "true")
        if "→" not in text:
            wait_for_line(page, 0, cursor)
    editor_cell.locator(".jp-GraphBreakMark-note > *", has_text="runs eagerly").first.click()
    expect(panel(page).get_by_role("treeitem", selected=True)).to_have_accessible_name(re.compile("log_stats"))


def test_a_row_of_every_report_about_a_function_highlights_its_line(open_page: Open, lab: Lab) -> None:
    """Two cells explain the same function. A click on its break in either report highlights the line."""
    definition = two_breaks().sources[0].segments[0].text
    second = json.loads(two_breaks().to_json())
    second["breaks"] = [entry for entry in second["breaks"] if entry["id"] == "b1"]
    call = "%%compile_explain\nstep(x, w)"
    second["sources"].append(
        {"id": "s8", "name": "Cell In[9]", "kind": "cell", "segments": [{"first_line": 1, "text": call}]}
    )
    third = report_cell(Report.from_dict(second))
    third.source = call
    lab.save("shared", two_breaks(), third)
    page = open_in_lab(open_page, lab, "shared").page
    show_panel(page)
    assert (
        page.evaluate("jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.getSource()") == definition
    )
    selected_marks = cell(page, 0).locator(".jp-GraphBreakMark.jp-mod-selected")
    runs = rows(page, 1)
    expect(runs).to_have_count(2)
    for index in (0, 1, 0):
        panel(page).get_by_role("treeitem", name=re.compile("^Break 1, score > 3")).nth(index).click()
        expect(selected_marks).to_have_text(re.compile("if score > 3:"))
        expect(selected_marks).to_be_in_viewport(ratio=1)


def vertical_positions(page: Page) -> list[float]:
    """Return the vertical positions of the parts of a report and of the cells below it."""
    values: list[float] = page.evaluate(
        "() => Array.from(document.querySelectorAll('.graphbreak > *, .gb-item, .jp-Cell'))"
        ".filter(each => each.checkVisibility()).map("
        " each => each.getBoundingClientRect().top + document.querySelector('.jp-WindowedPanel-outer').scrollTop)"
    )
    return values


def test_a_status_message_is_fully_visible_and_moves_nothing(open_page: Open, lab: Lab) -> None:
    lab.save("status", remedies(), "x = 1")
    tested_page = open_in_lab(open_page, lab, "status")
    page = tested_page.page
    report = live_report(page)
    changed_text = two_breaks().sources[0].segments[0].text.replace("score > 3", "score > 4")
    page.evaluate(
        "text => jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.setSource(text)", changed_text
    )
    report.locator(".gb-foot").scroll_into_view_if_needed()
    positions_before = vertical_positions(page)
    card = report.locator(".gb-break").first
    card.locator("summary").first.click()
    card.get_by_role("button", name="Apply: Compute both branches with torch.where").click()
    status = report.get_by_role("status")
    expect(status).to_have_text(
        "Not applied: line 14 of Cell In[7] has changed since this was tried. Explain the cell again."
    )
    assert cell_contents(page) == [f"code {changed_text}", "code x = 1"]
    expect(page.locator(".jp-Dialog")).to_have_count(0)
    assert status.evaluate("each => each.scrollWidth <= each.clientWidth && each.scrollHeight <= each.clientHeight + 1")
    card.locator("summary").first.click()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.wait_for_timeout(200)
    assert vertical_positions(page) == pytest.approx(positions_before, abs=1)
    tested_page.save_screenshot("status")


def test_an_inserted_cell_is_removed_with_one_key_or_one_click(open_page: Open, lab: Lab) -> None:
    lab.save("patched", "x = 1", remedies())
    page = open_in_lab(open_page, lab, "patched").page
    report = live_report(page)
    cells_before = cell_contents(page)
    for way in ("Control+z", "Undo"):
        card = report.locator(".gb-break").first
        if not card.locator("> details").evaluate("each => each.open"):
            card.locator("summary").first.click()
        card.get_by_role("button", name="Insert as cell: Switch statistics off").click()
        page.locator(".jp-Dialog").get_by_role("button", name="Apply").click()
        expect(report.get_by_role("status")).to_contain_text("Applied")
        assert cell_contents(page) == [cells_before[0], f"code {SWITCH_CELL}", cells_before[1]]
        assert page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex") == 1
        if way == "Undo":
            report.get_by_role("button", name="Undo", exact=True).click()
            expect(report.get_by_role("status")).to_have_text("Undone")
            expect(report).to_be_focused()  # the button is gone
        else:
            page.keyboard.press(way)
        page.wait_for_function("jupyterapp.shell.currentWidget.content.widgets.length === 2")
        if way != "Undo":
            page.wait_for_function("document.activeElement.closest('.jp-Cell') !== null", timeout=5000)
        assert cell_contents(page) == cells_before


def test_an_applied_remedy_is_run(open_page: Open, lab: Lab) -> None:
    """*Run again* runs the inserted cell, and explains the cell of the report again."""
    lab.save("run-applied", remedies())
    page = open_in_lab(open_page, lab, "run-applied", kernel=True).page
    report = live_report(page)
    wait_for_kernel(page)
    record_requests = """() => {
        const { kernel } = jupyterapp.shell.currentWidget.sessionContext.session;
        window.requests = [];
        const send = kernel.requestExecute;
        kernel.requestExecute = function (content, dispose, metadata) {
            window.requests.push([content.code, metadata?.graphbreak?.explain ?? null]);
            return send.call(this, { ...content, code: 'pass' }, dispose, {});
        };
    }"""
    page.evaluate(record_requests)
    card = report.locator(".gb-break").first
    card.locator("summary").first.click()
    card.get_by_role("button", name="Insert as cell: Switch statistics off").click()
    page.locator(".jp-Dialog").get_by_role("button", name="Apply").click()
    report.get_by_role("button", name="Run again").click()
    page.wait_for_function("window.requests.length >= 2")
    requests = [entry for entry in page.evaluate("window.requests") if not entry[0].startswith("__import__")]
    assert requests[0] == [SWITCH_CELL, None]
    page.wait_for_function("window.requests.some(([code]) => code.startsWith('%%compile_explain'))")


def test_escape_leaves_the_filter(open_page: Open, lab: Lab) -> None:
    lab.save("leave", two_breaks())
    page = open_in_lab(open_page, lab, "leave").page
    report = live_report(page)
    show_panel(page)
    pane_filter = report.get_by_label("Filter the pane")
    for text in ("print", ""):
        pane_filter.click()
        page.keyboard.type(text)
        page.keyboard.press("Escape")
        expect(pane_filter).to_have_value("")
        expect(report.get_by_role("tab", name="Breaks")).to_be_focused()
        expect(report.locator(".gb-break")).to_have_count(2)
    box = panel(page).get_by_role("searchbox", name="Filter by text")
    for text in ("print", ""):
        box.click()
        page.keyboard.type(text)
        if text:  # the first press only clears the text
            page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        expect(box).to_have_value("")
        expect(box).not_to_be_focused()
        assert page.evaluate("document.activeElement.matches('.jp-GraphBreakPanel [role=treeitem]')")


def test_a_filter_ignores_quoted_lines(open_page: Open, lab: Lab) -> None:
    """The card of the first break quotes a line that calls print, but only the second break is about print."""
    report = json.loads(remedies().to_json())
    report["sources"][0]["segments"][0]["text"] = report["sources"][0]["segments"][0]["text"].replace(
        "        score = ", "        print(); score = "
    )
    lab.save("quoted", Report.from_dict(report))
    page = open_in_lab(open_page, lab, "quoted").page
    shown_report = live_report(page)
    # The card quotes its lines.
    shown_report.locator(".gb-break > details > summary").first.click()
    page.evaluate("document.querySelector('.jp-WindowedPanel-outer').scrollTop = 1e6")
    shown_report.get_by_label("Filter the pane").fill("print")
    expect(shown_report.get_by_role("status")).to_have_text("1 found")
    expect(shown_report.locator(".gb-break")).to_contain_text(["log_stats(x)"])


@pytest.mark.exhaustive
def test_the_strip_is_never_clipped(open_page: Open, lab: Lab) -> None:
    lab.save("strip", two_breaks())
    page = open_in_lab(open_page, lab, "strip").page
    report = live_report(page)
    for width in (1280, 760, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        if width == 760:
            show_panel(page)
        else:
            page.evaluate("jupyterapp.shell.collapseRight()")
        page.wait_for_timeout(300)
        assert report.locator(".gb-strip").evaluate("strip => strip.scrollWidth <= strip.clientWidth")
        expect(report.locator(".gb-strip a.gb-cut")).to_have_count(2)
        for number in (0, 1):
            expect(report.locator(".gb-strip a.gb-cut").nth(number)).to_be_in_viewport(ratio=1)


@pytest.mark.exhaustive
def test_a_new_run_removes_the_selection(open_page: Open, lab: Lab) -> None:
    program = (
        "import torch\n@torch.compile(backend='eager')\ndef f(x):\n    print('one')\n    return x + 1\nf(torch.ones(2))"
    )
    lab.save("again", "%load_ext jupyter_graphbreak", f"%%compile_explain\n{program}")
    page = open_in_lab(open_page, lab, "again", kernel=True).page
    run_all(page)
    report = page.locator(".graphbreak.gb-live.gb-column")
    expect(report).to_have_count(1, timeout=60_000)
    report.locator(".gb-break > details > summary").first.click()
    selected_marks = cell(page, 1).locator(".jp-GraphBreakMark.jp-mod-selected")
    expect(selected_marks).to_have_count(1)
    page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    start_command(page, "notebook:run-cell")
    expect(cell(page, 1).locator(".jp-InputPrompt")).to_have_text("[3]:", timeout=60_000)
    expect(report).to_have_count(1)
    expect(broken_marks(cell(page, 1))).to_have_count(1)
    expect(selected_marks).to_have_count(0)
    expect(report.locator(".gb-selected")).to_have_count(0)


def test_no_part_of_a_report_scrolls_in_a_notebook(open_page: Open, lab: Lab) -> None:
    """Each of the four panes has its natural height. The strip shows all breaks even in a narrow window."""
    lab.save("natural", big_report(breaks=11, ops=200))
    tested_page = open_in_lab(open_page, lab, "natural")
    report = live_report(tested_page.page)
    expect(report.get_by_role("tab")).to_have_text(["Breaks 11", re.compile("Graphs"), "Recompiles", "Details"])
    find_scrolling_parts = """report => Array.from(report.querySelectorAll('*')).filter(element =>
        element.checkVisibility() && element.scrollHeight > element.clientHeight + 1 && element.clientHeight > 0
        && /auto|scroll/.test(getComputedStyle(element).overflowY)).map(element => element.className)"""
    for tab in report.get_by_role("tab").all():
        tab.click()
        report.evaluate("report => report.querySelectorAll('.gb-side details').forEach(each => { each.open = true; })")
        tested_page.page.wait_for_timeout(200)
        assert report.evaluate(find_scrolling_parts) == []
    tested_page.page.set_viewport_size({"width": 600, "height": 800})
    strip = report.locator(".gb-strip")
    expect(strip.locator("a.gb-cut")).to_have_count(11)
    assert strip.evaluate("strip => strip.scrollWidth <= strip.clientWidth")
    assert tested_page.errors == []


def test_the_previous_report_stays_until_the_new_one_is_there(open_page: Open, lab: Lab) -> None:
    """A run shows its progress. During a second run, the page and the panel still show the first report."""
    function = "@torch.compile(backend='eager')\ndef f(x):\n    print('one')\n    return x + 1\nf(torch.ones(2))"
    # Each run of the cell ends when the test creates the file.
    wait = "while not os.path.exists('end'):\n    time.sleep(0.05)\nos.remove('end')"
    slow = f"%%compile_explain\n{function}\nimport os, time\n{wait}"
    lab.save("previous", "%load_ext jupyter_graphbreak\nimport torch", slow)
    tested_page = open_in_lab(open_page, lab, "previous", kernel=True)
    page = tested_page.page
    show_panel(page)
    run_all(page)
    progress = page.get_by_role("timer")
    expect(progress).to_be_visible(timeout=60_000)
    progress_texts = set()
    for _ in range(15):
        progress_texts.add(progress.inner_text())
        page.wait_for_timeout(100)
    tested_page.save_screenshot("lab-progress")
    assert len(progress_texts) >= 4, progress_texts
    assert all(re.search(r"\d+\.\d s$", text) for text in progress_texts)
    (lab.folder / "end").touch()
    report = page.locator(".graphbreak.gb-live.gb-column")
    expect(report).to_have_count(1, timeout=60_000)
    expect(progress).to_have_count(0)
    runs = rows(page, 1)
    expect(runs).to_have_count(1)
    page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    start_command(page, "notebook:run-cell")
    expect(progress).to_be_visible(timeout=30_000)
    expect(page.locator(".jp-GraphBreakPrevious .graphbreak")).to_be_visible()
    expect(runs).to_have_count(1)
    expect(panel(page).get_by_role("status")).to_have_text(re.compile(r"^Cell \[\*\]: (starting|running|compiling)"))
    tested_page.save_screenshot("previous-report")
    # The previous report can only be read.
    assert page.locator(".jp-GraphBreakPrevious > .graphbreak").evaluate("each => each.inert")
    cells_before = cell_contents(page)
    click_corner(page, page.locator(".jp-GraphBreakPrevious"))
    for key in ("x", "d", "d", "b"):
        page.keyboard.press(key)
    assert cell_contents(page) == cells_before
    (lab.folder / "end").touch()
    expect(progress).to_have_count(0, timeout=30_000)
    expect(page.locator(".jp-GraphBreakPrevious")).to_have_count(0)
    expect(report).to_have_count(1)
    expect(panel(page).get_by_role("status")).to_have_text("")
    assert tested_page.errors == []

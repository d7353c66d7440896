"""The page of a report, opened from a file: appearance, keyboard, hostile text, a thousand breaks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

from jupyter_graphbreak.report.schema import GuardFailure, Recompile
from jupyter_graphbreak.results import Report
from tests.browser.pages import first_paint_ms
from tests.support.sample_reports import (
    HOSTILE,
    SAVED_REPORTS,
    big_report,
    failed_run,
    hostile_report,
    no_breaks,
    two_breaks,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.conftest import PageUnderTest

    Open = Callable[..., PageUnderTest]

SELECTED_CLASS = re.compile(r"\bgb-selected\b")
HIGHLIGHTED_CLASS = re.compile(r"\bgb-related\b")


def source_line(tested_page: PageUnderTest, number: int) -> Any:
    """Return the line with this number in the first source."""
    return tested_page.page.locator(f".gb-line[id$='l0-{number}']")


def expand_all(tested_page: PageUnderTest) -> None:
    """Expand all folded parts."""
    tested_page.page.evaluate(
        "document.querySelectorAll('.gb-main details').forEach(details => { details.open = true; })"
    )


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("two_breaks", "light"),
        ("failed", "dark"),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (("two_breaks", "dark"), ("failed", "light"), ("no_breaks", "light"), ("no_breaks", "dark"))
        ),
    ],
)
def test_every_pane_is_accessible_in_both_themes(open_report: Open, name: str, scheme: str) -> None:
    tested_page = open_report(SAVED_REPORTS[name](), scheme=scheme)
    tested_page.save_screenshot(f"page-{name}-{scheme}")
    tabs = tested_page.page.get_by_role("tab")
    for index in range(tabs.count()):
        tabs.nth(index).click()
        pane = tested_page.page.get_by_role("tabpanel").filter(visible=True)
        expect(pane).to_have_count(1)
        expand_all(tested_page)
        assert tested_page.serious_violations() == []
        tested_page.save_screenshot(f"page-{name}-{scheme}-{tabs.nth(index).inner_text().split()[0].lower()}")
    assert tested_page.errors == []


def test_the_themes_differ(open_report: Open) -> None:
    def colours(scheme: str) -> list[str]:
        page = open_report(two_breaks(), scheme=scheme).page
        values: list[str] = page.evaluate(
            """() => ['.graphbreak', '.gb-verdict', '.gb-strip a b', '.gb-band', '.gb-dim, small'].map(
                name => getComputedStyle(document.querySelector(name)).color)"""
        )
        return values

    assert not set(colours("light")) & set(colours("dark"))


def test_only_the_page_itself_is_loaded(open_report: Open) -> None:
    tested_page = open_report(two_breaks())
    tested_page.page.wait_for_timeout(300)
    assert len(tested_page.requests) == 1
    assert tested_page.requests[0].startswith("file:")


def test_two_breaks_are_visible_without_scrolling(open_report: Open) -> None:
    """At 1280 x 800 px, the summary, both breaks in the source, and the advice on both cards are visible."""
    page = open_report(two_breaks()).page
    parts = [
        page.locator(".gb-verdict"),
        page.locator(".gb-strip"),
        page.locator(".gb-note").nth(0),
        page.locator(".gb-note").nth(1),
        page.locator(".gb-do").nth(0),
        page.locator(".gb-do").nth(1),
    ]
    for part in parts:
        expect(part).to_be_in_viewport(ratio=1)


def test_the_page_is_readable_and_its_links_work_without_scripts(open_report: Open) -> None:
    tested_page = open_report(two_breaks(), scripts=False)
    tested_page.save_screenshot("page-no-script")
    page = tested_page.page
    expect(page.get_by_text("Breaks 2")).to_be_visible()
    expect(page.get_by_text("Graphs 4")).to_be_visible()
    expect(page.get_by_role("tab")).to_have_count(0)
    page.locator(".gb-note a").first.click()
    assert page.url.endswith("b2")
    page.get_by_text("Graphs 4").click()
    page.locator(".gb-item summary", has_text="4 ops").click()
    expect(page.get_by_text("torch.matmul")).to_be_visible()


def test_the_page_fits_its_width(open_report: Open) -> None:
    tested_page = open_report(two_breaks())
    for width in (1280, 800, 480):
        tested_page.page.set_viewport_size({"width": width, "height": 800})
        tested_page.save_screenshot(f"page-{width}")
        assert tested_page.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width


def test_a_long_name_pushes_nothing_out_of_view(open_report: Open) -> None:
    report = no_breaks()
    guard = GuardFailure(f"L['args'][0].{'name_' * 20} == 3")
    graphs = [replace(graph, name="name_" * 40) for graph in report.graphs]
    recompiles = [Recompile("0/1", "0/0", "f", None, [guard])]
    page = open_report(Report.of(replace(report, graphs=graphs, recompiles=recompiles)), width=800).page
    page.get_by_role("tab", name="Recompiles").click()
    table = page.get_by_role("region", name="Recompiles")
    assert table.evaluate("element => element.scrollWidth <= element.clientWidth")
    page.get_by_role("tab", name="Graphs").click()
    for part in ("strong", ".gb-place"):
        box = page.locator(f".gb-item summary > {part}").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 800, part
    page.locator(".gb-item > details > summary").click()
    expect(page.get_by_role("status")).to_have_text(re.compile(r"^A (name_)+n?a?m?e?…$"))


def test_hostile_text_is_shown_and_never_executed(open_report: Open) -> None:
    tested_page = open_report(hostile_report())
    page = tested_page.page
    for tab in page.get_by_role("tab").all():
        tab.click()
        expand_all(tested_page)
    for key in "npgbc?":
        page.keyboard.press(key)
    page.get_by_label("Filter the pane").fill("<img")
    page.wait_for_timeout(200)
    tested_page.save_screenshot("page-hostile")
    assert page.evaluate("window.hacked") is None
    assert page.locator(".graphbreak :is(img, script, iframe)").count() == 0
    assert HOSTILE in page.locator(".gb-head").inner_text()
    assert not page.locator("a[href^='javascript']").count()
    assert tested_page.errors == []


def test_selecting_a_break_highlights_its_line_its_resume_function_and_its_graph(open_report: Open) -> None:
    tested_page = open_report(two_breaks())
    page = tested_page.page
    page.locator(".gb-strip .gb-tick a", has_text="✂1").click()
    expect(page.locator(".gb-item", has_text="Branch on a tensor's value")).to_have_class(SELECTED_CLASS)
    expect(page.locator(".gb-strip .gb-tick a", has_text="✂1")).to_have_class(SELECTED_CLASS)
    expect(source_line(tested_page, 14)).to_have_class(HIGHLIGHTED_CLASS)
    expect(source_line(tested_page, 15)).to_have_class(HIGHLIGHTED_CLASS)  # where it resumes
    expect(source_line(tested_page, 22)).to_have_class(HIGHLIGHTED_CLASS)  # the call that leads to it
    expect(source_line(tested_page, 5)).not_to_have_class(HIGHLIGHTED_CLASS)
    expect(page.locator(".gb-strip a", has_text=re.compile("^B"))).to_have_class(HIGHLIGHTED_CLASS)
    expect(page.get_by_role("status")).to_contain_text("Branch on a tensor's value GB0170 score > 3 line 14")
    tested_page.save_screenshot("page-selected-break")
    page.get_by_role("tab", name="Details").click()
    expect(page.get_by_role("row", name="line 15 in step")).to_have_class(HIGHLIGHTED_CLASS)


@pytest.mark.exhaustive
def test_a_double_click_closes_a_card_and_selecting_text_does_not(open_report: Open) -> None:
    page = open_report(two_breaks()).page
    card = page.locator(".gb-item", has_text="Branch on a tensor's value").locator("> details")
    head = card.locator("> summary")
    is_open = card.evaluate("card => card.open")
    for clicks in (2, 1, 2, 1):
        head.click(click_count=clicks, delay=10)
        is_open ^= clicks == 1
        assert card.evaluate("card => card.open") is is_open
        page.wait_for_timeout(700)  # so that the next click is not part of a double click
    box = head.locator("strong").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 1, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    assert page.evaluate("String(getSelection())").strip() != ""
    assert card.evaluate("card => card.open") is is_open


def test_selecting_a_line_shows_its_operations_and_an_operation_its_line(open_report: Open) -> None:
    tested_page = open_report(two_breaks())
    page = tested_page.page
    source_line(tested_page, 12).locator("code").click()
    expect(page.get_by_role("tab", name="Graphs")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("row", name="Tensor.abs")).to_be_visible()
    expect(page.get_by_role("row", name="Tensor.abs")).to_have_class(HIGHLIGHTED_CLASS)
    expect(page.get_by_role("row", name="torch.matmul")).not_to_have_class(HIGHLIGHTED_CLASS)
    expect(page.locator(".gb-strip a", has_text=re.compile("^A"))).to_have_class(HIGHLIGHTED_CLASS)
    tested_page.save_screenshot("page-selected-line")
    page.get_by_role("row", name="torch.matmul").get_by_role("cell").nth(1).click()
    expect(source_line(tested_page, 11)).to_have_class(SELECTED_CLASS)


def test_selecting_a_graph_highlights_all_its_lines(open_report: Open) -> None:
    tested_page = open_report(two_breaks())
    tested_page.page.locator(".gb-strip a", has_text=re.compile("^A")).click()
    for number in (11, 12, 14):
        expect(source_line(tested_page, number)).to_have_class(HIGHLIGHTED_CLASS)
    expect(source_line(tested_page, 15)).not_to_have_class(HIGHLIGHTED_CLASS)
    expect(tested_page.page.get_by_role("tab", name="Graphs")).to_have_attribute("aria-selected", "true")


def test_selecting_a_scope_highlights_its_lines(open_report: Open) -> None:
    tested_page = open_report(two_breaks())
    page = tested_page.page
    page.get_by_role("tab", name="Details").click()
    page.get_by_role("row", name="line 13").get_by_role("cell").first.click()
    expect(source_line(tested_page, 14)).to_have_class(HIGHLIGHTED_CLASS)
    expect(source_line(tested_page, 12)).not_to_have_class(HIGHLIGHTED_CLASS)


def test_keys_move_between_breaks(open_report: Open) -> None:
    tested_page = open_report(two_breaks())
    page, press = tested_page.page, tested_page.page.keyboard.press
    press("n")
    expect(source_line(tested_page, 14)).to_have_class(HIGHLIGHTED_CLASS)
    expect(page.locator(".gb-item").nth(0).locator("summary").first).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press("n")
    expect(source_line(tested_page, 5)).to_have_class(HIGHLIGHTED_CLASS)
    press("n")  # wraps around
    expect(source_line(tested_page, 14)).to_have_class(HIGHLIGHTED_CLASS)
    press("p")
    expect(source_line(tested_page, 5)).to_have_class(HIGHLIGHTED_CLASS)
    press("Shift+F8")
    expect(source_line(tested_page, 14)).to_have_class(HIGHLIGHTED_CLASS)
    press("F8")
    expect(source_line(tested_page, 5)).to_have_class(HIGHLIGHTED_CLASS)
    card = page.locator(".gb-item").nth(1).locator("details").first
    press("o")
    expect(card).not_to_have_attribute("open", "")
    press("o")
    expect(card).to_have_attribute("open", "")
    press("g")
    expect(page.get_by_role("tab", name="Graphs")).to_be_focused()
    press("ArrowRight")
    expect(page.get_by_role("tab", name="Recompiles")).to_be_focused()
    expect(page.get_by_role("tab", name="Recompiles")).to_have_attribute("aria-selected", "true")
    press("End")
    expect(page.get_by_role("tab").last).to_be_focused()
    press("Home")
    expect(page.get_by_role("tab").first).to_be_focused()
    press("/")
    page.keyboard.type("branch")
    expect(page.locator(".gb-item").filter(visible=True)).to_have_count(1)
    expect(page.get_by_role("status")).to_have_text("1 found")
    press("Escape")
    expect(page.locator(".gb-item").filter(visible=True)).to_have_count(2)
    press("Escape")
    expect(page.locator(".gb-selected, .gb-related")).to_have_count(0)
    press("Escape")
    assert page.evaluate("document.activeElement === document.body")
    press("?")
    expect(page.get_by_text("next, previous break")).to_be_visible()
    tested_page.save_screenshot("page-keys")
    press("Escape")
    expect(page.get_by_text("next, previous break")).not_to_be_visible()


def test_arrow_keys_select_lines(open_report: Open) -> None:
    tested_page = open_report(two_breaks())
    tested_page.page.get_by_role("region", name="Lines of Cell In[7]").focus()
    tested_page.page.keyboard.press("ArrowDown")
    tested_page.page.keyboard.press("ArrowDown")
    expect(tested_page.page.locator(".gb-line.gb-selected")).to_have_count(1)
    expect(tested_page.page.get_by_role("region", name="Lines of Cell In[7]")).to_be_focused()


def test_a_report_is_copied_as_text_and_as_json(open_report: Open) -> None:
    report = hostile_report()
    page = open_report(report).page
    page.keyboard.press("c")
    expect(page.get_by_role("status")).to_have_text("Copied as text")
    assert page.evaluate("navigator.clipboard.readText()") == report.to_text()
    page.keyboard.press("C")
    expect(page.get_by_role("status")).to_have_text("Copied as JSON")
    assert Report.from_json(page.evaluate("navigator.clipboard.readText()")) == report


def test_the_n_key_reports_that_there_are_no_breaks_and_selects_the_break_of_a_failed_run(open_report: Open) -> None:
    page = open_report(no_breaks()).page
    page.keyboard.press("n")
    expect(page.get_by_role("status")).to_have_text("No breaks")
    tested_page = open_report(failed_run())
    tested_page.page.keyboard.press("n")
    expect(source_line(tested_page, 5)).to_have_class(HIGHLIGHTED_CLASS)


def test_a_page_with_a_thousand_breaks_paints_and_filters_quickly(open_report: Open) -> None:
    """The page paints within a second and filters within 100 ms, and its filter leads to the last break."""
    tested_page = open_report(big_report())
    page = tested_page.page
    paint_ms = first_paint_ms(page)
    assert paint_ms < 1000
    tested_page.save_screenshot("page-big")
    page.get_by_text("1000 locations").click()
    page.get_by_role("button", name="Show 50 of 990 more").click()
    expect(page.locator(".gb-item[id*='b']").filter(visible=True)).to_have_count(60)
    filter_box = page.get_by_label("Filter the pane")
    filter_box.focus()
    page.wait_for_timeout(500)
    filter_times = page.evaluate(
        """box => {
            const texts = ['9', '99', '999', ''];
            const times = texts.map(() => []);
            for (let round = 0; round < 4; round += 1) {
                texts.forEach((text, index) => {
                    const start = performance.now();
                    box.value = text;
                    box.dispatchEvent(new Event('input', { bubbles: true }));
                    document.body.getBoundingClientRect();
                    times[index].push(performance.now() - start);
                });
            }
            return times;
        }""",
        filter_box.element_handle(),
    )
    # Load on the machine can only increase a time, so the shortest one is used.
    assert max(map(min, filter_times)) < 100, filter_times
    filter_box.fill("layer_999")
    expect(page.locator(".gb-item").filter(visible=True)).to_have_count(1)
    page.locator(".gb-item summary").filter(visible=True).first.click()
    expect(page.locator(".gb-line", has_text="print('at', 999)")).to_be_visible()
    filter_box.fill("")
    page.get_by_role("tab", name="Graphs").click()
    filter_box.fill("mul_500_7")
    expect(page.locator(".gb-item").filter(visible=True)).to_have_count(1)
    tested_page.save_screenshot("page-big-filtered")
    assert tested_page.errors == []


def test_the_rest_of_a_graphs_code_receives_the_focus_of_its_button(open_report: Open) -> None:
    page = open_report(big_report(breaks=1, ops=20)).page
    page.locator(".gb-strip a").first.click()
    code = page.locator("[data-pane=graphs] .gb-more").first
    code.locator("summary").click()
    code.get_by_role("button", name="Show").click()
    expect(code.locator("pre").last).to_be_focused()


def test_all_operations_of_a_large_graph_can_be_shown(open_report: Open) -> None:
    tested_page = open_report(big_report(breaks=1, ops=10_000))
    page = tested_page.page
    page.locator(".gb-strip a").first.click()
    page.get_by_role("button", name="Show 500 of 9995 more").click()
    expect(page.locator("tbody tr").filter(visible=True)).to_have_count(505)
    expect(page.locator("tbody tr").nth(5).get_by_role("link")).to_be_focused()
    page.get_by_label("Filter the pane").fill("mul_0_9999")
    expect(page.get_by_role("row", name="mul_0_9999")).to_be_visible()
    assert tested_page.errors == []


def test_the_page_contains_the_report_for_other_programs(open_report: Open) -> None:
    report = two_breaks()
    saved_report = open_report(report).page.locator("script[data-graphbreak=report]").text_content()
    assert Report.from_dict(json.loads(saved_report or "")) == report

"""Pages of the documentation, opened from files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.pages import menu_button

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.conftest import PageUnderTest

    Open = Callable[..., PageUnderTest]

SELECTED_CLASS = re.compile(r"\bgb-selected\b")
HIGHLIGHTED_CLASS = re.compile(r"\bgb-related\b")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("name", "scheme"), [("quickstart", "light"), ("error_on_graph_break", "dark")])
def test_a_page_is_accessible_and_loads_only_files(open_page: Open, site: Path, name: str, scheme: str) -> None:
    tested_page = open_page(site / f"{name}.html", scheme=scheme)
    report = tested_page.page.locator(".graphbreak").first
    report.scroll_into_view_if_needed()
    expect(report.locator(".gb-do").first).to_be_in_viewport(ratio=1)
    tested_page.save_screenshot(f"docs-{name}-{scheme}")
    assert tested_page.serious_violations() == []
    assert tested_page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert [url for url in tested_page.requests if not url.startswith("file:")] == []
    assert tested_page.errors == []


def test_each_report_of_a_page_is_interactive_independently(open_page: Open, site: Path) -> None:
    tested_page = open_page(site / "quickstart.html")
    page = tested_page.page
    expect(page.locator(".graphbreak.gb-live")).to_have_count(4)
    first, second = page.locator(".graphbreak").nth(0), page.locator(".graphbreak").nth(1)
    first.locator(".gb-strip .gb-tick a").click()
    expect(first.locator(".gb-item").first).to_have_class(SELECTED_CLASS)
    expect(first.locator(".gb-line[id$='l0-8']")).to_have_class(HIGHLIGHTED_CLASS)
    expect(first.locator(".gb-line[id$='l0-9']")).to_have_class(HIGHLIGHTED_CLASS)
    assert second.locator(".gb-selected, .gb-related").count() == 0
    first.get_by_role("tab", name="Graphs").click()
    first.get_by_label("Filter the pane").fill("truediv")
    expect(first.locator(".gb-item").filter(visible=True)).to_have_count(1)
    first.get_by_label("Filter the pane").press("Escape")
    second.get_by_role("tab", name="Graphs").press("b")
    expect(second.get_by_role("tab", name="Breaks")).to_be_focused()
    expect(first.get_by_role("tab", name="Graphs")).to_have_attribute("aria-selected", "true")
    first.get_by_role("tab", name="Graphs").press("n")
    expect(first.locator(".gb-item summary").first).to_be_focused()
    menu_button(first, "Copy text").click()
    expect(first.get_by_role("status")).to_have_text("Copied as text")
    assert page.evaluate("navigator.clipboard.readText()").startswith("1 break")
    assert tested_page.errors == []


def test_a_card_leads_to_the_page_of_its_cause(open_page: Open, site: Path) -> None:
    page = open_page(site / "quickstart.html").page
    report = page.locator(".graphbreak.gb-live").first
    report.locator(".gb-more > summary").first.click()
    report.get_by_role("link", name="GB0170: programs and fixes").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("GB0170")


def test_the_theme_switch_applies_to_reports(open_page: Open, site: Path) -> None:
    page = open_page(site / "quickstart.html", scheme="light").page
    colours = """() => ['background-color', 'color'].map(name => [
        getComputedStyle(document.querySelector('.graphbreak')).getPropertyValue(name),
        getComputedStyle(document.body).getPropertyValue(name)])"""
    light_colours = page.evaluate(colours)
    page.evaluate("document.body.dataset.theme = 'dark'")
    dark_colours = page.evaluate(colours)
    assert all(report_colour == page_colour for report_colour, page_colour in [*light_colours, *dark_colours])
    assert not {report_colour for report_colour, _ in light_colours} & {
        report_colour for report_colour, _ in dark_colours
    }


def test_without_scripts_a_page_is_complete(open_page: Open, site: Path) -> None:
    tested_page = open_page(site / "quickstart.html", scripts=False)
    tested_page.save_screenshot("docs-no-script")
    report = tested_page.page.locator(".graphbreak").first
    expect(report.get_by_text("Branch on a tensor's value").first).to_be_visible()
    expect(report.locator(".gb-do").first).to_be_visible()
    report.get_by_text("Graphs 2").click()
    expect(report.locator(".gb-item summary", has_text="2 ops").first).to_be_visible()
    report.locator(".gb-note a").first.click()
    assert re.search(r"#g\w+-b1$", tested_page.page.url)

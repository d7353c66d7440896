"""Accessibility in every theme: folded and expanded, with remedies, cost, results and jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from jupyter_graphbreak.views.html.job import render_job_page
from tests.browser.pages import open_in_lab, switch_theme, trust
from tests.browser.test_panel import show_panel
from tests.support.lab_server import job_cell
from tests.support.sample_reports import failed_run, job, report_with_everything
from tests.support.sampling import sample_parameters

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Locator

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab

    Open = Callable[..., PageUnderTest]

#: JupyterLab's built-in themes, and forced colours.
THEMES = ["JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast", "forced"]


def unfold(within: Locator) -> None:
    """Show all parts of all panes at once, because axe ignores hidden parts."""
    within.evaluate(
        """root => {
            root.querySelectorAll('.gb-pane').forEach(pane => { pane.hidden = false; });
            root.querySelectorAll('.gb-main details, .gb-process').forEach(details => { details.open = true; });
        }"""
    )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_no_theme_of_jupyterlab_causes_a_serious_violation(open_page: Open, lab: Lab) -> None:
    lab.save("themes", report_with_everything(), failed_run(), job_cell(job(), 3))
    tested_page = open_in_lab(open_page, lab, "themes")
    page = tested_page.page
    trust(page)
    show_panel(page)
    expect(page.locator(".graphbreak.gb-live")).to_have_count(5, timeout=30_000)
    for name in THEMES:
        if name == "forced":
            page.emulate_media(forced_colors="active")
        else:
            switch_theme(page, name)
        short_name = name.removeprefix("JupyterLab ").replace(" ", "-").lower()
        page.locator(".graphbreak details").evaluate_all(
            "elements => elements.forEach(details => { details.open = false; })"
        )
        tested_page.save_screenshot(f"themes-{short_name}-folded")
        assert tested_page.serious_violations() == [], name
        assert tested_page.serious_violations(".jp-GraphBreakPanel") == [], name
        unfold(page.locator(".jp-Notebook"))
        assert tested_page.serious_violations() == [], name
        tested_page.save_screenshot(f"themes-{short_name}")
    page.emulate_media(forced_colors="none")
    process = page.locator(".gb-process .graphbreak.gb-live").nth(1)
    process.get_by_role("tab", name="Breaks").press("n")
    card = process.locator(".gb-item").first
    expect(card).to_have_class(re.compile(r"\bgb-selected\b"))
    expect(card).to_be_in_viewport()
    # The report of another process selects nothing in the cell and the panel.
    expect(page.locator(".jp-GraphBreakMark.jp-mod-selected")).to_have_count(0)
    expect(process.get_by_role("status")).not_to_be_empty()
    assert tested_page.errors == []


@pytest.mark.parametrize("scheme", sample_parameters(["light", "dark", "forced"], 3))
def test_a_saved_page_has_no_serious_violation(open_report: Open, scheme: str) -> None:
    tested_page = open_report(report_with_everything(), scheme="light" if scheme == "forced" else scheme)
    if scheme == "forced":
        tested_page.page.emulate_media(forced_colors="active")
    assert tested_page.serious_violations("html") == []
    unfold(tested_page.page.locator("body"))
    assert tested_page.serious_violations("html") == []
    tested_page.save_screenshot(f"themes-page-{scheme}")
    assert tested_page.errors == []


@pytest.mark.parametrize("scheme", sample_parameters(["dark", "light"], 2))
def test_all_reports_of_a_job_page_are_interactive(open_page: Open, tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "job.html"
    path.write_text(render_job_page(job()), encoding="utf-8")
    tested_page = open_page(path, scheme=scheme)
    page = tested_page.page
    assert tested_page.serious_violations("html") == []
    tested_page.save_screenshot(f"job-{scheme}-folded")
    expect(page.locator(".graphbreak.gb-live")).to_have_count(3)
    expect(page.get_by_text("only on rank 0, not on rank 1").first).to_be_visible()
    unfold(page.locator("body"))
    page.locator(".graphbreak.gb-live").nth(1).get_by_role("tab", name="Breaks").press("n")
    expect(page.locator(".graphbreak.gb-live").nth(1).locator(".gb-item").first).to_be_in_viewport()
    tested_page.save_screenshot(f"job-{scheme}")
    assert tested_page.serious_violations("html") == []
    assert tested_page.errors == []

"""Untrusted notebooks: reports of any size and shape do not slow or break JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

from jupyter_graphbreak.report.schema import MIME_TYPE
from tests.browser.pages import open_in_lab, start_command, trust
from tests.support.lab_server import report_cell
from tests.support.sample_reports import two_breaks

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab

    Open = Callable[..., PageUnderTest]

#: JavaScript that waits until the page is idle.
_WAIT_UNTIL_IDLE = """
() => new Promise(resolve => {
  let quiet = 0;
  const look = deadline => {
    quiet = deadline.timeRemaining() > 5 ? quiet + 1 : 0;
    quiet >= 10 ? resolve() : requestIdleCallback(look);
  };
  requestIdleCallback(look);
})"""


def report_with_many_sources(count: int = 20_000) -> dict[str, Any]:
    report: dict[str, Any] = two_breaks().to_dict()
    for index in range(count):
        text = f"def function_{index}(x):\n    return x + {index}\n" + "# text\n" * 12
        segments = [{"first_line": 1, "text": text}]
        report["sources"].append(
            {"id": f"x{index}", "name": f"Cell In[{index + 10}]", "kind": "cell", "segments": segments}
        )
    return report


def report_with_many_breaks(count: int = 10_000) -> dict[str, Any]:
    report: dict[str, Any] = two_breaks().to_dict()
    short_break = report["breaks"][0] | {"stack": [], "occurrences": [], "hints": [], "explanation": "", "advice": []}
    report["breaks"] = [short_break | {"id": f"b{index}"} for index in range(count)]
    report["order"] = []
    return report


def cell_with_report(report: dict[str, Any], mime: str = MIME_TYPE) -> Any:
    """Return a cell with the HTML output of the sample `two_breaks`, but with a different report as its data."""
    cell = report_cell(two_breaks())
    data = cell.outputs[0].data
    del data[MIME_TYPE]
    data[mime] = report
    return cell


class ThreadClock:
    """Measures the processor time of a page's main thread, which does not depend on other load."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds(self) -> float:
        """Return the processor time since the clock was created, in seconds."""
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def open_and_time(open_page: Open, lab: Lab, name: str) -> tuple[PageUnderTest, float]:
    """Open a notebook in JupyterLab while the panel is open; return the page and the processor time in seconds."""
    lab.save("empty", "x = 1")
    tested_page = open_in_lab(open_page, lab, "empty")
    page = tested_page.page
    start_command(page, "jupyter-graphbreak:show-panel")
    page.locator(".jp-GraphBreakPanel").wait_for()
    page.evaluate(_WAIT_UNTIL_IDLE)
    clock = ThreadClock(page)
    start_command(page, "docmanager:open", path=f"{name}.ipynb")
    page.wait_for_function("name => jupyterapp.shell.currentWidget?.context?.path === name", arg=f"{name}.ipynb")
    page.wait_for_function("jupyterapp.shell.currentWidget.context.isReady")
    page.locator(".jp-Notebook .jp-Cell:visible").first.wait_for()
    page.evaluate(_WAIT_UNTIL_IDLE)
    return tested_page, clock.seconds()


@pytest.mark.exhaustive
def test_a_notebook_with_20_000_sources_opens_quickly(open_page: Open, lab: Lab) -> None:
    lab.save("sources", cell_with_report(report_with_many_sources()), *["x = 1"] * 200)
    assert (lab.folder / "sources.ipynb").stat().st_size > 5_000_000
    # The same data with an unknown MIME type.
    lab.save("other", cell_with_report(report_with_many_sources(), "application/x-other+json"), *["x = 1"] * 200)
    _, seconds_without_reports = open_and_time(open_page, lab, "other")
    tested_page, seconds = open_and_time(open_page, lab, "sources")
    page = tested_page.page
    expect(page.get_by_role("treeitem").first).to_contain_text("only 5000 of 20001 read: sources")
    assert seconds < 3 * seconds_without_reports + 3, seconds_without_reports
    # Each edit of a cell makes the extension check the reports.
    clock = ThreadClock(page)
    for _ in range(5):
        page.evaluate("jupyterapp.shell.currentWidget.model.sharedModel.cells[1].updateSource(0, 0, '# more\\n')")
        page.evaluate(_WAIT_UNTIL_IDLE)
    assert clock.seconds() < 5
    assert [*tested_page.errors, *tested_page.complaints] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("trusted", [False, True])
def test_a_notebook_with_10_000_breaks_on_one_line_opens_and_counts_them(
    open_page: Open, lab: Lab, trusted: bool
) -> None:
    name = f"breaks-{trusted}"
    lab.save(name, cell_with_report(report_with_many_breaks()))
    tested_page, seconds = open_and_time(open_page, lab, name)
    page = tested_page.page
    if trusted:
        trust(page)
        expect(page.locator(".graphbreak.gb-live")).to_have_count(1)
    assert seconds < 20
    run_row = page.get_by_role("treeitem").first
    expect(run_row).to_contain_text("Breaks 10000")
    expect(run_row).to_contain_text("only 5000 of 10000 read: breaks")
    line = page.locator(".jp-Notebook .cm-line.jp-mod-broken")
    expect(line).to_have_count(1)
    expect(line).to_contain_text("+4998")
    expect(page.locator(".jp-GraphBreakMark-sign", has_text="+4998")).to_have_count(1)
    expression = line.locator(".jp-GraphBreakMark-cut")
    expect(expression).to_have_count(1)
    expression.scroll_into_view_if_needed()
    expression.hover()
    expect(page.locator(".jp-GraphBreakMark-hint")).to_contain_text("10/5000")
    start_command(page, "jupyter-graphbreak:next-break")
    expect(page.get_by_role("treeitem", selected=True)).to_have_count(1)
    assert tested_page.errors == []


@pytest.mark.exhaustive
def test_broken_references_and_numbers_do_no_harm(open_page: Open, lab: Lab) -> None:
    def corrupt_report(number: Any, reference: str) -> dict[str, Any]:
        def corrupt(value: Any, name: str = "") -> Any:
            if isinstance(value, dict):
                return {key: corrupt(inner, key) for key, inner in value.items()}
            if isinstance(value, list):
                return [corrupt(inner, name) for inner in value]
            if name in {"line", "end_line", "column", "end_column", "first_line"}:
                return number
            if name in {"frame", "caller", "parent", "break", "resume", "scope", "id"} and isinstance(value, str):
                return reference
            return value

        report: dict[str, Any] = corrupt(two_breaks().to_dict())
        report["config"]["__proto__"] = {"polluted": True}
        return report

    cells = []
    for number, reference in ((-5, "__proto__"), (0, "b1"), (10**9, "constructor"), (2**60, ""), (1, "0/0")):
        cells.append(cell_with_report(corrupt_report(number, reference)))
    cell_without_fields = report_cell(two_breaks())
    cell_without_fields.outputs[0].data = {MIME_TYPE: {"status": "ok"}}
    cell_with_foreign_markup = report_cell(two_breaks())
    cell_with_foreign_markup.outputs[0].data["text/html"] = (
        '<div class="graphbreak" data-prefix="x-"><p>nothing else</p></div>'
    )
    lab.save("spoilt", *cells, cell_without_fields, cell_with_foreign_markup)
    tested_page, _ = open_and_time(open_page, lab, "spoilt")
    page = tested_page.page
    trust(page)
    expect(page.get_by_role("treeitem", level=1)).to_have_count(7)
    expect(page.get_by_text("nothing else")).to_be_visible()
    for _ in range(6):
        start_command(page, "jupyter-graphbreak:next-break")
        page.evaluate(_WAIT_UNTIL_IDLE)
    assert page.evaluate("({}).polluted") is None
    assert page.locator(".jp-OutputArea-output", has_text="undefined").count() == 0
    assert tested_page.errors == []


def test_links_of_a_report_lead_only_to_pytorch(open_page: Open, lab: Lab) -> None:
    report = two_breaks()
    first, second = report.breaks
    breaks = [first, replace(second, url="https://example.com/phishing")]
    cell = report_cell(replace(report, breaks=breaks))
    data = cell.outputs[0].data
    data["text/html"] = data["text/html"].replace("<h2", '<a class="other" href="https://example.com/">x</a><h2', 1)
    lab.save("links", cell)
    tested_page = open_in_lab(open_page, lab, "links")
    page = tested_page.page
    trust(page)
    expect(page.locator(".graphbreak.gb-live")).to_have_count(1)
    links = page.locator(".graphbreak a[href]:not([href^='#'])")
    assert links.evaluate_all("links => links.map(link => [link.href, link.rel])") == [
        [first.url, "noopener noreferrer"]
    ]

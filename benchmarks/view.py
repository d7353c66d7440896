"""Measure how big a report gets on its way to the reader, and how fast it shows: 1,000 breaks and 10,000 operations.

Needs the browser that the browser tests need, and the front end built (``npm --prefix labextension run build``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jupyter_graphbreak.results import Report  # noqa: E402 - the project's own folder comes first
from jupyter_graphbreak.views.html.bundle import mime_bundle  # noqa: E402
from jupyter_graphbreak.views.html.render import render_html, render_page, render_rest  # noqa: E402
from jupyter_graphbreak.views.html.widget import ReportWidget  # noqa: E402
from tests.find_browser import find_browser  # noqa: E402
from tests.sample_reports import big, two_breaks  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

_FILTER = """
box => ['9', '99', '999', '', 'l', 'la', 'lay'].map(text => {
  const start = performance.now();
  box.value = text;
  box.dispatchEvent(new Event('input', { bubbles: true }));
  document.body.getBoundingClientRect();
  return performance.now() - start;
})"""


def main() -> int:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("reports", nargs="*", type=Path, help="saved reports (.json) to measure as well")
    parser.add_argument("--runs", type=int, default=5, help="how often each page is opened (default: %(default)s)")
    arguments = parser.parse_args()
    reports = {"2 breaks, 9 ops": two_breaks(), "1,000 breaks, 10,000 ops": big()}
    reports |= {path.name: Report.from_json(path.read_bytes()) for path in arguments.reports}
    for name, report in reports.items():
        print(name)
        _sizes(report)
        _times(report, arguments.runs)
    return 0


def _sizes(report: Report) -> None:
    widget = ReportWidget()
    html, html_s = _timed(lambda: render_html(report))
    _, rest_s = _timed(lambda: render_rest(report))
    widget.finish(report)
    bundle = mime_bundle(report, widget)
    state = {key: value for key, value in widget.get_state().items() if key != "layout"}
    for mime_type, data in bundle.items():
        print(f"  {_kb(data):>9} {mime_type}")
    print(f"  {_kb(bundle):>9} the cell's saved output, all of them; {_notebook_kb(bundle)} as a notebook indents it")
    print(f"  {_kb(state):>9} the widget's state, where a front end saves it; its script is {_kb(state['_esm'])}")
    print(f"  {len(render_page(report)) / 1e3:6.0f} kB a page of its own")
    print(f"  rendering: {html_s * 1e3:.0f} ms ({len(html)} characters), what that leaves out {rest_s * 1e3:.0f} ms")


def _times(report: Report, runs: int) -> None:
    from playwright.sync_api import sync_playwright

    paints: list[float] = []
    keys: list[float] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        report.save(path)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"])
        for _ in range(runs):
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(path.as_uri())
            page.wait_for_selector(".gb-live")
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            box = page.get_by_label("Filter the pane")
            box.focus()
            page.wait_for_timeout(1000)
            keys += page.evaluate(_FILTER, box.element_handle())
            page.close()
        browser.close()
    print(f"  first paint: {statistics.median(paints):.0f} ms, at most {max(paints):.0f} ms")
    print(f"  a key pressed in the filter: {statistics.median(keys):.1f} ms, at most {max(keys):.1f} ms")


def _timed(act: Callable[[], Any]) -> tuple[Any, float]:
    act()  # templates are compiled the first time
    start = time.perf_counter()
    return act(), time.perf_counter() - start


def _notebook_kb(bundle: dict[str, Any]) -> str:
    output = nbformat.v4.new_output("display_data", data=bundle)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])])
    return f"{len(nbformat.writes(notebook)) / 1e3:.0f} kB"


def _kb(data: Any) -> str:
    return f"{len(json.dumps(data)) / 1e3:.0f} kB"


if __name__ == "__main__":
    sys.exit(main())

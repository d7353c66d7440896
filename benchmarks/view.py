"""Measure the sizes of small and large reports, and how long a browser takes to show them.

Each report is measured on a page of its own and, with ``--lab``, as the output of a cell in JupyterLab. Needs the
browser that the browser tests need, and the front end built (``npm --prefix labextension run build``).
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

from jupyter_graphbreak.results import Report
from jupyter_graphbreak.views.html.bundle import mime_bundle
from jupyter_graphbreak.views.html.render import render_html, render_page, render_rest
from jupyter_graphbreak.views.html.widget import ReportWidget
from tests.browser.pages import first_paint_ms, start_command, wait_for_kernel, wait_for_notebook
from tests.support.find_browser import find_browser
from tests.support.lab_server import jupyterlab
from tests.support.sample_reports import big_report, two_breaks

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

    from tests.support.lab_server import Lab

_FILTER = """
box => ['9', '99', '999', '', 'l', 'la', 'lay'].map(text => {
  const start = performance.now();
  box.value = text;
  box.dispatchEvent(new Event('input', { bubbles: true }));
  document.body.getBoundingClientRect();
  return performance.now() - start;
})"""


_MORE = """
async button => {
  const list = document.querySelector(`[data-list="${button.closest('[data-more]').dataset.more}"]`);
  const oldCount = list.childElementCount;
  const start = performance.now();
  button.click();
  while (list.childElementCount === oldCount) {
    await new Promise(resolve => setTimeout(resolve));
  }
  document.body.getBoundingClientRect();
  return performance.now() - start;
}"""

#: Records when the page receives the kernel's output message, when the cell has it, and when it is painted.
_WATCH = """
window.times = {};
const look = () => {
  times.output ??= document.querySelector('.jp-GraphBreakOutput') === null ? undefined : performance.now();
  if (times.live === undefined && document.querySelector('.graphbreak.gb-live') !== null) {
    times.live = performance.now();
    requestAnimationFrame(() => setTimeout(() => { times.painted = performance.now(); }));
  }
};
const options = { childList: true, subtree: true, attributes: true, attributeFilter: ['class'] };
document.addEventListener('DOMContentLoaded', () => new MutationObserver(look).observe(document.body, options));
window.WebSocket = class extends WebSocket {
  constructor(...options) {
    super(...options);
    this.addEventListener('message', () => {
      if (times.output === undefined) {
        times.message = performance.now();
      }
    });
  }
};"""


def main() -> int:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("reports", nargs="*", type=Path, help="saved reports (.json) to measure as well")
    parser.add_argument("--runs", type=int, default=5, help="how often each page is opened (default: %(default)s)")
    parser.add_argument("--lab", action="store_true", help="also measure in JupyterLab")
    arguments = parser.parse_args()
    reports = {"2 breaks, 9 ops": two_breaks(), "1,000 breaks, 10,000 ops": big_report()}
    reports["1,600 breaks, 16,000 ops"] = big_report(1600, 16_000)
    reports |= {path.name: Report.from_json(path.read_bytes()) for path in arguments.reports}
    for name, report in reports.items():
        print(name)
        _print_sizes(report)
        _measure_page(report, arguments.runs)
        if arguments.lab:
            _measure_in_lab(report, arguments.runs)
    return 0


def _print_sizes(report: Report) -> None:
    widget = ReportWidget()
    html, html_s = _time_call(lambda: render_html(report))
    _, rest_s = _time_call(lambda: render_rest(report))
    widget.finish(report)
    bundle = mime_bundle(report, widget)
    state = {key: value for key, value in widget.get_state().items() if key != "layout"}
    for mime_type, data in bundle.items():
        print(f"  {_kb(data):>9} {mime_type}")
    print(f"  {_kb(bundle):>9} the cell's saved output, all together; {_notebook_kb(bundle)} as a notebook indents it")
    print(f"  {_kb(state):>9} the widget's state, where a front end saves it; its script is {_kb(state['_esm'])}")
    page, page_s = _time_call(lambda: render_page(report))
    print(f"  {len(page) / 1e3:6.0f} kB a separate page, built in {page_s * 1e3:.0f} ms")
    print(f"  rendering: {html_s * 1e3:.0f} ms ({len(html)} characters), the rest {rest_s * 1e3:.0f} ms")


def _measure_page(report: Report, run_count: int) -> None:
    from playwright.sync_api import sync_playwright

    paint_times: list[float] = []
    key_times: list[float] = []
    more_times: list[float] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        report.save(path)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"])
        for _ in range(run_count):
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(path.as_uri())
            page.wait_for_selector(".gb-live")
            paint_times.append(first_paint_ms(page))
            box = page.get_by_label("Filter the pane")
            box.focus()
            page.wait_for_timeout(1000)
            key_times += page.evaluate(_FILTER, box.element_handle())
            page.reload()
            page.wait_for_selector(".gb-live")
            more_times += _measure_more_button(page)
            page.close()
        browser.close()
    _print_times("", paint_times, key_times, more_times)


def _measure_in_lab(report: Report, run_count: int) -> None:
    from playwright.sync_api import sync_playwright

    show_code = "from pathlib import Path\nfrom jupyter_graphbreak import Report\nreport = Report.from_json("
    show_code += "Path('report.json').read_bytes())"
    paint_times: list[float] = []
    key_times: list[float] = []
    more_times: list[float] = []
    saved_paint_times: list[float] = []
    with tempfile.TemporaryDirectory() as folder, jupyterlab(Path(folder)) as lab, sync_playwright() as playwright:
        (lab.folder / "report.json").write_bytes(report.to_json())
        lab.save("view", "%load_ext jupyter_graphbreak\n" + show_code, "report")
        lab.save("saved", report)
        _trust(lab, "saved")
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"])
        for _ in range(run_count):
            page = _open_page(browser, f"{lab.url}/lab/tree/saved.ipynb?reset")
            saved_paint_times.append(_wait_for_paint(page, "output"))
            page.close()
            page = _open_page(browser, f"{lab.url}/lab/tree/view.ipynb?reset")
            wait_for_notebook(page)
            wait_for_kernel(page)
            start_command(page, "notebook:run-all-cells")
            paint_times.append(_wait_for_paint(page, "message"))
            page.wait_for_timeout(2000)
            more_times += _measure_more_button(page)
            box = page.get_by_label("Filter the pane")
            box.focus()
            page.wait_for_timeout(1000)
            key_times += page.evaluate(_FILTER, box.element_handle())
            page.close()
        browser.close()
    _print_times(" in JupyterLab", paint_times, key_times, more_times)
    _print_times(" of a saved notebook in JupyterLab", saved_paint_times, [], [])


def _open_page(browser: Browser, url: str) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.add_init_script(_WATCH)
    page.goto(url, timeout=120_000)
    return page


def _wait_for_paint(page: Page, since: str) -> float:
    page.wait_for_function("window.times.painted !== undefined", timeout=120_000)
    return float(page.evaluate("since => times.painted - times[since]", since))


def _trust(lab: Lab, name: str) -> None:
    """Mark a notebook as trusted."""
    path = f"api/contents/{name}.ipynb"
    notebook = lab.send_request(path)["content"]
    for cell in notebook["cells"]:
        cell["metadata"]["trusted"] = True
    lab.send_request(path, "PUT", {"type": "notebook", "format": "json", "content": notebook})


def _measure_more_button(page: Page) -> list[float]:
    """Press the button for more breaks of a group twice, because the first press loads the rest of the markup."""
    times = []
    for group in page.query_selector_all("[data-list=breaks] > li > details")[:1]:
        group.evaluate("group => { group.open = true; }")
        page.wait_for_timeout(500)
        for _ in range(2):
            button = group.query_selector("[data-more^=places] button")
            if button is not None and button.is_visible():
                times.append(page.evaluate(_MORE, button))
    return times


def _print_times(suffix: str, paint_times: list[float], key_times: list[float], more_times: list[float]) -> None:
    for name, times in {
        "first paint": paint_times,
        "a key pressed in the filter": key_times,
        '"show more"': more_times,
    }.items():
        if times:
            print(f"  {name}{suffix}: {statistics.median(times):.1f} ms, {min(times):.1f} to {max(times):.1f} ms")


def _time_call(function: Callable[[], Any]) -> tuple[Any, float]:
    function()  # the first call compiles templates
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def _notebook_kb(bundle: dict[str, Any]) -> str:
    output = nbformat.v4.new_output("display_data", data=bundle)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])])
    return f"{len(nbformat.writes(notebook)) / 1e3:.0f} kB"


def _kb(data: Any) -> str:
    return f"{len(json.dumps(data)) / 1e3:.0f} kB"


if __name__ == "__main__":
    sys.exit(main())

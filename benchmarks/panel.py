"""Measure the work that our panel adds to JupyterLab's page, in notebooks of 200 cells with 60 reports.

Needs what the browser tests need: JupyterLab, a browser, and the front end built
(``npm --prefix labextension run build``).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.find_browser import find_browser
from tests.support.lab_server import Lab, jupyterlab
from tests.support.sample_reports import big_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import CDPSession, Page

    from jupyter_graphbreak.results import Report

#: Waits until the page has rendered everything and is idle.
_WAIT_UNTIL_IDLE = """
() => new Promise(resolve => {
  let quiet = 0;
  const look = deadline => {
    quiet = deadline.timeRemaining() > 5 ? quiet + 1 : 0;
    quiet >= 10 ? resolve() : requestIdleCallback(look);
  };
  requestIdleCallback(look);
})"""

#: The time that an idle page may take, including the measurement.
_QUIET_MS = 20

_SHOW = "() => { jupyterapp.shell.activateById('jupyter-graphbreak-panel'); }"
_HIDE = "() => { jupyterapp.shell.collapseRight(); }"
#: A different JupyterLab side panel, to measure the cost of opening the side without ours.
_SHOW_OTHER = "() => { jupyterapp.shell.activateById('jp-property-inspector'); }"
_SWITCH = "id => { jupyterapp.shell.activateById(id); }"
_ROWS = "document.querySelectorAll('.jp-GraphBreakPanel-item').length"


def main() -> int:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=200, help="cells of each notebook (default: %(default)s)")
    parser.add_argument("--reports", type=int, default=60, help="how many of them have one (default: %(default)s)")
    parser.add_argument("--breaks", type=int, default=10, help="breaks of each report (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=9, help="how often each is measured (default: %(default)s)")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, jupyterlab(Path(folder)) as lab, sync_playwright() as playwright:
        for name in ("one", "two"):
            _save(lab, name, arguments.cells, arguments.reports, arguments.breaks)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{lab.url}/lab/tree/one.ipynb?reset")
        first, second = (_open_notebook(page, name) for name in ("one", "two"))
        page.evaluate("jupyterapp.shell.collapseLeft()")
        session = page.context.new_cdp_session(page)
        # Only the page's own work is measured, not the processor time of other programs.
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        _measure(page, session, (first, second), arguments.runs)
        browser.close()
    return 0


def _save(lab: Lab, name: str, cell_count: int, report_count: int, break_count: int) -> None:
    numbers = set(range(0, cell_count, cell_count // report_count)[:report_count])
    cells = [
        _make_report(f"{name} {number}", break_count) if number in numbers else f"x = {number}"
        for number in range(cell_count)
    ]
    lab.save(name, *cells)


def _make_report(title: str, break_count: int) -> Report:
    """Return a report of a cell whose first line has a comment of its own."""
    report = big_report(breaks=break_count, ops=break_count * 10)
    (source,) = report.sources
    (segment,) = source.segments
    text = segment.text.replace("%%compile_explain", f"%%compile_explain  # {title}")
    source = msgspec.structs.replace(source, segments=[msgspec.structs.replace(segment, text=text)])
    return msgspec.structs.replace(report, sources=[source])


def _open_notebook(page: Page, name: str) -> str:
    """Open a notebook and return the id of its widget."""
    page.wait_for_function("window.jupyterapp?.commands.hasCommand('docmanager:open')", timeout=60_000)
    page.evaluate("path => void jupyterapp.commands.execute('docmanager:open', { path })", f"{name}.ipynb")
    page.wait_for_function(
        "path => jupyterapp.shell.currentWidget?.context?.path === path"
        " && jupyterapp.shell.currentWidget.context.isReady",
        arg=f"{name}.ipynb",
        timeout=60_000,
    )
    page.evaluate(_WAIT_UNTIL_IDLE)
    return str(page.evaluate("jupyterapp.shell.currentWidget.id"))


def _measure(page: Page, session: CDPSession, notebooks: tuple[str, str], run_count: int) -> None:
    def work(act: Callable[[], object]) -> float:
        """Return the milliseconds of main-thread work caused by an action."""
        page.evaluate(_WAIT_UNTIL_IDLE)
        start_ms = _task_ms(session)
        act()
        page.evaluate(_WAIT_UNTIL_IDLE)
        return _task_ms(session) - start_ms

    times: dict[str, list[float]] = {}

    def note_work(name: str, script: str, argument: str | None = None) -> None:
        times.setdefault(name, []).append(work(lambda: page.evaluate(script, argument)))

    # JupyterLab continues to render cells for a while, and opening any panel on that side makes it render them again.
    while work(lambda: None) > _QUIET_MS:
        pass
    work(lambda: page.evaluate(_SHOW_OTHER))
    work(lambda: page.evaluate(_HIDE))
    # The second notebook is the current one.
    for _ in range(run_count):
        note_work("open another panel there", _SHOW_OTHER)
        page.evaluate(_HIDE)
        note_work("open the panel", _SHOW)
        if page.evaluate(_ROWS) == 0:
            raise RuntimeError("the panel shows nothing")
        note_work("switch notebooks, panel open", _SWITCH, notebooks[0])
        page.evaluate(_HIDE)
        note_work("switch notebooks, panel hidden", _SWITCH, notebooks[1])
    print(f"main-thread work in ms, median and maximum of {run_count}; the first time is listed separately")
    for name, measured_times in times.items():
        first, *others = measured_times
        print(f"  {name:<32} {statistics.median(others):6.0f} {max(others):6.0f}   first {first:6.0f}")


def _task_ms(session: CDPSession) -> float:
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"]) * 1e3


if __name__ == "__main__":
    sys.exit(main())

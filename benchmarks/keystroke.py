"""Measure the cost of marks during typing, in a marked cell of a notebook of 200 cells with 60 reports.

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

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.find_browser import find_browser
from tests.support.lab_server import jupyterlab
from tests.support.sample_reports import big_report

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

_MARKS = ".jp-Notebook .jp-GraphBreakMark"
_SET_MARKS = """async isOn => {
  const { commands } = jupyterapp;
  if (commands.isToggled('jupyter-graphbreak:toggle-marks') !== isOn) {
    await commands.execute('jupyter-graphbreak:toggle-marks');
  }
}"""
#: Restores the text, and puts the cursor at the end of the line of the first break.
_RESTORE_TEXT = """([text, line]) => {
  const { activeCell } = jupyterapp.shell.currentWidget.content;
  activeCell.model.sharedModel.setSource(text);
  activeCell.editor.focus();
  activeCell.editor.setCursorPosition({ line, column: activeCell.editor.getLine(line).length });
}"""
_WAIT_FOR_FRAMES = "() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)))"


def main() -> int:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=200, help="cells of the notebook (default: %(default)s)")
    parser.add_argument("--reports", type=int, default=60, help="how many of them have one (default: %(default)s)")
    parser.add_argument("--breaks", type=int, default=30, help="breaks of each report (default: %(default)s)")
    parser.add_argument("--keys", type=int, default=60, help="keys pressed in each measurement (default: %(default)s)")
    parser.add_argument(
        "--pairs",
        type=int,
        default=7,
        help="how many pairs of measurements, without and with marks (default: %(default)s)",
    )
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    report = big_report(breaks=arguments.breaks, ops=arguments.breaks * 10)
    location = report.breaks[0].location
    if location is None:
        raise RuntimeError("the break has no location")
    step = arguments.cells // arguments.reports
    cells = [report if number % step == 0 else f"x = {number}" for number in range(arguments.cells)]
    with tempfile.TemporaryDirectory() as folder, jupyterlab(Path(folder)) as lab, sync_playwright() as playwright:
        lab.save("typing", *cells)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{lab.url}/lab/tree/typing.ipynb?reset")
        page.locator(_MARKS).first.wait_for(timeout=60_000)
        session = page.context.new_cdp_session(page)
        # Only the page's own work is measured, not the processor time of other programs.
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        text = report.sources[0].segments[0].text
        _compare(page, session, (text, location.line - 1), arguments.keys, arguments.pairs)
        browser.close()
    return 0


def _compare(page: Page, session: CDPSession, start: tuple[str, int], key_count: int, pair_count: int) -> None:
    times: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(pair_count + 1):
        for is_on in (False, True) if pair % 2 else (True, False):
            page.evaluate(_SET_MARKS, is_on)
            page.evaluate(_RESTORE_TEXT, start)
            page.wait_for_timeout(500)
            if (page.locator(_MARKS).count() > 0) != is_on:
                raise RuntimeError(f"the marks are {'hidden' if is_on else 'shown'}")
            key_ms = _ms_per_key(page, session, key_count)
            if pair:  # the first pair is a warm-up
                times[is_on].append(key_ms)
    differences = [
        ms_with_marks - ms_without_marks
        for ms_without_marks, ms_with_marks in zip(times[False], times[True], strict=True)
    ]
    print(f"main-thread time per key in ms: median, minimum and maximum of {pair_count} rounds of {key_count} keys")
    for name, measures in (("without marks", times[False]), ("with marks", times[True]), ("more", differences)):
        print(f"  {name:<14} {statistics.median(measures):6.2f} {min(measures):6.2f} {max(measures):6.2f}")


def _ms_per_key(page: Page, session: CDPSession, key_count: int) -> float:
    start_ms = _task_ms(session)
    for _ in range(key_count):
        page.keyboard.press("x")
        # Each key gets its own frame; otherwise slow keys would share frames and seem cheap.
        page.evaluate(_WAIT_FOR_FRAMES)
    return (_task_ms(session) - start_ms) / key_count


def _task_ms(session: CDPSession) -> float:
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"]) * 1e3


if __name__ == "__main__":
    sys.exit(main())

"""Take the pictures of README and of the page on JupyterLab: a cell explained there, with its marks and the panel.

Needs what the browser tests need. Run it when the look has changed: ``python notebooks/take_picture.py``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from playwright.sync_api import sync_playwright

from tests.browser.pages import run_all, start_command, wait_for_notebook
from tests.support.find_browser import find_browser
from tests.support.lab_server import jupyterlab

LOAD = "%load_ext jupyter_graphbreak"
CELL = """\
%%compile_explain
import torch
from torch._dynamo import error_on_graph_break

def log(y):
    for name in ("mean", "std"):
        print(name, getattr(y, name)())

@torch.compile(backend="eager")
def step(x, w):
    y = x @ w
    score = y.sum()
    with error_on_graph_break(False):
        if score > 3:
            y = y / score
    log(y)
    return torch.relu(y)

step(torch.ones(2, 3), torch.ones(3, 4))"""


def main() -> None:
    """Run the cell and write the pictures: the window, a mark under the pointer, and the fixed cell, compared."""
    with tempfile.TemporaryDirectory() as home, jupyterlab(Path(home)) as lab, sync_playwright() as playwright:
        lab.save("training", LOAD, CELL)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 960})
        page.goto(f"{lab.url}/lab/tree/training.ipynb?reset")
        wait_for_notebook(page)
        page.evaluate("jupyterapp.shell.collapseLeft()")
        run_all(page)
        page.locator(".gb-live").wait_for(timeout=120_000)
        start_command(page, "jupyter-graphbreak:show-panel")
        panel = page.get_by_role("region", name="Graph Breaks")
        panel.get_by_role("treeitem").first.wait_for()
        _take(page, "jupyterlab.png")
        page.locator(".jp-GraphBreakMark-cut").last.hover()
        page.locator(".jp-GraphBreakMark-hint").wait_for()
        _take(page, "jupyterlab-mark.png", height=520)
        page.mouse.move(640, 900)
        page.evaluate(
            "text => { jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.setSource(text); }",
            CELL.replace("    log(y)\n", ""),
        )
        run_all(page)
        panel.get_by_role("treeitem", name="gone").or_(panel.get_by_text("gone")).first.wait_for(timeout=120_000)
        page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
        start_command(page, "jupyter-graphbreak:compare")
        _take(page, "jupyterlab-comparison.png", height=520)
        browser.close()


def _take(page: Page, name: str, height: int = 960) -> None:
    page.wait_for_timeout(1000)  # until nothing moves
    page.screenshot(path=HERE / "_static" / name, clip={"x": 0, "y": 0, "width": 1280, "height": height})


if __name__ == "__main__":
    main()

"""Actions of a reader in JupyterLab, for browser tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab


#: The plugin whose settings control how notebooks render cells.
NOTEBOOKS = "@jupyterlab/notebook-extension:tracker"


#: Leave the page as it is after loading.
_CLOSE_ALL = """async () => {
    const { commands, shell } = jupyterapp;
    for (const widget of Array.from(shell.widgets('main'))) {
        await widget.context?.sessionContext.shutdown();
        widget.dispose();
    }
    if (document.body.dataset.jpThemeName !== 'JupyterLab Light') {
        await commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' });
    }
    shell.collapseRight();
    shell.collapseLeft();
}"""

#: Most tests read what is saved in a notebook, so its kernel would only cost time.
_OPEN = """async ([path, shouldStart]) => {
    const registry = jupyterapp.docRegistry;
    const { getKernelPreference } = Object.getPrototypeOf(registry);
    registry.getKernelPreference = (...about) => ({ ...getKernelPreference.apply(registry, about), shouldStart });
    await jupyterapp.commands.execute('docmanager:open', { path });
}"""


def opened_in_lab(
    open_page: Callable[..., PageUnderTest],
    lab: Lab,
    name: str,
    *,
    kernel: bool = False,
    fresh: bool = False,
    windowing: str | None = None,
) -> PageUnderTest:
    """Open a notebook as the only one in JupyterLab, with the light theme.

    Parameters
    ----------
    kernel : bool
        Start a kernel for the notebook. A fresh page always does.
    fresh : bool
        In a page of its own, with the default settings. Otherwise, the page is that of earlier tests, because loading
        JupyterLab takes longer than most tests.
    windowing : str or None
        How a fresh page renders notebooks.
    """
    if fresh:
        lab.set("@jupyterlab/apputils-extension:themes", {"theme": "JupyterLab Light"})
        lab.set("jupyter-graphbreak:plugin", {})
        lab.set(NOTEBOOKS, {} if windowing is None else {"windowingMode": windowing})
    opened = open_page(f"{lab.url}/lab/tree/{name}.ipynb?reset" if fresh else f"{lab.url}/lab?reset", keep=not fresh)
    page = opened.page
    if not fresh:
        page.wait_for_function("window.jupyterapp?.shell.restored.then(() => true)")
        while page.locator(".jp-Dialog").count():
            page.keyboard.press("Escape")
        page.evaluate(_CLOSE_ALL)
        opened.forget()  # JupyterLab complains about requests to the kernels that have ended
        page.evaluate(_OPEN, [f"{name}.ipynb", kernel])
    wait_for_notebook(page)
    page.evaluate("jupyterapp.shell.collapseLeft()")
    return opened


#: The launcher, which opens when the last document closes, may come to the front after the notebook.
_NOTEBOOK_IN_FRONT = """() => {
    const shell = jupyterapp.shell;
    const notebook = [...shell.widgets('main')].find(widget => widget.context);
    if (notebook && !shell.currentWidget?.context) {
        shell.activateById(notebook.id);
    }
    return shell.currentWidget?.context?.isReady;
}"""


def wait_for_notebook(page: Page) -> None:
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
    page.wait_for_function(_NOTEBOOK_IN_FRONT, timeout=60_000)


_FIRST_PAINT = """() => new Promise(resolve => {
    const observer = new PerformanceObserver(list => {
        const paint = list.getEntriesByName('first-contentful-paint')[0];
        if (paint) {
            resolve(paint.startTime);
        }
    });
    observer.observe({ type: 'paint', buffered: true });
})"""


def first_paint(page: Page) -> float:
    """Return the time of the first paint of a page, in milliseconds."""
    time: float = page.evaluate(_FIRST_PAINT)
    return time


def command(page: Page, name: str, **arguments: Any) -> None:
    """Start a command without waiting for it, because it may open a dialog."""
    page.evaluate("([name, args]) => void jupyterapp.commands.execute(name, args)", [name, arguments])


def wait_for_kernel(page: Page) -> None:
    page.wait_for_function(
        "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'", timeout=60_000
    )


def run_all(page: Page) -> None:
    wait_for_kernel(page)
    command(page, "notebook:run-all-cells")


def menu_button(report: Page | Locator, name: str) -> Locator:
    """Return a button of a report's menu, and open the menu."""
    more = report.get_by_role("button", name="More ?")
    if more.get_attribute("aria-expanded") == "false":
        more.click()
    return report.get_by_role("button", name=name)


def trust(page: Page) -> None:
    page.evaluate("jupyterapp.shell.currentWidget.content.widgets.forEach(cell => { cell.model.trusted = true; })")


def theme(page: Page, name: str) -> None:
    page.evaluate("name => jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name)
    page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)
    page.wait_for_function("document.getElementById('jupyterlab-splash') === null")

"""Actions of a user in JupyterLab, for browser tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab


#: The plugin whose settings control how notebooks render cells.
NOTEBOOK_PLUGIN = "@jupyterlab/notebook-extension:tracker"


#: JavaScript that closes all documents, ends their kernels, and restores the light theme.
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

#: JavaScript that opens a notebook, with or without a kernel. Most tests only read saved outputs, for which starting a
#: kernel would waste time.
_OPEN = """async ([path, shouldStart]) => {
    const registry = jupyterapp.docRegistry;
    const { getKernelPreference } = Object.getPrototypeOf(registry);
    registry.getKernelPreference = (...about) => ({ ...getKernelPreference.apply(registry, about), shouldStart });
    await jupyterapp.commands.execute('docmanager:open', { path });
}"""


def open_in_lab(
    open_page: Callable[..., PageUnderTest],
    lab: Lab,
    name: str,
    *,
    kernel: bool = False,
    is_fresh: bool = False,
    windowing: str | None = None,
) -> PageUnderTest:
    """Open a notebook as the only one in JupyterLab, with the light theme.

    Parameters
    ----------
    kernel : bool
        Whether to start a kernel for the notebook. A fresh page always starts one.
    is_fresh : bool
        Whether to use a new page with the default settings. By default, tests share one page, because loading
        JupyterLab takes longer than most tests.
    windowing : str or None
        The setting ``windowingMode`` of a fresh page, which decides which cells JupyterLab renders. By default, this is
        JupyterLab's default.
    """
    if is_fresh:
        lab.store_settings("@jupyterlab/apputils-extension:themes", {"theme": "JupyterLab Light"})
        lab.store_settings("jupyter-graphbreak:plugin", {})
        lab.store_settings(NOTEBOOK_PLUGIN, {} if windowing is None else {"windowingMode": windowing})
    tested_page = open_page(
        f"{lab.url}/lab/tree/{name}.ipynb?reset" if is_fresh else f"{lab.url}/lab?reset", share=not is_fresh
    )
    page = tested_page.page
    if not is_fresh:
        page.wait_for_function("window.jupyterapp?.shell.restored.then(() => true)")
        while page.locator(".jp-Dialog").count():
            page.keyboard.press("Escape")
        page.evaluate(_CLOSE_ALL)
        tested_page.clear_records()  # JupyterLab complains about requests to the kernels that have ended
        page.evaluate(_OPEN, [f"{name}.ipynb", kernel])
    wait_for_notebook(page)
    page.evaluate("jupyterapp.shell.collapseLeft()")
    return tested_page


#: JavaScript that brings the notebook to the front: the launcher, which opens later, may have covered it.
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


def first_paint_ms(page: Page) -> float:
    """Return when a page was first painted, in milliseconds after it started to load."""
    milliseconds: float = page.evaluate(_FIRST_PAINT)
    return milliseconds


def start_command(page: Page, name: str, **arguments: Any) -> None:
    """Start a command without waiting for it, because it may open a dialog."""
    page.evaluate("([name, args]) => void jupyterapp.commands.execute(name, args)", [name, arguments])


def wait_for_kernel(page: Page) -> None:
    page.wait_for_function(
        "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'", timeout=60_000
    )


def run_all(page: Page) -> None:
    wait_for_kernel(page)
    start_command(page, "notebook:run-all-cells")


def menu_button(report: Page | Locator, name: str) -> Locator:
    """Open the menu of a report unless it is open, and return one of its buttons."""
    more_button = report.get_by_role("button", name="More ?")
    if more_button.get_attribute("aria-expanded") == "false":
        more_button.click()
    return report.get_by_role("button", name=name)


def trust(page: Page) -> None:
    page.evaluate("jupyterapp.shell.currentWidget.content.widgets.forEach(cell => { cell.model.trusted = true; })")


def switch_theme(page: Page, name: str) -> None:
    page.evaluate("name => jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name)
    page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)
    page.wait_for_function("document.getElementById('jupyterlab-splash') === null")

"""Fixtures: a browser, and pages with reports."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import BrowserContext, BrowserType, Error, Page, Request, sync_playwright

from tests.support.find_browser import find_browser
from tests.support.lab_server import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.results import Report

PACKAGE = ROOT / "jupyter_graphbreak"
SCREENSHOTS = ROOT / "build" / "screenshots"
AXE = ROOT / "labextension" / "node_modules" / "axe-core" / "axe.min.js"

_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


#: Errors that JupyterLab may raise some time after the notebook of an earlier test was closed.
_LATE_ERRORS = re.compile(r"^(Error: )?(Disposed|Canceled future)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def chromium() -> Iterator[BrowserType]:
    built_paths = [
        PACKAGE / "views/html/static/page.js",
        PACKAGE / "views/html/static/widget.js",
        PACKAGE / "labextension",
    ]
    missing_paths = [str(path.relative_to(ROOT)) for path in built_paths if not path.exists()]
    assert not missing_paths, f"{', '.join(missing_paths)} not built: npm --prefix labextension run build"
    with sync_playwright() as playwright:
        yield playwright.chromium


@pytest.fixture(scope="session")
def context_with_profile(chromium: BrowserType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Start a browser with a profile on disk, which caches JupyterLab's scripts."""
    context = chromium.launch_persistent_context(
        tmp_path_factory.mktemp("profile"),
        executable_path=find_browser(),
        args=_ARGS,
        permissions=["clipboard-read", "clipboard-write"],
    )
    yield context
    context.close()


@pytest.fixture(scope="session")
def context_without_scripts(chromium: BrowserType) -> Iterator[BrowserContext]:
    browser = chromium.launch(executable_path=find_browser(), args=_ARGS)
    yield browser.new_context(java_script_enabled=False)
    browser.close()


@dataclass
class PageUnderTest:
    """A page, and the errors and requests recorded on it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    #: Errors on the console, and failed requests.
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def clear_records(self) -> None:
        for record in (self.errors, self.complaints, self.requests):
            record.clear()

    def record_failed_request(self, request: Request) -> None:
        # Leaving a page aborts its pending requests.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"{request.failure}: {request.url}")

    def record_response(self, status: int, url: str) -> None:
        if status >= HTTPStatus.BAD_REQUEST:
            self.complaints.append(f"{status}: {url}")

    def save_screenshot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def serious_violations(self, within: str = ".graphbreak") -> list[str]:
        """Return the accessibility violations that axe rates as serious or critical."""
        # A report updates its Tab stops with a delay after a change, so wait for a later timer.
        self.page.evaluate("() => new Promise(resolve => setTimeout(resolve, 300))")
        if self.page.evaluate("() => !('axe' in window)"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        # Leave out the results of passed rules and the elements' CSS selectors, because they take time.
        options = {"resultTypes": ["violations"], "selectors": False}
        violations = self.page.evaluate(
            "([within, options]) => axe.run(within, options).then(results => results.violations)", [within, options]
        )
        return [
            f"{violation['id']}: {violation['nodes'][0]['html'][:200]} {violation['nodes'][0]['failureSummary'][:300]}"
            for violation in violations
            if violation["impact"] in {"serious", "critical"}
        ]


@pytest.fixture(scope="session")
def shared_pages() -> dict[str, PageUnderTest]:
    """Return the pages that several tests use, by address."""
    return {}


@pytest.fixture
def open_page(
    request: pytest.FixtureRequest, shared_pages: dict[str, PageUnderTest]
) -> Iterator[Callable[..., PageUnderTest]]:
    pages: list[Page] = []
    failures = request.session.testsfailed

    def open_address(
        url: str | Path, *, scheme: Any = "light", scripts: bool = True, width: int = 1280, share: bool = False
    ) -> PageUnderTest:
        address = url.as_uri() if isinstance(url, Path) else url
        page_under_test = shared_pages.get(address) if share else None
        is_loaded = page_under_test is not None
        if page_under_test is None:
            context: BrowserContext = request.getfixturevalue(
                "context_with_profile" if scripts else "context_without_scripts"
            )
            page_under_test = watch_page(context.new_page())
        page_under_test.page.set_viewport_size({"width": width, "height": 800})
        page_under_test.page.emulate_media(color_scheme=scheme)
        if not is_loaded:
            page_under_test.page.goto(address)
        if share:
            shared_pages[address] = page_under_test
        else:
            pages.append(page_under_test.page)
        return page_under_test

    yield open_address
    if request.session.testsfailed > failures:
        pages += [shared_page.page for shared_page in shared_pages.values()]
        shared_pages.clear()
    for page in pages:
        page.context.clear_cookies()
        page.close()


def _comes_from_jupyterlab(error: Error) -> bool:
    """Return whether an error comes from JupyterLab or its widget manager rather than from our extension."""
    # The widget manager expects every notebook to have a kernel.
    is_missing_kernel = str(error) == "Cannot read properties of null (reading 'kernel')"
    # On a busy machine, JupyterLab may stop waiting for a kernel while another one is selected.
    is_kernel_change = str(error) == "Cannot read properties of null (reading 'promise')" and "graphbreak" not in (
        error.stack or ""
    )
    # JupyterLab may fail to remove a cell that moved when the file was reloaded: jupyterlab/jupyterlab issue 15415.
    is_moved_cell = "'removeChild' on 'Node'" in str(error) and "graphbreak" not in (error.stack or "")
    return (
        _LATE_ERRORS.search(str(error)) is not None
        or is_kernel_change
        or is_moved_cell
        or (is_missing_kernel and "jupyterlab-manager" in (error.stack or ""))
    )


def watch_page(page: Page) -> PageUnderTest:
    page_under_test = PageUnderTest(page)
    page.on(
        "pageerror",
        lambda error: (
            None if _comes_from_jupyterlab(error) else page_under_test.errors.append(f"{error}\n{error.stack}")
        ),
    )
    page.on(
        "console",
        lambda message: page_under_test.complaints.append(message.text) if message.type == "error" else None,
    )
    page.on("requestfailed", page_under_test.record_failed_request)
    page.on("response", lambda response: page_under_test.record_response(response.status, response.url))
    page.on("request", lambda request: page_under_test.requests.append(request.url))
    return page_under_test


@pytest.fixture
def open_report(open_page: Callable[..., PageUnderTest], tmp_path: Path) -> Callable[..., PageUnderTest]:
    def save_and_open(report: Report, **options: Any) -> PageUnderTest:
        path = tmp_path / "report.html"
        report.save(path)
        return open_page(path, **options)

    return save_and_open

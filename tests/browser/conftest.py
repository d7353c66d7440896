"""A browser, pages with reports in it, and a JupyterLab of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.find_browser import find_browser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.report import Report

ROOT = Path(__file__).parents[2]
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

#: Messages that JupyterLab itself or a kernel that was ended on purpose puts on the console.
_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    built = [PACKAGE / "views/static/page.js", PACKAGE / "views/static/widget.js", PACKAGE / "labextension"]
    missing = [str(path.relative_to(ROOT)) for path in built if not path.exists()]
    assert not missing, f"{', '.join(missing)} not built: npm --prefix labextension run build"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=_ARGS)
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page, and what went wrong or out of it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def shoot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def serious(self, within: str = ".graphbreak") -> list[str]:
        """Return what axe finds wrong, from serious on."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("within => axe.run(within).then(found => found.violations)", within)
        return [
            f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary'][:300]}"
            for each in found
            if each["impact"] in {"serious", "critical"}
        ]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def opened(url: str | Path, *, scheme: Any = "light", scripts: bool = True, width: int = 1280) -> Opened:
        context = browser.new_context(
            color_scheme=scheme,
            java_script_enabled=scripts,
            viewport={"width": width, "height": 800},
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        page = context.new_page()
        made = Opened(page)
        page.on("pageerror", lambda error: made.errors.append(str(error)))
        page.on("request", lambda request: made.requests.append(request.url))
        page.goto(url.as_uri() if isinstance(url, Path) else url)
        return made

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def open_report(open_page: Callable[..., Opened], tmp_path: Path) -> Callable[..., Opened]:
    def opened(report: Report, **options: Any) -> Opened:
        path = tmp_path / "report.html"
        report.save(path)
        return open_page(path, **options)

    return opened


@dataclass
class Lab:
    """A running JupyterLab."""

    url: str
    folder: Path

    def api(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"{self.url}/api/{path}", method=method)  # noqa: S310 - our own server
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else None

    def stop_kernels(self) -> None:
        for session in self.api("sessions"):
            self.api(f"sessions/{session['id']}", "DELETE")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("lab")
    folder = home / "work"
    folder.mkdir()
    (home / "settings").mkdir()
    (home / "settings" / "overrides.json").write_text(json.dumps(_SETTINGS))
    extensions = home / "share" / "labextensions"
    extensions.mkdir(parents=True)
    (extensions / "jupyter-graphbreak").symlink_to(PACKAGE / "labextension")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = ["JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"]
    own += ["JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"]
    environment = {
        **os.environ,
        **{name: str(home / name.lower()) for name in own},
        # The package as it stands here, whether or not it is installed.
        "JUPYTER_PATH": str(home / "share"),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.password="]
    command += ["--ServerApp.disable_check_xsrf=True", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True"]
    command += [f"--LabServerApp.app_settings_dir={home / 'settings'}"]
    log = (home / "log").open("w")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    running = Lab(f"http://127.0.0.1:{port}", folder)
    try:
        for _ in range(120):
            try:
                running.api("status")
                break
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None, (home / "log").read_text()
                time.sleep(0.5)
        else:
            pytest.fail((home / "log").read_text())
        yield running
        running.stop_kernels()
    finally:
        server.terminate()
        server.wait(20)
        log.close()

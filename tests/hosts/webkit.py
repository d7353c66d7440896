"""Drive WebKitGTK, which has the same engine as Safari, over WebDriver, on a virtual screen of Xvfb."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.support.find_browser import find_webkit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class WebKit:
    """One window of a running WebKit."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/session"
        browser = {"binary": str(find_webkit()), "args": ["--automation"]}
        request = {"capabilities": {"alwaysMatch": {"webkitgtk:browserOptions": browser}}}
        response = self._send_request("", request)
        self._address += f"/{response['sessionId']}"
        self.version = response["capabilities"]["browserVersion"]

    def _send_request(self, path: str, body: Any = None, method: str = "POST") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())["value"]

    def open(self, path: Path) -> None:
        self._send_request("/url", {"url": path.as_uri()})

    def evaluate(self, code: str) -> Any:
        """Evaluate an expression on the page, and return its string, number or Boolean."""
        script = f"const end = arguments[0]; Promise.resolve({code}).then(end)"
        return self._send_request("/execute/async", {"script": script, "args": []})

    def take_screenshot(self) -> str:
        """Return the visible part of the page, as a PNG image in base64."""
        return str(self._send_request("/screenshot", method="GET"))

    def press(self, key: str) -> None:
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._perform({"type": "key", "id": "keyboard", "actions": keys})

    def click(self, x: int, y: int) -> None:
        actions: list[dict[str, Any]] = [{"type": "pointerMove", "x": x, "y": y}]
        actions += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self._perform({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions})

    def close(self) -> None:
        self._send_request("", method="DELETE")

    def _perform(self, source: dict[str, Any]) -> None:
        self._send_request("/actions", {"actions": [source]})


@contextmanager
def run_webkit(port: int) -> Iterator[WebKit]:
    """Run WebKit on a virtual screen.

    Parameters
    ----------
    port : int
        A free port for WebKit's driver.
    """
    screen = subprocess.Popen(
        ["Xvfb", "-displayfd", "1", "-screen", "0", "1280x900x24", "-nolisten", "tcp"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert screen.stdout is not None
    environment = {
        **os.environ,
        "DISPLAY": f":{screen.stdout.readline().strip()}",
        "GDK_BACKEND": "x11",
        "LIBGL_ALWAYS_SOFTWARE": "1",
        # WebKit's sandbox needs more permissions than a container has. The page is our own, so it is not needed.
        "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1",
    }
    driver = subprocess.Popen(["WebKitWebDriver", f"--port={port}"], env=environment, stderr=subprocess.DEVNULL)
    try:
        window = _connect_window(port)
        yield window
        window.close()
    finally:
        for process in (driver, screen):
            process.terminate()
            process.wait(20)


def _connect_window(port: int) -> WebKit:
    for _ in range(120):
        try:
            return WebKit(port)
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from None
        except OSError:  # the driver is not listening yet
            time.sleep(0.5)
    raise RuntimeError("WebKit's driver does not answer")

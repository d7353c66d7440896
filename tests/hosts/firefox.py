"""Drive Firefox over WebDriver BiDi, because Playwright cannot drive a distribution's build of Firefox."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import websocket

from tests.support.find_browser import find_firefox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Firefox:
    """One window of a running Firefox."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket
        self._last_id = 0
        self._send_command("session.new", capabilities={})
        self._context = self._send_command("browsingContext.getTree")["contexts"][0]["context"]

    def _send_command(self, method: str, **params: Any) -> Any:
        self._last_id += 1
        self._socket.send(json.dumps({"id": self._last_id, "method": method, "params": params}))
        while True:
            response = json.loads(self._socket.recv())
            if response.get("id") == self._last_id:
                assert response["type"] == "success", response
                return response["result"]

    def open(self, target: Path | str) -> None:
        url = target if isinstance(target, str) else target.as_uri()
        self._send_command("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def evaluate(self, code: str) -> Any:
        """Evaluate an expression on the page, and return its string, number or Boolean."""
        response = self._send_command(
            "script.evaluate", expression=code, target={"context": self._context}, awaitPromise=True
        )
        assert response["type"] == "success", response
        return response["result"].get("value")

    def take_screenshot(self) -> str:
        """Return the visible part of the page, as a PNG image in base64."""
        return str(self._send_command("browsingContext.captureScreenshot", context=self._context)["data"])

    def press(self, key: str) -> None:
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._perform({"type": "key", "id": "keyboard", "actions": keys})

    def press_with_control(self, key: str) -> None:
        control = "\ue009"
        keys = [{"type": kind, "value": value} for kind, value in (
            ("keyDown", control), ("keyDown", key), ("keyUp", key), ("keyUp", control))]  # fmt: skip
        self._perform({"type": "key", "id": "keyboard", "actions": keys})

    def click(self, x: int, y: int) -> None:
        actions: list[dict[str, Any]] = [{"type": "pointerMove", "x": x, "y": y}]
        actions += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self._perform({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions})

    def _perform(self, source: dict[str, Any]) -> None:
        self._send_command("input.performActions", context=self._context, actions=[source])


@contextmanager
def run_firefox(profile: Path, port: int) -> Iterator[Firefox]:
    """Run Firefox in headless mode.

    Parameters
    ----------
    profile : Path
        An empty folder for Firefox's profile.
    port : int
        A free port for WebDriver BiDi.
    """
    executable = find_firefox()
    assert executable is not None
    command = [executable, "--headless", "--no-remote", "--profile", str(profile), f"--remote-debugging-port={port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with closing(_connect_socket(port)) as socket:
            yield Firefox(socket)
    finally:
        process.terminate()
        process.wait(20)


def _connect_socket(port: int) -> websocket.WebSocket:
    for _ in range(120):
        try:
            return websocket.create_connection(f"ws://127.0.0.1:{port}/session", timeout=60, suppress_origin=True)
        except (OSError, websocket.WebSocketException):
            time.sleep(0.5)
    raise RuntimeError("Firefox does not answer")

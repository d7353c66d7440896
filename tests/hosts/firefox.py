"""Drive Firefox over WebDriver BiDi, which Playwright does not speak with a distribution's own build."""

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
        self._number = 0
        self._ask("session.new", capabilities={})
        self._context = self._ask("browsingContext.getTree")["contexts"][0]["context"]

    def _ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._number:
                assert answer["type"] == "success", answer
                return answer["result"]

    def open(self, target: Path | str) -> None:
        url = target if isinstance(target, str) else target.as_uri()
        self._ask("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def evaluate(self, code: str) -> Any:
        """Return the string, number or truth value of an expression on the page."""
        answer = self._ask("script.evaluate", expression=code, target={"context": self._context}, awaitPromise=True)
        assert answer["type"] == "success", answer
        return answer["result"].get("value")

    def screenshot(self) -> str:
        """Return what is in view, as a PNG in base 64."""
        return str(self._ask("browsingContext.captureScreenshot", context=self._context)["data"])

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
        self._ask("input.performActions", context=self._context, actions=[source])


@contextmanager
def firefox(profile: Path, port: int) -> Iterator[Firefox]:
    """Run a Firefox without a screen.

    Parameters
    ----------
    profile : Path
        An empty folder for all that it writes.
    port : int
        A free port.
    """
    name = find_firefox()
    assert name is not None
    command = [name, "--headless", "--no-remote", "--profile", str(profile), f"--remote-debugging-port={port}"]
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

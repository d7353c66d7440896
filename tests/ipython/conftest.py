"""A fixture that starts a kernel with the extension loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.results import Report


class Kernel:
    """A kernel that runs cells and stores all messages of the last one."""

    def __init__(self, first_cell: str = "%load_ext jupyter_graphbreak") -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3")
        self.messages: list[dict[str, Any]] = []
        self.run(first_cell)

    def run(self, code: str, metadata: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """Run a cell, with metadata in the request, and return the content of the reply."""
        self.messages = []
        self.client.session.metadata = metadata or {}
        options = {"allow_stdin": False, "stop_on_error": False, **options}
        reply: dict[str, Any] = self.client.execute_interactive(
            code, output_hook=self.messages.append, timeout=240, **options
        )
        content: dict[str, Any] = reply["content"]
        return content

    def bundles(self) -> list[dict[str, Any]]:
        """Return the MIME bundles that the last cell displayed."""
        displays = [m for m in self.messages if m["msg_type"] in {"display_data", "update_display_data"}]
        return [m["content"]["data"] for m in displays]

    def report(self) -> Report:
        """Return the report of the last cell."""
        return Report.from_dict(self.bundles()[-1][MIME_TYPE])

    def stdout(self) -> str:
        """Return the text that the last cell printed."""
        return "".join(m["content"]["text"] for m in self.messages if m["msg_type"] == "stream")

    def stop(self) -> None:
        """End the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.stop()

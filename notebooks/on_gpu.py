"""Show a run under CUDA graphs on the page about GPUs: a run on this machine or, if it has no GPU, a recorded one.

usage: python notebooks/on_gpu.py        on a machine with a GPU; runs the page and writes notebooks/gpu.json
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import jupyter_graphbreak
from jupyter_graphbreak.results import Report

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDING = Path(__file__).with_name("gpu.json")
#: The environment variable that is set while the page is recorded.
_RECORD_VARIABLE = "GRAPHBREAK_RECORD_GPU"


class Recording(msgspec.Struct, frozen=True):
    """A run on a GPU: which GPU, when, and the report."""

    gpu: str
    date: str
    report: Report


def show(make_call: Callable[[str], tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    """Run a compiled function on the GPU and show its report, or show the recorded one.

    Parameters
    ----------
    make_call : callable
        Returns the compiled function and its arguments for a device.
    """
    import torch
    from IPython.display import Markdown, display

    if torch.cuda.is_available():
        recording = run(make_call)
        if _RECORD_VARIABLE in os.environ:
            RECORDING.write_bytes(msgspec.json.encode(recording) + b"\n")
        origin = "Run when this page was built"
    elif RECORDING.is_file():
        recording = msgspec.json.decode(RECORDING.read_bytes(), type=Recording)
        origin = "Recorded on a different machine, because this page was built on one without a GPU"
    else:
        display(
            Markdown(
                "*This page was built on a machine without a GPU, and no report of one has been recorded yet. "
                "`python notebooks/on_gpu.py` on a machine with a GPU records it.*"
            )
        )
        return
    display(Markdown(f"*{origin}: {recording.gpu}, {recording.date}.*"))
    display(recording.report)


def run(make_call: Callable[[str], tuple[Callable[..., Any], tuple[Any, ...]]], device: str = "cuda") -> Recording:
    """Run the function three times: CUDA graphs are warmed up, recorded, and replayed."""
    import torch

    function, arguments = make_call(device)
    # The report names the default device as that of the run.
    with torch.device(device), jupyter_graphbreak.capture() as observer:
        for _ in range(3):
            function(*arguments)
    return Recording(
        gpu=torch.cuda.get_device_name() if device == "cuda" else device,
        date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        report=observer.report,
    )


def main() -> int:
    """Run the page and keep its output; return the exit status."""
    import jupytext
    import torch
    from nbclient import NotebookClient

    if not torch.cuda.is_available():
        print("there is no GPU to record", file=sys.stderr)
        return 1
    os.environ[_RECORD_VARIABLE] = "1"
    page = RECORDING.with_name("gpu.md")
    NotebookClient(jupytext.read(page), kernel_name="python3", resources={"metadata": {"path": page.parent}}).execute()
    print(RECORDING)
    return 0


if __name__ == "__main__":
    sys.exit(main())

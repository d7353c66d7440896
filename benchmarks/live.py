"""Measure the progress line of a long compilation in a real kernel: its update rate and cost.

A pair is one cell under ``%%compile_explain`` and the same code under ``capture()``, which watches in the same way but
shows nothing. Each runs in a fresh kernel, and the order alternates.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_client.manager import start_new_kernel

ROOT = Path(__file__).parents[1]

_SETUP_CELL = """
import sys, time
sys.path.insert(0, {root!r})
import torch
torch.compile(torch.sin, backend="eager")(torch.ones(3))
%load_ext jupyter_graphbreak"""

_CODE = """
@torch.compile(backend="eager")
def f(x):
    for _ in range({op_count}):
        x = x.sin()
    return x
_clocks = time.perf_counter, time.process_time, time.thread_time
_start = [clock() for clock in _clocks]
_ = f(torch.ones(3))
print(*(clock() - start for clock, start in zip(_clocks, _start)))"""
_LIVE_CELL = "%%compile_explain" + _CODE
_QUIET_CELL = "import jupyter_graphbreak\nwith jupyter_graphbreak.capture():" + _CODE.replace("\n", "\n    ")


class Result(NamedTuple):
    """Wall-clock time, processor time, that of the compiling thread, and the number of updates."""

    wall: float
    cpu: float
    thread: float
    change_count: int


def run(cell: str, op_count: int) -> Result:
    """Compile a graph of many operations."""
    manager, client = start_new_kernel(kernel_name="python3")
    states: list[str] = []
    printed_texts: list[str] = []

    def on_message(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            printed_texts.append(content["text"])
        progress = content.get("data", {}).get("state", {}).get("_progress")
        if progress is not None:
            states.append(str(progress))

    try:
        for code in (_SETUP_CELL.format(root=str(ROOT)), cell.format(op_count=op_count)):
            reply = client.execute_interactive(code, output_hook=on_message, timeout=600)
            if reply["content"]["status"] != "ok":
                raise SystemExit("\n".join(reply["content"]["traceback"]))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    wall, cpu, thread = (float(number) for number in printed_texts[0].split())
    return Result(
        wall,
        cpu,
        thread,
        sum(state != previous_state for previous_state, state in zip(["", *states], states, strict=False)),
    )


def main() -> int:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5, help="how many pairs of runs (default: %(default)s)")
    parser.add_argument("--ops", type=int, default=36_000, help="operations of the graph (default: %(default)s)")
    arguments = parser.parse_args()
    figures: dict[str, list[float]] = {"wall ratio": [], "cpu ratio": [], "share of the cpu time in other threads": []}
    for pair in range(arguments.pairs):
        results = {}
        for cell in (_LIVE_CELL, _QUIET_CELL) if pair % 2 == 0 else (_QUIET_CELL, _LIVE_CELL):
            results[cell] = run(cell, arguments.ops)
        live_result, quiet_result = results[_LIVE_CELL], results[_QUIET_CELL]
        if quiet_result.change_count:
            raise SystemExit("the quiet run showed a live line: nothing was measured")
        print(
            f"{live_result.wall:.1f} s, the line changed {live_result.change_count} times; "
            f"without it {quiet_result.wall:.1f} s",
            flush=True,
        )
        figures["wall ratio"].append(live_result.wall / quiet_result.wall)
        figures["cpu ratio"].append(live_result.cpu / quiet_result.cpu)
        figures["share of the cpu time in other threads"].append(
            (live_result.cpu - live_result.thread) / live_result.cpu
        )
    for name, values in figures.items():
        print(f"{name}: median {statistics.median(values):.3f}  ({min(values):.3f} .. {max(values):.3f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

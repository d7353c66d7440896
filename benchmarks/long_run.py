"""Measure a long run under ``capture(on_event=...)``: the memory that it holds, and the time of a call after warm-up.

The calls alternate in blocks between a process that watches and one that does not; the figures are processor time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

_PROGRAM = """
import contextlib, gc, json, resource, sys, time
import torch
import jupyter_graphbreak

def step(x):
    y = x.relu() + 1
    torch._dynamo.graph_break()
    return y.sum()

events = 0

def count(event):
    global events
    events += 1

watches = sys.argv[1] == "watched"
program, x = torch.compile(step, backend="eager"), torch.ones(4)

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

with jupyter_graphbreak.capture(on_event=count) if watches else contextlib.nullcontext():
    program(x)
    for line in sys.stdin:
        start_ns = time.process_time_ns()
        for _ in range(int(line)):
            program(x)
        spent_ns = time.process_time_ns() - start_ns
        gc.collect()
        print(json.dumps([spent_ns, resident_bytes(), events]), flush=True)
"""


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=1_000_000, help="calls per process (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=100, help="blocks of calls, in turn (default: %(default)s)")
    arguments = parser.parse_args()
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("watched", "plain")
    }
    answers: dict[str, list[list[Any]]] = {name: [] for name in processes}
    calls = arguments.calls // arguments.blocks
    for number in range(arguments.blocks):
        for name in sorted(processes, reverse=bool(number % 2)):
            process = processes[name]
            if process.stdin is None or process.stdout is None:
                raise SystemExit("the process has no streams")
            process.stdin.write(f"{calls}\n")
            process.stdin.flush()
            answers[name].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        process.communicate()
    watched_blocks, plain_blocks = answers["watched"], answers["plain"]
    ratios = sorted(
        watched_block[0] / plain_block[0]
        for watched_block, plain_block in zip(watched_blocks, plain_blocks, strict=True)
    )
    quarter = len(ratios) // 4
    early_block, last_block = watched_blocks[len(watched_blocks) // 10], watched_blocks[-1]
    print(f"{arguments.calls} calls in {arguments.blocks} blocks, {last_block[2]} events")
    print(
        f"processor time of a call: {statistics.median(block[0] for block in plain_blocks) / calls / 1000:.1f} us plain"
    )
    print(f"ratio watched / plain: median {statistics.median(ratios):.3f}, "
          f"middle half {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}")  # fmt: skip
    print(
        "resident memory after a tenth of the calls, and at the end: "
        f"{early_block[1] / 1e6:.1f} MB, {last_block[1] / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()

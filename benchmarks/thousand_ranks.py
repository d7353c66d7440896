"""Make a folder with the logs of many ranks from one log, read it, and print seconds, processor time and peak memory.

usage: python benchmarks/thousand_ranks.py LOG [RANKS] [MEGABYTES]

LOG is a log of TORCH_TRACE; it is repeated until it is large enough. The ranks differ in rank, process id and times;
rank 17 starts 30 s later and has one more break. The same folder is then read through ``memory://``.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

READING_PROGRAM = """
import sys, jupyter_graphbreak
if sys.argv[1].startswith("memory://"):
    import fsspec, pathlib
    for path in pathlib.Path(sys.argv[2]).iterdir():
        fsspec.filesystem("memory").pipe(f"{sys.argv[1]}/{path.name}", path.read_bytes())
import time
start = time.perf_counter()
job = jupyter_graphbreak.read_trace(sys.argv[1])
print(f"{time.perf_counter() - start:.1f}")
print(job.to_text())
"""
_LATE_RANK = 17
_TIME = re.compile(rb'"start_time": (\d+\.\d+)')
_BREAK = """\
V1125 09:27:45.428000 {pid} torch/_dynamo/symbolic_convert.py:1] {{"artifact": {{"name": "dynamo_graph_break_reason", \
"encoding": "string"}}, "rank": {rank}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0, "has_payload": true}}
\tGraph break in user code at /job/model.py:8
\tGraph Break Reason: Call to `torch._dynamo.graph_break()`
\t  Explanation: User-inserted graph break. Message: None
\tUser code traceback:
\t  File "/job/model.py", line 8, in leaf
\t    log(x)
"""


def make_folder(log: Path, folder: Path, rank_count: int, size: int) -> None:
    """Write the logs of a number of ranks."""
    text = log.read_bytes()
    text *= max(1, -(-size // len(text)))
    pids = re.compile(rb"^(V\d{4} [\d:.]+) \d+ ", re.MULTILINE)
    for rank in range(rank_count):
        delay_s = 30 if rank == _LATE_RANK else 0.001 * rank
        rank_log = pids.sub(rb"\1 %d " % (1000 + rank), text)
        rank_log = _TIME.sub(lambda match, s=delay_s: b'"start_time": %f' % (float(match[1]) + s), rank_log)  # type: ignore[misc]
        if rank == _LATE_RANK:
            rank_log += _BREAK.format(pid=1000 + rank, rank=rank).encode()
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(rank_log)


class Run(NamedTuple):
    """A run of a command: its seconds, its processor time and peak memory with its children, and what it prints."""

    seconds: float
    processor_seconds: float
    peak_mb: float
    output: str


def run_timed(command: list[str]) -> Run:
    """Run a command and measure it."""
    start, processor_start = time.perf_counter(), _processor_seconds()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output)
        watched_process, peak = psutil.Process(process.pid), 0
        while process.poll() is None:
            try:
                family = [watched_process, *watched_process.children(recursive=True)]
                peak = max(peak, sum(_memory(member) for member in family))
            except psutil.NoSuchProcess:
                pass
            time.sleep(0.1)
        if process.returncode:
            sys.exit("reading failed")
        output.seek(0)
        processor_s = _processor_seconds() - processor_start
        return Run(time.perf_counter() - start, processor_s, peak / 1e6, output.read().decode())


def _processor_seconds() -> float:
    """Return the processor time of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _memory(process: psutil.Process) -> int:
    try:
        resident_bytes: int = process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0
    return resident_bytes


def main() -> None:
    """Make the folder and read it twice."""
    log = Path(sys.argv[1])
    rank_count = int(sys.argv[2]) if len(sys.argv) > 2 else 1024  # noqa: PLR2004
    megabytes = int(sys.argv[3]) if len(sys.argv) > 3 else 4  # noqa: PLR2004
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_folder(log, folder, rank_count, megabytes << 20)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{rank_count} ranks, {size / 1e6:.0f} MB, {os.cpu_count()} cores")
        command = [sys.executable, "-c", READING_PROGRAM]
        local_run = run_timed([*command, name])
        print(f"folder     {_times(local_run)}   peak {local_run.peak_mb:5.0f} MB")
        print(local_run.output)
        remote_run = run_timed([*command, "memory://traces", name])
        is_same = remote_run.output.split("\n")[1:] == local_run.output.split("\n")[1:]
        print(f"memory://  {_times(remote_run)}   same report: {is_same}")
        print(
            json.dumps(
                {"ranks": rank_count, "seconds": round(local_run.seconds, 1), "peak_mb": round(local_run.peak_mb)}
            )
        )


def _times(run: Run) -> str:
    return f"{run.seconds:6.1f} s   processor {run.processor_seconds:6.1f} s"


if __name__ == "__main__":
    main()

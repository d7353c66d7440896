"""Read a log of 200 MB, alternating with tlparse, and print seconds and peak memory.

usage: python benchmarks/trace_log.py LOG [TLPARSE] [MEGABYTES]

LOG is a log or a folder of TORCH_TRACE; it is repeated until it is large.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

READING_PROGRAM = "import sys, jupyter_graphbreak\nprint(repr(jupyter_graphbreak.read_trace(sys.argv[1])))"
_ROUNDS = 3


def write_repeated(source: Path, target: Path, size: int) -> None:
    """Write a log, or the logs of a folder, repeated until it has the requested size."""
    files = [source] if source.is_file() else sorted(path for path in source.rglob("*.log") if path.is_file())
    texts = [file.read_bytes() for file in files]
    with target.open("wb") as file:
        while file.tell() < size:
            for text in texts:
                file.write(text)


def run_timed(command: list[str]) -> tuple[float, float, str]:
    """Run a command; return its seconds, its peak of memory in MB, and the end of what it prints."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    output = process.stdout.read().decode() if process.stdout is not None else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024, output.strip()[-100:]


def main() -> None:
    """Time both programs in turn."""
    source = Path(sys.argv[1])
    tlparse = sys.argv[2] if len(sys.argv) > 2 else shutil.which("tlparse")  # noqa: PLR2004
    megabytes = int(sys.argv[3]) if len(sys.argv) > 3 else 200  # noqa: PLR2004
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "large.log"
        write_repeated(source, log, megabytes << 20)
        print(f"{log.stat().st_size / 1e6:.0f} MB")
        for _ in range(_ROUNDS):
            seconds, peak, output = run_timed([sys.executable, "-c", READING_PROGRAM, str(log)])
            print(f"read_trace {seconds:6.2f} s   peak {peak:5.0f} MB   {output}")
            if tlparse is not None:
                seconds, peak, _ = run_timed([tlparse, str(log), "-o", f"{folder}/out", "--overwrite", "--no-browser"])
                print(f"tlparse    {seconds:6.2f} s   peak {peak:5.0f} MB")


if __name__ == "__main__":
    main()

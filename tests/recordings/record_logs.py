"""Make the golden logs: run programs in tests/programs with TORCH_TRACE, and write the entries that a report reads.

Run it from the root of the project with a Python that has the torch to record: PYTHON tests/recordings/record_logs.py

The logs go to tests/recordings/logs/TORCH_VERSION/NAME.log. Paths of the machine are replaced, and unneeded metrics are
left out. The checksums are those of the changed payloads.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from jupyter_graphbreak.records.records import NEEDED_RECORDS, Record
from jupyter_graphbreak.trace.entries import LISTING

FOLDER = Path(__file__).resolve().parent
PROGRAMS = FOLDER.parent / "programs"
PROGRAM_NAMES = ("branch", "fullgraph", "limit", "loop", "nested_break", "with_and_try")
ENTRY_KINDS = NEEDED_RECORDS | {"str", "artifact:torch_version", "dynamo_cpp_guards_str"}
METRICS = ("compile_id", "co_name", "co_filename", "co_firstlineno", "entire_frame_compile_time_s", "fail_type",
           "fail_reason", "graph_op_count", "restart_reasons", "python_version", "pytorch_version")  # fmt: skip


def neutralize(text: str) -> str:
    """Replace paths of this machine and memory addresses in a string."""
    text = text.replace(str(PROGRAMS), "/programs").replace(sysconfig.get_paths()["stdlib"], "/lib/python3.11")
    return re.sub(r"0x[0-9a-f]{6,}", "0x0", text)


def trim_log(log: str) -> str:
    """Return the records of a log that a report reads."""
    lines = []
    for entry in re.split(r"\n(?=[^\t])", log.rstrip("\n")):
        head, _, rest = entry.partition("\n")
        prefix, _, text = head.partition("] ")
        envelope = json.loads(text)
        record = Record(envelope)
        if record.kind not in ENTRY_KINDS and not LISTING.fullmatch(record.kind):
            continue
        payload = [neutralize(line[1:]) for line in rest.split("\n")] if rest else []
        if record.kind == "compilation_metrics":
            metrics, payload = record.data, []
            config = json.loads(metrics.get("dynamo_config") or "{}")
            kept_metrics = {key: metrics.get(key) for key in METRICS}
            kept_metrics["dynamo_config"] = json.dumps({k: config.get(k) for k in ("nested_graph_breaks", "recompile_limit")})
            envelope["compilation_metrics"] = kept_metrics
            envelope.pop("has_payload", None)
        if payload:
            envelope["has_payload"] = hashlib.md5("\n".join(payload).encode(), usedforsecurity=False).hexdigest()
        lines += [f"{prefix}] {neutralize(json.dumps(envelope))}", *(f"\t{line}" for line in payload)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Record all programs, each in a process of its own."""
    import torch

    folder = FOLDER / "logs" / str(torch.__version__).partition("+")[0]
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAM_NAMES:
        with tempfile.TemporaryDirectory() as traces:
            environment = {**os.environ, "TORCH_TRACE": traces}
            subprocess.run(
                [sys.executable, PROGRAMS / f"{name}.py"], env=environment, check=False, stdout=subprocess.DEVNULL
            )
            (log,) = Path(traces).iterdir()
            (folder / f"{name}.log").write_text(trim_log(log.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

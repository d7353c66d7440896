"""One program, watched live and read from its log: the same report, but for what a log cannot have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_graphbreak import read_trace
from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.schema import Break
from jupyter_graphbreak.results import Report

HERE = Path(__file__).parent
LIVE = """
import runpy, sys
import jupyter_graphbreak

try:
    with jupyter_graphbreak.capture() as run:
        runpy.run_path(sys.argv[1], run_name="__main__")
except Exception:
    pass
sys.stdout.write(run.report.to_json().decode())
"""


def place(report: Report, at: Location | None) -> Any:
    if at is None:
        return None
    names = {source.id: source.name for source in report.sources}
    return names[at.source], at.line, at.function


def stack(report: Report, found: Break) -> list[Any]:
    return [place(report, at) for at in found.stack]


def facts(report: Report, *, lines_of_resumes: bool) -> dict[str, Any]:
    return {
        "breaks": [
            (place(report, found.location), found.gb_id, found.outcome, len(found.occurrences))
            for found in report.breaks
        ],
        "graphs": [(graph.frame, graph.ends, [(op.name, op.target) for op in graph.ops]) for graph in report.graphs],
        "skipped": [(each.function, each.kind, each.frame, place(report, each.location)) for each in report.skipped],
        "resumes": sorted(
            (each.name, each.frames, place(report, each.location) if lines_of_resumes else None)
            for each in report.resumes
            if each.frames
        ),
        "frames": [(frame.id, frame.function, frame.outcome, frame.caller) for frame in report.frames],
    }


@pytest.mark.skipif(torch.__version__ < "2.11", reason="logs of torch 2.9 and 2.10 tell skips from errors by nothing")
@pytest.mark.parametrize("name", ["branch", "nested_resumes", "with_and_try", "fullgraph"])
def test_a_program_live_and_through_its_log(tmp_path: Path, name: str) -> None:
    program = HERE.parent / "programs" / f"{name}.py"
    environment = {**os.environ, "TORCH_TRACE": str(tmp_path), "PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, "-c", LIVE, str(program)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    live, logged = Report.from_json(done.stdout), read_trace(tmp_path)
    assert isinstance(logged, Report)
    listed = torch.__version__ >= "2.13"
    assert facts(logged, lines_of_resumes=listed) == facts(live, lines_of_resumes=listed)
    for of_log, of_run in zip(logged.breaks, live.breaks, strict=True):  # PyTorch leaves callers out of some stacks
        known = stack(logged, of_log)
        assert stack(live, of_run)[-len(known) :] == known

"""The live report of a program is the same as the report of its log, except for information that logs lack."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_graphbreak import read_trace
from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.schema import Break
from jupyter_graphbreak.results import Report
from tests.support import warm_processes
from tests.support.sampling import sample_parameters

FOLDER = Path(__file__).parent
#: A program that sets up PyTorch's log itself, because a warm process has loaded PyTorch, which reads TORCH_TRACE only
#: while it is loaded.
LIVE_PROGRAM = """
import logging, runpy, sys
import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.structured_trace import trace_logger, trace_writer

trace_logger().addHandler(trace_writer(sys.argv[2]))
trace_logger().setLevel(logging.DEBUG)
try:
    with jupyter_graphbreak.capture() as run:
        runpy.run_path(sys.argv[1], run_name="__main__")
except Exception:
    pass
sys.stdout.write(run.report.to_json().decode())
"""


def named_location(report: Report, location: Location | None) -> Any:
    if location is None:
        return None
    names = {source.id: source.name for source in report.sources}
    return names[location.source], location.line, location.function


def named_stack(report: Report, break_: Break) -> list[Any]:
    return [named_location(report, location) for location in break_.stack]


def comparable_facts(report: Report, *, has_resume_lines: bool) -> dict[str, Any]:
    return {
        "breaks": [
            (named_location(report, break_.location), break_.gb_id, break_.outcome, len(break_.occurrences))
            for break_ in report.breaks
        ],
        "graphs": [(graph.frame, graph.ends, [(op.name, op.target) for op in graph.ops]) for graph in report.graphs],
        "skipped": [
            (skipped.function, skipped.kind, skipped.frame, named_location(report, skipped.location), skipped.reason)
            for skipped in report.skipped
        ],
        "resumes": sorted(
            (resume.name, resume.frames, named_location(report, resume.location) if has_resume_lines else None)
            for resume in report.resumes
            if resume.frames
        ),
        "frames": [(frame.id, frame.function, frame.outcome) for frame in report.frames],
    }


def report_live_and_from_log(fork_server_folder: Path, folder: Path, name: str) -> tuple[Report, Report]:
    """Run a program while watching it and writing its log, and return the live report and the report of the log."""
    program = FOLDER.parent / "programs" / f"{name}.py"
    process = warm_processes.run(
        fork_server_folder, ["-c", LIVE_PROGRAM, str(program), str(folder)], cwd=folder, env=dict(os.environ)
    )
    assert process.returncode == 0, process.stderr
    log_report = read_trace(folder)
    assert isinstance(log_report, Report)
    return Report.from_json(process.stdout.rpartition("\n")[2]), log_report


needs_skips = pytest.mark.skipif(
    torch.__version__ < "2.11", reason="logs of torch 2.9 and 2.10 do not distinguish skips from errors"
)


@needs_skips
@pytest.mark.parametrize(
    "name", sample_parameters(["nested_resumes", "branch", "fullgraph", "with_and_try", "logged/one_line"], 3)
)
def test_a_program_has_the_same_report_live_and_from_its_log(
    fork_server_folder: Path, tmp_path: Path, name: str
) -> None:
    live_report, log_report = report_live_and_from_log(fork_server_folder, tmp_path, name)
    has_lines = torch.__version__ >= "2.13"
    assert comparable_facts(log_report, has_resume_lines=has_lines) == comparable_facts(
        live_report, has_resume_lines=has_lines
    )
    if name == "logged/one_line":
        # Code compiled after torch._dynamo.reset() may have the address of an earlier code object.
        resumes_after_reset = [
            resume for resume in live_report.resumes if any(frame.endswith("#2") for frame in resume.frames)
        ]
        assert [(resume.frames, resume.break_) for resume in resumes_after_reset] == [
            (["1/0#2"], "b1"),
            (["2/0#2"], "b2"),
        ]
        # In a log, the caller of a recursive function is a guess.
        return
    callers = [(frame.id, frame.caller) for frame in live_report.frames]
    assert [(frame.id, frame.caller) for frame in log_report.frames] == callers
    for logged_break, live_break in zip(
        log_report.breaks, live_report.breaks, strict=True
    ):  # PyTorch omits callers from some stacks
        logged_stack = named_stack(log_report, logged_break)
        assert named_stack(live_report, live_break)[-len(logged_stack) :] == logged_stack


@pytest.mark.exhaustive
@needs_skips
def test_no_location_is_listed_twice_if_a_log_is_ambiguous(fork_server_folder: Path, tmp_path: Path) -> None:
    live_report, log_report = report_live_and_from_log(fork_server_folder, tmp_path, "logged/one_line_unclear")
    live_counts, logged_counts = (
        Counter((named_location(report, break_.location), break_.gb_id) for break_ in report.breaks)
        for report in (live_report, log_report)
    )
    assert logged_counts.keys() == live_counts.keys()
    assert logged_counts <= live_counts
    assert log_report.summary.events == live_report.summary.events
    assert any("may be listed as one" in note.message for note in log_report.diagnostics)

"""Logs of many ranks: read in several processes, from disk or object storage, with equal ranks folded."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from jupyter_graphbreak import Job, read_trace
from jupyter_graphbreak.analysis.jobs import build_job
from jupyter_graphbreak.api import log_reading
from jupyter_graphbreak.api.log_reading import find_logs, read_logs
from jupyter_graphbreak.records.records import CompileTime
from jupyter_graphbreak.report.job import EqualProcess, Process
from jupyter_graphbreak.results import Report
from jupyter_graphbreak.trace.limits import ReadingLimits
from jupyter_graphbreak.trace.log_files import RemoteFolder, UnreadableTrace
from jupyter_graphbreak.views.html.job import render_job_html
from tests.support.sample_reports import no_breaks, two_breaks

LOGS = Path(__file__).parents[2] / "recordings" / "logs"
RANKS = 12
_PID = re.compile(r"^(V\d{4} [\d:.]+ )\d+ ", re.MULTILINE)
#: The metrics of torch 2.13 contain the start time of a compilation, but those in the recordings do not.
_METRICS = re.compile(r'("entire_frame_compile_time_s": [\d.]+)')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the logs of twelve ranks; rank 7 has an additional break and compiles a minute later than the others."""
    branch_log = (LOGS / "2.13.0" / "branch.log").read_text()
    nested_break_log = (LOGS / "2.13.0" / "nested_break.log").read_text()
    for rank in range(RANKS):
        start = 1800000000 + (60 if rank == 7 else rank / 100)
        text = branch_log if rank != 7 else branch_log + nested_break_log
        text = _PID.sub(rf"\g<1>{100 + rank} ", text)
        text = _METRICS.sub(rf'\1, "start_time": {start}, "duration_us": {1000000 + rank}', text)
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_{rank:04x}.log").write_text(text)
    (tmp_path / "notes.txt").write_text("no trace")
    return tmp_path


def test_equal_ranks_are_folded_and_the_different_one_comes_first(folder: Path) -> None:
    job = read_trace(folder)
    assert isinstance(job, Job)
    equal_ranks = [rank for rank in range(RANKS) if rank != 7]
    assert [[member.rank for member in process.members] for process in job.processes] == [[7], equal_ranks]
    assert (job.breaks[0].ranks, job.breaks[0].missing_in) == ([7], equal_ranks)
    assert len(job.breaks[-1].processes) == RANKS
    text = job.to_text()
    assert "ranks 0-6, 8-11 (equal)" in text
    assert "rank 7 compiled for 1.0 s (" in text
    assert "60.0 s after the first compilation began" in " ".join(text.split())
    assert "when each rank compiled" in render_job_html(job)
    assert Job.from_json(job.to_json()) == job
    assert Job.from_json(job.redacted().to_json()).compiling[0].alone_function != "choose"


@pytest.mark.parametrize("storage", ["disk", "memory"])
def test_several_processes_build_the_same_job_as_one(
    folder: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read_trace(folder)
    path = str(folder)
    if storage == "memory":
        fsspec = pytest.importorskip("fsspec")
        path = "memory://ranks"
        fsspec.filesystem("memory").put(str(folder), "/ranks", recursive=True)
    monkeypatch.setattr(log_reading, "_available_cores", lambda: 2)
    started_workers: list[object] = []
    start = log_reading._Worker._start

    def start_and_count(worker: log_reading._Worker) -> None:
        started_workers.append(worker)
        start(worker)

    monkeypatch.setattr(log_reading._Worker, "_start", start_and_count)
    contents = read_logs(find_logs(path), [], min_parallel_bytes=0)
    assert len(started_workers) == 2
    processes = [Process(f"p{n}", p.rank, p.pid, None, p.report) for n, p in enumerate(contents.processes, start=1)]
    times = {f"p{n}": process.compile_times for n, process in enumerate(contents.processes, start=1)}
    assert Job.of(build_job(processes, times, contents.notes)) == expected
    if storage == "memory":
        assert read_trace(path) == expected
        assert isinstance(read_trace(f"{path}/dedicated_log_torch_trace_rank_0_0000.log"), Report)


def test_a_process_that_dies_loses_only_its_own_log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "_available_cores", lambda: 2)
    explain = log_reading._Worker.explain

    def explain_or_die(worker: log_reading._Worker, file: Path, *args: object, **options: bool) -> object:
        if "rank_3_" in file.name:
            os.kill(worker._process.pid, signal.SIGKILL)
        return explain(worker, file, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(log_reading._Worker, "explain", explain_or_die)
    contents = read_logs(find_logs(folder), [], min_parallel_bytes=0)
    assert {process.rank for process in contents.processes} == set(range(RANKS)) - {3}
    (note,) = contents.notes
    assert note.message.endswith("_rank_3_0003.log: the process that read it ended, perhaps because memory ran out.")


def test_too_many_different_reports_are_listed_without_operations(folder: Path) -> None:
    contents = read_logs(find_logs(folder), [], limits=ReadingLimits(reports=1))
    assert not any(graph.ops for process in contents.processes for graph in process.report.graphs)
    assert "listed without operations" in contents.notes[-1].message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://nowhere", "memory://nowhere: no such file or folder"),
        ("nonsense://bucket/traces", "nonsense://bucket/traces: "),
    ],
)
def test_a_problem_with_a_url_is_reported_in_one_line(url: str, message: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UnreadableTrace) as caught:
        read_trace(url)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_error_names_the_file_in_storage_that_cannot_be_read() -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/other/notes.log", b"no trace")
    with pytest.raises(UnreadableTrace, match=r"memory:///?other/notes.log: not a structured trace"):
        read_trace("memory://other/notes.log")
    remote_folder = RemoteFolder("memory://other/notes.log", ReadingLimits(downloaded_bytes=3))
    with pytest.raises(UnreadableTrace, match="larger than"), remote_folder.download("/other/notes.log"):
        pass


def test_ranks_that_differ_only_in_device_and_times_are_equal() -> None:
    def report_on_device(index: int) -> Report:
        text = two_breaks().to_json().decode().replace('"cuda:0"', f'"cuda:{index}"')
        return Report.from_json(text.replace('"compile_s":0.79', f'"compile_s":{index}.5'))

    job = build_job([Process(f"p{rank}", rank, rank, None, report_on_device(rank)) for rank in range(4)])
    assert [[equal.rank for equal in process.equal] for process in job.processes] == [[1, 2, 3]]
    assert build_job([*job.processes, Process("p4", 4, 4, None, report_on_device(4))]).processes[0].members[-2:] == [
        EqualProcess("p3", 3, 3),
        EqualProcess("p4", 4, 4),
    ]
    job_without_ranks = build_job([Process(f"p{number}", None, number, None, no_breaks()) for number in range(2)])
    # Processes without a rank, such as a kernel and a process that it started, stay separate.
    assert len(job_without_ranks.processes) == 2


def test_a_rank_stalls_the_others_while_at_least_half_of_them_do_not_compile() -> None:
    compile_times = {
        "p0": [CompileTime(100.0, 4.0, "f"), CompileTime(101.0, 1.0, "inner")],
        "p1": [CompileTime(100.0, 4.0, "f")],
        "p2": [CompileTime(100.5, 4.0, "f"), CompileTime(110.0, 2.0, "g")],
    }
    job = build_job([Process(f"p{rank}", rank, rank, None, no_breaks()) for rank in range(3)], compile_times)
    rows = [(rank.rank, rank.start_s, rank.end_s, rank.compile_s, rank.alone_s) for rank in job.compiling]
    assert rows == [(0, 0.0, 4.0, 4.0, 0.0), (1, 0.0, 4.0, 4.0, 0.0), (2, 0.5, 12.0, 6.0, 2.5)]
    assert (job.compiling[2].alone_start_s, job.compiling[2].alone_function) == (10.0, "g")

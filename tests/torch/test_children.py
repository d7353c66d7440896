"""The processes that a block of code starts are part of the job, and watching them has no lasting effects."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from jupyter_graphbreak.api.watching import capture
from jupyter_graphbreak.recording.children import trace_child_processes

PROGRAM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")

class Net(torch.nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        if dist.get_rank() == 1:
            torch._dynamo.graph_break()
        return y + 1

net = Net(4, 4)
WRAP
torch.compile(net, backend="eager")(torch.ones(3, 4)).sum().backward()
dist.destroy_process_group()
"""


def leaf(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x + 1


def work() -> None:
    torch.compile(leaf, backend="eager")(torch.ones(3))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.exhaustive)])
def test_a_process_of_multiprocessing_has_its_own_report(method: str) -> None:
    handlers = list(torch._logging._internal.trace_log.handlers)
    with capture(processes=True) as run:
        folder = Path(os.environ["TORCH_TRACE"])
        context: Any = multiprocessing.get_context(method)
        process = context.Process(target=work)
        process.start()
        process.join()
    job = run.job
    assert job is not None
    assert process.exitcode == 0
    assert [(job_process.rank, len(job_process.report.breaks)) for job_process in job.processes] == [
        (None, 0),
        (None, 1),
    ]
    assert job.processes[1].pid == process.pid
    assert not folder.exists()
    assert "TORCH_TRACE" not in os.environ
    assert torch._logging._internal.trace_log.handlers == handlers


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param("", id="plain"),
        pytest.param("net = torch.nn.parallel.DistributedDataParallel(net)", id="DDP", marks=pytest.mark.exhaustive),
        pytest.param(
            "from torch.distributed.fsdp import fully_shard\n"
            "fully_shard(net, mesh=dist.init_device_mesh('cpu', (dist.get_world_size(),)))",
            id="FSDP2",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_the_ranks_of_torchrun_are_reported_with_their_differences(
    monkeypatch: pytest.MonkeyPatch, warm_python: str, tmp_path: Path, wrap: str
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.replace("WRAP", wrap))
    monkeypatch.setenv("PYTHON_EXEC", warm_python)
    launch = [str(Path(warm_python).with_name("torchrun")), "--standalone", "--nproc-per-node", "2", "train.py"]
    with capture(processes=True) as run:
        subprocess.run(launch, check=True, cwd=tmp_path, capture_output=True)
    job = run.job
    assert job is not None
    assert sorted(job_process.rank for job_process in job.processes if job_process.rank is not None) == [0, 1]
    assert [(break_.ranks, break_.missing_in) for break_ in job.breaks if break_.missing_in] == [([1], [0])]
    assert job.breaks[0].place is not None
    assert (job.breaks[0].place.line, job.breaks[0].place.function) == (11, "forward")
    assert [(rank.rank, rank.process) for rank in job.compiling] == [
        (rank, next(job_process.id for job_process in job.processes if job_process.rank == rank)) for rank in (0, 1)
    ]
    assert min(rank.start_s for rank in job.compiling) == 0.0
    assert all(rank.compile_s > 0 and rank.end_s >= rank.start_s for rank in job.compiling)


@pytest.mark.parametrize(
    ("environment", "expected_reason"),
    [({}, "no TORCH_TRACE"), ({"TORCH_TRACE": "/elsewhere"}, "a different TORCH_TRACE"), (None, "")],
)
def test_a_process_with_a_different_environment_is_named(
    environment: dict[str, str] | None, expected_reason: str
) -> None:
    with capture(processes=True) as run:
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True, env=environment)
        subprocess.run(["true"], check=True, env={})
    notes = [note.message for note in run.report.diagnostics if "A process" in note.message]
    expected = f"started with {expected_reason} in its environment: {sys.executable} -I -S -c pass"
    assert [note.endswith(expected) for note in notes] == [True] * (environment is not None)


def use_processor(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_processes_that_had_started_before_are_counted_if_they_work(monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as working_pool, context.Pool(1) as idle_pool:
        for pool in (working_pool, idle_pool):
            pool.apply(use_processor, (0.0,))  # wait until the process has started completely
        # Other tests may have left processes, such as Inductor's, that work at any time.
        pids = [process.pid for process in multiprocessing.active_children()]
        monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [psutil.Process(pid) for pid in pids])
        with capture(processes=True) as run:
            working_pool.apply(use_processor, (0.5,))
        (note,) = run.report.diagnostics
        assert note.message.startswith("1 process worked in this run but had started before it")
        with capture(processes=True) as run:
            pass
        assert run.report.diagnostics == []


@pytest.mark.exhaustive
def test_an_isolated_python_is_watched(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import torch\ntorch.compile(torch._dynamo.graph_break, backend='eager')()\n")
    with capture(processes=True) as run:
        subprocess.run([sys.executable, "-I", "work.py"], check=True, cwd=tmp_path)
    assert run.job is not None
    assert len(run.job.processes) == 2


@pytest.mark.exhaustive
def test_files_of_a_process_that_outlives_the_block_are_removed(tmp_path: Path) -> None:
    start_file = tmp_path / "go"
    (tmp_path / "work.py").write_text(
        "import os, time, torch\n"
        f"while not os.path.exists({str(start_file)!r}):\n    time.sleep(0.05)\n"
        "torch.compile(torch._dynamo.graph_break, backend='eager')()\n"
    )
    with trace_child_processes(print) as folder:
        process = subprocess.Popen([sys.executable, "work.py"], cwd=tmp_path)
    assert not folder.exists()
    start_file.touch()
    assert process.wait() == 0
    assert folder.exists()
    with trace_child_processes(print):
        assert not folder.exists()


@pytest.mark.exhaustive
def test_two_threads_watch_their_own_processes(tmp_path: Path) -> None:
    torch.compiler.reset()  # a forked process inherits compiled code
    (tmp_path / "work.py").write_text("import torch\ntorch.compile(torch._dynamo.graph_break, backend='eager')()\n")
    barrier = threading.Barrier(3)
    runs: dict[str, Any] = {}
    pids: dict[str, set[int | None]] = {"one": set(), "two": set()}

    def fork() -> int | None:
        context: Any = multiprocessing.get_context("fork")
        process = context.Process(target=work)
        process.start()
        process.join()
        return process.pid  # type: ignore[no-any-return]

    def watch(name: str) -> None:
        with capture(processes=True) as runs[name]:
            barrier.wait()
            if name == "one":
                program = subprocess.Popen([sys.executable, "work.py"], cwd=tmp_path)
                program.wait()
                pids[name].add(program.pid)
            pids[name].add(fork())
            barrier.wait()

    threads = [threading.Thread(target=watch, args=(name,)) for name in pids]
    for thread in threads:
        thread.start()
    barrier.wait()
    fork()  # belongs to no run
    barrier.wait()
    for thread in threads:
        thread.join()
    for name, run in runs.items():
        assert run.job is not None
        assert {job_process.pid for job_process in run.job.processes[1:]} == pids[name]
    assert "TORCH_TRACE" not in os.environ


#: Functions; the audit hook of a test calls the last one when a shell is about to start.
SHELL_START_CALLBACKS: list[Callable[[], None]] = []


def test_the_shells_of_two_threads_write_to_their_own_folders(tmp_path: Path) -> None:
    def call_last_hook(event: str, _: object) -> None:
        if SHELL_START_CALLBACKS and event == "os.system":
            SHELL_START_CALLBACKS[-1]()

    def run_shell_in_own_block() -> None:
        with trace_child_processes(print) as folder:
            folders["other"] = str(folder)
            barrier.wait()
            os.system(f"echo $TORCH_TRACE > {tmp_path}/other")
            barrier.wait()

    def interfere() -> None:
        """Set the folder of the other thread's block, as that thread may do at this moment."""
        os.environ["TORCH_TRACE"] = folders["other"]

    folders: dict[str, str] = {}
    barrier = threading.Barrier(2)
    thread = threading.Thread(target=run_shell_in_own_block)
    with trace_child_processes(print) as folder:
        sys.addaudithook(call_last_hook)
        thread.start()
        barrier.wait()
        SHELL_START_CALLBACKS.append(interfere)
        try:
            status = os.system(f"echo $TORCH_TRACE > {tmp_path}/here; exit 7")
        finally:
            SHELL_START_CALLBACKS.clear()
        barrier.wait()
        thread.join()
    assert os.waitstatus_to_exitcode(status) == 7
    assert (tmp_path / "here").read_text().strip() == str(folder)
    assert (tmp_path / "other").read_text().strip() == folders["other"]
    assert "TORCH_TRACE" not in os.environ


def test_a_shell_that_compiled_code_starts_is_reported_as_without_watching() -> None:
    def start_shell(x: torch.Tensor) -> torch.Tensor:
        os.system("exit 0")
        return x + 1

    def report_breaks_and_effects(**options: Any) -> Any:
        torch.compiler.reset()
        with capture(entries=True, **options) as run:
            torch.compile(start_shell, backend="eager")(torch.ones(3))
        breaks = [(item.gb_id, item.location.line if item.location else None) for item in run.report.breaks]
        return breaks, [effect.what for effect in run.check().effects or ()]

    system = os.system
    expected = report_breaks_and_effects()
    assert report_breaks_and_effects(processes=True) == expected
    assert expected[1] == ["runs the command exit 0"]
    assert os.system is system


def test_the_processes_of_a_nested_block_belong_to_both() -> None:
    context: Any = multiprocessing.get_context("fork")
    pids = []
    with capture(processes=True) as outer:
        for inner in (None, capture(processes=True)):
            with inner or contextlib.nullcontext() as run:
                process = context.Process(target=work)
                process.start()
                process.join()
            pids.append(process.pid)
        folder = Path(os.environ["TORCH_TRACE"])
        assert folder.exists()
    assert run is not None
    assert run.job is not None
    assert [job_process.pid for job_process in run.job.processes[1:]] == pids[1:]
    assert outer.job is not None
    assert {job_process.pid for job_process in outer.job.processes[1:]} == set(pids)
    assert not folder.exists()
    assert "TORCH_TRACE" not in os.environ


def test_nothing_is_left_after_an_interruption() -> None:
    environment = dict(os.environ)
    with pytest.raises(KeyboardInterrupt), trace_child_processes(print) as folder:
        raise KeyboardInterrupt
    assert not folder.exists()
    assert dict(os.environ) == environment


def test_the_users_own_trace_folder_stays_in_force(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_TRACE", str(tmp_path))
    with capture(processes=True) as run:
        assert os.environ["TORCH_TRACE"] == str(tmp_path)
    assert os.environ["TORCH_TRACE"] == str(tmp_path)
    assert any(f"wrote their logs to {tmp_path}" in note.message for note in run.report.diagnostics)


def test_a_block_that_starts_no_process_has_no_job() -> None:
    with capture(processes=True) as run:
        work()
    assert run.job is None
    assert len(run.report.breaks) == 1


class CompilingDataset(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        work()
        return torch.ones(3)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.exhaustive)])
def test_workers_of_a_data_loader_have_their_own_reports(method: str) -> None:
    torch.compiler.reset()  # a forked process inherits compiled code
    with capture(processes=True) as run:
        loader = torch.utils.data.DataLoader(CompilingDataset(), num_workers=2, multiprocessing_context=method)
        assert len(list(loader)) == 2
    assert run.job is not None
    assert len(run.job.processes) == 3
    assert [len(break_.processes) for break_ in run.job.breaks] == [2]

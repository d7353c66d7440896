"""Read logs, in several processes if they are large, with one report for all equal ranks.

The processes import neither torch nor the caller's program. Each sends equal reports only once, so many equal ranks
take little memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.analysis.jobs import fingerprint
from jupyter_graphbreak.records.records import CompileTime
from jupyter_graphbreak.report.schema import Diagnostic, Report
from jupyter_graphbreak.trace.limits import Deadline, ReadingLimits
from jupyter_graphbreak.trace.log_files import RemoteFolder, UnreadableTrace, is_trace, is_url, trace_files
from jupyter_graphbreak.trace.processes import read_file
from jupyter_graphbreak.trace.source_folders import SourceFolders
from jupyter_graphbreak.views.words.plain_text import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from jupyter_graphbreak.trace.processes import ProcessTrace

#: Logs smaller than this are read faster without starting processes.
_MIN_PARALLEL_BYTES = 64 << 20
_MAX_WORKERS = 8
_SIZE_FIELD_BYTES = 4
_DEFAULT_LIMITS = ReadingLimits()


class Logs(NamedTuple):
    """Log files on disk or in object storage."""

    #: The size of each file in bytes, by its name, in the order in which to read them.
    sizes: dict[str, int]
    notes: list[str]
    #: Returns a context manager that provides a file on disk, given its name.
    local_file: Callable[[str], contextlib.AbstractContextManager[Path]]
    #: Returns the name of a file for messages.
    display_name: Callable[[str], str]
    #: Whether each file must be a trace; otherwise, files that are not traces are left out without a message.
    must_be_traces: bool


class LogProcess(msgspec.Struct):
    """A process in a log, its report, and the times of its compilations."""

    rank: int | None
    pid: int | None
    report: Report
    compile_times: list[CompileTime]


class LogContents(NamedTuple):
    """The content of logs: their processes (equal ones share a report), and notes on what cannot be read."""

    processes: list[LogProcess]
    notes: list[Diagnostic]


def find_logs(path: str | Path) -> Logs:
    """Return the logs at a path: one file, or those in a folder, on disk or in object storage."""
    if is_url(str(path)):
        remote = RemoteFolder(str(path))
        return Logs(remote.sizes, remote.notes, remote.download, remote.url_of, len(remote.sizes) == 1)
    files = trace_files(Path(path))
    sizes = {str(file): file.stat().st_size for file in files.files}
    return Logs(sizes, files.notes, lambda name: contextlib.nullcontext(Path(name)), str, must_be_traces=True)


def read_logs(
    logs: Logs,
    sources: list[str],
    on_read: Callable[[int], None] = lambda _: None,
    limits: ReadingLimits = _DEFAULT_LIMITS,
    min_parallel_bytes: int = _MIN_PARALLEL_BYTES,
) -> LogContents:
    """Read logs and build the reports of their processes; raise an UnreadableTrace if no log has a trace record.

    Source files may be read from the folders ``sources``, the working folder and the folders of packages. ``on_read``
    receives the number of bytes read since its previous call. Logs with at least ``min_parallel_bytes`` are read in
    several processes.
    """
    workers = min(_available_cores(), _MAX_WORKERS, len(logs.sizes))
    is_parallel = workers > 1 and sum(logs.sizes.values()) >= min_parallel_bytes
    deadline = Deadline(limits.seconds)
    collected_processes = _CollectedProcesses(limits)
    errors = []
    results = (
        _read_in_parallel(logs, sources, deadline, on_read, workers)
        if is_parallel
        else _read_in_this_process(logs, sources, deadline, on_read)
    )
    with contextlib.closing(results):
        for result in results:
            if result.error is not None:
                errors.append(result.error)
            for process in result.processes:
                collected_processes.add(process)
    processes = collected_processes.processes
    if not processes:
        first_name = logs.display_name(next(iter(logs.sizes)))
        no_trace = f"{first_name}: not a structured trace; run the program with TORCH_TRACE=FOLDER"
        raise UnreadableTrace(errors[0] if errors else no_trace)
    messages = [*logs.notes, *(f"{error}." for error in errors), *collected_processes.notes()]
    return LogContents(processes, [Diagnostic("warning", message) for message in messages])


def _available_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class _LogResult(msgspec.Struct):
    """The processes in one log, or the reason why the log cannot be read; neither for a file that is not a trace."""

    processes: list[_ProcessSummary] = []
    error: str | None = None


class _ProcessSummary(msgspec.Struct):
    """A process with the fingerprint of its report, and the report as JSON if it is the first with this fingerprint."""

    rank: int | None
    pid: int | None
    fingerprint: bytes
    report: bytes
    compile_times: list[CompileTime]


class _CollectedProcesses:
    """The processes that were read so far; equal ones share the report of the first one."""

    def __init__(self, limits: ReadingLimits) -> None:
        self.processes: list[LogProcess] = []
        self._reports: dict[bytes, Report] = {}
        self._bytes_left = limits.reports
        self._reduced_count = 0

    def add(self, summary: _ProcessSummary) -> None:
        report = self._reports.get(summary.fingerprint)
        if report is None:
            report = msgspec.json.decode(summary.report, type=Report)
            self._bytes_left -= len(summary.report)
            if self._bytes_left < 0:
                report = replace(report, graphs=[replace(graph, ops=[], code="") for graph in report.graphs])
                self._reduced_count += 1
            self._reports[summary.fingerprint] = report
        self.processes.append(LogProcess(summary.rank, summary.pid, report, summary.compile_times))

    def notes(self) -> list[str]:
        reports = count_text(self._reduced_count, "report")
        note = f"The graphs of {reports} are listed without operations, because the reports are too large."
        return [note] if self._reduced_count else []


class FileExplainer:
    """Builds the reports of the processes in logs, one log after the other."""

    def __init__(self, sources: list[str]) -> None:
        self._folders = SourceFolders(sources)
        self._sent_fingerprints: set[bytes] = set()

    def explain(
        self, file: Path, deadline: Deadline, on_read: Callable[[int], None] = lambda _: None, *, must_be_trace: bool
    ) -> _LogResult:
        """Return the processes in a log; reports that equal an earlier one are left out."""
        try:
            if not must_be_trace and not is_trace(file):
                return _LogResult()
            traces = read_file(file, deadline, on_read, self._folders)
        except (UnreadableTrace, OSError) as error:
            return _LogResult(error=str(error))
        return _LogResult([self._summarize(trace) for trace in traces])

    def _summarize(self, trace: ProcessTrace) -> _ProcessSummary:
        report = build_report(trace.records)
        key = fingerprint(report)
        report_json = msgspec.json.encode(report) if key not in self._sent_fingerprints else b""
        self._sent_fingerprints.add(key)
        return _ProcessSummary(trace.rank, trace.pid or None, key, report_json, trace.compile_times)


def _read_in_this_process(
    logs: Logs, sources: list[str], deadline: Deadline, on_read: Callable[[int], None]
) -> Generator[_LogResult]:
    """Read logs in this process, and yield the content of each."""
    explainer = FileExplainer(sources)
    for name in logs.sizes:
        yield _read_log(
            logs, name, lambda file: explainer.explain(file, deadline, on_read, must_be_trace=logs.must_be_traces)
        )


def _read_log(logs: Logs, name: str, explain: Callable[[Path], _LogResult]) -> _LogResult:
    """Return the content of a log; an error message contains the log's name, not the name of a local copy."""
    try:
        with logs.local_file(name) as file:
            result = explain(file)
            if result.error is not None:
                result.error = result.error.replace(str(file), logs.display_name(name))
            return result
    except UnreadableTrace as error:
        return _LogResult(error=str(error))


def _read_in_parallel(
    logs: Logs, sources: list[str], deadline: Deadline, on_read: Callable[[int], None], worker_count: int
) -> Generator[_LogResult]:
    """Read logs in several processes, and yield the content of each, in order."""
    workers: list[_Worker] = []
    thread_state = threading.local()

    def start_worker() -> None:
        thread_state.worker = _Worker(sources)
        workers.append(thread_state.worker)

    def read_with_worker(name: str) -> _LogResult:
        # Workers take the names in order, and the results are used in that order. The first of several equal reports
        # therefore always comes as JSON.
        worker: _Worker = thread_state.worker
        return _read_log(logs, name, lambda file: worker.explain(file, deadline, must_be_trace=logs.must_be_traces))

    threads = ThreadPoolExecutor(worker_count, "graphbreak-log", start_worker)
    try:
        futures = {name: threads.submit(read_with_worker, name) for name in logs.sizes}
        for name, size in logs.sizes.items():
            yield futures.pop(name).result()
            on_read(size)
    finally:
        for worker in workers:
            worker.stop()
        threads.shutdown(cancel_futures=True)


class _Worker:
    """A process that reads logs.

    It is started as a program, because ``multiprocessing`` would run the caller's main module again.
    """

    _PROGRAM = (
        "import sys, json; sys.path[:] = json.loads(sys.stdin.buffer.readline()); "
        "from jupyter_graphbreak.api.log_reading import serve; serve()"
    )

    def __init__(self, sources: list[str]) -> None:
        self._sources = sources
        self._is_stopped = False
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", self._PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._send(sys.path)
        self._send(self._sources)

    def explain(self, file: Path, deadline: Deadline, *, must_be_trace: bool) -> _LogResult:
        """Return the content of a log; if the process ends, return an error and start a new one for the next log."""
        try:
            self._send([str(file), deadline.seconds_left, must_be_trace])
            size = self._receive(_SIZE_FIELD_BYTES)
            return msgspec.msgpack.decode(self._receive(int.from_bytes(size, "big")), type=_LogResult)
        except (OSError, EOFError):
            self._end()
            if not self._is_stopped:
                self._start()
            return _LogResult(error=f"{file}: the process that read it ended, perhaps because memory ran out")

    def stop(self) -> None:
        """End the process, even while it reads a log."""
        self._is_stopped = True
        self._end()

    def _end(self) -> None:
        process = self._process
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # unsent data is lost
                    pipe.close()

    def _send(self, message: Sequence[object]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - the process was started with a pipe
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _receive(self, size: int) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - the process was started with a pipe
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise EOFError
        return data


def serve() -> None:
    """Answer the requests on standard input, in a process that :class:`_Worker` started."""
    requests = map(json.loads, iter(sys.stdin.buffer.readline, b""))
    explainer = FileExplainer(next(requests))
    output = sys.stdout.buffer
    for file, seconds, must_be_trace in requests:
        result = msgspec.msgpack.encode(explainer.explain(Path(file), Deadline(seconds), must_be_trace=must_be_trace))
        output.write(len(result).to_bytes(_SIZE_FIELD_BYTES, "big") + result)
        output.flush()

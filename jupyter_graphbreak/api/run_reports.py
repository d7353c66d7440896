"""Build the report of a complete recording, and the job of all processes of the run."""

from __future__ import annotations

import os
import sys
import time
from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from jupyter_graphbreak.analysis.build import build_report, build_with_files
from jupyter_graphbreak.report.job import Process
from jupyter_graphbreak.results import Job, Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from jupyter_graphbreak.recording.recorder import Recording
    from jupyter_graphbreak.records.records import CompileTime
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report import schema


def report_of(recording: Recording) -> tuple[Report, dict[str, str]]:
    """Build the report of a complete recording; also return the file name of each of its sources, by source id.

    ``timing.capture_s`` includes the time for building the report.
    """
    start = time.perf_counter()
    built, files = build_with_files(recording.records)
    report = Report.of(msgspec.structs.replace(built, libraries=_library_versions(built)))
    timing = report.timing
    capture_s = (timing.capture_s or 0.0) + time.perf_counter() - start
    return msgspec.structs.replace(report, timing=msgspec.structs.replace(timing, capture_s=capture_s)), files


def _library_versions(report: schema.Report) -> dict[str, str]:
    """Return the versions of the packages whose code took part, except PyTorch and the standard library."""
    paths = [source.path or "" for source in report.sources if source.kind == "library"]
    versions = {}
    for name in sorted({path.partition("/")[0].removesuffix(".py") for path in paths} - {"torch", ""}):
        version = vars(sys.modules[name]).get("__version__") if name in sys.modules else None
        if not isinstance(version, str):
            try:
                version = metadata.version(name)
            except (metadata.PackageNotFoundError, ValueError):
                continue
        versions[name] = version
    return versions


class ChildProcesses(NamedTuple):
    """The processes that this process started and that wrote traces, and the compile times of each, by its id."""

    processes: Sequence[Process] = ()
    compile_times: Mapping[str, list[CompileTime]] = MappingProxyType({})


def processes_in(folder: Path, find_cell: FindCell = lambda _: None) -> ChildProcesses:
    """Return the processes that wrote their traces into a folder, each with its report."""
    from jupyter_graphbreak.trace.log_files import UnreadableTrace, trace_files
    from jupyter_graphbreak.trace.processes import read_processes
    from jupyter_graphbreak.trace.source_folders import SourceFolders

    any_folder = SourceFolders([folder.absolute().anchor])  # this run wrote the logs, so their paths can be trusted
    try:
        traces = list(read_processes(trace_files(folder), find_cell=find_cell, folders=any_folder))
    except UnreadableTrace:  # the folder contains no traces
        return ChildProcesses()
    traces_by_id = [(f"p{number}", trace) for number, trace in enumerate(traces, start=2)]
    return ChildProcesses(
        [Process(id_, trace.rank, trace.pid or None, None, build_report(trace.records)) for id_, trace in traces_by_id],
        {id_: trace.compile_times for id_, trace in traces_by_id},
    )


def job_of(report: Report, children: ChildProcesses) -> Job | None:
    """Return the job of this process and its child processes with traces; ``None`` if there are no such children."""
    from jupyter_graphbreak.analysis.jobs import build_job

    if not children.processes:
        return None
    this_process = Process("p1", None, os.getpid(), None, report)
    return Job.of(build_job([this_process, *children.processes], children.compile_times))

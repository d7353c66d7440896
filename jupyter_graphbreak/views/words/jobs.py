"""Sentences about several processes: their names, and which of them have a break."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.plain_text import counted
from jupyter_graphbreak.views.words.recompilation import limited_functions

if TYPE_CHECKING:
    from jupyter_graphbreak.report.job import Job, JobBreak, JobPlace, Process
    from jupyter_graphbreak.report.schema import Diagnostic


def job_headline(job: Job) -> str:
    """Return the summary line: "2 processes, 3 breaks, 1 of them not on every rank"."""
    parts = [counted(len(job.processes), "process").replace("processs", "processes"), counted(len(job.breaks), "break")]
    limited = [sentence for process in job.processes if (sentence := limited_functions(process.report))]
    if limited and not job.breaks:
        where = f" in {limited.count(limited[0])} of {len(job.processes)} processes"
        parts[1] = f"no breaks, but {limited[0]}{where if len(job.processes) > 1 else ''}"
    uneven = sum(bool(break_.missing_in) for break_ in job.breaks)
    if uneven:
        parts.append(f"{uneven} of them not on every rank")
    return ", ".join(parts)


def process_name(process: Process) -> str:
    """Return the display name of a process: "rank 1 (process 4711)"."""
    number = f"process {process.pid}" if process.pid is not None else f"process {process.id.removeprefix('p')}"
    return f"rank {process.rank} ({number})" if process.rank is not None else number


def job_place(place: JobPlace | None) -> str:
    """Return the place of a break: "model.py:8 in leaf"."""
    if place is None:
        return "an unknown place"
    where = f"{place.path}:{place.line}" if place.path is not None else f"{place.cell or 'a cell'} line {place.line}"
    return f"{where} in {place.function}" if place.function and place.function != "<module>" else where


def processes_with_break(job: Job, break_: JobBreak) -> str:
    """Return which processes have a break: "only on rank 1, not on rank 0: ranks that wait for each other may hang"."""
    if break_.missing_in:
        having, missing = _ranks(break_.ranks), _ranks(break_.missing_in)
        return f"only on {having}, not on {missing}: ranks that wait for each other may hang here"
    if break_.ranks:
        return f"on all {len(break_.ranks)} ranks" if len(break_.ranks) > 1 else f"on {_ranks(break_.ranks)}"
    having_ids = set(break_.processes)
    names = [process_name(process) for process in job.processes if process.id in having_ids]
    return f"in {names[0]}" if len(names) == 1 else f"in {len(names)} processes"


def job_notes(job: Job) -> list[Diagnostic]:
    """Return the notes of the job and of its processes, without duplicates."""
    notes = [*job.diagnostics, *(note for process in job.processes for note in process.report.diagnostics)]
    return list(Counter(notes))


def _ranks(ranks: list[int]) -> str:
    break_ = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")  # noqa: PLR2004
    return f"rank {break_}" if len(ranks) == 1 else f"ranks {break_}"

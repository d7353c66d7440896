"""What there is to say about several processes: who they are, and which of them have a break."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.plain_text import counted
from jupyter_graphbreak.views.words.recompilation import at_limit

if TYPE_CHECKING:
    from jupyter_graphbreak.report.job import Job, JobBreak, JobPlace, Process
    from jupyter_graphbreak.report.schema import Diagnostic


def job_headline(job: Job) -> str:
    """Return the one line that says how bad it is: "2 processes, 3 breaks, 1 of them not on every rank"."""
    parts = [counted(len(job.processes), "process").replace("processs", "processes"), counted(len(job.breaks), "break")]
    limited = [sentence for process in job.processes if (sentence := at_limit(process.report))]
    if limited and not job.breaks:
        where = f" in {limited.count(limited[0])} of {len(job.processes)} processes"
        parts[1] = f"no breaks, but {limited[0]}{where if len(job.processes) > 1 else ''}"
    uneven = sum(bool(listed.missing_in) for listed in job.breaks)
    if uneven:
        parts.append(f"{uneven} of them not on every rank")
    return ", ".join(parts)


def process_name(process: Process) -> str:
    """Return what a person calls a process: "rank 1 (process 4711)"."""
    number = f"process {process.pid}" if process.pid is not None else f"process {process.id.removeprefix('p')}"
    return f"rank {process.rank} ({number})" if process.rank is not None else number


def where_in_job(place: JobPlace | None) -> str:
    """Return where a break stands: "model.py:8 in leaf"."""
    if place is None:
        return "an unknown place"
    where = f"{place.path}:{place.line}" if place.path is not None else f"{place.cell or 'a cell'} line {place.line}"
    return f"{where} in {place.function}" if place.function and place.function != "<module>" else where


def who_has(job: Job, listed: JobBreak) -> str:
    """Return which processes have a break: "only on rank 1, not on rank 0: ranks that wait for each other may hang"."""
    if listed.missing_in:
        having, missing = _ranks(listed.ranks), _ranks(listed.missing_in)
        return f"only on {having}, not on {missing}: ranks that wait for each other may hang here"
    if listed.ranks:
        return f"on all {len(listed.ranks)} ranks" if len(listed.ranks) > 1 else f"on {_ranks(listed.ranks)}"
    having_ids = set(listed.processes)
    names = [process_name(process) for process in job.processes if process.id in having_ids]
    return f"in {names[0]}" if len(names) == 1 else f"in {len(names)} processes"


def job_notes(job: Job) -> list[Diagnostic]:
    """Return what is to be said of the job and of its processes, each sentence once."""
    notes = [*job.diagnostics, *(note for process in job.processes for note in process.report.diagnostics)]
    return list(Counter(notes))


def _ranks(ranks: list[int]) -> str:
    listed = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")  # noqa: PLR2004
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"

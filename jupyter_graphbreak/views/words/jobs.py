"""Sentences about the processes of a job: their names, the processes in which a break occurs, the compile times."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.plain_text import count_text, number_ranges
from jupyter_graphbreak.views.words.recompilation import limited_functions_text

if TYPE_CHECKING:
    from jupyter_graphbreak.report.job import Job, JobBreak, JobPlace, Process
    from jupyter_graphbreak.report.schema import Diagnostic

_MAX_RANGES = 8
_MAX_AWAITED_RANKS = 5
#: A rank is mentioned if the others wait for it for at least this long.
_MIN_WAIT_S = 0.1


def job_headline(job: Job) -> str:
    """Return the summary line: "2 processes, 3 breaks, 1 of them not on every rank"."""
    number = sum(len(process.members) for process in job.processes)
    parts = [f"{number} process{'' if number == 1 else 'es'}", count_text(len(job.breaks), "break")]
    limit_sentences: Counter[str] = Counter()
    for process in job.processes:
        limit_sentences[limited_functions_text(process.report)] += len(process.members)
    sentence = next(filter(None, limit_sentences), None)
    if sentence is not None and not job.breaks:
        share_text = f" in {limit_sentences[sentence]} of {number} processes"
        parts[1] = f"no breaks, but {sentence}{share_text if number > 1 else ''}"
    uneven_count = sum(bool(break_.missing_in) for break_ in job.breaks)
    if uneven_count:
        parts.append(f"{uneven_count} of them not on every rank")
    return ", ".join(parts)


def process_name(process: Process) -> str:
    """Return the name to show for a process: "rank 1 (process 4711)", "ranks 0, 2-63 (equal)"."""
    if process.equal:
        equal_ranks = [member.rank for member in process.members if member.rank is not None]
        return f"{_ranks_text(sorted(set(equal_ranks)))} (equal)"
    number = f"process {process.pid}" if process.pid is not None else f"process {process.id.removeprefix('p')}"
    return f"rank {process.rank} ({number})" if process.rank is not None else number


def job_location_text(place: JobPlace | None) -> str:
    """Return the location of a break as text: "model.py:8 in leaf"."""
    if place is None:
        return "an unknown location"
    place_text = (
        f"{place.path}:{place.line}" if place.path is not None else f"{place.cell or 'a cell'} line {place.line}"
    )
    return f"{place_text} in {place.function}" if place.function and place.function != "<module>" else place_text


def processes_text(job: Job, break_: JobBreak) -> str:
    """Return in which processes a break occurs: "only on rank 1, not on rank 0: ...", "on all 8 ranks"."""
    if break_.missing_in:
        ranks_with, ranks_without = _ranks_text(break_.ranks), _ranks_text(break_.missing_in)
        return f"only on {ranks_with}, not on {ranks_without}: ranks that wait for each other may hang here"
    if break_.ranks:
        return f"on all {len(break_.ranks)} ranks" if len(break_.ranks) > 1 else f"on {_ranks_text(break_.ranks)}"
    ids = set(break_.processes)
    names = [process_name(process) for process in job.processes if process.id in ids]
    return f"in {names[0]}" if len(ids) == 1 else f"in {len(ids)} processes"


def compiling_lines(job: Job) -> list[str]:
    """Return sentences about the ranks' compile times, and about the ranks that the others wait for."""
    if not job.compiling:
        return []
    compile_seconds = sorted(rank.compile_s for rank in job.compiling)
    end = max(rank.end_s for rank in job.compiling)
    ranks = _ranks_text(sorted({rank.rank for rank in job.compiling}))
    seconds = _seconds_text(compile_seconds[0])
    if _seconds_text(compile_seconds[-1]) != seconds:
        seconds = f"{seconds} to {_seconds_text(compile_seconds[-1])}"
    lines = [
        f"compiling: {ranks}, {seconds} each; the last compilation ended {_seconds_text(end)} after the first one began"
    ]
    ranks_by_wait = sorted(job.compiling, key=lambda rank: -rank.alone_s)
    awaited_ranks = [rank for rank in ranks_by_wait if rank.alone_s >= _MIN_WAIT_S]
    for rank in awaited_ranks[:_MAX_AWAITED_RANKS]:
        function = f"{rank.alone_function}, " if rank.alone_function else ""
        delay = f"{_seconds_text(rank.alone_start_s or 0.0)} after the first compilation began"
        lines.append(
            f"rank {rank.rank} compiled for {_seconds_text(rank.alone_s)} ({function}{delay}) while at least half of "
            "the ranks did not: they wait for it in their next collective"
        )
    if len(awaited_ranks) > _MAX_AWAITED_RANKS:
        lines.append(f"and {len(awaited_ranks) - _MAX_AWAITED_RANKS} more ranks that compiled while others did not")
    return lines


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.1f} s"


def job_notes(job: Job) -> list[Diagnostic]:
    """Return the notes of the job and of its processes, without duplicates."""
    notes = [*job.diagnostics, *(note for process in job.processes for note in process.report.diagnostics)]
    return list(Counter(notes))


def _ranks_text(ranks: list[int]) -> str:
    """Return ranks, in ascending order, as text: "ranks 0, 2-63"."""
    parts = number_ranges(ranks, "-")
    names = ", ".join(parts[:_MAX_RANGES]) + (", ..." if len(parts) > _MAX_RANGES else "")
    return f"rank {names}" if len(ranks) == 1 else f"ranks {names}"

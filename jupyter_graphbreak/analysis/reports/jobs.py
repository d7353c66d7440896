"""Combine the reports of several processes, and find the ranks that have each break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.report.job import Job, JobBreak, JobPlace, Process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.report.schema import Break, Report


def build_job(processes: Iterable[Process]) -> Job:
    """Return the job that consists of some processes, those without a rank first.

    Breaks of two processes are the same break if file, line and cause are the same.
    """
    ordered = sorted(processes, key=lambda process: (process.rank is not None, process.rank or 0))
    ranks = sorted({process.rank for process in ordered if process.rank is not None})
    by_key: dict[tuple[JobPlace | None, str], list[tuple[Process, Break]]] = {}
    for process in ordered:
        for break_ in process.report.breaks:
            # Columns and code can differ between ranks, but not the line and the cause.
            place = _place(process.report, break_)
            key = (JobPlace(place.path, place.cell, place.line) if place is not None else None, break_.gb_type)
            by_key.setdefault(key, []).append((process, break_))
    breaks = [_job_break(pairs, ranks) for pairs in by_key.values()]
    return Job(ordered, sorted(breaks, key=lambda break_: not break_.missing_in))


def _job_break(pairs: list[tuple[Process, Break]], ranks: list[int]) -> JobBreak:
    process, break_ = pairs[0]
    having = sorted({process.rank for process, _ in pairs if process.rank is not None})
    return JobBreak(
        place=_place(process.report, break_),
        gb_id=break_.gb_id,
        gb_type=break_.gb_type,
        ranks=having,
        processes=list(dict.fromkeys(process.id for process, _ in pairs)),
        missing_in=[rank for rank in ranks if rank not in having] if having else [],
    )


def _place(report: Report, break_: Break) -> JobPlace | None:
    location = break_.location
    if location is None:
        return None
    source = next((source for source in report.sources if source.id == location.source), None)
    is_cell = source is not None and source.kind == "cell"
    return JobPlace(
        path=None if is_cell or source is None else source.path,
        cell=source.name if is_cell and source is not None else None,
        line=location.line,
        function=location.function,
        code=location.code,
    )

"""Combine the reports of several processes, and find the ranks that have each break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.report.job import Job, JobBreak, JobPlace, Process

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyter_graphbreak.report.location import Source
    from jupyter_graphbreak.report.schema import Break

    _Occurrence = tuple[Process, Break, JobPlace | None]


def build_job(processes: Iterable[Process]) -> Job:
    """Return the job that consists of some processes, those without a rank first.

    Breaks of two processes are the same break if file, line and cause are the same.
    """
    ordered = sorted(processes, key=lambda process: (process.rank is not None, process.rank or 0))
    ranks = sorted({process.rank for process in ordered if process.rank is not None})
    by_key: dict[tuple[JobPlace | None, str], list[_Occurrence]] = {}
    for process in ordered:
        sources = {source.id: source for source in reversed(process.report.sources)}
        for break_ in process.report.breaks:
            # Columns and code can differ between ranks, but not the line and the cause.
            place = _place(sources, break_)
            key = (JobPlace(place.path, place.cell, place.line) if place is not None else None, break_.gb_type)
            by_key.setdefault(key, []).append((process, break_, place))
    breaks = [_job_break(occurrences, ranks) for occurrences in by_key.values()]
    return Job(ordered, sorted(breaks, key=lambda break_: not break_.missing_in))


def _job_break(occurrences: list[_Occurrence], ranks: list[int]) -> JobBreak:
    _, break_, place = occurrences[0]
    having = {process.rank for process, _, _ in occurrences if process.rank is not None}
    return JobBreak(
        place=place,
        gb_id=break_.gb_id,
        gb_type=break_.gb_type,
        ranks=sorted(having),
        processes=list(dict.fromkeys(process.id for process, _, _ in occurrences)),
        missing_in=[rank for rank in ranks if rank not in having] if having else [],
    )


def _place(sources: Mapping[str, Source], break_: Break) -> JobPlace | None:
    location = break_.location
    if location is None:
        return None
    source = sources.get(location.source)
    is_cell = source is not None and source.kind == "cell"
    return JobPlace(
        path=None if is_cell or source is None else source.path,
        cell=source.name if is_cell and source is not None else None,
        line=location.line,
        function=location.function,
        code=location.code,
    )

"""Put the reports of several processes together: which breaks which ranks have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.report.job import Job, JobBreak, JobPlace, Process

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyter_graphbreak.report.location import Source
    from jupyter_graphbreak.report.schema import Break

    _Met = tuple[Process, Break, JobPlace | None]


def build_job(processes: Iterable[Process]) -> Job:
    """Return the job of some processes, those without a rank first.

    A break of two processes is one where file, line and reason are the same.
    """
    ordered = sorted(processes, key=lambda process: (process.rank is not None, process.rank or 0))
    ranks = sorted({process.rank for process in ordered if process.rank is not None})
    met: dict[tuple[JobPlace | None, str], list[_Met]] = {}
    for process in ordered:
        sources = {source.id: source for source in reversed(process.report.sources)}
        for found in process.report.breaks:
            # Columns and code can differ between ranks, the line and the reason cannot.
            place = _place(sources, found)
            key = (JobPlace(place.path, place.cell, place.line) if place is not None else None, found.gb_type)
            met.setdefault(key, []).append((process, found, place))
    breaks = [_job_break(pairs, ranks) for pairs in met.values()]
    return Job(ordered, sorted(breaks, key=lambda listed: not listed.missing_in))


def _job_break(pairs: list[_Met], ranks: list[int]) -> JobBreak:
    _, found, place = pairs[0]
    having = {process.rank for process, _, _ in pairs if process.rank is not None}
    return JobBreak(
        place=place,
        gb_id=found.gb_id,
        gb_type=found.gb_type,
        ranks=sorted(having),
        processes=list(dict.fromkeys(process.id for process, _, _ in pairs)),
        missing_in=[rank for rank in ranks if rank not in having] if having else [],
    )


def _place(sources: Mapping[str, Source], found: Break) -> JobPlace | None:
    location = found.location
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

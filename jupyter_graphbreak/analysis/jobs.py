"""Combine the reports of several processes: find each break's ranks, equal reports, and compile times."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from jupyter_graphbreak.records.records import CompileTime
from jupyter_graphbreak.report.job import EqualProcess, Job, JobBreak, JobPlace, Process, RankCompiling
from jupyter_graphbreak.report.summary import Timing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jupyter_graphbreak.report.location import Source
    from jupyter_graphbreak.report.schema import Break, Diagnostic, Report

    _Occurrence = tuple[Process, Break, JobPlace | None]

#: Numbers that differ between ranks: those of devices, and the addresses of objects in guards.
_RANK_SPECIFIC_NUMBERS = re.compile(
    rb"(?P<device>\b(?:cuda|xpu|hpu|npu|mtia):|\bindex=|_rank_)\d+\w*|\b(?:0x[0-9a-f]{6,}|\d{9,})\b"
)
_SECONDS_FIELDS = re.compile(rb'"\w+_s":[\d.e+-]+')
_NO_TIMES: Mapping[str, list[CompileTime]] = {}


def build_job(
    processes: Iterable[Process],
    compile_times: Mapping[str, list[CompileTime]] = _NO_TIMES,
    diagnostics: Iterable[Diagnostic] = (),
) -> Job:
    """Return the job of the given processes, those without a rank first.

    Breaks of different processes are listed as one break if file, line and cause are the same. ``compile_times``
    contains the times of each process's compilations, by process id.
    """
    merged_processes = _merge_equal_processes(
        sorted(processes, key=lambda process: (process.rank is not None, process.rank or 0))
    )
    ranks = sorted({rank for process in merged_processes for rank in _ranks(process)})
    occurrences_by_key: dict[tuple[JobPlace | None, str], list[_Occurrence]] = {}
    for process in merged_processes:
        sources = {source.id: source for source in reversed(process.report.sources)}
        for break_ in process.report.breaks:
            # Columns and code can differ between ranks, but not the line and the cause.
            place = _job_place(sources, break_)
            key = (JobPlace(place.path, place.cell, place.line) if place is not None else None, break_.gb_type)
            occurrences_by_key.setdefault(key, []).append((process, break_, place))
    breaks = [_job_break(occurrences, ranks) for occurrences in occurrences_by_key.values()]
    return Job(
        sorted(merged_processes, key=lambda process: (process.rank is not None, len(process.equal))),
        sorted(breaks, key=lambda break_: not break_.missing_in),
        diagnostics=list(diagnostics),
        compiling=_rank_compilations(merged_processes, compile_times),
    )


def fingerprint(report: Report) -> bytes:
    """Return a hash that is the same for reports that differ only in times, device numbers and object addresses."""
    text = msgspec.json.encode(replace(report, timing=Timing(), startup=None))
    return hashlib.sha256(_RANK_SPECIFIC_NUMBERS.sub(rb"\g<device>N", _SECONDS_FIELDS.sub(b"", text))).digest()


def _merge_equal_processes(processes: list[Process]) -> list[Process]:
    """Return the processes; those of ranks with equal reports are merged into one."""
    merged_processes: list[Process] = []
    positions: dict[bytes, int] = {}
    equal_processes: dict[int, list[EqualProcess]] = defaultdict(list)
    fingerprints: dict[int, bytes] = {}  # fingerprints by the id of the report, which equal processes may share
    for process in processes:
        if process.rank is None:
            merged_processes.append(process)
            continue
        key = fingerprints.get(id(process.report))
        if key is None:
            key = fingerprints[id(process.report)] = fingerprint(process.report)
        if key in positions:
            equal_processes[positions[key]] += process.members
        else:
            positions[key] = len(merged_processes)
            merged_processes.append(process)
    return [
        replace(process, equal=[*process.equal, *equal_processes[position]]) if position in equal_processes else process
        for position, process in enumerate(merged_processes)
    ]


def _ranks(process: Process) -> Iterator[int]:
    """Yield the ranks of a process and of the processes with an equal report."""
    for member in process.members:
        if member.rank is not None:
            yield member.rank


def _job_break(occurrences: list[_Occurrence], ranks: list[int]) -> JobBreak:
    _, break_, place = occurrences[0]
    ranks_with_break = {rank for process, _, _ in occurrences for rank in _ranks(process)}
    ids = (member.id for process, _, _ in occurrences for member in process.members)
    return JobBreak(
        place=place,
        gb_id=break_.gb_id,
        gb_type=break_.gb_type,
        ranks=sorted(ranks_with_break),
        processes=list(dict.fromkeys(ids)),
        missing_in=[rank for rank in ranks if rank not in ranks_with_break] if ranks_with_break else [],
    )


def _job_place(sources: Mapping[str, Source], break_: Break) -> JobPlace | None:
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


class _Span(msgspec.Struct):
    """An uninterrupted period in which one rank compiled, with the compilations in it."""

    start: float
    end: float
    times: list[CompileTime]


def _rank_compilations(processes: list[Process], compile_times: Mapping[str, list[CompileTime]]) -> list[RankCompiling]:
    """Return the times at which each rank compiled, in the order of the ranks."""
    spans: dict[tuple[int, str], list[_Span]] = {}
    for process in processes:
        for member in process.members:
            if member.rank is not None and compile_times.get(member.id):
                spans[member.rank, member.id] = _merge_spans(compile_times[member.id])
    if not spans:
        return []
    origin = min(span[0].start for span in spans.values())
    crowded_periods = _crowded_periods(spans.values(), len({rank for rank, _ in spans}))
    rank_compilations = []
    for (rank, id_), rank_spans in sorted(spans.items()):
        uncrowded_parts = list(_uncrowded_parts(rank_spans, crowded_periods))
        longest = max(uncrowded_parts, key=lambda part: part[1] - part[0], default=None)
        rank_compilations.append(
            RankCompiling(
                rank=rank,
                process=id_,
                start_s=_round_seconds(rank_spans[0].start - origin),
                end_s=_round_seconds(rank_spans[-1].end - origin),
                compile_s=_round_seconds(sum(span.end - span.start for span in rank_spans)),
                alone_s=_round_seconds(sum(end - start for start, end, _ in uncrowded_parts)),
                alone_start_s=_round_seconds(longest[0] - origin) if longest is not None else None,
                alone_function=_longest_compiled_function(longest[2], longest[0], longest[1])
                if longest is not None
                else None,
            )
        )
    return rank_compilations


def _merge_spans(times: list[CompileTime]) -> list[_Span]:
    """Return the spans of one rank's compilations; overlapping ones, such as nested compilations, are merged."""
    spans: list[_Span] = []
    for time in sorted(times, key=lambda time: (time.start, time.seconds)):
        end = time.start + time.seconds
        if spans and time.start <= spans[-1].end:
            spans[-1].end = max(spans[-1].end, end)
            spans[-1].times.append(time)
        else:
            spans.append(_Span(time.start, end, [time]))
    return spans


def _crowded_periods(spans: Iterable[list[_Span]], rank_count: int) -> list[tuple[float, float]]:
    """Return the periods, in order, during which more than half of the ranks compile."""
    changes = sorted(
        change for rank_spans in spans for span in rank_spans for change in ((span.start, 1), (span.end, -1))
    )
    periods: list[tuple[float, float]] = []
    compiling_rank_count, start = 0, 0.0
    for moment, change in changes:
        was_crowded = 2 * compiling_rank_count > rank_count
        compiling_rank_count += change
        if 2 * compiling_rank_count > rank_count and not was_crowded:
            start = moment
        elif was_crowded and 2 * compiling_rank_count <= rank_count and moment > start:
            periods.append((start, moment))
    return periods


def _uncrowded_parts(
    spans: list[_Span], crowded_periods: list[tuple[float, float]]
) -> Iterator[tuple[float, float, _Span]]:
    """Yield the parts of a rank's compilations during which at most half of the ranks compile."""
    for span in spans:
        start = span.start
        overlapping_periods = itertools.takewhile(lambda part, end=span.end: part[0] < end, crowded_periods)  # type: ignore[misc]
        for first, last in overlapping_periods:
            if last <= start:
                continue
            if first > start:
                yield start, first, span
            start = max(start, last)
        if start < span.end:
            yield start, span.end, span


def _longest_compiled_function(span: _Span, start: float, end: float) -> str | None:
    """Return the function whose compilation took the most time in a part of a span; ``None`` if no name is known."""
    known_times = [time for time in span.times if time.function is not None]
    overlaps = {time: min(end, time.start + time.seconds) - max(start, time.start) for time in known_times}
    longest = max(overlaps, key=lambda time: overlaps[time], default=None)
    return longest.function if longest is not None and overlaps[longest] > 0 else None


def _round_seconds(seconds: float) -> float:
    return round(seconds, 3)

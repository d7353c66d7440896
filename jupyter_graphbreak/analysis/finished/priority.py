"""What to fix first: what each break costs, and the order in which a person reads them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from jupyter_graphbreak.report.schema import BreakCost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyter_graphbreak.report.location import Source
    from jupyter_graphbreak.report.schema import Break, Report

AnyReport = TypeVar("AnyReport", bound="Report")

#: Folders in which libraries keep what is about one model; what is elsewhere repeats in every model.
_MODELS = {"model", "models"}


def with_priorities(report: AnyReport) -> AnyReport:
    """Return a report whose breaks say what they cost, and which says in which order they are read.

    What the reader wrote comes first, as it ran; then the code of models in libraries, then other code of libraries,
    the dearest first; last what is minor. Where it was measured what breaks cost, the dearest are first everywhere.
    """
    libraries = {source.id: source for source in report.sources if source.kind == "library"}
    ended = {graph.break_ for graph in report.graphs}
    calling = {skipped.id for skipped in report.skipped if skipped.callees}
    costs = _costs(report)
    breaks = [
        replace(
            listed,
            cost=costs[listed.id],
            minor=_library(listed, libraries) is not None
            and not (listed.resumes or listed.id in ended or calling & set(listed.skipped)),
        )
        for listed in report.breaks
    ]
    return replace(
        report, breaks=breaks, order=[listed.id for listed in sorted(breaks, key=_rank(libraries, _times(report)))]
    )


def _costs(report: Report) -> dict[str, BreakCost]:
    frames = {frame.id: frame for frame in report.frames}
    resumes = {resume.id: resume for resume in report.resumes}
    costs = {}
    for listed in report.breaks:
        made = [resumes[ident] for ident in listed.resumes if ident in resumes]
        compiled = [frames[ident] for resume in made for ident in resume.frames if ident in frames]
        seconds = [frame.compile_s for frame in compiled if frame.compile_s is not None]
        costs[listed.id] = BreakCost(
            graphs=len({graph for resume in made for graph in resume.graphs}),
            compile_s=round(sum(seconds), 6) if seconds else None,
            eager=len(set(listed.skipped)),
        )
    return costs


def _times(report: Report) -> dict[str, float]:
    """Return the microseconds of a call that each break was measured to cost: by mending it, else by its parts.

    Going on after a break takes time, too, which mending it saves as well.
    """
    alone = {remedy.id: remedy.breaks[0] for remedy in report.remedies or [] if len(remedy.breaks) == 1}
    times: dict[str, float] = {}
    for entry in report.cost.entries if report.cost is not None else []:
        if not entry.settled:
            continue
        found: defaultdict[str, float] = defaultdict(float)
        for part in entry.parts:
            if part.kind != "graph" and part.break_ is not None:
                found[part.break_] += part.time.median_us
        for remedied in entry.remedied:
            if len(remedied.remedies) == 1 and remedied.remedies[0] in alone:
                mended = alone[remedied.remedies[0]]
                found[mended] = max(0.0, entry.compiled.median_us - remedied.time.median_us)
        for ident, time in found.items():
            times[ident] = max(times.get(ident, 0.0), time)
    return times


def _rank(libraries: Mapping[str, Source], times: Mapping[str, float]) -> Callable[[Break], tuple[int, float, int]]:
    def rank(listed: Break) -> tuple[int, float, int]:
        source = _library(listed, libraries)
        time = times.get(listed.id, 0.0)
        if source is None:
            return 0, -time, 0
        folders = (source.path or "").split("/")[:-1]
        weight = listed.cost.graphs + listed.cost.eager if listed.cost is not None else 0
        return 3 if listed.minor else 1 if _MODELS & set(folders) else 2, -time, -weight

    return rank


def _library(listed: Break, libraries: Mapping[str, Source]) -> Source | None:
    return libraries.get(listed.location.source) if listed.location is not None else None

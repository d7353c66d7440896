"""Work out the cost of each break, and the order in which the report lists the breaks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from jupyter_graphbreak.report.relevance import break_times, functions_worth_counting
from jupyter_graphbreak.report.schema import BreakCost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyter_graphbreak.report.location import Source
    from jupyter_graphbreak.report.schema import Break, Report

AnyReport = TypeVar("AnyReport", bound="Report")

#: Folders in which libraries keep the code of individual models; code elsewhere may serve many models.
_MODEL_FOLDERS = {"model", "models"}


def prioritize_breaks(report: AnyReport) -> AnyReport:
    """Return a report with the cost of each break and the order in which to list the breaks.

    Breaks in the user's code come first, in the order in which they occurred. Breaks in a library's models and then
    those in other library code follow, most expensive first, and minor breaks come last. If the cost was measured,
    the most expensive breaks come first in every group.
    """
    libraries = {source.id: source for source in report.sources if source.kind == "library"}
    breaks_after_graphs = {graph.break_ for graph in report.graphs}
    callers_of_compiled = {skipped.id for skipped in report.skipped if skipped.callees}
    costs = _costs(report)
    breaks = [
        replace(
            break_,
            cost=costs[break_.id],
            minor=_library_source(break_, libraries) is not None
            and not (break_.resumes or break_.id in breaks_after_graphs or callers_of_compiled & set(break_.skipped)),
        )
        for break_ in report.breaks
    ]
    times = {ident: time.cost_us for ident, time in break_times(report).items()}
    return replace(
        report, breaks=breaks, order=[break_.id for break_ in sorted(breaks, key=_ranking(libraries, times))]
    )


def _costs(report: Report) -> dict[str, BreakCost]:
    frames = {frame.id: frame for frame in report.frames}
    resumes = {resume.id: resume for resume in report.resumes}
    skipped = {function.id: function for function in report.skipped}
    first_graphs, separate_graphs = _first_graphs(report), _graphs_of_separate_calls(report)
    costs = {}
    for break_ in report.breaks:
        own_resumes = [resumes[ident] for ident in break_.resumes if ident in resumes]
        resume_frames = [frames[ident] for resume in own_resumes for ident in resume.frames if ident in frames]
        seconds = [frame.compile_s for frame in resume_frames if frame.compile_s is not None]
        eager = [skipped[ident] for ident in dict.fromkeys(break_.skipped) if ident in skipped]
        graphs = {graph for resume in own_resumes for graph in resume.graphs} | separate_graphs[break_.id]
        costs[break_.id] = BreakCost(
            graphs=len(graphs - first_graphs),
            compile_s=round(sum(seconds), 6) if seconds else None,
            eager=len(functions_worth_counting(report, eager)),
        )
    return costs


def _graphs_of_separate_calls(report: Report) -> defaultdict[str, set[str]]:
    """Return, for each break, the graphs of functions that would be a part of their caller's graph without the break.

    If a function breaks, PyTorch compiles the functions that it then calls separately.
    """
    frames = {frame.id: frame for frame in report.frames}
    graphs: defaultdict[str, set[str]] = defaultdict(set)
    for frame in report.frames:
        caller = frames.get(frame.caller or "")
        if frame.role == "call" and caller is not None and caller.breaks:
            graphs[caller.breaks[-1]].update(frame.graphs)
    return graphs


def _first_graphs(report: Report) -> set[str]:
    """Return the first graph of each call to a compiled function, which would exist even without breaks."""
    frames = {frame.id: frame for frame in report.frames}
    frame_of_break = {ident: frame.id for frame in reversed(report.frames) for ident in frame.breaks}
    break_of_resume = {resume.id: resume.break_ for resume in report.resumes}

    def entry_of(ident: str) -> str:
        visited_frame_ids = {ident}
        while (frame := frames.get(ident)) is not None:
            outer_frame = frame.caller or frame_of_break.get(break_of_resume.get(frame.resume or "") or "")
            if outer_frame is None or outer_frame in visited_frame_ids:
                break
            visited_frame_ids.add(outer_frame)
            ident = outer_frame
        return ident

    first_graph_by_entry: dict[str, str] = {}
    for graph in report.graphs:
        first_graph_by_entry.setdefault(entry_of(graph.frame), graph.id)
    return set(first_graph_by_entry.values())


def _ranking(libraries: Mapping[str, Source], times: Mapping[str, float]) -> Callable[[Break], tuple[int, float, int]]:
    def rank(break_: Break) -> tuple[int, float, int]:
        source = _library_source(break_, libraries)
        time = times.get(break_.id, 0.0)
        if source is None:
            return 0, -time, 0
        folders = (source.path or "").split("/")[:-1]
        weight = break_.cost.graphs + break_.cost.eager if break_.cost is not None else 0
        return 3 if break_.minor else 1 if _MODEL_FOLDERS & set(folders) else 2, -time, -weight

    return rank


def _library_source(break_: Break, libraries: Mapping[str, Source]) -> Source | None:
    return libraries.get(break_.location.source) if break_.location is not None else None

"""What became of the functions that a break stands in: where they resume, and what runs eagerly."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.plain_text import joined
from jupyter_graphbreak.views.words.where import function_of, is_wrapper_of_torch, place, without_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Break, NoFrame, Report, Resume, Skipped


_T = TypeVar("_T")
_WORDS: dict[NoFrame | None, str] = {
    "eager": "ran eagerly",
    "compiled before": "compiled before this run",
    "inlined": "compiled with its caller",
    "not reached": "not reached",
    None: "not known if it ran",
}


def aftermath(report: Report, graph_break: Break) -> list[str]:
    """Return what became of the frames: where they resume, and what runs eagerly."""
    graphs = [graph.id for graph in lookup.graphs_ended(report).get(graph_break.id, ())]
    before = f"graph {joined(graphs, ', ')}, then " if graphs else ""
    lines = []
    resumes = nearest_first(graph_break, _known(graph_break.resumes, lookup.resumes(report)))
    ran = [resume for resume in resumes if surely_ran(resume)]
    places = [_resumed_at(report, resume) for resume in (ran or resumes)]
    if places:
        names = {resume.name for resume in ran}
        others = [resume for resume in resumes if resume.name in names and not surely_ran(resume)]
        places += [_other_branch(resume) for resume in others]
        lines.append(f"{before}resumes at {joined(list(dict.fromkeys(places)), '; ')}")
        before = ""
    eager = _known(graph_break.skipped, lookup.skipped(report))
    if eager:
        lines.append(before + _eager(report, eager))
        before = ""
    elif any(occurrence.outcome == "skipped" for occurrence in graph_break.occurrences):
        lines.append(f"{before}the rest of the function runs eagerly")
        before = ""
    if graph_break.outcome == "error":
        lines.append(f"{before}an error" if graphs and before else "an error")
    return lines or [f"{before}nothing is left to resume"]


def aftermath_here(report: Report, graph_break: Break, resumes: Iterable[Resume], eager: Iterable[Skipped]) -> str:
    """Return in a few words what became of the very function that a break stands in.

    Parameters
    ----------
    report : Report
    graph_break : Break
    resumes, eager : iterable of Resume, of Skipped
        What the break made, and what it has run eagerly.
    """
    at = graph_break.location
    if graph_break.outcome == "error":
        return "an error"
    if at is None:
        return ""
    own = _owner(report, at)
    if any(skipped.location is not None and _owner(report, skipped.location) == own for skipped in eager):
        return "runs eagerly"
    resume = next((resume for resume in nearest_first(graph_break, resumes) if surely_ran(resume)), None)
    if resume is None or resume.location is None:
        return ""
    graph = f" ({resume.graphs[0]})" if resume.graphs else ""
    if _owner(report, resume.location) == own:
        return f"resumes at {resume.location.line}{graph}"
    return f"resumes at {place(report, resume.location)}{graph}"


def nearest_first(graph_break: Break, resumes: Iterable[Resume]) -> list[Resume]:
    """Return resume functions, those of the function that the break stands in first, then those of its file."""
    at = graph_break.location

    def distance(resume: Resume) -> int:
        if at is None or resume.location is None or resume.location.source != at.source:
            return 2
        return int(resume.location.function != at.function)

    return sorted(resumes, key=distance)


def surely_ran(resume: Resume) -> bool:
    """Whether a resume function was entered in the run."""
    return bool(resume.frames) or resume.no_frame in {"eager", "inlined"}


def without_frame(resume: Resume) -> str:
    """Return what is known of a resume function without frames."""
    return _WORDS[resume.no_frame]


def _known(idents: Iterable[str], parts: dict[str, _T]) -> list[_T]:
    """Return the parts that ids refer to, in the order of the report."""
    wanted = set(idents)
    return [part for ident, part in parts.items() if ident in wanted] if wanted else []


def _owner(report: Report, location: Location) -> tuple[str, str]:
    return location.source, function_of(report, location)


def _resumed_at(report: Report, resume: Resume) -> str:
    where = "torch's wrapper" if is_wrapper_of_torch(report, resume.location) else place(report, resume.location)
    if resume.graphs:
        return f"{where} (graph {joined(resume.graphs, ', ')})"
    return where if resume.frames else f"{where} ({without_frame(resume)})"


def _other_branch(resume: Resume) -> str:
    return "the other branch was not taken" if resume.no_frame == "not reached" else "the other branch may have run"


def _eager(report: Report, functions: Sequence[Skipped]) -> str:
    names = dict.fromkeys(
        f"{skipped.function} ({place(report, without_function(skipped.location))})" for skipped in functions
    )
    return f"{'runs' if len(names) == 1 else 'run'} eagerly: {joined(list(names), ', ')}"

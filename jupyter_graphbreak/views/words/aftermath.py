"""Describe the run after a break: where functions resume, and which functions run eagerly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.report.relevance import functions_worth_counting
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.locations import function_of, is_wrapper_of_torch, line_text, location_text
from jupyter_graphbreak.views.words.plain_text import graph_names, join_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Break, NoFrame, Report, Resume, Skipped

#: The maximum number of resume functions or eager functions to list.
_MAX_NAMES = 3
_NO_FRAME_TEXTS: dict[NoFrame | None, str] = {
    "eager": "ran eagerly",
    "compiled before": "compiled before this run",
    "inlined": "compiled with its caller",
    "not reached": "not reached",
    None: "may have run",
}


def aftermath(report: Report, graph_break: Break) -> list[str]:
    """Return sentences about what happened after a break: where functions resume, and which functions run eagerly."""
    graph_ids = [graph.id for graph in lookup.graphs_by_break(report).get(graph_break.id, ())]
    prefix = f"{graph_names(graph_ids)}, then " if graph_ids else ""
    lines = []
    resumes = nearest_first(graph_break, lookup.resumes_of(report, graph_break))
    resumes_that_ran = [resume for resume in resumes if has_run(resume)]
    places = [_resume_location_text(report, resume) for resume in (resumes_that_ran or resumes)]
    if places:
        names = {resume.name for resume in resumes_that_ran}
        unreached_resumes = [resume for resume in resumes if resume.name in names and not has_run(resume)]
        places += [_untaken_branch_text(resume) for resume in unreached_resumes]
        lines.append(f"{prefix}resumes at {join_words(list(dict.fromkeys(places)), '; ', _MAX_NAMES)}")
        prefix = ""
    eager = lookup.functions_skipped_by(report, graph_break)
    if eager:
        lines.append(prefix + _eager_functions_text(report, eager))
        prefix = ""
    elif any(occurrence.outcome == "skipped" for occurrence in graph_break.occurrences):
        lines.append(f"{prefix}the rest of the function runs eagerly")
        prefix = ""
    if graph_break.outcome == "error":
        lines.append(f"{prefix}an error" if graph_ids and prefix else "an error")
    return lines or [f"{prefix}nothing is left to resume"]


def aftermath_in_function(report: Report, graph_break: Break) -> str:
    """Describe in a few words what happened after a break to the function that contains it."""
    location = graph_break.location
    if graph_break.outcome == "error":
        return "an error"
    if location is None:
        return ""
    function_of_break = _function_key(report, location)
    eager = (skipped.location for skipped in lookup.functions_skipped_by(report, graph_break))
    if any(lines is not None and _function_key(report, lines) == function_of_break for lines in eager):
        return "runs eagerly"
    resumes = nearest_first(graph_break, lookup.resumes_of(report, graph_break))
    resume = next(filter(has_run, resumes), None)
    if resume is None or resume.location is None:
        return ""
    graph = f" ({resume.graphs[0]})" if resume.graphs else ""
    if _function_key(report, resume.location) == function_of_break:
        return f"resumes at {resume.location.line}{graph}"
    return f"resumes at {location_text(report, resume.location)}{graph}"


def nearest_first(graph_break: Break, resumes: Iterable[Resume]) -> list[Resume]:
    """Sort resume functions: first those of the function that broke, then others in its file, then the rest."""
    location = graph_break.location

    def distance(resume: Resume) -> int:
        if location is None or resume.location is None or resume.location.source != location.source:
            return 2
        return int(resume.location.function != location.function)

    return sorted(resumes, key=distance)


def has_run(resume: Resume) -> bool:
    """Return whether a resume function certainly ran."""
    return bool(resume.frames) or resume.no_frame in {"eager", "inlined"}


def why_no_frames(resume: Resume) -> str:
    """Return why a resume function has no frames."""
    return _NO_FRAME_TEXTS[resume.no_frame]


def _function_key(report: Report, location: Location) -> tuple[str, str]:
    return location.source, function_of(report, location)


def _resume_location_text(report: Report, resume: Resume) -> str:
    place = (
        "torch's wrapper" if is_wrapper_of_torch(report, resume.location) else location_text(report, resume.location)
    )
    if resume.graphs:
        return f"{place} ({graph_names(resume.graphs)})"
    return place if resume.frames else f"{place} ({why_no_frames(resume)})"


def _untaken_branch_text(resume: Resume) -> str:
    return "the other branch was not taken" if resume.no_frame == "not reached" else "the other branch may have run"


def _eager_functions_text(report: Report, functions: Sequence[Skipped]) -> str:
    named_functions = functions_worth_counting(report, functions) or functions
    names = dict.fromkeys(
        f"{function_of(report, skipped.location) if skipped.location is not None else skipped.function} "
        f"({line_text(report, skipped.location)})"
        for skipped in named_functions
    )
    return f"{'runs' if len(names) == 1 else 'run'} eagerly: {join_words(list(names), ', ', _MAX_NAMES)}"

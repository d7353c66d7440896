"""What became of the functions that met a break: where they resume, and what runs eagerly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.resumption import surely_ran, without_frame
from jupyter_graphbreak.views.words.where import is_wrapper_of_torch, place, without_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak.report.schema import Break, Report, Resume, Skipped


def aftermath(report: Report, graph_break: Break) -> list[str]:
    """Return what became of the frames: where they resume, and what runs eagerly."""
    graphs = [graph.id for graph in report.graphs if graph.break_ == graph_break.id]
    before = f"graph {', '.join(graphs)}, then " if graphs else ""
    lines = []
    resumes = [resume for resume in report.resumes if resume.id in graph_break.resumes]
    ran = [resume for resume in resumes if surely_ran(resume)]
    places = [_resumed_at(report, resume) for resume in (ran or resumes)]
    if places:
        names = {resume.name for resume in ran}
        others = [resume for resume in resumes if resume.name in names and not surely_ran(resume)]
        places += [_other_branch(resume) for resume in others]
        lines.append(f"{before}resumes at {'; '.join(dict.fromkeys(places))}")
        before = ""
    eager = [skipped for skipped in report.skipped if skipped.id in graph_break.skipped]
    if eager:
        lines.append(before + _eager(report, eager))
        before = ""
    elif any(occurrence.outcome == "skipped" for occurrence in graph_break.occurrences):
        lines.append(f"{before}the rest of the function runs eagerly")
        before = ""
    if graph_break.outcome == "error":
        lines.append(f"{before}an error" if graphs and before else "an error")
    return lines or [f"{before}nothing is left to resume"]


def _resumed_at(report: Report, resume: Resume) -> str:
    where = "torch's wrapper" if is_wrapper_of_torch(report, resume.location) else place(report, resume.location)
    if resume.graphs:
        return f"{where} (graph {', '.join(resume.graphs)})"
    return where if resume.frames else f"{where} ({without_frame(resume)})"


def _other_branch(resume: Resume) -> str:
    return "the other branch was not taken" if resume.no_frame == "not reached" else "the other branch may have run"


def _eager(report: Report, functions: Sequence[Skipped]) -> str:
    names = dict.fromkeys(
        f"{skipped.function} ({place(report, without_function(skipped.location))})" for skipped in functions
    )
    return f"{'runs' if len(names) == 1 else 'run'} eagerly: {', '.join(names)}"

"""The run as it went: graph, cut, resume, graph, eager, in the order in which things happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jupyter_graphbreak.views.words.lines import break_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.report.schema import Frame, Graph, Report, Resume, Skipped


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened.

    Parameters
    ----------
    kind : {"graph", "cut", "eager", "error"}
        ``graph``: a graph was captured; ``cut``: a break ended it, or kept it from beginning; ``eager``: a function
        was left to Python; ``error``: compilation raised.
    graph, frame, resume, skipped
        What it was, where the kind has such a thing; ``resume`` is the resume function that the graph was captured
        from.
    number : int or None
        The number of the break, of a cut.
    """

    kind: Literal["graph", "cut", "eager", "error"]
    graph: Graph | None = None
    frame: Frame | None = None
    resume: Resume | None = None
    skipped: Skipped | None = None
    number: int | None = None


def course(report: Report) -> list[Step]:
    """Return what happened, in order.

    A cut that several frames report one after the other, with nothing captured between, is one step.
    """
    steps: list[Step] = []
    for step in _steps(report):
        if not (step.kind == "cut" and steps and steps[-1].kind == "cut" and steps[-1].number == step.number):
            steps.append(step)
    return steps


def _steps(report: Report) -> Iterator[Step]:
    numbers = break_numbers(report)
    graphs = {graph.id: graph for graph in report.graphs}
    resumes = {resume.id: resume for resume in report.resumes}
    by_frame: dict[str, list[Skipped]] = {}
    by_break: dict[str | None, list[Skipped]] = {}
    for skipped in report.skipped:
        if skipped.frame is not None:
            by_frame.setdefault(skipped.frame, []).append(skipped)
        else:
            by_break.setdefault(skipped.break_, []).append(skipped)
    for frame in report.frames:
        for name in frame.graphs:
            if name in graphs:
                yield Step("graph", graph=graphs[name], frame=frame, resume=resumes.get(frame.resume or ""))
        for met in frame.breaks:
            yield Step("cut", frame=frame, number=numbers.get(met))
            # Functions that Dynamo never began are left to Python at the cut that met them, the first time only.
            yield from (Step("eager", skipped=skipped) for skipped in by_break.pop(met, ()))
        if frame.outcome == "error":
            yield Step("error", frame=frame)
        yield from (Step("eager", skipped=skipped, frame=frame) for skipped in by_frame.pop(frame.id, ()))
    for rest in (*by_frame.values(), *by_break.values()):
        yield from (Step("eager", skipped=skipped) for skipped in rest)

"""How much of a run was compiled: whole, in part, or not at all; and what of it runs without a CUDA graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.plain_text import counted, one_line
from jupyter_graphbreak.views.words.where import function_of, is_wrapper_of_torch, place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.report.schema import Frame, Report, Skipped

#: The kinds of functions that were compiled until a limit was reached.
_OF_LIMIT = {"recompile limit", "shared wrapper"}
#: So many functions are named; more are counted.
_MOST_NAMES = 2
_MOST_COMPILED = 4
#: Graphs without a CUDA graph of which a sentence says why.
_MOST_SENTENCES = 50


def extent(report: Report) -> str:
    """Return what was compiled and what ran eagerly; the empty string where nothing ran eagerly that could be compiled.

    "nothing was compiled: norm ran eagerly", "compiled in part: step; norm and log ran eagerly".
    """
    eager = _names(_name(report, skipped) for skipped in report.skipped if skipped.kind not in _OF_LIMIT)
    limited = _names(_name(report, skipped) for skipped in report.skipped if skipped.kind in _OF_LIMIT)
    if not report.graphs:
        # The name of a wrapper of torch's tells the reader nothing; the name of what was called through it does.
        through = _names(f"`{one_line(call.name)}`" for call in report.compiled or ()) if report.skipped else ""
        eager = " and ".join(filter(None, [eager, limited])) or through
        if eager:
            return f"nothing was compiled: {eager} ran eagerly"
        empty = _names(_name(report, frame) for frame in report.frames if frame.outcome == "empty")
        if empty:
            return f"nothing was compiled: no tensor operation in {empty}"
        return "" if report.error is not None else "nothing was compiled in this run"
    if not eager:
        return f"compiled in part: {limited} ran eagerly from the recompile limit on" if limited else ""
    eager += f", from the recompile limit on {limited}," if limited else ""
    whole = [frame for frame in report.frames if frame.graphs and frame.outcome == "compiled"]
    if not whole:  # graphs were captured, and the backend failed on them
        return f"nothing was compiled: {eager} ran eagerly"
    compiled = _names(_name(report, frame) for frame in whole if frame.role != "resume")
    return f"compiled in part: {compiled or 'what follows breaks'}; {eager} ran eagerly"


def compiled_for_report(report: Report) -> str:
    """Return what was compiled although the code does not compile it; the empty string if there is no such thing.

    "compiled for this report: `model` (Net), `loss_fn`; the cell itself does not compile them".
    """
    if not report.compiled:
        return ""
    names = [
        f"`{one_line(call.name)}`" + (f" ({one_line(call.type)})" if call.type not in {None, call.name} else "")
        for call in report.compiled
    ]
    names = list(dict.fromkeys(names))
    if len(names) > _MOST_COMPILED:
        names = [*names[:_MOST_COMPILED], f"and {len(names) - _MOST_COMPILED} more"]
    program = "cell" if any(source.kind == "cell" for source in report.sources) else "program"
    them = "it" if len(names) == 1 else "them"
    return f"compiled for this report: {', '.join(names)}; the {program} itself does not compile {them}"


def without_cudagraph(report: Report) -> list[str]:
    """Return what runs without a CUDA graph: "graph A runs without a CUDA graph: mutated inputs, line 3 in f"."""
    said = []
    for skip in report.cudagraph_skips[:_MOST_SENTENCES]:
        name = f"graph {skip.graph}" if skip.graph is not None else "a graph"
        where = f", {place(report, skip.location)}" if skip.location is not None else ""
        said.append(f"{name} runs without a CUDA graph: {one_line(skip.reason)}{where}")
    return said


def _name(report: Report, subject: Frame | Skipped) -> str:
    """Return the qualified name of a function; the empty string for a wrapper of torch's."""
    place = subject.location
    if place is None:
        return subject.function
    return "" if is_wrapper_of_torch(report, place) else function_of(report, place)


def _names(functions: Iterable[str]) -> str:
    names = list(dict.fromkeys(filter(None, functions)))
    return counted(len(names), "function") if len(names) > _MOST_NAMES else " and ".join(names)

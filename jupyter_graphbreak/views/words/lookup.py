"""Compute results from a report only once: a cache, and indexes of the report's parts."""

from __future__ import annotations

import weakref
from collections import defaultdict
from functools import wraps
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jupyter_graphbreak.report.location import FunctionName, Source
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Graph, Report, Resume, Skipped


_T = TypeVar("_T")


def per_report(function: Callable[[Report], _T]) -> Callable[[Report], _T]:
    """Cache the result of a function for each report. The result must not refer to the report itself."""
    entries: dict[int, tuple[weakref.ref[Report], _T]] = {}

    @wraps(function)
    def cached_function(report: Report) -> _T:
        ident = id(report)
        entry = entries.get(ident)
        if entry is not None and entry[0]() is report:
            return entry[1]

        def forget(reference: weakref.ref[Report]) -> None:
            entry = entries.get(ident)
            if entry is not None and entry[0] is reference:
                entries.pop(ident, None)

        result = function(report)
        entries[ident] = weakref.ref(report, forget), result
        return result

    return cached_function


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


_Part = TypeVar("_Part", bound=_HasId)


def _by_id(parts_of: Callable[[Report], Iterable[_Part]]) -> Callable[[Report], dict[str, _Part]]:
    return per_report(lambda report: {part.id: part for part in parts_of(report)})


#: The frames, resume functions, functions that run eagerly, scopes and remedies by their ids.
frames = _by_id(lambda report: report.frames)
resumes = _by_id(lambda report: report.resumes)
skipped_functions = _by_id(lambda report: report.skipped)
scopes = _by_id(lambda report: report.scopes)
remedies = _by_id(lambda report: report.remedies or [])


@per_report
def sources(report: Report) -> dict[str, Source]:
    """Return the sources by their ids."""
    return {source.id: source for source in reversed(report.sources)}


@per_report
def main_cell(report: Report) -> Source | None:
    """Return the cell that ran; ``None`` if no cell did."""
    return next((source for source in report.sources if source.kind == "cell"), None)


@per_report
def functions_by_name(report: Report) -> dict[tuple[str, str], list[FunctionName]]:
    """Return the functions whose qualified and plain names differ, by source and plain name, sorted by line."""
    index: defaultdict[tuple[str, str], list[FunctionName]] = defaultdict(list)
    for source in report.sources:
        for function in source.functions:
            index[source.id, function.name.rpartition(".")[2]].append(function)
    for namesakes in index.values():
        namesakes.sort(key=lambda function: function.line)
    return dict(index)


def resumes_of(report: Report, break_: Break) -> list[Resume]:
    """Return the resume functions of a break."""
    by_id = resumes(report)
    return [by_id[ident] for ident in break_.resumes if ident in by_id]


def functions_skipped_by(report: Report, break_: Break) -> list[Skipped]:
    """Return the functions that run eagerly because of a break."""
    by_id = skipped_functions(report)
    return [by_id[ident] for ident in break_.skipped if ident in by_id]


@per_report
def skipped_by_frame(report: Report) -> dict[str | None, Skipped]:
    """Return the functions that run eagerly, by the id of their frame; if several have the same id, the first one."""
    return {function.frame: function for function in reversed(report.skipped)}


@per_report
def graphs_by_break(report: Report) -> dict[str | None, list[Graph]]:
    """Return the graphs that each break ended, by the id of the break; ``None`` is the key of all other graphs."""
    index: defaultdict[str | None, list[Graph]] = defaultdict(list)
    for graph in report.graphs:
        index[graph.break_].append(graph)
    return dict(index)


@per_report
def remedies_by_break(report: Report) -> dict[str, list[Remedy]]:
    """Return the remedies for each break, by the id of the break."""
    return _remedies_by(report, lambda remedy: remedy.breaks)


@per_report
def remedies_by_frame(report: Report) -> dict[str, list[Remedy]]:
    """Return the remedies for each frame that runs eagerly, by the id of the frame, without those for a break."""
    return _remedies_by(report, lambda remedy: [] if remedy.breaks else remedy.frames)


@per_report
def remedies_by_recompile(report: Report) -> dict[str, list[Remedy]]:
    """Return the remedies for each recompile, by the id of the recompile."""
    return _remedies_by(report, lambda remedy: remedy.recompiles)


def _remedies_by(report: Report, ids_of: Callable[[Remedy], list[str]]) -> dict[str, list[Remedy]]:
    """Return the remedies by the ids that ``ids_of`` returns for them."""
    index: defaultdict[str, list[Remedy]] = defaultdict(list)
    for remedy in report.remedies or []:
        for ident in dict.fromkeys(ids_of(remedy)):
            index[ident].append(remedy)
    return dict(index)


@per_report
def function_by_recompile(report: Report) -> dict[str, str]:
    """Return the names of the recompiled functions, by the ids of the recompiles."""
    return {recompile.id: recompile.function for recompile in report.recompiles}

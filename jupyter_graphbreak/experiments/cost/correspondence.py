"""Match the frames, graphs and breaks of two reports of the same program."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.experiments.trial.effect_locations import locator

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from jupyter_graphbreak.experiments.trial.effect_locations import Locate
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Break, Frame, Graph, Report


class Correspondence:
    """Maps the ids in the report of a run on copies to those in the report of the original run, if there was one.

    ``first_frame_id`` is the id of the first frame of the repeated part in the original report.
    """

    def __init__(self, report_on_copies: Report, run_report: Report, first_frame_id: str | None = None) -> None:
        self.report_on_copies = report_on_copies
        self.run_report = run_report
        frame_ids = [frame.id for frame in run_report.frames]
        first = frame_ids.index(first_frame_id) if first_frame_id in frame_ids else 0
        later_frame_ids = set(frame_ids[first:])
        names_on_copies, names_in_run = self._names_on_copies, self._names_in_run = (
            _source_name_by_id(report_on_copies),
            _source_name_by_id(run_report),
        )
        self._frames = _pair_ids(
            ((frame.id, _frame_key(frame, names_on_copies)) for frame in report_on_copies.frames),
            ((frame.id, _frame_key(frame, names_in_run)) for frame in run_report.frames if frame.id in later_frame_ids),
        )
        later_graphs = [
            graph for graph in run_report.graphs if graph.frame in later_frame_ids or graph.frame not in frame_ids
        ]
        self._graphs = _pair_ids(map(_graph_with_key, report_on_copies.graphs), map(_graph_with_key, later_graphs))
        # If the copies are called by different code, their frames may have a different role, but the same graphs.
        run_frames = {graph.id: graph.frame for graph in run_report.graphs}
        for graph in report_on_copies.graphs:
            if graph.id in self._graphs:
                self._frames.setdefault(graph.frame, run_frames[self._graphs[graph.id]])
        self._breaks = _pair_ids(
            ((break_.id, _break_key(break_, names_on_copies)) for break_ in report_on_copies.breaks),
            ((break_.id, _break_key(break_, names_in_run)) for break_ in run_report.breaks),
        )

    def original_source(self, ident: str) -> str | None:
        """Return the original run's id for a source of the repeated run; ``None`` if there is no such source."""
        name = self._names_on_copies(ident)
        return next((source.id for source in self.run_report.sources if self._names_in_run(source.id) == name), None)

    def original_location(self, location: Location | None) -> Location | None:
        """Translate a location of the repeated run to the original report's sources; ``None`` if it has none there."""
        source = self.original_source(location.source) if location is not None else None
        return replace(location, source=source) if location is not None and source is not None else None

    def locator(self, files: Mapping[str, str], find_cell: FindCell) -> Locate:
        """Return a function that finds the locations of stacks in the sources of the original run's report."""
        return locator({name: self.original_source(ident) for ident, name in files.items()}, find_cell)

    def original_frame(self, ident: str | None) -> str | None:
        """Return the original run's id for a frame of the repeated run; ``None`` if no frame matches."""
        return self._frames.get(ident or "")

    def original_graph(self, ident: str | None) -> str | None:
        """Return the original run's letter for a graph of the repeated run; ``None`` if no graph matches."""
        return self._graphs.get(ident or "")

    def original_break(self, ident: str | None) -> str | None:
        """Return the original run's id for a break of the repeated run; ``None`` if no break matches."""
        return self._breaks.get(ident or "")

    def matched_frames(self) -> set[str]:
        """Return the ids of the original run's frames that match a frame of the repeated run."""
        return set(self._frames.values())

    def compile_seconds(self) -> float:
        """Return the time in seconds that compiling the matched frames took."""
        frames = self.matched_frames()
        return sum(frame.compile_s or 0.0 for frame in self.run_report.frames if frame.id in frames)


def _pair_ids(copies: Iterable[tuple[str, Hashable]], originals: Iterable[tuple[str, Hashable]]) -> dict[str, str]:
    """Pair the ids of copies with the ids of originals that have the same keys, in order."""
    ids_by_key: defaultdict[Hashable, list[str]] = defaultdict(list)
    for ident, key in originals:
        ids_by_key[key].append(ident)
    return {ident: ids_by_key[key].pop(0) for ident, key in copies if ids_by_key[key]}


def _source_name_by_id(report: Report) -> Callable[[str], str]:
    names = {source.id: source.path or source.name for source in report.sources}
    return lambda ident: names.get(ident, ident)


def _frame_key(frame: Frame, name: Callable[[str], str]) -> Hashable:
    return frame.function, frame.role, _location_key(frame.location, name)


def _graph_with_key(graph: Graph) -> tuple[str, Hashable]:
    return graph.id, (graph.name, *(op.target for op in graph.ops))


def _break_key(break_: Break, name: Callable[[str], str]) -> Hashable:
    return break_.gb_id or break_.gb_type, _location_key(break_.location, name)


def _location_key(location: Location | None, name: Callable[[str], str]) -> tuple[str, int, int | None] | None:
    return (name(location.source), location.line, location.column) if location is not None else None

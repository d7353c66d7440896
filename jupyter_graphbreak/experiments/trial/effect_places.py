"""Write down in a report which effects kept functions from being run again, and the lines that have them."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.records.package_paths import is_library
from jupyter_graphbreak.records.records import plain_function
from jupyter_graphbreak.report.location import Location, Segment, Source
from jupyter_graphbreak.report.schema import Effect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyter_graphbreak.experiments.trial.side_effects import SeenEffect
    from jupyter_graphbreak.records.records import StackEntry
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.schema import Report


def with_effects(
    report: Report,
    files: Mapping[str, str],
    effects: Iterable[SeenEffect],
    find_cell: FindCell = lambda _: None,
) -> Report:
    """Return a report that names effects, each once.

    Parameters
    ----------
    report : Report
    files : mapping
        The file name of each of its sources, by the source's id.
    effects : iterable of SeenEffect
    find_cell : callable
        Given the file name of a code object, the cell it comes from.
    """
    sources = list(report.sources)
    known = {filename: ident for ident, filename in files.items()}
    listed = list(report.effects or [])
    for effect in effects:
        location = None
        if effect.place is not None:
            name = effect.place.filename
            known.setdefault(name, next((source.id for source in sources if source.path == _shortened(name)), ""))
            if not known[name]:
                known[name] = _new_id(sources)
                sources.append(_source(known[name], name, find_cell))
            location = _location(known[name], effect.place, find_cell)
        made = Effect(effect.kind, effect.what, location)
        if made not in listed:
            listed.append(made)
    return replace(report, sources=sources, effects=listed) if listed else report


def _new_id(sources: list[Source]) -> str:
    taken = {source.id for source in sources}
    return next(ident for number in range(1, len(taken) + 2) if (ident := f"s{number}") not in taken)


def _source(ident: str, filename: str, find_cell: FindCell) -> Source:
    cell = find_cell(filename)
    if cell is not None:
        return Source(ident, cell.name, "cell", segments=[Segment(1, cell.text)])
    return Source(ident, Path(filename).name, "library" if is_library(filename) else "file", _shortened(filename))


def _shortened(filename: str) -> str:
    """Return a path as reports have it: from the working directory, or from the home directory."""
    path = Path(filename)
    for find, prefix in ((Path.cwd, ""), (Path.home, "~/")):
        try:
            return prefix + path.relative_to(find()).as_posix()
        except (OSError, RuntimeError, ValueError):  # it lies elsewhere, or there is no such folder
            continue
    return filename


def _location(source: str, place: StackEntry, find_cell: FindCell) -> Location | None:
    if place.line is None:
        return None
    cell = find_cell(place.filename)
    line = place.line + (cell.line_offset if cell is not None else 0)
    if cell is not None:
        lines = cell.text.splitlines()
        code = lines[line - 1] if 0 < line <= len(lines) else ""
    else:
        code = linecache.getline(place.filename, place.line)
    return Location(source, line, line, function=plain_function(place.function), code=code.strip() or None)

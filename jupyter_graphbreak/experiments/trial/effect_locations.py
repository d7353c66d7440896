"""Add to a report the effects that kept functions from running again, with their lines."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.recording.recorder import cell_of_shell
from jupyter_graphbreak.records.package_paths import is_library, package_paths
from jupyter_graphbreak.records.records import original_name
from jupyter_graphbreak.report.location import Location, Segment, Source
from jupyter_graphbreak.report.schema import Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jupyter_graphbreak.experiments.trial.side_effects import ObservedEffect
    from jupyter_graphbreak.records.records import StackFrame
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.schema import Report

    #: Returns the location of a stack in the report, or ``None`` if no line of the stack is in a source.
    Locate = Callable[[Sequence[StackFrame]], Location | None]


def with_effects(
    report: Report, files: Mapping[str, str], effects: Iterable[ObservedEffect], find_cell: FindCell = cell_of_shell
) -> Report:
    """Return a report to which the given effects have been added, without duplicates."""
    sources = list(report.sources)
    ids_by_file = {filename: ident for ident, filename in files.items()}
    listed_effects = list(report.effects or [])
    for effect in effects:
        location = None
        if effect.location is not None:
            name = effect.location.filename
            ids_by_file.setdefault(
                name, next((source.id for source in sources if source.path == _short_path(name)), "")
            )
            if not ids_by_file[name]:
                ids_by_file[name] = _new_id(sources)
                sources.append(_new_source(ids_by_file[name], name, find_cell))
            location = _new_location(ids_by_file[name], effect.location, find_cell)
        listed_effect = Effect(effect.kind, effect.description, location)
        if listed_effect not in listed_effects:
            listed_effects.append(listed_effect)
    return replace(report, sources=sources, effects=listed_effects) if listed_effects else report


def locator(source_ids: Mapping[str, str | None], find_cell: FindCell) -> Locate:
    """Return a function that locates the innermost stack frame that is in a source and not in PyTorch."""
    packages = package_paths()

    def locate(stack: Sequence[StackFrame]) -> Location | None:
        for entry in reversed(stack):
            ident = source_ids.get(entry.filename)
            if ident is not None and not (packages.module_path(entry.filename) or "").startswith("torch/"):
                return _new_location(ident, entry, find_cell)
        return None

    return locate


def _new_id(sources: list[Source]) -> str:
    taken_ids = {source.id for source in sources}
    return next(ident for number in range(1, len(taken_ids) + 2) if (ident := f"s{number}") not in taken_ids)


def _new_source(ident: str, filename: str, find_cell: FindCell) -> Source:
    cell = find_cell(filename)
    if cell is not None:
        return Source(ident, cell.name, "cell", segments=[Segment(1, cell.text)])
    return Source(ident, Path(filename).name, "library" if is_library(filename) else "file", _short_path(filename))


def _short_path(filename: str) -> str:
    """Return a path as reports show it: relative to the working directory or the home directory if it is inside one."""
    path = Path(filename)
    for find_folder, prefix in ((Path.cwd, ""), (Path.home, "~/")):
        try:
            return prefix + path.relative_to(find_folder()).as_posix()
        except (OSError, RuntimeError, ValueError):  # the path is in a different folder, or there is no such folder
            continue
    return filename


def _new_location(source: str, stack_frame: StackFrame, find_cell: FindCell) -> Location | None:
    if stack_frame.line is None:
        return None
    cell = find_cell(stack_frame.filename)
    line = stack_frame.line + (cell.line_offset if cell is not None else 0)
    if cell is not None:
        lines = cell.text.splitlines()
        code = lines[line - 1] if 0 < line <= len(lines) else ""
    else:
        code = linecache.getline(stack_frame.filename, stack_frame.line)
    return Location(source, line, line, function=original_name(stack_frame.function), code=code.strip() or None)

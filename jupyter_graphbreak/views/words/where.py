"""Where something stands, as a person says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Report


def place(report: Report, location: Location | None) -> str:
    """Return where something stands, as a person says it: "line 14 in step", "modeling_bart.py:660 in forward"."""
    if location is None:
        return "an unknown place"
    source = next((source for source in report.sources if source.id == location.source), None)
    cells = [source for source in report.sources if source.kind == "cell"]
    if source is None:
        where = f"line {location.line}"
    elif source.kind == "cell":
        where = f"line {location.line}" if source is cells[0] else f"{source.name} line {location.line}"
    else:
        where = f"{source.name}:{location.line}"
    return f"{where} in {location.function}" if location.function else where


def without_function(location: Location | None) -> Location | None:
    """Return a place whose function needs no mention, since the sentence names it."""
    return replace(location, function=None) if location is not None else None


def is_wrapper_of_torch(report: Report, location: Location | None) -> bool:
    """Whether a place is in one of the wrappers that torch puts around functions."""
    path = next((s.path for s in report.sources if location is not None and s.id == location.source), None)
    return path is not None and path.startswith("torch/_dynamo/")

"""Where something stands, as a person says it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Report

#: The name of the code of a whole cell, which says nothing.
_MODULE = "<module>"


def place(report: Report, location: Location | None) -> str:
    """Return where something stands, as a person says it: "line 14 in step", "modeling_bart.py:660 in f"."""
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
    return where if location.function in {None, "", _MODULE} else f"{where} in {function_of(report, location)}"


def function_of(report: Report, location: Location) -> str:
    """Return the function around a place, with its class where that is known: "BartDecoder.forward"."""
    name = location.function or ""
    source = next((source for source in report.sources if source.id == location.source), None)
    if source is None or name == _MODULE:
        return name
    fitting = (
        function.name
        for function in reversed(source.functions)
        if function.line <= location.line and function.name.endswith(f".{name}")
    )
    return next(fitting, name)


def brief_code(code: str | None) -> str:
    """Return the text of an expression on one line; of one that goes on below, its beginning and an ellipsis."""
    lines = (code or "").split("\n")
    shown = lines[0].strip()
    # A bracket alone says nothing, and no more does the keyword before it.
    for line in lines[1:]:
        if re.search(r"\w", re.sub(r"^(if|elif|while|assert|return)\b", "", shown)):
            return f"{shown} …"
        shown = f"{shown} {line.strip()}".strip()
    return shown


def without_function(location: Location | None) -> Location | None:
    """Return a place whose function needs no mention, since the sentence names it."""
    return replace(location, function=None) if location is not None else None


def is_wrapper_of_torch(report: Report, location: Location | None) -> bool:
    """Whether a place is in one of the wrappers that torch puts around functions."""
    source = next((s for s in report.sources if location is not None and s.id == location.source), None)
    return source is not None and source.kind == "library" and (source.path or "").startswith("torch/_dynamo/")

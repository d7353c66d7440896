"""Where something stands, as a person says it."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.views.words import lookup

if TYPE_CHECKING:
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Report

#: The name of the code of a whole cell, which says nothing.
_MODULE = "<module>"
#: Lines of an expression among which the first word is looked for.
_MOST_CODE_LINES = 20


def place(report: Report, location: Location | None) -> str:
    """Return where something stands, as a person says it: "line 14 in step", "modeling_bart.py:660 in f"."""
    if location is None:
        return "an unknown place"
    source = lookup.sources(report).get(location.source)
    if source is None:
        where = f"line {location.line}"
    elif source.kind == "cell":
        where = f"line {location.line}" if source is lookup.main_cell(report) else f"{source.name} line {location.line}"
    else:
        where = f"{source.name}:{location.line}"
    return where if location.function in {None, "", _MODULE} else f"{where} in {function_of(report, location)}"


def function_of(report: Report, location: Location) -> str:
    """Return the function around a place, with its class where that is known: "BartDecoder.forward"."""
    name = location.function or ""
    if name == _MODULE:
        return name
    same = lookup.functions(report).get((location.source, name.rpartition(".")[2]), [])
    index = bisect_right(same, location.line, key=lambda function: function.line) - 1
    return same[index].name if index >= 0 and same[index].name.endswith(f".{name}") else name


def brief_code(code: str | None) -> str:
    """Return the text of an expression on one line; of one that goes on below, its beginning and an ellipsis."""
    lines = (code or "").split("\n", _MOST_CODE_LINES)[:_MOST_CODE_LINES]
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
    source = lookup.sources(report).get(location.source) if location is not None else None
    return source is not None and source.kind == "library" and (source.path or "").startswith("torch/_dynamo/")

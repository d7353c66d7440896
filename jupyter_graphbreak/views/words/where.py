"""Where something stands, as a person says it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.views.words import lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Report


@dataclass(frozen=True, slots=True)
class StackNode:
    """Places that follow each other in every stack that came here, and where the stacks part after them."""

    places: list[Location]
    children: list[StackNode]


#: Places at which stacks part, one after the other; further on they are listed one by one.
_DEEPEST = 20


def stack_tree(stacks: Iterable[Sequence[Location]], depth: int = 0) -> list[StackNode]:
    """Return stacks merged where they begin alike; one that is the beginning of another is left out."""
    if depth == _DEEPEST:
        return [StackNode(list(stack), []) for stack in stacks if stack]
    by_start: dict[tuple[str, int], list[Sequence[Location]]] = {}
    for stack in stacks:
        if stack:
            by_start.setdefault(_spot(stack[0]), []).append(stack)
    nodes = []
    for group in by_start.values():
        shared = 1
        # As far as every stack of the group goes the same way, so that a deep recursion makes no deep tree.
        while all(len(stack) > shared for stack in group) and len({_spot(stack[shared]) for stack in group}) == 1:
            shared += 1
        nodes.append(StackNode(list(group[0][:shared]), stack_tree((stack[shared:] for stack in group), depth + 1)))
    return nodes


def _spot(place: Location) -> tuple[str, int]:
    return place.source, place.line


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

"""Put locations in the source into words."""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.schema import Frame, Report


@dataclass(frozen=True, slots=True)
class StackNode:
    """Locations that several stacks share, and the different ways in which these stacks continue."""

    locations: list[Location]
    children: list[StackNode]


#: The maximum depth of the tree; below it, stacks are listed one by one.
_MAX_DEPTH = 20
_FUNCTION_HEAD = re.compile(r"\s*(?:async\s+)?def\s")


def stack_tree(stacks: Iterable[Sequence[Location]], depth: int = 0) -> list[StackNode]:
    """Merge stacks with the same beginning; a stack that is the beginning of a longer one is left out."""
    if depth == _MAX_DEPTH:
        return [StackNode(list(stack), []) for stack in stacks if stack]
    by_start: dict[tuple[str, int], list[Sequence[Location]]] = {}
    for stack in stacks:
        if stack:
            by_start.setdefault(_source_and_line(stack[0]), []).append(stack)
    nodes = []
    for group in by_start.values():
        shared_count = 1
        # All locations that the group shares are in one node, so that a deep recursion does not make a deep tree.
        while (
            all(len(stack) > shared_count for stack in group)
            and len({_source_and_line(stack[shared_count]) for stack in group}) == 1
        ):
            shared_count += 1
        nodes.append(
            StackNode(list(group[0][:shared_count]), stack_tree((stack[shared_count:] for stack in group), depth + 1))
        )
    return nodes


def _source_and_line(location: Location) -> tuple[str, int]:
    return location.source, location.line


#: The function name of top-level code, which is not shown.
_MODULE = "<module>"
#: The maximum number of lines of an expression to search for the first informative one.
_MAX_CODE_LINES = 20


def location_text(report: Report, location: Location | None) -> str:
    """Return a location in words: "line 14 in step", "modeling_bart.py:660 in f"."""
    if location is None:
        return "an unknown location"
    source = lookup.sources(report).get(location.source)
    if source is None:
        text = f"line {location.line}"
    elif source.kind == "cell":
        text = f"line {location.line}" if source is lookup.main_cell(report) else f"{source.name} line {location.line}"
    else:
        text = f"{source.name}:{location.line}"
    return text if location.function in {None, "", _MODULE} else f"{text} in {function_of(report, location)}"


def function_of(report: Report, location: Location) -> str:
    """Return the name of the function that contains a location, with its class if known: "BartDecoder.forward"."""
    name = location.function or ""
    if name == _MODULE:
        return name
    namesakes = lookup.functions_by_name(report).get((location.source, name.rpartition(".")[2]), [])
    index = bisect_right(namesakes, location.line, key=lambda function: function.line) - 1
    return namesakes[index].name if index >= 0 and namesakes[index].name.endswith(f".{name}") else name


def text_of_function(source: Source | None, line: int) -> str:
    """Return the code of the innermost function that contains a line; empty if the report does not contain it."""
    return _text_of_function(*lines_around(source, line))


def lines_around(source: Source | None, line: int) -> tuple[list[str], int]:
    """Return the lines of the segment that contains a line, and its index in them; no lines if there is none."""
    for segment in source.segments if source is not None else ():
        lines = segment.text.split("\n")
        if 0 <= line - segment.first_line < len(lines):
            return lines, line - segment.first_line
    return [], 0


def _text_of_function(lines: Sequence[str], index: int) -> str:
    heads = (number for number in range(index - 1, -1, -1) if _FUNCTION_HEAD.match(lines[number]))
    first = next((number for number in heads if _indentation(lines[number]) < _indentation(lines[index])), None)
    if first is None:
        return ""
    last = first
    for number in range(first + 1, len(lines)):
        text = lines[number].strip()
        if text and _indentation(lines[number]) <= _indentation(lines[first]) and not text.startswith((")", "#")):
            break
        last = number
    return textwrap.dedent("\n".join(lines[first : last + 1])).strip()


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def brief_code(code: str | None) -> str:
    """Return an expression up to its first informative line, with an ellipsis if more lines follow."""
    lines = (code or "").split("\n", _MAX_CODE_LINES)[:_MAX_CODE_LINES]
    shown_line = lines[0].strip()
    # A line with only a bracket, or a keyword and a bracket, is not informative.
    for line in lines[1:]:
        if re.search(r"\w", re.sub(r"^(if|elif|while|assert|return)\b", "", shown_line)):
            return f"{shown_line} …"
        shown_line = f"{shown_line} {line.strip()}".strip()
    return shown_line


def line_text(report: Report, location: Location | None) -> str:
    """Return a location in words without its function: "line 14", "modeling_bart.py:660"."""
    return location_text(report, replace(location, function=None) if location is not None else None)


def is_in_library(report: Report, location: Location | None) -> bool:
    """Return whether a location is in the code of a library."""
    return _library_source(report, location) is not None


def is_wrapper_of_torch(report: Report, location: Location | None) -> bool:
    """Return whether a location is in one of torch's own wrappers around functions."""
    source = _library_source(report, location)
    return source is not None and (source.path or "").startswith("torch/_dynamo/")


def is_in_torch_optimizer(report: Report, location: Location | None) -> bool:
    """Return whether a location is in the code of torch's optimizers."""
    source = _library_source(report, location)
    return source is not None and (source.path or "").startswith("torch/optim/")


def is_wrapper_of_step(report: Report, location: Location | None) -> bool:
    """Return whether a location is in torch's wrapper around the ``step()`` of an optimizer."""
    source = _library_source(report, location)
    is_in_optimizer = source is not None and source.path == "torch/optim/optimizer.py"
    return is_in_optimizer and location is not None and (location.function or "").endswith("wrapper")


def called_object_name(report: Report, frame: Frame) -> str:
    """Return the name of the module or the optimizer's method that a frame calls; empty if it is neither."""
    if frame.module is None:
        return ""
    return one_line(frame.module) + (".step" if is_wrapper_of_step(report, frame.location) else "")


def _library_source(report: Report, location: Location | None) -> Source | None:
    """Return the source of a location in a library; ``None`` for any other location."""
    source = lookup.sources(report).get(location.source) if location is not None else None
    return source if source is not None and source.kind == "library" else None

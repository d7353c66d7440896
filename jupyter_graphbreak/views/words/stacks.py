"""Stacks that begin alike, as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.location import Location


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

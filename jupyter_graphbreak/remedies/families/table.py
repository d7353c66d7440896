"""The table of families, and all that they propose for a break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.remedies.families import branches, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyter_graphbreak.remedies.proposal import Problem, Proposal

#: What each family proposes, by its name; the ones first that are right most often.
FAMILIES: Mapping[str, Callable[[Problem], Iterator[Proposal]]] = {
    branches.FAMILY: branches.propose,
    output.FAMILY: output.propose,
}


def proposals_for(problem: Problem) -> list[Proposal]:
    """Return what may remove a break, the most likely first, no change twice."""
    found: list[Proposal] = []
    for propose in FAMILIES.values():
        found += (each for each in propose(problem) if each not in found)
    return found

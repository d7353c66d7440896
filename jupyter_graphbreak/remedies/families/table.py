"""The table of families, and all that they propose for a break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.remedies.families import branches, markers, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyter_graphbreak.remedies.proposal import Problem, Proposal

#: What each family proposes, by its name; the ones first that are right most often.
FAMILIES: Mapping[str, Callable[[Problem], Iterator[Proposal]]] = {
    markers.FAMILY: markers.propose,
    branches.FAMILY: branches.propose,
    output.FAMILY: output.propose,
}


def proposals_for(problem: Problem) -> list[Proposal]:
    """Return what may remove a break, the most likely first, no change twice."""
    found: list[Proposal] = []
    for propose in FAMILIES.values():
        for each in propose(problem):
            if not any(_same_change(each, known) for known in found):
                found.append(each)
    return found


def _same_change(one: Proposal, other: Proposal) -> bool:
    return (one.texts, one.settings, one.code) == (other.texts, other.settings, other.code)

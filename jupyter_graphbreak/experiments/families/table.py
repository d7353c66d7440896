"""The table of families, and all that they propose for a break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families import (
    branches,
    flags,
    hoisting,
    loops,
    markers,
    printing,
    rewrites,
    scalars,
    sizes,
    switches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal

#: What each family proposes, by its name; the ones first that are right most often.
FAMILIES: Mapping[str, Callable[[Problem], Iterator[Proposal]]] = {
    markers.FAMILY: markers.propose,
    switches.FAMILY: switches.propose,
    sizes.FAMILY: sizes.propose,
    printing.FAMILY: printing.propose,
    branches.FAMILY: branches.propose,
    loops.FAMILY: loops.propose,
    rewrites.FAMILY: rewrites.propose,
    flags.FAMILY: flags.propose,
    scalars.FAMILY: scalars.propose,
    hoisting.FAMILY: hoisting.propose,
}


#: Trying takes time: of a break's proposals the later ones are hardly ever right where the earlier ones are not.
MOST = 6


def proposals_for(problem: Problem, note_fault: Callable[[str, Exception], None]) -> list[Proposal]:
    """Return what may remove a break, the most likely first, no change twice.

    Parameters
    ----------
    problem : Problem
    note_fault : callable
        Told of a family that fails; the others propose all the same.
    """
    proposals: list[Proposal] = []
    for name, propose in FAMILIES.items():
        try:
            for proposal in propose(problem):
                if not any(_same_change(proposal, known) for known in proposals):
                    proposals.append(proposal)
        except Exception as fault:  # noqa: BLE001 - a text that it was not written for
            note_fault(f"the family {name}", fault)
    return proposals[:MOST]


def _same_change(one: Proposal, other: Proposal) -> bool:
    return (one.texts, one.settings, one.code) == (other.texts, other.settings, other.code)

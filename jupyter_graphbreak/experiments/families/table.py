"""The table of families, and their proposals for a break."""

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

#: The function of each family that yields its proposals, by the family's name; the most successful families first.
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


#: The maximum number of proposals for a break: later ones hardly ever work if the earlier ones do not.
MAX_PROPOSALS = 6


def proposals_for(problem: Problem, note_fault: Callable[[str, Exception], None]) -> list[Proposal]:
    """Return the proposals for a break without duplicates, the most likely first.

    Parameters
    ----------
    problem : Problem
    note_fault : callable
        Receives the error of a family that fails; the other families continue.
    """
    proposals: list[Proposal] = []
    for name, propose in FAMILIES.items():
        try:
            for proposal in propose(problem):
                if not any(_same_change(proposal, known) for known in proposals):
                    proposals.append(proposal)
        except Exception as fault:  # noqa: BLE001 - the family may not expect such a text
            note_fault(f"the family {name}", fault)
    return proposals[:MAX_PROPOSALS]


def _same_change(one: Proposal, other: Proposal) -> bool:
    return (one.texts, one.settings, one.code) == (other.texts, other.settings, other.code)

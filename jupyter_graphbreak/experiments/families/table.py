"""List the families of changes, and collect their proposals for a break."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families import (
    branches,
    endings,
    experts,
    hoisting,
    loops,
    printing,
    rewrites,
    scalars,
    sizes,
    switches,
)
from jupyter_graphbreak.experiments.families.protection import may_be_handled
from jupyter_graphbreak.experiments.families.site import site_at
from jupyter_graphbreak.report.remedies import ENDING_FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal

#: The function that yields the proposals of each family, by the family's name, most successful families first.
FAMILIES: Mapping[str, Callable[[Problem], Iterator[Proposal]]] = {
    rewrites.MARKER_FAMILY: rewrites.propose_without_markers,
    switches.SWITCHES_FAMILY: switches.propose_switches,
    sizes.FAMILY: sizes.propose,
    printing.FAMILY: printing.propose,
    experts.FAMILY: experts.propose,
    branches.FAMILY: branches.propose,
    loops.FAMILY: loops.propose,
    rewrites.FAMILY: rewrites.propose,
    switches.SETTINGS_FAMILY: switches.propose_settings,
    ENDING_FAMILY: endings.propose,
    scalars.FAMILY: scalars.propose,
    hoisting.FAMILY: hoisting.propose,
}


#: Families whose changes affect only code that raises nothing, or leave the code inside its error handling.
_FAMILIES_KEEPING_ERROR_HANDLING = {rewrites.MARKER_FAMILY, printing.FAMILY, ENDING_FAMILY}
#: A graph runs as a whole, and moved code runs before the call: neither runs inside the error handling.
_NEVER_RAISES_ASSUMPTION = "it assumes that {}, whose errors the code around it handles, never raises"
#: The maximum number of proposals for a break: later ones rarely work if the earlier ones do not.
MAX_PROPOSALS = 6


def proposals_for(problem: Problem, note_fault: Callable[[str, Exception], None]) -> list[Proposal]:
    """Return up to ``MAX_PROPOSALS`` proposals for a break, without duplicates, those most likely to work first."""
    proposals: list[Proposal] = []
    handled_code = _handled_code(problem)
    for name, propose in FAMILIES.items():
        try:
            for proposal in propose(problem):
                change = proposal.texts, proposal.settings, proposal.code
                if all(
                    change != (earlier_proposal.texts, earlier_proposal.settings, earlier_proposal.code)
                    for earlier_proposal in proposals
                ):
                    proposals.append(proposal)
        except Exception as fault:  # noqa: BLE001 - the family may not expect such source code
            note_fault(f"the family {name}", fault)
    return [
        replace(proposal, assumptions=(*proposal.assumptions, _NEVER_RAISES_ASSUMPTION.format(handled_code)))
        if handled_code is not None and proposal.family not in _FAMILIES_KEEPING_ERROR_HANDLING
        else proposal
        for proposal in proposals[:MAX_PROPOSALS]
    ]


def _handled_code(problem: Problem) -> str | None:
    """Return the first line of the code at a break, or of a call that led there, if its errors may be handled."""
    compiled_functions = {
        (frame.location.source, frame.function.rpartition(".")[2])
        for frame in problem.report.frames
        if frame.location is not None
    }
    callers = [location for location in problem.break_.stack if location.function is not None]
    callers_within_compiled_code = itertools.dropwhile(
        lambda location: (location.source, str(location.function).rpartition(".")[2]) not in compiled_functions, callers
    )
    for location in (problem.break_.location, *callers_within_compiled_code):
        site = site_at(problem, location)
        if site is not None and may_be_handled(site.source, site.node):
            return site.source.text_of(site.node).partition("\n")[0]
    return None

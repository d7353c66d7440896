"""Switches of libraries: settings of a model, a library or the environment that avoid the break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.knowledge.switches import CodePlace, switches_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.report.location import Location

FAMILY = "switch"


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield the switches of the library that contains the break."""
    sources = {source.id: source for source in problem.report.sources}

    def code_place(location: Location) -> CodePlace:
        source = sources.get(location.source)
        path = source.path if source is not None and source.kind == "library" else None
        return CodePlace(path, location.function, location.code)

    location = problem.break_.location
    if location is None:
        return
    for switch in switches_for(code_place(location), [code_place(caller) for caller in problem.break_.stack]):
        if switch.code is not None:
            assumptions = (f"with it, {switch.result_difference}",) if switch.result_difference is not None else ()
            yield Proposal(FAMILY, switch.title, code=switch.code, assumptions=assumptions)

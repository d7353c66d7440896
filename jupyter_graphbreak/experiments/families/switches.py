"""Propose settings of ``torch._dynamo.config`` that make code traceable, and switches of libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.knowledge.entries import CONFIG, title_of
from jupyter_graphbreak.knowledge.switches import CodeLocation, switches_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.report.location import Location

SETTINGS_FAMILY, SWITCHES_FAMILY = "setting", "switch"


def propose_settings(problem: Problem) -> Iterator[Proposal]:
    """Yield the settings that may make the cause of the break traceable."""
    for settings in problem.cause.settings:
        values = {CONFIG + setting.name: setting.value for setting in settings}
        yield Proposal(SETTINGS_FAMILY, title_of(settings), settings=values)


def propose_switches(problem: Problem) -> Iterator[Proposal]:
    """Yield the switches of a model, a library or the environment that avoid breaks in the library's code."""
    sources = {source.id: source for source in problem.report.sources}

    def code_location(location: Location) -> CodeLocation:
        source = sources.get(location.source)
        path = source.path if source is not None and source.kind == "library" else None
        return CodeLocation(path, location.function, location.code)

    location = problem.break_.location
    if location is None:
        return
    for switch in switches_for(code_location(location), [code_location(caller) for caller in problem.break_.stack]):
        if switch.code is not None:
            assumptions = (f"with it, {switch.result_difference}",) if switch.result_difference is not None else ()
            yield Proposal(SWITCHES_FAMILY, switch.title, code=switch.code, assumptions=assumptions)

"""Settings of torch._dynamo.config that make code traceable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.knowledge.causes import known_cause
from jupyter_graphbreak.knowledge.entries import CONFIG, title_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.proposal import Problem

FAMILY = "setting"


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield the settings that may make the cause of the break traceable."""
    for settings in known_cause(problem.break_.gb_id, problem.break_.gb_type).settings:
        values = {CONFIG + setting.name: setting.value for setting in settings}
        yield Proposal(FAMILY, title_of(settings), settings=values)

"""Remove calls that break the graph on purpose."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.site import called_name, site_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal

FAMILY = "marker"
_BREAKING_FUNCTIONS = {"graph_break", "skip_frame", "step_unsupported"}


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield a change that removes the call, if it breaks the graph on purpose."""
    site = site_of(problem)
    if site is None or not isinstance(site.statement, ast.Expr) or not isinstance(site.statement.value, ast.Call):
        return
    name = called_name(site.statement.value)
    if name in _BREAKING_FUNCTIONS:
        yield from site.propose_edit(FAMILY, f"Remove {name}()", [site.draft.deletion(site.statement)])

"""Deliberate breaks: remove the call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.site import called_name, site_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal

FAMILY = "marker"
_MARKERS = {"graph_break", "skip_frame", "step_unsupported"}


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield the source without the call that breaks the graph on purpose."""
    site = site_of(problem)
    if site is None or not isinstance(site.statement, ast.Expr) or not isinstance(site.statement.value, ast.Call):
        return
    name = called_name(site.statement.value)
    if name in _MARKERS:
        yield from site.propose_edit(FAMILY, f"Remove {name}()", [site.draft.deletion(site.statement)])

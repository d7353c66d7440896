"""The verdicts on PyTorch's front ends, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.text.terminal import wrapped
from jupyter_graphbreak.views.words.experiments.verdicts import OUTCOMES, call_of, details, legend
from jupyter_graphbreak.views.words.plain_text import counted, plain

if TYPE_CHECKING:
    from jupyter_graphbreak.report.frontends import Frontends


def render_frontends(frontends: Frontends) -> str:
    """Return the verdicts as text for a terminal 100 columns wide, without a line break at the end."""
    lines = [*wrapped("", f"front ends on {call_of(frontends)} | torch {frontends.torch}", indent="")]
    names = max((len(verdict.frontend) for verdict in frontends.verdicts), default=0)
    words = max(len(word) for word in OUTCOMES.values())
    for verdict in frontends.verdicts:
        counts = ""
        if verdict.graphs is not None:
            counts = f"{counted(verdict.graphs, 'graph')}, {counted(verdict.breaks or 0, 'break')}"
        lines.append(f" {verdict.frontend:<{names}}  {OUTCOMES[verdict.outcome]:<{words}}  {counts}".rstrip())
        for sentence in details(frontends, verdict):
            lines += wrapped("", sentence)
    for sentence in legend(frontends):
        lines += wrapped("", sentence, indent="")
    return "\n".join(map(plain, lines))

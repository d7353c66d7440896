"""Say what to do about a break: our step for its GB id, then PyTorch's hints where they name one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.reasons.steps import steps_for
from jupyter_graphbreak.report.schema import Advice, Reason

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.torch_text.messages import Cause

# How PyTorch's standing hints begin (torch/_dynamo/graph_break_hints.py); they classify a break and name no step.
_STANDING = (
    "Dynamo has detected that tracing the code will result in an error",
    "This is likely to be a Dynamo bug",
    "This graph break may be difficult to debug",
    "This graph break is fundamental",
    "It may be possible to write Dynamo tracing rules",
    "This graph break may have been caused by an earlier graph break",
)

_BY_CONSEQUENCE = {
    "graph break in loop": (
        "or give the loop's body a function of its own: it is then compiled, up to the break and after it, and only "
        "the loop itself runs eagerly; a function of its own for the loop keeps what is around it compiled"
    ),
    "Graph break under GenericContextWrappingVariable": "or move the break out of the with block",
}


def advise(cause: Cause, consequence: Reason | None) -> list[Advice]:
    """Return what to do, the most useful first.

    Parameters
    ----------
    cause : Cause
        Why the graph broke.
    consequence : Reason or None
        Why the frame could not resume.
    """
    steps = [Advice(step, "graphbreak") for step in steps_for(cause)]
    steps += [Advice(hint) for hint in cause.hints if not hint.startswith(_STANDING)]
    if consequence is not None and consequence.gb_type in _BY_CONSEQUENCE:
        steps.append(Advice(_BY_CONSEQUENCE[consequence.gb_type], "graphbreak"))
    return steps

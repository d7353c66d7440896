"""Say what to do about a break: PyTorch's hint where it names a step, ours where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

_BY_TYPE = {
    "Data-dependent branching": (
        "make it branchless with torch.where(condition, a, b), or give both branches to torch.cond"
    ),
    "Tensor.item() with capture_scalar_outputs=False": "keep the value as a tensor; .item() needs it on the host",
    "Unsupported Tensor.item() call with capture_scalar_outputs=False": (
        "keep the value as a tensor; .item() needs it on the host"
    ),
    "Generator reconstruction with mutations": (
        "use the generator up before the break, as with list(...), or have it change nothing outside of it"
    ),
    "Attempt to trace generator": "compile the function that consumes the generator, not the generator",
}
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
    steps: list[Advice] = []
    ours = _BY_TYPE.get(cause.gb_type)
    if ours is not None:
        steps.append(Advice(ours, "graphbreak"))
    steps += [Advice(hint) for hint in cause.hints if not hint.startswith(_STANDING)]
    if consequence is not None and consequence.gb_type in _BY_CONSEQUENCE:
        steps.append(Advice(_BY_CONSEQUENCE[consequence.gb_type], "graphbreak"))
    return steps

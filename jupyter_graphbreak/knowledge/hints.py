"""PyTorch's general hints (torch/_dynamo/graph_break_hints.py), which classify a break but suggest no step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The beginning of PyTorch's hint about code that also fails without ``torch.compile``.
_USER_ERROR_HINT = "Your code may result in an error when running in eager"
#: The beginning, before torch 2.12, of PyTorch's hint about code that also fails without ``torch.compile``.
_FORMER_USER_ERROR_HINT = "Dynamo has detected that tracing the code will result in an error"
_DYNAMO_BUG_HINT = "This is likely to be a Dynamo bug"
_EARLIER_BREAK_HINT = "This graph break may have been caused by an earlier graph break"

#: The hints that ``Break.advice`` leaves out, because they suggest no step.
GENERAL_HINTS = (
    _USER_ERROR_HINT,
    _FORMER_USER_ERROR_HINT,
    _DYNAMO_BUG_HINT,
    "This graph break may be difficult to debug",
    "This graph break is fundamental",
    "It may be possible to write Dynamo tracing rules",
    _EARLIER_BREAK_HINT,
)

_CHECK_EAGERLY_ADVICE = "Check this code without torch.compile: PyTorch expects it to fail there as well."
_MANUAL_STEPS = {
    _DYNAMO_BUG_HINT: "PyTorch considers this its own bug: report it, or rewrite this code.",
    _USER_ERROR_HINT: _CHECK_EAGERLY_ADVICE,
    _FORMER_USER_ERROR_HINT: _CHECK_EAGERLY_ADVICE,
}

#: The settings of torch._dynamo.config that ``fullgraph=True`` implies in Dynamo's ``OutputGraph``.
_IMPLIED_BY_FULLGRAPH = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")
#: The first PyTorch release in which ``fullgraph=True`` implies settings.
_IMPLIED_SINCE_RELEASE = (2, 10)


#: The end of Dynamo's explanation of a break at an operator that rejects its arguments: the operator's own exception.
_OPERATOR_ERROR = re.compile(r""": got \w+\((['"])(?P<message>.*)\1\)\.?\s*$""", re.DOTALL)
#: The beginning of the message of ``view`` for a tensor that is not contiguous.
_CANNOT_VIEW_START = "Cannot view a tensor"


def advice_on_operator_error(explanation: str) -> str | None:
    """Return advice about the operator that rejects its arguments; ``None`` if the explanation mentions none."""
    match = _OPERATOR_ERROR.search(explanation)
    if match is None:
        return None
    message = " ".join(match["message"].replace("\\n", " ").split()).rstrip(".!")
    change = (
        "call reshape instead of view"
        if message.startswith(_CANNOT_VIEW_START)
        else "correct the arguments of this call"
    )
    return f"{change}; most likely it also fails without torch.compile ({message})"


def manual_step_of_hints(hints: Iterable[str]) -> str | None:
    """Return the decision that the hints of a break leave to a person; ``None`` if they leave none."""
    hints = list(hints)
    return next((step for start, step in _MANUAL_STEPS.items() if any(hint.startswith(start) for hint in hints)), None)


def fullgraph_captures_values(torch_version: str | None) -> bool | None:
    """Return whether ``fullgraph=True`` captures numbers and sizes in a PyTorch version; ``None`` if unknown."""
    numbers = re.match(r"(\d+)\.(\d+)", torch_version or "")
    return tuple(map(int, numbers.groups())) >= _IMPLIED_SINCE_RELEASE if numbers is not None else None


def is_captured_by_fullgraph(hints: Iterable[str]) -> bool:
    """Return whether hints suggest a setting that ``fullgraph=True`` implies."""
    return any(f"{setting} = True" in hint for hint in hints for setting in _IMPLIED_BY_FULLGRAPH)


def may_follow_from_earlier_break(hints: Iterable[str]) -> bool:
    """Return whether a break may exist only because an earlier break divided the function."""
    return any(hint.startswith(_EARLIER_BREAK_HINT) for hint in hints)

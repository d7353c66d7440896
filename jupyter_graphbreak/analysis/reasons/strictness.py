"""What a stricter setting makes of a break, by its cause: all that we know of it is here.

``error_on_graph_break(True)`` makes every break an error. ``fullgraph=True`` does more: it also captures scalars and
shapes that depend on data, as the two settings of Dynamo do that the hints of those breaks name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.torch_text.messages import Cause

#: The settings of torch._dynamo.config that ``fullgraph=True`` implies: Dynamo's ``OutputGraph`` reads either.
_IMPLIED = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")
#: The breaks that one of these settings always replaces, for logs whose hints are cut off.
_CAPTURED = frozenset({"GB0036", "GB0124"})
#: How PyTorch's hint begins for a break that may be gone when an earlier one is.
_CONSEQUENCE = "This graph break may have been caused by an earlier graph break"


def is_captured_by_fullgraph(cause: Cause) -> bool:
    """Return whether ``fullgraph=True`` captures what broke, so that only a later use of its value can be an error."""
    if cause.gb_id in _CAPTURED:
        return True
    return any(f"{setting} = True" in hint for hint in cause.hints for setting in _IMPLIED)


def may_follow_from_earlier(cause: Cause) -> bool:
    """Return whether a break may exist only because an earlier one divided the function."""
    return any(hint.startswith(_CONSEQUENCE) for hint in cause.hints)

"""The reason of a graph break, as shown to a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_graphbreak.report.diff import Change
    from jupyter_graphbreak.report.job import JobBreak
    from jupyter_graphbreak.report.schema import Break, Reason


def reason_of(cause: Break | Reason | Change | JobBreak) -> str:
    """Return PyTorch's name of a reason, with its id in the registry: "Data-dependent branching (GB0170)"."""
    return f"{cause.gb_type} ({cause.gb_id})" if cause.gb_id else cause.gb_type

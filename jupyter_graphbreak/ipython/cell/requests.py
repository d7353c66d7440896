"""Read the requests for reports that front ends send in the metadata of the message that runs a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class ExplainRequest(msgspec.Struct, frozen=True):
    """A front end's request for a report.

    Parameters
    ----------
    explain : str
        The options, as in the magic's line.
    only_torch : bool
        Whether to show a report only if the cell uses PyTorch.
    edited : tuple
        The whole texts, before and after, of cells that were edited but not run. They are tried as remedies.
    """

    explain: str
    only_torch: bool = False
    edited: tuple[tuple[str, str], ...] = ()


def read_explain_request(request: Mapping[str, Any] | None) -> ExplainRequest | None:
    """Return the request for a report in an ``execute_request``; ``None`` if it contains no valid one."""
    metadata = (request or {}).get("metadata")
    try:
        return msgspec.convert(metadata["graphbreak"], ExplainRequest) if isinstance(metadata, dict) else None
    except (KeyError, msgspec.ValidationError):
        return None

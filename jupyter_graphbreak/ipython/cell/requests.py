"""What a front end asks for in the metadata of the request that runs a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class Asked(msgspec.Struct, frozen=True):
    """What a front end asks for in the metadata of a request.

    Parameters
    ----------
    explain : str
        The options, as they would stand in the magic's line.
    only_torch : bool
        Run a cell as it is, with no report, if it runs no tensor operation and calls nothing of PyTorch's.
    edited : tuple
        Cells that somebody edited and has not run: the whole text of each before and after. They are tried as remedies.
    """

    explain: str
    only_torch: bool = False
    edited: tuple[tuple[str, str], ...] = ()


def asked_by(request: Mapping[str, Any] | None) -> Asked | None:
    """Return what an ``execute_request`` asks for, ``None`` where it asks for nothing that can be understood."""
    metadata = (request or {}).get("metadata")
    try:
        return msgspec.convert(metadata["graphbreak"], Asked) if isinstance(metadata, dict) else None
    except (KeyError, msgspec.ValidationError):
        return None

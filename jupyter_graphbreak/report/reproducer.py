"""Data about standalone scripts that show a break, a recompile, an error or a wrong result."""

from __future__ import annotations

import msgspec


class Reproducer(msgspec.Struct, frozen=True):
    """A standalone script that reproduces a finding of the run, or the reason why there is none.

    Parameters
    ----------
    id : str
        The finding: the id of a break or of a recompile, ``error``, or ``check`` for a wrong result.
    title : str
        The finding in words.
    script : str or None
        The script, which has run in its own process and shows the finding.
    issue : str or None
        The text for PyTorch's bug report form: the script, its output and the versions.
    reason : str or None
        The reason why there is no script, as a sentence.
    steps : int
        The number of steps in which the script was reduced.
    seconds : float or None
        The time in seconds that it took to write the script.
    """

    id: str
    title: str
    script: str | None = None
    issue: str | None = None
    reason: str | None = None
    steps: int = 0
    seconds: float | None = None

"""What was tried to remove graph breaks, and what came of it: inert data about runs of changed programs."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["edit", "setting", "switch", "person"]
RemedyVerdict = Literal[
    "works", "works on what ran", "works but differs", "break stays", "another break", "another result", "fails",
    "not tried",
]  # fmt: skip
#: The verdicts after which a remedy can be applied.
WORKING: frozenset[RemedyVerdict] = frozenset({"works", "works on what ran", "works but differs"})


class Edit(msgspec.Struct, frozen=True):
    """Whole lines of a source that other lines take the place of.

    Parameters
    ----------
    source : str
        The id of a :class:`~jupyter_graphbreak.report.location.Source`.
    first_line, last_line : int
        The lines that go; ``last_line = first_line - 1`` inserts before ``first_line``.
    old, new : str
        Their text and the one that takes its place, without a line break at the end; an empty ``new`` deletes.
    """

    source: str
    first_line: int
    last_line: int
    old: str
    new: str


class Evidence(msgspec.Struct, frozen=True):
    """What a verdict rests on.

    Parameters
    ----------
    backend : str
        The backend with which the changed program was compiled.
    inputs : int
        On how many inputs it was compared with the original.
    both_sides : bool or None
        Whether both sides of every condition that the change touches ran; ``None`` where it touches none.
    compared : list of str
        What was compared: "values", "gradients", "output", ...
    graphs_before, graphs_after, breaks_before, breaks_after : int
        Of the first call, original and changed.
    """

    backend: str
    inputs: int
    both_sides: bool | None
    compared: list[str]
    graphs_before: int
    graphs_after: int
    breaks_before: int
    breaks_after: int


class Remedy(msgspec.Struct, frozen=True):
    """A change that may remove breaks, and what came of trying it.

    Parameters
    ----------
    breaks, frames : list of str
        The breaks that it is for, and the frames that run eagerly without a break that it is for.
    family : str
        The kind of change: "marker", "branch", "output", ...
    kind : {"edit", "setting", "switch", "person"}
        A change of the source; of PyTorch's settings; of an object of the program's or a library's own setting; or none
        that can be made mechanically.
    settings : dict
        Dotted names in full and their values; a function in them is its dotted name.
    code : str or None
        What sets the settings, what a switch runs before compiling, or what patches functions of files in a kernel.
    patch : str or None
        The edits as a unified diff.
    excludes : list of str
        The remedies that cannot be applied together with it.
    reason : str or None
        Why it fails, was not tried, or which break came instead.
    differences : list of str
        How the changed program differs from the original, one sentence each.
    person : str or None
        What must be decided, where no change can be made mechanically.
    seconds : float
        How long trying took.
    """

    id: str
    breaks: list[str]
    family: str
    title: str
    kind: Kind
    verdict: RemedyVerdict
    frames: list[str] = []
    edits: list[Edit] = []
    settings: dict[str, Any] = {}
    code: str | None = None
    patch: str | None = None
    excludes: list[str] = []
    reason: str | None = None
    differences: list[str] = []
    evidence: Evidence | None = None
    person: str | None = None
    seconds: float = 0.0

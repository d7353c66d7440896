"""Data about the changes that were tried to remove graph breaks, and about their results."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

RemedyKind = Literal["edit", "setting", "switch", "mark", "person"]
RemedyVerdict = Literal[
    "works", "works on what ran", "works but differs", "break stays", "another break", "another result", "fails",
    "not tried",
]  # fmt: skip
#: The verdicts on remedies that work.
WORKING: frozenset[RemedyVerdict] = frozenset({"works", "works on what ran", "works but differs"})

#: The family of the remedies that compile a part of a program instead of the whole program.
INNER_FAMILY = "inner"
#: The family of the remedies that run the end of a compiled function after the call.
ENDING_FAMILY = "ending"

#: The reason why a remedy was not tried if the user interrupted the search.
INTERRUPTED_REASON = "the search was interrupted"
#: The reason why a remedy was not tried if the time for trials was over.
NO_TIME_REASON = "there was no time left for it"
#: The reason why a decision is left to a person if there was no time to try any change.
NOTHING_TRIED_REASON = "there was no time to try a change"

#: The beginning of the reason if a changed program breaks on the same line for a different cause.
OTHER_CAUSE_PREFIX = "for a different cause"


class Edit(msgspec.Struct, frozen=True):
    """The replacement of whole lines of a source.

    Parameters
    ----------
    source : str
        The id of a :class:`~jupyter_graphbreak.report.location.Source`.
    first_line, last_line : int
        The lines to replace; ``last_line = first_line - 1`` inserts before ``first_line``.
    old, new : str
        The old and the new text, without a final line break; an empty ``new`` deletes the lines.
    """

    source: str
    first_line: int
    last_line: int
    old: str
    new: str


class UnseenInputs(msgspec.Struct, frozen=True):
    """Calls with sizes or values that the run never used: their number, and the number of frames compiled for them."""

    inputs: int
    compilations: int


class Evidence(msgspec.Struct, frozen=True):
    """The evidence for a verdict.

    Parameters
    ----------
    backend : str
        The backend that compiled the changed program.
    inputs : int
        The number of inputs on which the changed program was compared with the original.
    both_sides : bool or None
        Whether both branches of every condition that the change touches ran; ``None`` if it touches none.
    compared : list of str
        The aspects that were compared, such as "values", "gradients" and "output".
    graphs_before, graphs_after, breaks_before, breaks_after : int
        The numbers of graphs and of breaks in the first call to the original and to the changed program.
    compilations_before, compilations_after : int or None
        The numbers of frames, including resume functions, that Dynamo compiles in all recorded calls; ``None`` if the
        change is not about recompiles.
    unseen : UnseenInputs or None
        Further calls with sizes or values that the run never used.
    """

    backend: str
    inputs: int
    both_sides: bool | None
    compared: list[str]
    graphs_before: int
    graphs_after: int
    breaks_before: int
    breaks_after: int
    compilations_before: int | None = None
    compilations_after: int | None = None
    unseen: UnseenInputs | None = None


class Remedy(msgspec.Struct, frozen=True):
    """A change that may remove breaks or recompiles, and the result of trying it.

    Parameters
    ----------
    breaks, frames : list of str
        The ids of the breaks that it should remove, and of the frames without a break that it should get compiled.
    family : str
        The kind of change, such as "marker", "branch" or "output".
    kind : {"edit", "setting", "switch", "mark", "person"}
        ``edit``: a change of the source. ``setting``: a change of PyTorch's settings. ``switch``: a change of an
        object's or a library's own setting. ``mark``: code that runs before each call, such as
        ``torch._dynamo.mark_dynamic(x, 0)``. ``person``: a decision that is left to a person.
    settings : dict
        Full dotted names and their values; a function is represented by its dotted name.
    code : str or None
        The code that changes the settings, that a switch runs before compiling, or that a mark runs before each call,
        with the names of the function's parameters. The edits of a mark insert the same code before the call.
    patch : str or None
        The edits as a unified diff.
    excludes : list of str
        The ids of the remedies that cannot be applied together with it.
    reason : str or None
        The reason why it fails or was not tried, or the break that occurs instead; for a remedy that works, the cases
        that were not tested.
    differences : list of str
        The differences between the changed program and the original, one sentence each.
    person : str or None
        The decision to make, if no change can be made automatically.
    seconds : float
        The duration of the trial in seconds.
    recompiles : list of str
        The ids of the recompiles that it should prevent.
    is_right : bool
        Whether these recompiles are as expected, because a few flags or similar values select between programs, each
        with its own graph.
    """

    id: str
    breaks: list[str]
    family: str
    title: str
    kind: RemedyKind
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
    recompiles: list[str] = []
    is_right: bool = False

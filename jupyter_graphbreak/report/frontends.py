"""What PyTorch's front ends make of one function, side by side: inert data, found by running each of them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from jupyter_graphbreak.report.schema import Report

Outcome = Literal["captures", "breaks", "eager", "refuses", "silently wrong", "raises"]


class Raised(msgspec.Struct, frozen=True):
    """An exception: its class, the first line of its message, and what raised it: the captured program, say."""

    type: str
    message: str
    by: Literal["capture", "program", "function"]


class Example(msgspec.Struct, frozen=True):
    """One set of arguments.

    Parameters
    ----------
    what : str
        What it is ("x negated"); empty where it was given.
    values : str
        Its values where they are short.
    raised : Raised or None
        What the function itself raises with it.
    """

    what: str
    values: str
    raised: Raised | None = None


class Verdict(msgspec.Struct, frozen=True):
    """What one front end did with the function.

    Parameters
    ----------
    frontend : str
        As one writes it: "torch.jit.trace", "torch.compile(fullgraph=True)".
    outcome : {"captures", "breaks", "eager", "refuses", "silently wrong", "raises"}
        ``captures``: one program, which gives eager's result on every input tried. ``breaks``: so do several graphs
        with Python between them. ``eager``: right, and nothing was captured. ``refuses``: captured, but raises on
        another input that eager takes. ``silently wrong``: captured, but gives another result than eager without an
        error. ``raises``: there is no program, or one that raises on the very input it was made with.
    graphs, breaks : int or None
        How many with the first input; ``None`` where nothing was captured for an error.
    example : Example or None
        The input that shows that it is wrong, or that it refuses.
    difference : str or None
        How its result on that input differs from eager's.
    raised : Raised or None
        The exception, where there is one.
    warnings : list of str
        First lines of what it warned of, deprecations aside.
    deprecated : bool
        Whether this release of PyTorch warns that the front end is deprecated.
    notes : list of str
        Side effects that it drops, and what limits the comparison.
    """

    frontend: str
    outcome: Outcome
    graphs: int | None = None
    breaks: int | None = None
    example: Example | None = None
    difference: str | None = None
    raised: Raised | None = None
    warnings: list[str] = []
    deprecated: bool = False
    notes: list[str] = []


class Frontends(msgspec.Struct, frozen=True):
    """The verdicts of PyTorch's front ends on one function.

    Parameters
    ----------
    function : str
        Its name.
    torch : str
        The version of PyTorch.
    example : Example
        What each front end was given.
    others : list of Example
        The inputs that each captured program was run with besides, to tell it from eager.
    searched : bool
        Whether the other inputs were derived from the first, rather than given.
    verdicts : list of Verdict
        One for each front end.
    advice : str or None
        What to do about the first graph break.
    changes : list of str
        Names of what a call of the function changes. Where there are some, each other input is run after the first.
    report : Report or None
        What ``torch.compile`` did with the first input, in full.
    """

    function: str
    torch: str
    example: Example
    others: list[Example]
    searched: bool
    verdicts: list[Verdict]
    advice: str | None = None
    changes: list[str] = []
    report: Report | None = None

    def __getitem__(self, frontend: str) -> Verdict:
        """Return the verdict of a front end by its name, such as "torch.jit.trace"."""
        for verdict in self.verdicts:
            if verdict.frontend == frontend:
                return verdict
        raise KeyError(frontend)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts, lists, strings and numbers."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

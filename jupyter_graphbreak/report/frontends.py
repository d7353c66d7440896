"""What PyTorch's front ends capture of one function, side by side: inert data about runs of each of them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from jupyter_graphbreak.report.schema import Diagnostic, Effect, Report

Outcome = Literal["captures", "breaks", "eager", "refuses", "silently wrong", "raises"]


class Raised(msgspec.Struct, frozen=True):
    """An exception: its class, the first line of its message, and what raised it."""

    type: str
    message: str
    by: Literal["capture", "program", "function"]


class Example(msgspec.Struct, frozen=True):
    """One set of arguments.

    Parameters
    ----------
    what : str
        How it was derived ("x negated"); empty where it was given.
    values : str
        Its values, where they are short.
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
        Its name as in code: "torch.jit.trace", "torch.compile(fullgraph=True)".
    outcome : {"captures", "breaks", "eager", "refuses", "silently wrong", "raises"}
        ``captures``: one program, which gives the function's own result on every input that was tried. ``breaks``:
        several graphs with Python between them give it. ``eager``: the result is right, but nothing was captured.
        ``refuses``: the program raises on another input that the function takes. ``silently wrong``: the program gives
        another result than the function, without an error. ``raises``: there is no program, or it raises on the very
        input with which it was captured.
    graphs, breaks : int or None
        How many there are with the first input; ``None`` where an error prevented the capture.
    example : Example or None
        The input that shows that the program is wrong, or that it refuses.
    difference : str or None
        How the program's result on that input differs from the function's own.
    raised : Raised or None
        The exception, where there is one.
    warnings : list of str
        The first sentences of its warnings, without deprecations.
    deprecated : bool
        Whether this release of PyTorch warns that the front end is deprecated.
    notes : list of str
        Side effects that the program drops, and what limits the comparison.
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
        The input with which each front end captured the function.
    others : list of Example
        The further inputs with which each captured program was compared with the function.
    searched : bool
        Whether the other inputs were derived from the first, rather than given.
    verdicts : list of Verdict
        One for each front end.
    advice : str or None
        What to do about the first graph break.
    changes : list of str
        The names of what a call of the function changes. If there are any, each other input is run after the first.
    report : Report or None
        The full report of ``torch.compile`` on the first input.
    effects : list of Effect or None
        What the function does outside of the objects that can be copied. It was stopped before that, and there are no
        verdicts; the places are of the sources of ``report``.
    left_out : list of str
        The names of the front ends for which there was no time.
    diagnostics : list of Diagnostic
        What we could not find out: a front end has no verdict if examining it ends in an internal error.
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
    effects: list[Effect] | None = None
    left_out: list[str] = []
    diagnostics: list[Diagnostic] = []

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

"""Data about the programs that PyTorch's front ends capture from one function."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from jupyter_graphbreak.report.schema import Diagnostic, Effect, Report

Outcome = Literal["captures", "breaks", "eager", "refuses", "silently wrong", "raises"]


class Raised(msgspec.Struct, frozen=True):
    """An exception: its class, the first line of its message, and the part that raised it."""

    type: str
    message: str
    by: Literal["capture", "program", "function"]


class Example(msgspec.Struct, frozen=True):
    """One set of arguments.

    Parameters
    ----------
    what : str
        The way in which the arguments were derived ("x negated"), or "the first input"; empty for further arguments
        that the user passed.
    values : str
        The parameters with their values, shortened if they are long.
    raised : Raised or None
        The exception that the function itself raises with these arguments, if any.
    """

    what: str
    values: str
    raised: Raised | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The verdict on one front end.

    Parameters
    ----------
    frontend : str
        The name of the front end in code: "torch.jit.trace", "torch.compile(fullgraph=True)".
    outcome : {"captures", "breaks", "eager", "refuses", "silently wrong", "raises"}
        ``captures``: one program, whose result is right on every tested input. ``breaks``: the result is right, with
        several graphs and Python code between them. ``eager``: the result is right, but nothing was captured.
        ``refuses``: the program raises on a further input that the function accepts. ``silently wrong``: the program
        returns a different result than the function, without an error. ``raises``: nothing was captured because of an
        exception, or the program raises on the input that it was captured with.
    graphs, breaks : int or None
        The number of graphs and breaks with the first input; ``None`` if the outcome is ``raises``.
    example : Example or None
        The input that shows that the program is wrong, or that it refuses.
    difference : str or None
        The difference between the program's result and the function's own on that input.
    raised : Raised or None
        The exception that was raised, if any.
    warnings : list of str
        The first sentences of the front end's warnings, without those about deprecation.
    deprecated : bool
        Whether this release of PyTorch warns that the front end is deprecated.
    notes : list of str
        The side effects that the program lacks, and the limits of the comparison.
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
        The name of the function.
    torch : str
        The version of PyTorch.
    example : Example
        The input that each front end used to capture the function.
    others : list of Example
        The further inputs used to compare each captured program with the function.
    searched : bool
        Whether the further inputs were derived from the first one; if not, the user passed them.
    verdicts : list of Verdict
        One verdict per front end.
    advice : str or None
        Advice about the first graph break.
    changes : list of str
        The names of the objects that a call to the function changes. If there are any, each call with a further input
        follows calls with the first one.
    report : Report or None
        The full report of ``torch.compile`` on the first input.
    effects : list of Effect or None
        The effects that the function would have on things that cannot be copied. It was stopped before them, so there
        are no verdicts. Their locations refer to the sources of ``report``.
    left_out : list of str
        The names of the front ends for which there was no time.
    diagnostics : list of Diagnostic
        Notes about internal errors. A front end for which such an error occurred has no verdict.
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

"""Run PyTorch's front ends on one function and compare what they capture with the function itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import compiled_callable
from jupyter_graphbreak._torch_compat.version import require_torch
from jupyter_graphbreak.frontends.captures import captures
from jupyter_graphbreak.frontends.eager import Eager
from jupyter_graphbreak.frontends.examination import Examination
from jupyter_graphbreak.report.frontends import Frontends
from jupyter_graphbreak.trial.inputs import Input, describe
from jupyter_graphbreak.trial.outcome import untouched
from jupyter_graphbreak.trial.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jupyter_graphbreak.recording.source_texts import FindCell
    from jupyter_graphbreak.trial.inputs import Arguments


def compare(
    fn: Callable[..., Any],
    first: Arguments,
    others: Sequence[Arguments] = (),
    *,
    backend: str = "eager",
    find_cell: FindCell = lambda _: None,
) -> Frontends:
    """Compare the front ends on a function.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; a compiled one stands for the one that was compiled.
    first : Arguments
        What each front end captures the function with.
    others : sequence of Arguments
        What each captured program is run with besides; inputs are derived from the first where there are none.
    backend : str
        The backend of ``torch.compile``.
    find_cell : callable
        Given the file name of a code object, the cell it comes from; for the report.

    Raises
    ------
    Exception
        Whatever the function itself raises on the first input.
    """
    version = require_torch()
    fn = _uncompiled(fn)
    first = first.bound(fn)
    given = [each.bound(fn) for each in others]
    with untouched():
        eager = Eager(fn, Input(first, describe("the first input", first, fn)))
        trials = eager.trials(given)
        examined = [Examination(name, capture, eager, trials, find_cell) for name, capture in captures(backend)]
    report = next((each.report for each in examined if each.name == "torch.compile"), None)
    advice = [each.advice[0].text for each in report.breaks if each.advice] if report is not None else []
    return Frontends(
        function=_name(fn),
        torch=version,
        example=eager.first.example,
        others=[each.example() for each in trials],
        searched=not given,
        changes=sorted(eager.changed),
        verdicts=[each.verdict(searched=not given) for each in examined],
        advice=advice[0] if advice else None,
        report=report,
    )


def as_it_is(fn: Callable[..., Any]) -> Subject:
    """Return a copy of a function with what it depends on, to compare the front ends on it after it has run."""
    return Subject(_uncompiled(fn))


def _uncompiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    inner = compiled_callable(fn)
    return fn if inner is None else inner


def _name(fn: Any) -> str:
    fn = getattr(fn, "func", fn)  # of a partial
    name = getattr(fn, "__qualname__" if hasattr(fn, "__code__") else "__name__", type(fn).__name__)
    return str(name).rpartition("<locals>.")[2]

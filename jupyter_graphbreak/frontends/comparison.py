"""Run PyTorch's front ends on one function and compare what they capture with the function itself."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import compiled_callable
from jupyter_graphbreak._torch_compat.version import require_torch
from jupyter_graphbreak.faults import internal_error, noted
from jupyter_graphbreak.frontends.captures import captures
from jupyter_graphbreak.frontends.examination import Examination
from jupyter_graphbreak.report.frontends import Example, Frontends, Verdict
from jupyter_graphbreak.report.schema import Diagnostic
from jupyter_graphbreak.trial.inputs import Input, describe
from jupyter_graphbreak.trial.outcome import untouched
from jupyter_graphbreak.trial.reference import Reference
from jupyter_graphbreak.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.trial.subject import Subject
from jupyter_graphbreak.trial.time_limit import TimeUpError, require_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jupyter_graphbreak.recording.source_texts import FindCell
    from jupyter_graphbreak.report.frontends import Verdict
    from jupyter_graphbreak.report.schema import Report
    from jupyter_graphbreak.trial.inputs import Arguments
    from jupyter_graphbreak.trial.reference import Trial


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
        The arguments with which each front end captures the function.
    others : sequence of Arguments
        Further arguments that each captured program is run with; without any, inputs are derived from the first.
    backend : str
        The backend of ``torch.compile``.
    find_cell : callable
        Returns the cell that a code object comes from, given its file name; for the report.

    Raises
    ------
    TrialStoppedError
        If the function does something outside of its copies; nothing of that has happened.
    Exception
        Whatever the function itself raises on the first input.
    """
    version = require_torch()
    fn = _uncompiled(fn)
    first = first.bound(fn)
    given = [arguments.bound(fn) for arguments in others]
    example = describe("the first input", first, fn)
    changes: list[str] = []
    trials: list[Trial] = []
    verdicts: list[Verdict] = []
    report: Report | None = None
    diagnostics: list[Diagnostic] = []

    def note(what: str, fault: Exception) -> None:
        diagnostics.append(Diagnostic("error", internal_error(what, fault)))

    left = [name for name, _ in captures(backend)]
    with untouched(), contextlib.suppress(TimeUpError):
        eager = Reference(fn, Input(first, example))
        changes = sorted(eager.changed)
        trials = eager.trials(given)
        for name, capture in captures(backend):
            require_time()
            with noted(f"examining {name}", note, passing=(TrialStoppedError,)):
                examination = Examination(name, capture, eager, trials, find_cell)
                verdicts.append(examination.verdict(searched=not given))
                if name == "torch.compile":
                    report = examination.report
                del examination  # and with it the copy of the function, the program and what it returned
            left.remove(name)
            eager.subject.memory.release()
    advice = [b.advice[0].text for b in report.breaks if b.advice] if report is not None else []
    return Frontends(
        function=_name(fn),
        torch=version,
        example=example,
        others=[trial.example() for trial in trials],
        searched=not given,
        changes=changes,
        verdicts=verdicts,
        advice=advice[0] if advice else None,
        report=report,
        left_out=left,
        diagnostics=diagnostics,
    )


def without_verdicts(fn: Callable[..., Any], first: Arguments, report: Report) -> Frontends:
    """Return the comparison of a function on which no front end was judged.

    Parameters
    ----------
    fn : callable
    first : Arguments
    report : Report
        Its diagnostics say why. If the function was stopped before it did something outside of its copies, the report
        is that of what ``torch.compile`` did until then, and its effects name what the function was about to do.
    """
    return Frontends(
        function=_name(fn),
        torch=require_torch(),
        example=describe("the first input", first, fn),
        others=[],
        searched=False,
        verdicts=[],
        report=report,
        effects=report.effects,
    )


def after_fault(fn: Callable[..., Any], fault: Exception) -> Frontends:
    """Return a comparison without verdicts, which says that an internal error ended it."""
    note = Diagnostic("error", internal_error("comparing the front ends", fault))
    name = str(getattr(fn, "__name__", type(fn).__name__))
    return Frontends(name, require_torch(), Example("", ""), [], searched=False, verdicts=[], diagnostics=[note])


def as_it_is(fn: Callable[..., Any]) -> Subject:
    """Copy a function and what it depends on, so that the front ends can be compared on it after it has run."""
    return Subject(_uncompiled(fn))


def _uncompiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    inner = compiled_callable(fn)
    return fn if inner is None else inner


def _name(fn: Any) -> str:
    fn = getattr(fn, "func", fn)  # of a partial
    name = getattr(fn, "__qualname__" if hasattr(fn, "__code__") else "__name__", type(fn).__name__)
    return str(name).rpartition("<locals>.")[2]

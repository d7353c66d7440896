"""Further questions to one call of a function: what would mend it, what it costs, whether it is right."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.version import require_torch
from jupyter_graphbreak.faults import internal_error
from jupyter_graphbreak.report import schema
from jupyter_graphbreak.report.schema import Diagnostic
from jupyter_graphbreak.results import Frontends, Report
from jupyter_graphbreak.trial.time_limit import TimeUpError, time_limited

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from types import CodeType

    from jupyter_graphbreak.recording.source_texts import FindCell
    from jupyter_graphbreak.trial.inputs import Arguments

#: Seconds that measuring, checking or comparing front ends takes at most.
_PATIENCE_S = 120.0
#: The share of them after which measuring makes do with few calls.
_SHARE_OF_CALLS = 0.5
#: Where Python copies objects.
_COPYING = copy.__file__
#: What raises the error of the function itself again, which for a function of PyTorch's ends there.
_RAISES_AGAIN = "Reference.__init__"


def try_remedies(
    fn: Callable[..., Any],
    *args: Any,
    also: Sequence[Callable[..., Any] | str | os.PathLike[str]] = (),
    seconds: float | None = None,
    **kwargs: Any,
) -> Report:
    """Compile a function on copies, and try to remove each graph break that it has.

    The function runs on copies: arguments, globals, random state, output and settings are as before. A function that
    would write to a file, open a connection, start a process or do anything else that no copy keeps to itself is
    stopped before it does; ``report.effects`` says what that is and where, and no change is tried. Otherwise each
    change is compiled with the function's backend and compared with the function itself, on the given arguments and on
    others that are derived from them; ``report.remedies`` has what was tried, with the verdicts.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; a compiled one keeps its backend, another has ``eager``.
    *args, **kwargs
        What to call it with.
    also : sequence of callable or path
        What you, or an assistant, wrote: functions in place of this one, or files with patches of its source, unified
        diffs. Each is judged in the same way, before anything else is tried; its family is ``own``.
    seconds : float or None
        When to stop; by default after 100 seconds.

    Returns
    -------
    Report

    Raises
    ------
    OSError
        If a patch cannot be read.
    ValueError
        If it is none, or changes nothing that the call compiles.
    Exception
        Whatever the function itself raises with these arguments.

    Examples
    --------
    >>> for remedy in jupyter_graphbreak.try_remedies(step, x).remedies:  # doctest: +SKIP
    ...     print(remedy.title, remedy.verdict)
    """
    require_torch()
    from jupyter_graphbreak.remedies.finding import remedies_of_call
    from jupyter_graphbreak.remedies.program.own_edits import read_patch
    from jupyter_graphbreak.trial.side_effects import TrialStoppedError

    own = [rewrite if callable(rewrite) else read_patch(rewrite) for rewrite in also]

    def tried() -> schema.Report:
        try:
            return remedies_of_call(fn, args, kwargs, also=own, seconds=seconds).report
        except TrialStoppedError as stopped:
            from jupyter_graphbreak.api.stopped import report_until_stopped
            from jupyter_graphbreak.cost.entry_cost import entry_of
            from jupyter_graphbreak.remedies.remedy_list import with_remedies

            report, files = report_until_stopped(entry_of(fn, *args, **kwargs), stopped.effect)
            reason = f"the function was not run: it {stopped.effect.what}"
            return with_remedies(report, files, [], [reason])[0]

    return _without_faults("trying changes", tried, remedies=[])


def measure(fn: Callable[..., Any], *args: Any, seconds: float | None = None, **kwargs: Any) -> Report:
    """Measure what compiling a function costs and yields, and where the time of the compiled call goes.

    The function is called some hundred times on copies of itself, of what it uses and of the arguments: as it is and
    compiled, in turn, once nothing is compiled any more. Nothing of yours changes: a function that would write to a
    file, open a connection, start a process or do anything else that no copy keeps to itself is stopped before it does,
    and ``report.effects`` says what that is. A function that is not compiled yet
    is compiled with the backend ``inductor``, as ``torch.compile`` does; one that is, with its own.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; compiled or not.
    *args, **kwargs
        What to call it with.
    seconds : float or None
        When to stop; by default after 120 seconds. The closer the end, the fewer calls are timed.

    Returns
    -------
    Report
        Of the compilation, with :attr:`~Report.cost`.

    Raises
    ------
    Exception
        Whatever the call itself raises.

    Examples
    --------
    >>> measured = jupyter_graphbreak.measure(step, batch)  # doctest: +SKIP
    >>> measured.cost.entries[0].compiled.median_us  # doctest: +SKIP
    4207.0
    """
    from jupyter_graphbreak.analysis.finished.priority import with_priorities
    from jupyter_graphbreak.cost.entry_cost import backend_name, device_of, entry_of, measure_entry
    from jupyter_graphbreak.report.cost import Cost
    from jupyter_graphbreak.trial.side_effects import TrialStoppedError

    begun = time.monotonic()

    def measured() -> schema.Report:
        entry = entry_of(fn, *args, **kwargs)
        refused = entry.why_not_run()
        if refused is not None:
            return _empty_report(Diagnostic("warning", refused))
        limit = _PATIENCE_S if seconds is None else seconds
        try:
            with time_limited(begun + limit):
                found = measure_entry(entry, end=begun + _SHARE_OF_CALLS * limit)
        except TrialStoppedError as stopped:
            from jupyter_graphbreak.api.stopped import report_until_stopped

            report = report_until_stopped(entry, stopped.effect)[0]
            return msgspec.structs.replace(report, cost=Cost(device_of(entry), backend_name(entry.backend), []))
        cost = Cost(device_of(entry), backend_name(entry.backend), [found.cost])
        return with_priorities(msgspec.structs.replace(found.report, cost=cost))

    return _without_faults("measuring", measured)


def check(fn: Callable[..., Any], *args: Any, seconds: float | None = None, **kwargs: Any) -> Report:
    """Check that a compiled function computes what the function itself does: values and gradients.

    Both are called on copies, with the same random numbers. Where they differ by more than rounding does, which a run
    in double precision tells, the report names the first graph and operation that does, and the step of compiling that
    brings the difference in. A function that would do something that no copy keeps to itself, such as writing to a
    file, is stopped before it does; ``report.effects`` says what that is, and nothing is compared.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; compiled or not. One that is not is compiled with the backend ``inductor``.
    *args, **kwargs
        What to call it with.
    seconds : float or None
        When to stop; by default after 120 seconds.

    Returns
    -------
    Report
        Of the compilation, with :attr:`~Report.check`.

    Examples
    --------
    >>> jupyter_graphbreak.check(step, batch).check[0].equal  # doctest: +SKIP
    True
    """
    from jupyter_graphbreak.cost.correctness.checking import check_entry
    from jupyter_graphbreak.cost.entry_cost import entry_of
    from jupyter_graphbreak.trial.side_effects import TrialStoppedError

    end = time.monotonic() + (_PATIENCE_S if seconds is None else seconds)

    def checked() -> schema.Report:
        entry = entry_of(fn, *args, **kwargs)
        refused = entry.why_not_run()
        if refused is not None:
            return _empty_report(Diagnostic("warning", refused))
        try:
            with time_limited(end):
                found = check_entry(entry)
        except TrialStoppedError as stopped:
            from jupyter_graphbreak.api.stopped import report_until_stopped

            return msgspec.structs.replace(report_until_stopped(entry, stopped.effect)[0], check=[])
        return msgspec.structs.replace(found.report, check=[found.check])

    return _without_faults("checking", checked)


def _without_faults(what: str, answer: Callable[[], schema.Report], **empty: Any) -> Report:
    """Return the answer to a question; if we fail, a report that says so. An error of the user's code is raised."""
    require_torch()
    try:
        return Report.of(answer())
    except TimeUpError:
        return Report.of(_empty_report(Diagnostic("warning", f"{what.capitalize()} took too long and was ended.")))
    except Exception as fault:
        if not _is_ours(fault):
            raise
        note = internal_error(what, fault)
        return Report.of(msgspec.structs.replace(_empty_report(Diagnostic("error", note)), **empty))


def _empty_report(note: Diagnostic) -> schema.Report:
    """Return a report of a call that was not made."""
    device = schema.Device("auto", default_device_name())
    return schema.Report("ok", device, diagnostics=[note])


def _is_ours(fault: Exception) -> bool:
    """Whether an exception was raised in our code, or in what it called of Python's, rather than in the user's."""
    code: CodeType | None = None
    last = fault.__traceback__
    while last is not None:
        code, last = last.tb_frame.f_code, last.tb_next
    if code is None or isinstance(fault, OSError | ValueError) or code.co_qualname == _RAISES_AGAIN:
        return False  # a usage error is raised here on purpose
    return code.co_filename.startswith((str(Path(__file__).parents[1]), _COPYING))


def compare_frontends(
    fn: Callable[..., Any], *args: Any, also: Sequence[Any] = (), seconds: float | None = None, **kwargs: Any
) -> Frontends:
    """Capture a function with each of PyTorch's front ends, and find out which result is right.

    Each verdict is found by running: the function is captured with the given arguments, the captured program is called
    with these and with other inputs, and what it returns and does to its arguments is compared with what the function
    itself does. Functions, modules and arguments are copied for each run; random numbers are drawn from the same seed.
    A function that would do something that no copy keeps to itself, such as writing to a file, is stopped before it
    does; ``effects`` says what that is, and there are no verdicts.

    Parameters
    ----------
    fn : callable
        A function, a method or a module. It is called some dozens of times.
    *args, **kwargs
        What to capture it with.
    also : sequence
        Other inputs to run the captured programs with, those on which they may be wrong. Each is a tuple of positional
        arguments (keyword arguments stay those of the first), one argument, or
        :class:`~jupyter_graphbreak.Arguments`. Without them inputs are derived from the first: other values, Python
        numbers and flags, sizes.
    seconds : float or None
        When to stop; by default after 120 seconds. ``left_out`` names the front ends for which there was no time.

    Returns
    -------
    Frontends

    Raises
    ------
    Exception
        Whatever the function itself raises with these arguments.

    Examples
    --------
    >>> found = jupyter_graphbreak.compare_frontends(f, x, also=[-x])  # doctest: +SKIP
    >>> found["torch.jit.trace"].outcome  # doctest: +SKIP
    'silently wrong'
    """
    from jupyter_graphbreak.trial.inputs import Arguments

    def arguments(given: Any) -> Arguments:
        if isinstance(given, Arguments):
            return given
        return Arguments(*given, **kwargs) if type(given) is tuple else Arguments(given, **kwargs)

    return compare(fn, Arguments(*args, **kwargs), [arguments(given) for given in also], seconds=seconds)


def compare(
    fn: Callable[..., Any],
    first: Arguments,
    others: Sequence[Arguments] = (),
    *,
    backend: str = "eager",
    find_cell: FindCell = lambda _: None,
    seconds: float | None = None,
) -> Frontends:
    """Compare the front ends as :func:`compare_frontends` does.

    Parameters
    ----------
    fn : callable
    first, others : Arguments
        What to capture it with, and other inputs.
    backend : str
        The backend of ``torch.compile``.
    find_cell : callable
        Given the file name of a code object, the cell it comes from; for the report.
    seconds : float or None
        When to stop; by default after 120 seconds.
    """
    require_torch()
    from jupyter_graphbreak.cost.entry_cost import entry_of
    from jupyter_graphbreak.frontends import comparison
    from jupyter_graphbreak.trial.side_effects import TrialStoppedError

    entry = entry_of(fn, *first.args, **first.kwargs)
    end = time.monotonic() + (_PATIENCE_S if seconds is None else seconds)
    try:
        with entry.set_up(), time_limited(end):
            refused = entry.why_not_run()
            if refused is not None:
                report = _empty_report(Diagnostic("warning", refused))
                return Frontends.of(comparison.without_verdicts(entry.call, first, report))
            try:
                return Frontends.of(comparison.compare(fn, first, others, backend=backend, find_cell=find_cell))
            except TrialStoppedError as stopped:
                from jupyter_graphbreak.api.stopped import report_until_stopped

                report = report_until_stopped(entry, stopped.effect, find_cell)[0]
                return Frontends.of(comparison.without_verdicts(entry.call, first, report))
    except Exception as fault:
        if not _is_ours(fault):
            raise
        return Frontends.of(comparison.after_fault(fn, fault))

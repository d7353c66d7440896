"""Analyse one call of a function: try remedies, measure, check its results, look at values, compare front ends."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.toolchain import require_torch
from jupyter_graphbreak.experiments.trial.internal_errors import is_internal
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time
from jupyter_graphbreak.faults import internal_error_sentence, redirect_faults
from jupyter_graphbreak.recording.recorder import cell_of_shell
from jupyter_graphbreak.report import schema
from jupyter_graphbreak.report.schema import Diagnostic
from jupyter_graphbreak.results import Frontends, Report

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from jupyter_graphbreak.experiments.frontends import ComparisonCopies
    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.experiments.trial.guard import RunEffects
    from jupyter_graphbreak.experiments.trial.side_effects import ObservedEffect
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.cost import EntryCost

#: The time limit, in seconds, of all analyses except trying remedies.
_TIME_LIMIT_S = 120.0
#: The share of the time limit after which only a few calls are timed.
_FULL_TIMING_SHARE = 0.5


def try_remedies(
    fn: Callable[..., Any],
    *args: Any,
    also: Sequence[Callable[..., Any] | str | os.PathLike[str]] = (),
    seconds: float | None = None,
    **kwargs: Any,
) -> Report:
    """Compile a function on copies, and try changes that may remove its graph breaks.

    The function runs on copies, so your arguments, globals, random state, output and settings stay untouched. If the
    function would do something that a copy cannot contain, such as writing to a file, opening a connection or starting
    a process, it is stopped before that: ``report.effects`` lists the effect and its location, and no change is tried.
    Otherwise each change is compiled with the function's backend and compared with the original function, on the given
    arguments and on arguments derived from them. ``report.remedies`` lists the changes with their verdicts.

    A single call cannot show what makes PyTorch recompile a function. To try fixes for recompiles, make several
    calls within :func:`jupyter_graphbreak.capture`, as in the second example.

    Parameters
    ----------
    fn : callable
        A function, a method or a module. A compiled one keeps its backend; otherwise the backend is ``eager``.
    *args, **kwargs
        The arguments of the call.
    also : sequence of callable or path
        Your own changes: functions to use instead of ``fn``, or files with unified diffs of its source. They are judged
        in the same way, before all other changes; their family is ``own``.
    seconds : float or None
        The time limit; by default 100 seconds.

    Returns
    -------
    Report
        The report of the compilation, with ``remedies``.

    Raises
    ------
    OSError
        If a patch cannot be read.
    ValueError
        If a file is not a patch, or changes nothing that the call compiles.
    Exception
        Any exception that the function itself raises with these arguments.

    Examples
    --------
    >>> for remedy in jupyter_graphbreak.try_remedies(step, x).remedies:  # doctest: +SKIP
    ...     print(remedy.title, remedy.verdict)

    >>> compiled = torch.compile(step)  # doctest: +SKIP
    >>> with jupyter_graphbreak.capture(entries=True) as run:  # doctest: +SKIP
    ...     for length in (4, 6, 9):
    ...         compiled(torch.ones(length, 8))
    >>> report = run.try_remedies()  # doctest: +SKIP
    """
    require_torch()
    from jupyter_graphbreak.experiments.remedies.finding import find_remedies_of_call
    from jupyter_graphbreak.experiments.remedies.own_edits import read_patch
    from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError

    own_changes = [change if callable(change) else read_patch(change) for change in also]

    def try_all() -> schema.Report:
        try:
            return find_remedies_of_call(fn, args, kwargs, own_changes=own_changes, seconds=seconds).report
        except TrialStoppedError as stopped:
            from jupyter_graphbreak.experiments.cost.entry_cost import entry_of
            from jupyter_graphbreak.experiments.remedies.remedy_list import with_remedies

            report, files = _report_until_stopped(entry_of(fn, *args, **kwargs), stopped.effect)
            reason = f"the function was not run: it {stopped.effect.description}"
            return with_remedies(report, files, [], [reason])[0]

    return _run_analysis("trying changes", try_all, remedies=[])


def measure(fn: Callable[..., Any], *args: Any, seconds: float | None = None, **kwargs: Any) -> Report:
    """Measure what compiling a function costs and saves, and how a compiled call spends its time.

    The function is called up to a few hundred times on copies of itself, of the objects it uses and of the arguments,
    alternating between eager and compiled, after a warm-up. Your objects stay untouched. If the function would do
    something that a copy cannot contain, such as writing to a file, opening a connection or starting a process, it is
    stopped before that, and ``report.effects`` lists the effect.

    Parameters
    ----------
    fn : callable
        A function, a method or a module. A compiled one keeps its backend; otherwise the backend is ``inductor``, the
        default of ``torch.compile``.
    *args, **kwargs
        The arguments of the call.
    seconds : float or None
        The time limit; by default 120 seconds. The less time is left, the fewer calls are timed.

    Returns
    -------
    Report
        The report of the compilation, with :attr:`~Report.cost`. Times are in microseconds.

    Raises
    ------
    Exception
        Any exception that the call itself raises.

    Examples
    --------
    >>> measured = jupyter_graphbreak.measure(step, batch)  # doctest: +SKIP
    >>> measured.cost.entries[0].compiled.median_us  # doctest: +SKIP
    4207.0
    """
    require_torch()
    from jupyter_graphbreak.analysis.priority import prioritize_breaks
    from jupyter_graphbreak.experiments.cost.entry_cost import device_of, measure_entry
    from jupyter_graphbreak.experiments.trial.entry import backend_name
    from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
    from jupyter_graphbreak.report.cost import Cost

    start, limit = time.monotonic(), _TIME_LIMIT_S if seconds is None else seconds

    def measure_call(entry: Entry) -> schema.Report:
        try:
            with limit_time(start + limit):
                cost, report, _ = measure_entry(entry, deadline=start + _FULL_TIMING_SHARE * limit)
        except Exception as error:
            if isinstance(error, TrialStoppedError) or is_internal(error) or _call_raises(entry):
                raise
            note = f"Measuring was stopped: a repeated call raised {type(error).__name__}: {error}."
            return _empty_report(Diagnostic("warning", note))
        return prioritize_breaks(msgspec.structs.replace(report, cost=cost_of(entry, [cost])))

    def cost_of(entry: Entry, costs: list[EntryCost]) -> Cost:
        return Cost(device_of(entry), backend_name(entry.backend), costs)

    return _analyse_call("measuring", fn, args, kwargs, measure_call, lambda entry: {"cost": cost_of(entry, [])})


def check(fn: Callable[..., Any], *args: Any, seconds: float | None = None, **kwargs: Any) -> Report:
    """Check that a compiled function computes the same values and gradients as the eager function.

    Both are called on copies, with the same random numbers. A run in double precision shows how large a difference
    rounding explains. If the results differ by more, the report gives the first operation with a different result, its
    graph, and the compilation step that introduces the difference. If the function would do something that a copy
    cannot contain, such as writing to a file, it is stopped before that: ``report.effects`` lists the effect, and
    nothing is compared. If both raise the same exception, ``report.check`` is empty.

    Parameters
    ----------
    fn : callable
        A function, a method or a module. A compiled one keeps its backend; otherwise the backend is ``inductor``.
    *args, **kwargs
        The arguments of the call.
    seconds : float or None
        The time limit; by default 120 seconds.

    Returns
    -------
    Report
        The report of the compilation, with :attr:`~Report.check`.

    Raises
    ------
    Exception
        Any exception that copying the arguments raises.

    Examples
    --------
    >>> jupyter_graphbreak.check(step, batch).check[0].equal  # doctest: +SKIP
    True
    """
    require_torch()
    from jupyter_graphbreak.experiments.check.checking import check_entry

    deadline = time.monotonic() + (_TIME_LIMIT_S if seconds is None else seconds)

    def check_call(entry: Entry) -> schema.Report:
        with limit_time(deadline):
            result = check_entry(entry)
        return msgspec.structs.replace(result.report, check=[result.check] if result.error_name is None else [])

    return _analyse_call("checking", fn, args, kwargs, check_call, lambda _: {"check": []})


def values(
    fn: Callable[..., Any], *args: Any, at: Sequence[str] = (), seconds: float | None = None, **kwargs: Any
) -> Report:
    """Look at the values inside a compiled function, and find where NaN and Inf arise, forward and backward.

    The function runs on copies. The operations of its graphs run one by one, instead of the code that the backend
    generates from them, so looking at the values adds no break. The eager function and the backend's code also run:
    the report says which of them computes NaN or Inf. The backward pass begins at the results of the call. If the
    function would do something that a copy cannot contain, such as writing to a file, it is stopped before that:
    ``report.effects`` lists the effect, and there are no values.

    Parameters
    ----------
    fn : callable
        A function, a method or a module. A compiled one keeps its backend; otherwise the backend is ``inductor``.
    *args, **kwargs
        The arguments of the call.
    at : sequence of str
        Lines whose operations are listed one by one, such as ``"12"`` or ``"model.py:12"``. By default there is one
        entry for each line, with the result of its last operation.
    seconds : float or None
        The time limit; by default 120 seconds.

    Returns
    -------
    Report
        The report of the compilation, with :attr:`~Report.values`.

    Raises
    ------
    ValueError
        If an item of ``at`` is not a line.
    Exception
        Any exception that copying the arguments raises.

    Examples
    --------
    >>> (entry,) = jupyter_graphbreak.values(step, batch).values  # doctest: +SKIP
    >>> entry.first[0].kind, entry.first[0].location.line  # doctest: +SKIP
    ('nan', 12)
    """
    require_torch()
    from jupyter_graphbreak.experiments.values.finding import values_of_entry
    from jupyter_graphbreak.experiments.values.requested_lines import parse_lines, sentences_about_missing_lines

    deadline = time.monotonic() + (_TIME_LIMIT_S if seconds is None else seconds)
    lines = parse_lines(at)

    def record_values(entry: Entry) -> schema.Report:
        with limit_time(deadline):
            entry_values, report = values_of_entry(entry, lines=lines)
        notes = [Diagnostic("warning", note) for note in sentences_about_missing_lines(lines, [entry_values], report)]
        return msgspec.structs.replace(report, values=[entry_values], diagnostics=[*report.diagnostics, *notes])

    return _analyse_call("recording values", fn, args, kwargs, record_values, lambda _: {"values": []})


def _analyse_call(
    activity: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    analyse: Callable[[Entry], schema.Report],
    fields_if_stopped: Callable[[Entry], dict[str, Any]],
) -> Report:
    """Return the report of an analysis of one call.

    The activity has a form that follows "while", for notes about errors. ``analyse`` is not called if the call may not
    be repeated. ``fields_if_stopped`` returns the fields to set in the report if the call is stopped before it has an
    effect outside its copies.
    """
    from jupyter_graphbreak.experiments.cost.entry_cost import entry_of
    from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError

    def analyse_entry() -> schema.Report:
        entry = entry_of(fn, *args, **kwargs)
        reason = entry.why_not_run()
        if reason is not None:
            return _empty_report(Diagnostic("warning", reason))
        try:
            return analyse(entry)
        except TrialStoppedError as stopped:
            report, _ = _report_until_stopped(entry, stopped.effect)
            return msgspec.structs.replace(report, **fields_if_stopped(entry))

    return _run_analysis(activity, analyse_entry)


def _run_analysis(activity: str, analyse: Callable[[], schema.Report], **fields_if_empty: Any) -> Report:
    """Return the report of an analysis, with notes about internal errors.

    If an internal error stops the analysis, the report has only a note and ``fields_if_empty``. Exceptions that the
    user's code raises are passed on.
    """
    require_torch()
    sentences: list[str] = []
    try:
        with redirect_faults(sentences):
            report = analyse()
        notes = [Diagnostic("error", sentence) for sentence in sentences]
        new_notes = [note for note in notes if note not in report.diagnostics]
        return Report.of(msgspec.structs.replace(report, diagnostics=[*report.diagnostics, *new_notes]))
    except TimeUpError:
        return Report.of(
            _empty_report(Diagnostic("warning", f"{activity.capitalize()} took too long and was stopped."))
        )
    except Exception as fault:
        if not is_internal(fault):
            raise
        note = _why_not_repeated(fault) or Diagnostic("error", internal_error_sentence(activity, fault))
        return Report.of(msgspec.structs.replace(_empty_report(note), **fields_if_empty))


def _why_not_repeated(fault: Exception) -> Diagnostic | None:
    """Return a note if another of the user's threads would have seen the copies; ``None`` for any other exception."""
    from jupyter_graphbreak.experiments.trial.uncopied_code import ThreadSeesCopyError

    thread_sees_copy = isinstance(fault, ThreadSeesCopyError)
    return Diagnostic("warning", f"The call was not run on copies: {fault}.") if thread_sees_copy else None


def _empty_report(note: Diagnostic) -> schema.Report:
    """Return a report that contains only a note."""
    device = schema.Device("auto", default_device_name())
    return schema.Report("ok", device, diagnostics=[note])


def compare_frontends(
    fn: Callable[..., Any], *args: Any, also: Sequence[Any] = (), seconds: float | None = None, **kwargs: Any
) -> Frontends:
    """Capture a function with each of PyTorch's front ends, and find out which captured programs are correct.

    Each front end captures the function with the given arguments. The captured program then runs with these and with
    further inputs, and its results and changes to the arguments are compared with those of the function itself. Each
    run has its own copies of functions, modules and arguments, and the same random seed. If the function would do
    something that a copy cannot contain, such as writing to a file, it is stopped before that: ``effects`` lists the
    effect, and there are no verdicts.

    Parameters
    ----------
    fn : callable
        A function, a method or a module. It is called a few dozen times.
    *args, **kwargs
        The arguments for capturing the function.
    also : sequence
        Further inputs, on which the captured programs may be wrong. Each is a tuple of positional arguments (keyword
        arguments stay the same), a single argument, or :class:`~jupyter_graphbreak.Arguments`. By default, inputs are
        derived from the first: different values, Python numbers, flags and sizes.
    seconds : float or None
        The time limit; by default 120 seconds. ``left_out`` lists the front ends for which there was no time.

    Returns
    -------
    Frontends
        One verdict per front end.

    Raises
    ------
    Exception
        Any exception that the function itself raises with these arguments.

    Examples
    --------
    >>> frontends = jupyter_graphbreak.compare_frontends(f, x, also=[-x])  # doctest: +SKIP
    >>> frontends["torch.jit.trace"].outcome  # doctest: +SKIP
    'silently wrong'
    """
    from jupyter_graphbreak.experiments.trial.arguments import Arguments

    def as_arguments(inputs: Any) -> Arguments:
        if isinstance(inputs, Arguments):
            return inputs
        return Arguments(*inputs, **kwargs) if type(inputs) is tuple else Arguments(inputs, **kwargs)

    return compare_on_inputs(fn, Arguments(*args, **kwargs), [as_arguments(inputs) for inputs in also], seconds=seconds)


def compare_on_inputs(
    fn: Callable[..., Any],
    first_arguments: Arguments,
    further_arguments: Sequence[Arguments] = (),
    *,
    backend: str = "eager",
    find_cell: FindCell = cell_of_shell,
    seconds: float | None = None,
    copies: ComparisonCopies | None = None,
    effects: RunEffects | None = None,
) -> Frontends:
    """Compare the front ends as :func:`compare_frontends` does.

    ``copies`` are the copied calls that ``fn`` belongs to, if it is a copy. If the real run had effects, nothing is
    compared.
    """
    require_torch()
    from jupyter_graphbreak.experiments import frontends
    from jupyter_graphbreak.experiments.cost.entry_cost import entry_of
    from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError

    entry = entry_of(fn, *first_arguments.args, **first_arguments.kwargs)
    entry = (
        replace(entry, storage_copies=copies.storage_copies, name_snapshot=copies.name_snapshot)
        if copies is not None
        else entry
    )
    deadline = time.monotonic() + (_TIME_LIMIT_S if seconds is None else seconds)
    try:
        effect = effects.effect_of(entry.function) if effects is not None else None
        with entry.set_up(), limit_time(deadline):
            if effect is not None:
                return _stopped_comparison(entry, first_arguments, effect, find_cell)
            reason = entry.why_not_run()
            if reason is not None:
                report = _empty_report(Diagnostic("warning", reason))
                return Frontends.of(frontends.frontends_without_verdicts(entry.function, first_arguments, report))
            try:
                return Frontends.of(
                    frontends.compare(fn, first_arguments, further_arguments, backend=backend, find_cell=find_cell)
                )
            except TrialStoppedError as stopped:
                return _stopped_comparison(entry, first_arguments, stopped.effect, find_cell)
    except Exception as fault:
        if not is_internal(fault):
            raise
        note = _why_not_repeated(fault) or Diagnostic(
            "error", internal_error_sentence("comparing the front ends", fault)
        )
        return Frontends.of(frontends.frontends_after_fault(fn, note))


def _stopped_comparison(
    entry: Entry, first_arguments: Arguments, effect: ObservedEffect, find_cell: FindCell
) -> Frontends:
    """Return a comparison without verdicts, because the function has an effect outside its copies."""
    from jupyter_graphbreak.experiments.frontends import frontends_without_verdicts

    report = _report_until_stopped(entry, effect, find_cell)[0]
    return Frontends.of(frontends_without_verdicts(entry.function, first_arguments, report))


def _call_raises(entry: Entry) -> bool:
    """Return whether a single uncompiled call on copies raises an exception."""
    from jupyter_graphbreak.experiments.trial.outcome import run, sandbox_runs
    from jupyter_graphbreak.experiments.trial.subject import Subject

    with entry.set_up(), sandbox_runs():
        subject = Subject(entry.function, entry.arguments)
        return (
            run(subject.function, subject, subject.arguments or entry.arguments, runs_backward=False).error is not None
        )


def _report_until_stopped(
    entry: Entry, effect: ObservedEffect, find_cell: FindCell = cell_of_shell
) -> tuple[schema.Report, dict[str, str]]:
    """Return the report of the compilations before a call was stopped, and its file names by source id.

    The call runs again on copies, and is stopped again. The report lists the effect that it was about to have.
    """
    import torch

    from jupyter_graphbreak.analysis.build import build_with_files
    from jupyter_graphbreak.experiments.trial.effect_locations import with_effects
    from jupyter_graphbreak.experiments.trial.entry import compile_separately
    from jupyter_graphbreak.experiments.trial.outcome import run, sandbox_runs
    from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
    from jupyter_graphbreak.experiments.trial.subject import Subject
    from jupyter_graphbreak.recording import recorder

    with sandbox_runs(), recorder.record(find_cell) as recording:
        recording.record_device(schema.Device("auto", default_device_name()))
        subject = Subject(entry.function, entry.arguments)
        try:
            with compile_separately(subject.function):
                run(torch.compile(subject.function, backend="eager"), subject, subject.arguments or entry.arguments)
        except TrialStoppedError:
            pass  # because of the same effect
        except Exception as error:  # noqa: BLE001 - the effect is still worth reporting
            recording.note("warning", f"The report lacks what was compiled before the call was stopped ({error}).")
    report, files = build_with_files(recording.records)
    report_with_effect = with_effects(report, files, [effect], find_cell)
    return msgspec.structs.replace(report_with_effect, status="ok", error=None), files

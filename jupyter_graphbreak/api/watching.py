"""Watch a block of code, or one call of a function."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.threads import claimed
from jupyter_graphbreak._torch_compat.version import require_torch
from jupyter_graphbreak.api.rerun import Rerun, kept_for_questions
from jupyter_graphbreak.api.run_reports import job_with, report_of
from jupyter_graphbreak.compiling.compile_options import Options, ensure_compiled
from jupyter_graphbreak.faults import internal_error, noted
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.recording.targets import forget
from jupyter_graphbreak.report.schema import Device, Diagnostic
from jupyter_graphbreak.results import Report

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from jupyter_graphbreak.api.rerun import Kept
    from jupyter_graphbreak.results import Job


class Run:
    """A run that is being watched; :attr:`report` is there when it has ended."""

    def __init__(self) -> None:
        self._report: Report | None = None
        self._rerun: Rerun | None = None
        #: The job of this process and of those that it started, where they were watched and there were any.
        self.job: Job | None = None

    @property
    def report(self) -> Report:
        """The report.

        Raises
        ------
        RuntimeError
            While the ``with`` block is still running.
        """
        if self._report is None:
            raise RuntimeError("the report is made when the with block of capture() ends; read it after the block")
        return self._report

    def close(self, recording: recorder.Recording, children: Path | None, kept: Kept | None) -> None:
        """Make the report of a complete recording, and the job with the processes that wrote into a folder."""
        self._report, files = report_of(recording)
        if kept is not None:
            self._rerun = Rerun(self._report, files, kept)
        if children is not None:
            self.job = job_with(self._report, children)

    def give_up(self, what: str, fault: Exception) -> None:
        """Note an internal error after which there is no report of the run, or no job."""
        note = Diagnostic("error", internal_error(what, fault))
        report = self._report if self._report is not None else Report("ok", Device("auto", "unknown"))
        self._report = Report.of(msgspec.structs.replace(report, diagnostics=[*report.diagnostics, note]))

    def try_remedies(self, *, also: Sequence[str | os.PathLike[str]] = (), seconds: float | None = None) -> Report:
        """Try to remove the breaks of the block, on copies of its entries, and return the report with what was tried.

        Parameters
        ----------
        also : sequence of path
            Files with patches that you, or an assistant, wrote, unified diffs: each is judged in the same way.
        seconds : float or None
            When to stop; by default after 100 seconds.

        Raises
        ------
        RuntimeError
            If the entries were not kept.
        OSError, ValueError
            If a patch cannot be read, or is none.
        """
        from jupyter_graphbreak.remedies.program.own_edits import read_patch

        return self._again().try_remedies(also=[read_patch(path) for path in also], seconds=seconds)

    def measure(self, seconds: float | None = None) -> Report:
        """Measure what compiling the entries of the block costs and yields, and return the report with it.

        After :meth:`try_remedies` the remedies that work are measured, too.

        Parameters
        ----------
        seconds : float or None
            When to stop; by default after 120 seconds.

        Raises
        ------
        RuntimeError
            If the entries were not kept.
        """
        return self._again().measure(seconds)

    def check(self, seconds: float | None = None) -> Report:
        """Compare the results of the block's entries with eager ones, and return the report with what was found.

        Parameters
        ----------
        seconds : float or None
            When to stop; by default after 120 seconds.

        Raises
        ------
        RuntimeError
            If the entries were not kept.
        """
        return self._again().check(seconds)

    def add_cost(self) -> None:
        """Have the report say what the entries cost; where they cannot be measured, why."""
        try:
            self._report = self.measure()
        except Exception as fault:  # noqa: BLE001 - the block has run, and its report stands
            note = Diagnostic("error", internal_error("measuring", fault))
            self._report = msgspec.structs.replace(self.report, diagnostics=[*self.report.diagnostics, note])

    def _again(self) -> Rerun:
        if self._rerun is None:
            raise RuntimeError("the entries were not kept; write capture(entries=True)")
        return self._rerun


@contextlib.contextmanager
def capture(
    *,
    processes: bool = False,
    entries: bool = False,
    cost: bool = False,
    compile: bool = False,  # noqa: A002 - what it is in torch
) -> Iterator[Run]:
    """Watch the compilations of a ``with`` block.

    The block runs as it would without; an exception goes on unchanged, and the report is made all the same. It has the
    compilations of this thread, and of threads that the block starts and that capture nothing themselves. Captures may
    lie within each other, and several threads may capture at once.

    Parameters
    ----------
    processes : bool
        Whether to watch the processes that the block starts, too: workers of a ``DataLoader``, of
        ``torch.multiprocessing``, ranks of ``torchrun``.
    entries : bool
        Whether to keep copies of each entry's arguments and state, so that remedies can be tried after the block.
    cost : bool
        Whether to measure when the block has ended what compiling its entries costs and yields. A block that raises is
        not measured.
    compile : bool
        Whether to compile the outermost call of each module in the block, with the backend ``eager``, though the code
        does not; ``report.compiled`` names them. Functions of the block are not compiled: use :func:`explain` for one.

    Yields
    ------
    Run
        Its ``report`` can be read after the block, and with ``processes`` its ``job``; with ``entries`` its
        ``try_remedies()``, ``measure()`` and ``check()`` can be called.

    Raises
    ------
    TorchUnavailable
        If there is no torch, or one older than 2.9.

    Examples
    --------
    >>> with jupyter_graphbreak.capture() as run:  # doctest: +SKIP
    ...     compiled_step(batch)
    >>> print(run.report.to_text())  # doctest: +SKIP
    """
    from jupyter_graphbreak.recording.children import watched_children

    require_torch()
    run = Run()
    recording: recorder.Recording | None = None

    told: list[str] = []

    def tell(sentence: str) -> None:
        if recording is None:
            told.append(sentence)
        else:
            recording.note("warning", sentence)

    with (
        claimed(),
        watched_children(tell) if processes else contextlib.nullcontext() as children,
        kept_for_questions() if entries or cost else contextlib.nullcontext() as kept,
    ):
        try:
            with recorder.record() as recording:
                recording.describe_device(Device("auto", default_device_name()))
                for sentence in told:
                    recording.note("warning", sentence)
                if compile:
                    with _compiled_modules(recording):
                        yield run
                else:
                    yield run
        finally:
            if recording is not None:
                with noted("making the report", run.give_up):
                    run.close(recording, children, kept)
    if cost:
        run.add_cost()


@contextlib.contextmanager
def _compiled_modules(recording: recorder.Recording) -> Iterator[None]:
    """Compile the modules that the code calls while the context is open, and record what they are."""
    from jupyter_graphbreak.compiling.compiled_calls import compiled_calls
    from jupyter_graphbreak.compiling.descriptions import described

    with compiled_calls(Options(), recording.note_fault) as calls:
        try:
            yield
        finally:
            with noted("describing what was compiled", recording.note_fault):
                recording.note_compiled(described(calls.compiled))


def run_routed(path: str, module: str | None = None) -> None:
    """Run a program as ``__main__``, with its own calls routed to what compiles them (see :func:`capture`).

    Parameters
    ----------
    path : str
        The program's file; unused for a module.
    module : str or None
        The module to run, as ``python -m`` does.

    Raises
    ------
    BaseException
        Whatever the program raises.
    """
    from jupyter_graphbreak.compiling.programs import run_as_main

    run_as_main(path, module)


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Compile a function, call it once with the given arguments, and explain what happened.

    A function or module that is not compiled yet is compiled with the backend ``eager``, which finds the same graphs
    and breaks as any other and generates no code. What the call returns is dropped.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; compiled or not.
    *args, **kwargs
        What to call it with.

    Returns
    -------
    Report

    Raises
    ------
    Exception
        Whatever the call raises; use :func:`capture` to have the report as well.
    """
    compiled = ensure_compiled(fn, Options())
    forget(fn)
    with capture() as run:
        compiled(*args, **kwargs)
    return run.report

"""The face for plain Python: explain a block of code, or one call."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.version import require_torch
from jupyter_graphbreak.analysis.build import build_report, build_with_files
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.recording.compilation import Options, ensure_compiled
from jupyter_graphbreak.recording.targets import forget
from jupyter_graphbreak.report.schema import Device, Diagnostic
from jupyter_graphbreak.results import ExplainedNotebook, Frontends, Job, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.recording.source_texts import FindCell
    from jupyter_graphbreak.report.job import Process
    from jupyter_graphbreak.trial.entry import KeptEntries
    from jupyter_graphbreak.trial.inputs import Arguments


class Run:
    """A run that is being watched; :attr:`report` is there when it has ended."""

    def __init__(self) -> None:
        self._report: Report | None = None
        self._files: dict[str, str] = {}
        self._kept: KeptEntries | None = None
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

    def close(self, recording: recorder.Recording, children: Path | None, kept: KeptEntries | None) -> None:
        """Make the report of a complete recording, and the job with the processes that wrote into a folder."""
        self._report, self._files = report_of(recording)
        self._kept = kept
        if children is not None:
            self.job = job_with(self._report, children)

    def try_remedies(self, *, seconds: float = 120.0) -> Report:
        """Try to remove the breaks of the block, on copies of its entries, and return the report with what was tried.

        Parameters
        ----------
        seconds : float
            When to stop.

        Raises
        ------
        RuntimeError
            If the entries were not kept.
        """
        return tried(self.report, self._files, self._entries(), seconds=seconds)

    def measure(self) -> Report:
        """Measure what compiling the entries of the block costs and yields, and return the report with it.

        Raises
        ------
        RuntimeError
            If the entries were not kept.
        """
        return costed(self.report, self._entries())

    def check(self) -> Report:
        """Compare the results of the block's entries with eager ones, and return the report with what was found.

        Raises
        ------
        RuntimeError
            If the entries were not kept.
        """
        return checked(self.report, self._entries())

    def _entries(self) -> KeptEntries:
        if self._kept is None:
            raise RuntimeError("the entries were not kept; write capture(entries=True)")
        return self._kept


def report_of(recording: recorder.Recording) -> tuple[Report, dict[str, str]]:
    """Make the report of a complete recording, its own making counted in ``timing.capture_s``.

    Returns
    -------
    Report
    dict
        The file name of each of its sources, by the source's id.
    """
    start = time.perf_counter()
    built, files = build_with_files(recording.records)
    report = Report.of(built)
    timing = report.timing
    capture_s = (timing.capture_s or 0.0) + time.perf_counter() - start
    return msgspec.structs.replace(report, timing=msgspec.structs.replace(timing, capture_s=capture_s)), files


def tried(report: Report, files: Mapping[str, str], kept: KeptEntries, **options: Any) -> Report:
    """Return a report with what was tried for its breaks.

    Parameters
    ----------
    report : Report
    files : mapping
        The file name of each of its sources, by the source's id.
    kept : KeptEntries
        The entries of its run.
    **options
        As :func:`jupyter_graphbreak.remedies.finding.find_remedies` takes them.
    """
    from jupyter_graphbreak.remedies.finding import find_remedies

    found = find_remedies(report, files, kept.entries, left_out=kept.left_out, **options)
    notes = [Diagnostic("warning", sentence) for sentence in kept.left_out]
    return Report.of(msgspec.structs.replace(found, diagnostics=[*found.diagnostics, *notes]))


def costed(report: Report, kept: KeptEntries, find_cell: FindCell = lambda _: None) -> Report:
    """Return a report with what its entries cost, measured on copies."""
    from jupyter_graphbreak.cost.entry_cost import backend_name, device_of, measure_entry
    from jupyter_graphbreak.report.cost import Cost

    if not kept.entries:
        return report
    measured = [measure_entry(entry, run=report, find_cell=find_cell).cost for entry in kept.entries]
    first = kept.entries[0]
    return msgspec.structs.replace(report, cost=Cost(device_of(first), backend_name(first.backend), measured))


def checked(report: Report, kept: KeptEntries, find_cell: FindCell = lambda _: None) -> Report:
    """Return a report with whether its entries compute what they compute uncompiled."""
    from jupyter_graphbreak.cost.correctness.checking import check_entry

    found = [check_entry(entry, report, find_cell=find_cell).check for entry in kept.entries]
    return msgspec.structs.replace(report, check=found)


@contextlib.contextmanager
def capture(*, processes: bool = False, entries: bool = False) -> Iterator[Run]:
    """Watch the compilations of a ``with`` block.

    The block runs as it would without; an exception goes on unchanged, and the report is made all the same.

    Parameters
    ----------
    processes : bool
        Whether to watch the processes that the block starts, too: workers of a ``DataLoader``, of
        ``torch.multiprocessing``, ranks of ``torchrun``.
    entries : bool
        Whether to keep copies of each entry's arguments and state, so that remedies can be tried after the block.

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

    run = Run()
    recording: recorder.Recording | None = None

    told: list[str] = []

    def tell(sentence: str) -> None:
        if recording is None:
            told.append(sentence)
        else:
            recording.note("warning", sentence)

    with (
        watched_children(tell) if processes else contextlib.nullcontext() as children,
        _kept_entries() if entries else contextlib.nullcontext() as kept,
    ):
        try:
            with recorder.record() as recording:
                recording.describe_device(Device("auto", default_device_name()))
                for sentence in told:
                    recording.note("warning", sentence)
                yield run
        finally:
            if recording is not None:
                run.close(recording, children, kept)


def _kept_entries() -> contextlib.AbstractContextManager[KeptEntries]:
    require_torch()
    from jupyter_graphbreak.trial.entry import kept_entries

    return kept_entries()


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


def try_remedies(
    fn: Callable[..., Any],
    *args: Any,
    also: Sequence[Callable[..., Any]] = (),
    seconds: float = 120.0,
    **kwargs: Any,
) -> Report:
    """Compile a function on copies, and try to remove each graph break that it has.

    Nothing of the function runs for real: arguments, globals, random state, output and settings are as before. Each
    change is compiled with the function's backend and compared with the function itself, on the given arguments and on
    others that are derived from them; ``report.remedies`` has what was tried, with the verdicts.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; a compiled one keeps its backend, another has ``eager``.
    *args, **kwargs
        What to call it with.
    also : sequence of callable
        What you, or an assistant, wrote in place of the function: each is judged in the same way.
    seconds : float
        When to stop.

    Returns
    -------
    Report

    Raises
    ------
    Exception
        Whatever the function itself raises with these arguments.

    Examples
    --------
    >>> for remedy in jupyter_graphbreak.try_remedies(step, x).remedies:  # doctest: +SKIP
    ...     print(remedy.title, remedy.verdict)
    """
    require_torch()
    from jupyter_graphbreak.remedies.finding import remedies_of_call

    return Report.of(remedies_of_call(fn, args, kwargs, also=also, seconds=seconds))


def measure(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Measure what compiling a function costs and yields, and where the time of the compiled call goes.

    The function is called some hundred times on copies of itself, of what it uses and of the arguments: as it is and
    compiled, in turn, once nothing is compiled any more. Nothing of yours changes. A function that is not compiled yet
    is compiled with the backend ``inductor``, as ``torch.compile`` does; one that is, with its own.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; compiled or not.
    *args, **kwargs
        What to call it with.

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
    from jupyter_graphbreak.cost.entry_cost import backend_name, device_of, entry_of, measure_entry
    from jupyter_graphbreak.report.cost import Cost

    entry = entry_of(fn, *args, **kwargs)
    measured = measure_entry(entry)
    cost = Cost(device_of(entry), backend_name(entry.backend), [measured.cost])
    return Report.of(msgspec.structs.replace(measured.report, cost=cost))


def check(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Check that a compiled function computes what the function itself does: values and gradients.

    Both are called on copies, with the same random numbers. Where they differ by more than rounding does, which a run
    in double precision tells, the report names the first graph and operation that does, and the step of compiling that
    brings the difference in.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; compiled or not. One that is not is compiled with the backend ``inductor``.
    *args, **kwargs
        What to call it with.

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

    checked = check_entry(entry_of(fn, *args, **kwargs))
    return Report.of(msgspec.structs.replace(checked.report, check=[checked.check]))


def compare_frontends(fn: Callable[..., Any], *args: Any, also: Sequence[Any] = (), **kwargs: Any) -> Frontends:
    """Capture a function with each of PyTorch's front ends, and find out which result is right.

    Each verdict is found by running: the function is captured with the given arguments, the captured program is called
    with these and with other inputs, and what it returns and does to its arguments is compared with what the function
    itself does. Functions, modules and arguments are copied for each run; random numbers are drawn from the same seed.

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

    return compare(fn, Arguments(*args, **kwargs), [arguments(given) for given in also])


def compare(
    fn: Callable[..., Any],
    first: Arguments,
    others: Sequence[Arguments] = (),
    *,
    backend: str = "eager",
    find_cell: FindCell = lambda _: None,
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
    """
    from jupyter_graphbreak.frontends import comparison

    return Frontends.of(comparison.compare(fn, first, others, backend=backend, find_cell=find_cell))


def read_trace(path: str | Path, *, progress: bool = False) -> Report | Job:
    """Read the logs that a program wrote with ``TORCH_TRACE``, and explain what happened in it.

    Parameters
    ----------
    path : str or Path
        A folder of such logs, or one of them; also compressed with gzip or zstd, and cut short.
    progress : bool
        Whether to show a progress bar, on ``stderr`` or in the notebook.

    Returns
    -------
    Report or Job
        A report if one process wrote the logs, a job with a report for each of them if there were several. What could
        not be read is counted in their ``diagnostics``.

    Raises
    ------
    UnreadableTrace
        If there is no trace at that place.

    Examples
    --------
    >>> print(jupyter_graphbreak.read_trace("traces"))  # doctest: +SKIP
    """
    from tqdm.auto import tqdm

    from jupyter_graphbreak.analysis.reports.jobs import build_job
    from jupyter_graphbreak.report.job import Process
    from jupyter_graphbreak.trace.processes import read_processes, trace_files

    files = trace_files(Path(path))
    size = sum(file.stat().st_size for file in files)
    processes: list[Process] = []
    with tqdm(total=size, unit="B", unit_scale=True, leave=False, delay=1, disable=not progress) as bar:
        for trace in read_processes(files, bar.update):
            report = build_report(trace.records)
            processes.append(Process(f"p{len(processes) + 1}", trace.rank, trace.pid or None, None, report))
    if len(processes) == 1:
        return Report.of(processes[0].report)
    return Job.of(build_job(processes))


def read_notebook(path: str | Path) -> list[Report]:
    """Return the reports in the outputs of a notebook, in the order of its cells.

    Raises
    ------
    UnreadableNotebook
        If the file is no notebook of format 4.
    """
    from jupyter_graphbreak.notebookfiles.reading import read_cells, reports_in

    return [Report.of(report) for report in reports_in(read_cells(Path(path)))]


def explain_notebook(
    path: str | Path, *, output: str | Path | None = None, kernel: str | None = None, progress: bool = False
) -> ExplainedNotebook:
    """Run a notebook in a kernel of its own, with every cell explained, and leave the file as it is.

    Lines count as the notebook's editor shows them. A cell that runs no tensor operation has no report.

    Parameters
    ----------
    path : str or Path
    output : str or Path or None
        Where to write the executed copy, if anywhere.
    kernel : str or None
        The kernel's name, where it is to be another than the notebook's own.
    progress : bool
        Whether to show a progress bar, on ``stderr`` or in the notebook.

    Returns
    -------
    ExplainedNotebook
        The reports, the executed copy, and the exception that ended it, if a cell raised one.

    Raises
    ------
    UnreadableNotebook
        If the file is no notebook of format 4, or its kernel cannot explain cells.
    """
    from tqdm.auto import tqdm

    from jupyter_graphbreak.notebookfiles.execution import execute
    from jupyter_graphbreak.notebookfiles.reading import reports_in

    with tqdm(unit="cell", leave=False, disable=not progress) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        notebook, error = execute(Path(path), kernel, show)
    explained = ExplainedNotebook([Report.of(report) for report in reports_in(notebook)], notebook, error)
    if output is not None:
        explained.save(output)
    return explained


def job_with(report: Report, folder: Path) -> Job | None:
    """Return the job of this process and of those that wrote their traces into a folder; ``None`` if none did.

    Parameters
    ----------
    report : Report
        Of this process, which comes first.
    folder : Path
        That of :func:`jupyter_graphbreak.recording.children.watched_children`.
    """
    return job_of(report, processes_in(folder))


def processes_in(folder: Path, find_cell: FindCell = lambda _: None) -> list[Process]:
    """Return the processes that wrote their traces into a folder, each with its report.

    Parameters
    ----------
    folder : Path
    find_cell : callable
        Given the file name of a code object, the cell that it comes from.
    """
    from jupyter_graphbreak.report.job import Process
    from jupyter_graphbreak.trace.processes import UnreadableTrace, read_processes, trace_files

    try:
        traces = list(read_processes(trace_files(folder), find_cell=find_cell))
    except UnreadableTrace:  # there are none
        return []
    return [
        Process(f"p{number}", trace.rank, trace.pid or None, None, build_report(trace.records))
        for number, trace in enumerate(traces, start=2)
    ]


def job_of(report: Report, children: list[Process]) -> Job | None:
    """Return the job of this process and of those that it started; ``None`` if there are none."""
    from jupyter_graphbreak.analysis.reports.jobs import build_job
    from jupyter_graphbreak.report.job import Process

    if not children:
        return None
    return Job.of(build_job([Process("p1", None, os.getpid(), None, report), *children]))

"""The face for plain Python: explain a block of code, or one call."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.recording.compilation import Options, ensure_compiled
from jupyter_graphbreak.recording.targets import forget
from jupyter_graphbreak.report.schema import Device
from jupyter_graphbreak.results import ExplainedNotebook, Frontends, Job, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyter_graphbreak.recording.source_texts import FindCell
    from jupyter_graphbreak.report.job import Process
    from jupyter_graphbreak.trial.inputs import Arguments


class Run:
    """A run that is being watched; :attr:`report` is there when it has ended."""

    def __init__(self) -> None:
        self._report: Report | None = None
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

    def close(self, recording: recorder.Recording, children: Path | None) -> None:
        """Make the report of a complete recording, and the job with the processes that wrote into a folder."""
        self._report = report_of(recording)
        if children is not None:
            self.job = job_with(self._report, children)


def report_of(recording: recorder.Recording) -> Report:
    """Make the report of a complete recording, its own making counted in ``timing.capture_s``."""
    start = time.perf_counter()
    report = Report.of(build_report(recording.records))
    timing = report.timing
    capture_s = (timing.capture_s or 0.0) + time.perf_counter() - start
    return msgspec.structs.replace(report, timing=msgspec.structs.replace(timing, capture_s=capture_s))


@contextlib.contextmanager
def capture(*, processes: bool = False) -> Iterator[Run]:
    """Watch the compilations of a ``with`` block.

    The block runs as it would without; an exception goes on unchanged, and the report is made all the same.

    Parameters
    ----------
    processes : bool
        Whether to watch the processes that the block starts, too: workers of a ``DataLoader``, of
        ``torch.multiprocessing``, ranks of ``torchrun``.

    Yields
    ------
    Run
        Its ``report`` can be read after the block, and with ``processes`` its ``job``.

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

    def tell(sentence: str) -> None:
        if recording is not None:
            recording.note("warning", sentence)

    with watched_children(tell) if processes else contextlib.nullcontext() as children:
        try:
            with recorder.record() as recording:
                recording.describe_device(Device("auto", default_device_name()))
                yield run
        finally:
            if recording is not None:
                run.close(recording, children)


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


def processes_in(folder: Path) -> list[Process]:
    """Return the processes that wrote their traces into a folder, each with its report."""
    from jupyter_graphbreak.report.job import Process
    from jupyter_graphbreak.trace.processes import UnreadableTrace, read_processes, trace_files

    try:
        traces = list(read_processes(trace_files(folder)))
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

"""What was recorded or saved before: traces of other programs, and notebooks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.report.job import Process
from jupyter_graphbreak.results import ExplainedNotebook, Job, Report

if TYPE_CHECKING:
    from collections.abc import Iterable


def read_trace(path: str | Path, *, sources: Iterable[str | Path] = (), progress: bool = False) -> Report | Job:
    """Read the logs that a program wrote with ``TORCH_TRACE``, and explain what happened in it.

    Parameters
    ----------
    path : str or Path
        A folder of such logs, or one of them; also compressed with gzip or zstd, and cut short.
    sources : iterable of str or Path
        Folders from which source files that the logs name may be read, besides the working folder and those of
        installed packages. The text of a file is used only if the lines that the log quotes are still the same.
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
    from jupyter_graphbreak.trace.processes import read_processes, trace_files
    from jupyter_graphbreak.trace.source_folders import SourceFolders

    found = trace_files(Path(path))
    size = sum(file.stat().st_size for file in found.files)
    processes: list[Process] = []
    with tqdm(total=size, unit="B", unit_scale=True, leave=False, delay=1, disable=not progress) as bar:
        for trace in read_processes(found, bar.update, folders=SourceFolders(sources)):
            report = build_report(trace.records)
            processes.append(Process(f"p{len(processes) + 1}", trace.rank, trace.pid or None, None, report))
    if len(processes) == 1:
        return Report.of(processes[0].report)
    return Job.of(build_job(processes))


def read_notebook(path: str | Path) -> list[Report]:
    """Return the reports in the outputs of a notebook, in the order of its cells; warn of those that cannot be read.

    Raises
    ------
    UnreadableNotebook
        If the file is no notebook of format 4, or none of its reports can be read.
    """
    from jupyter_graphbreak.notebookfiles.reading import read_cells, reports_in

    found = reports_in(read_cells(Path(path)))
    for problem in found.problems:
        warnings.warn(f"{path}: {problem}", stacklevel=2)
    return [Report.of(report) for report in found.reports]


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
    explained = ExplainedNotebook([Report.of(report) for report in reports_in(notebook).reports], notebook, error)
    if output is not None:
        explained.save(output)
    return explained

"""Read reports from logs and notebooks, and run notebooks with every cell explained."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.report.job import Process
from jupyter_graphbreak.results import ExplainedNotebook, Job, Report

if TYPE_CHECKING:
    from collections.abc import Iterable


def read_trace(path: str | Path, *, sources: Iterable[str | Path] = (), progress: bool = False) -> Report | Job:
    """Read the logs that a program wrote with ``TORCH_TRACE``, and explain what happened in the program.

    Parameters
    ----------
    path : str or Path
        A folder of logs or a single log, on disk or as the URL of object storage that ``fsspec`` opens, such as
        ``s3://bucket/traces``. Logs may be compressed with gzip or zstd, or incomplete. Large logs are read in several
        processes.
    sources : iterable of str or Path
        Folders from which the source files mentioned in the logs may be read, in addition to the working folder and
        the folders of installed packages. A file is used only if it still contains the lines that the log quotes.
    progress : bool
        Whether to show a progress bar, on ``stderr`` or in the notebook.

    Returns
    -------
    Report or Job
        A report if one process wrote the logs; otherwise, a job with the reports of all processes. Equal ranks share
        a report. The ``diagnostics`` list unreadable files and entries.

    Raises
    ------
    UnreadableTrace
        If the path contains no trace.

    Examples
    --------
    >>> print(jupyter_graphbreak.read_trace("traces"))  # doctest: +SKIP
    """
    from tqdm.auto import tqdm

    from jupyter_graphbreak.analysis.jobs import build_job
    from jupyter_graphbreak.api.log_reading import find_logs, read_logs

    logs = find_logs(path)
    size = sum(logs.sizes.values())
    with tqdm(total=size, unit="B", unit_scale=True, leave=False, delay=1, disable=not progress) as bar:
        contents = read_logs(logs, [str(folder) for folder in sources], bar.update)
    if len(contents.processes) == 1:
        report = contents.processes[0].report
        return Report.of(msgspec.structs.replace(report, diagnostics=[*report.diagnostics, *contents.notes]))
    by_id = {f"p{number}": process for number, process in enumerate(contents.processes, start=1)}
    processes = [Process(id_, process.rank, process.pid, None, process.report) for id_, process in by_id.items()]
    compile_times = {id_: process.compile_times for id_, process in by_id.items()}
    return Job.of(build_job(processes, compile_times, contents.notes))


def read_notebook(path: str | Path) -> list[Report]:
    """Return the reports in the outputs of a notebook, in the order of its cells; warn about unreadable ones.

    Raises
    ------
    UnreadableNotebook
        If the file is not a notebook of format 4, or if none of its reports can be read.
    """
    from jupyter_graphbreak.notebook_files import parse_notebook, reports_in

    reports, problems = reports_in(parse_notebook(Path(path)))
    for problem in problems:
        warnings.warn(f"{path}: {problem}", stacklevel=2)
    return [Report.of(report) for report in reports]


def explain_notebook(
    path: str | Path, *, output: str | Path | None = None, kernel: str | None = None, progress: bool = False
) -> ExplainedNotebook:
    """Run a notebook in a new kernel, with every cell explained; the file stays unchanged.

    Line numbers are those in the notebook's editor. A cell has no report if there is nothing to report, for example
    because it has no tensor operations.

    Parameters
    ----------
    path : str or Path
        The notebook.
    output : str or Path or None
        The file for the executed copy; ``None`` writes no copy.
    kernel : str or None
        The kernel's name; ``None`` uses the kernel that the notebook specifies.
    progress : bool
        Whether to show a progress bar, on ``stderr`` or in the notebook.

    Returns
    -------
    ExplainedNotebook
        The reports, the executed copy, and the reason why the run ended early, if it did.

    Raises
    ------
    UnreadableNotebook
        If the file is not a notebook of format 4, if its kernel is not installed or cannot explain cells, or if there
        are reports but none can be read.
    """
    from tqdm.auto import tqdm

    from jupyter_graphbreak.notebook_files import execute, reports_in

    with tqdm(unit="cell", leave=False, disable=not progress) as bar:

        def update_bar(completed_count: int, total: int) -> None:
            bar.total = total
            bar.update(completed_count - bar.n)

        notebook, error = execute(Path(path), kernel, update_bar)
    reports = [Report.of(report) for report in reports_in(notebook, max_reports=None).reports]
    explained_notebook = ExplainedNotebook(reports, notebook, error)
    if output is not None:
        explained_notebook.save(output)
    return explained_notebook

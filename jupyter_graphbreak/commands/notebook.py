"""``graphbreak notebook``: show the reports in a notebook, or run it and show the new ones."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import click

from jupyter_graphbreak.commands.formats import CommandResult
from jupyter_graphbreak.commands.options import (
    FAILURE_STATUS,
    SUCCESS_STATUS,
    UNREADABLE_STATUS,
    FileProblem,
    Gate,
    SharedOptions,
    print_message,
    shared_options,
)


@click.command("notebook", short_help="Show the reports in a notebook, or run it with every cell explained.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--execute", is_flag=True, help="Run the notebook in a fresh kernel, with every cell explained.")
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="COPY", help="With --execute: the file for the executed copy."
)
@shared_options
def notebook_command(path: Path, *, execute: bool, output: Path | None, **shared: Any) -> int:
    """Show the reports in the outputs of the notebook PATH.

    With --execute, a copy of the notebook is run first. If a cell raises or the kernel dies, the run ends there, and
    the exit status is 1. The file stays unchanged.
    """
    from jupyter_graphbreak.api.saved import explain_notebook, read_notebook
    from jupyter_graphbreak.notebook_files import UnreadableNotebook

    gate = Gate(SharedOptions(**shared))
    if output is not None and not execute:
        raise click.UsageError("--output needs --execute, which creates the executed copy")
    if output is not None and not output.resolve().parent.is_dir():
        raise click.UsageError(f"--output {output}: no such folder: {output.parent}")
    if output is not None and output.resolve() == path.resolve():
        raise click.UsageError(f"--output {output}: choose a different file; the notebook itself is not overwritten")
    error = None
    problems: list[warnings.WarningMessage] = []
    try:
        if execute:
            explained_notebook = explain_notebook(path, output=output, progress=sys.stderr.isatty())
            reports, error = explained_notebook.reports, explained_notebook.error
        else:
            with warnings.catch_warnings(record=True) as problems:
                warnings.simplefilter("always")
                reports = read_notebook(path)
    except UnreadableNotebook as problem:
        raise FileProblem(str(problem)) from None
    status = gate.finish(CommandResult(reports, notebook=path.as_posix()))
    if error is not None:
        print_message("the notebook ended early" if shared["redact"] else f"the notebook ended early: {error}")
    for warning in problems:
        print_message("some reports cannot be read" if shared["redact"] else str(warning.message))
    return FAILURE_STATUS if error is not None else status or (UNREADABLE_STATUS if problems else SUCCESS_STATUS)

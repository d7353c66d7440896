"""``graphbreak log``: explain the logs that a program wrote with TORCH_TRACE."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from jupyter_graphbreak.commands.formats import CommandResult, result_of_job
from jupyter_graphbreak.commands.options import FileProblem, Gate, SharedOptions, shared_options, sources_option

if TYPE_CHECKING:
    from pathlib import Path


@click.command("log", short_help="Explain the logs that a program wrote with TORCH_TRACE.")
@click.argument("path")
@sources_option
@shared_options
def log_command(path: str, *, sources: tuple[Path, ...], **shared: Any) -> int:
    """Explain the logs that a program wrote with TORCH_TRACE=FOLDER.

    PATH is that folder or one log in it, on disk or as a URL of object storage (s3://bucket/traces), which needs
    fsspec's package for that storage. Logs may be compressed with gzip or zstd, or incomplete. For several processes,
    breaks that only some ranks have come first, and ranks with equal reports are listed once.
    """
    from jupyter_graphbreak.api.saved import read_trace
    from jupyter_graphbreak.results import Job
    from jupyter_graphbreak.trace.log_files import UnreadableTrace

    for folder in sources:
        if not folder.is_dir():
            raise click.UsageError(f"--sources {folder}: no such folder")
    gate = Gate(SharedOptions(**shared))
    try:
        report_or_job = read_trace(path, sources=sources, progress=sys.stderr.isatty())
    except (UnreadableTrace, OSError) as error:
        raise FileProblem(str(error)) from None
    return gate.finish(
        result_of_job(report_or_job) if isinstance(report_or_job, Job) else CommandResult([report_or_job])
    )

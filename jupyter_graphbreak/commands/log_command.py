"""``graphbreak log``: explain what a program wrote with TORCH_TRACE."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from jupyter_graphbreak.commands.output_formats import Found, of_job
from jupyter_graphbreak.commands.shared_options import Gate, Shared, shared_options


@click.command("log", short_help="Explain the logs that a program wrote with TORCH_TRACE.")
@click.argument("path", type=click.Path(path_type=Path))
@shared_options
def log_command(path: Path, **shared: Any) -> int:
    """Explain the logs that a program wrote with TORCH_TRACE=FOLDER.

    PATH is such a folder, or one log of it; logs may be compressed with gzip or zstd, and cut short. Several processes
    make a job: breaks that only some ranks have come first.
    """
    from jupyter_graphbreak.api.saved import read_trace
    from jupyter_graphbreak.results import Job
    from jupyter_graphbreak.trace.processes import UnreadableTrace

    gate = Gate(Shared(**shared))
    try:
        read = read_trace(path, progress=sys.stderr.isatty())
    except UnreadableTrace as error:
        raise click.UsageError(str(error)) from None
    return gate.finish(of_job(read) if isinstance(read, Job) else Found([read]))

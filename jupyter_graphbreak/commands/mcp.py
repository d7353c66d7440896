"""``graphbreak mcp``: answer the questions of a coding assistant over the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("mcp", short_help="Serve reports, verdicts and measurements to a coding assistant.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    help="The folder whose files may be read and, with --allow-run, run.",
)
@click.option("--allow-run", is_flag=True, help="Let the assistant run programs and notebooks in the folder.")
@click.option(
    "--seconds", type=click.IntRange(min=1), default=600, show_default=True, help="The time limit for one run."
)
def mcp_command(folder: Path, *, allow_run: bool, seconds: int) -> int:
    """Serve tools of the Model Context Protocol on standard input and output, for a coding assistant.

    The assistant can explain logs and notebooks, and read reports part by part. With --allow-run, it can also run
    programs and notebooks in the folder, judge patches and measure. Such a program has the same effects as if you
    ran it.

    Example, in the assistant's settings: {"command": "graphbreak", "args": ["mcp", "--folder", "/my/project"]}
    """
    try:
        from jupyter_graphbreak.commands.assistant_tools import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "mcp":
            raise
        raise click.UsageError("the package mcp is missing: pip install 'jupyter-graphbreak[mcp]'") from None
    serve(folder, allow_run=allow_run, seconds=seconds)
    return 0

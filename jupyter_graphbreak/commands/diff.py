"""``graphbreak diff``: show the changes from one run to a later one."""

from __future__ import annotations

import html
from pathlib import Path

import click
import msgspec

from jupyter_graphbreak.commands.formats import FORMATS
from jupyter_graphbreak.commands.options import FileProblem, format_option
from jupyter_graphbreak.records.regular_files import open_regular, read_regular
from jupyter_graphbreak.results import Report


@click.command("diff", short_help="Show what changed from one run to a later one.")
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
@format_option(tuple(name for name in FORMATS if name != "sarif"))
def diff_command(before: Path, after: Path, output_format: str) -> int:
    """Show the breaks that are gone, new or moved in B compared with A.

    A and B are reports saved as JSON, notebooks with one report, or logs of one process.
    """
    changes = _read_report(before).diff(_read_report(after))
    match output_format:
        case "json":
            click.echo(msgspec.json.encode(changes))
        case "html":
            head = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>'
            title = html.escape(f"{before.name} and {after.name}")
            click.echo(f"{head}{title}</title></head><body>{changes.to_html()}</body></html>")
        case "markdown":
            from jupyter_graphbreak.views.markdown import render_markdown_lines

            first, *lines = changes.to_text().split("\n")
            click.echo(render_markdown_lines(first, lines))
        case _:
            click.echo(changes.to_text())
    return 0


_MAX_BYTES = 512 << 20


def _read_first_byte(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(1)


def _read_notebook_report(path: Path) -> Report:
    from jupyter_graphbreak.api.saved import read_notebook
    from jupyter_graphbreak.notebook_files import UnreadableNotebook  # importing nbformat takes a second

    try:
        reports = read_notebook(path)
    except (UnreadableNotebook, OSError) as error:
        raise FileProblem(str(error)) from None
    if len(reports) != 1:
        raise click.UsageError(f"{path} contains {len(reports)} reports; save the one to compare as JSON")
    return reports[0]


def _read_report(path: Path) -> Report:
    from jupyter_graphbreak.api.saved import read_trace
    from jupyter_graphbreak.trace.log_files import UnreadableTrace

    if path.suffix == ".ipynb":
        return _read_notebook_report(path)
    try:
        if path.is_file() and _read_first_byte(path) in {b"{", b"["}:
            return Report.from_json(read_regular(path, _MAX_BYTES))
        report_or_job = read_trace(path)
    except (UnreadableTrace, OSError) as error:
        raise FileProblem(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise FileProblem(f"{path} is not a report: {' '.join(str(error).split())}") from None
    if not isinstance(report_or_job, Report):
        raise click.UsageError(
            f"{path} contains the logs of {len(report_or_job.processes)} processes; pass the log of one process"
        )
    return report_or_job

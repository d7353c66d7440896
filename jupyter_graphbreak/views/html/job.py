"""Render a job as HTML: a table of its breaks, the reports of the first processes, and summaries of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from jupyter_graphbreak.views.html.environment import environment, style_sheet
from jupyter_graphbreak.views.html.render import build_page, pack_text_and_rest, render_html, render_with_data
from jupyter_graphbreak.views.text import summary_line
from jupyter_graphbreak.views.words.bounds import limit_part
from jupyter_graphbreak.views.words.jobs import (
    compiling_lines,
    job_headline,
    job_location_text,
    job_notes,
    process_name,
    processes_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak.report.job import Job
    from jupyter_graphbreak.report.schema import Report

#: The maximum number of processes to show with their report; the rest are shown with a summary.
_MAX_REPORTS = 8
#: The maximum number of breaks to list; the rest are counted.
_MAX_BREAKS = 200
#: The maximum number of ranks whose compile times are listed.
_MAX_LISTED_RANKS = 2048


def render_job_html(job: Job, *, with_data: bool = False) -> str:
    """Return a job as a snippet of HTML with its own style sheet."""
    render = render_with_data if with_data else render_html
    reports = [
        Markup(render(process.report)) if index < _MAX_REPORTS else None  # noqa: S704 - our templates escape every value
        for index, process in enumerate(job.processes)
    ]
    breaks = list(map(limit_part, job.breaks[:_MAX_BREAKS]))
    summaries = [summary_line(process.report) for process in job.processes]
    template = environment().get_template("job.html.j2")
    return template.render(
        job=job, breaks=breaks, css=style_sheet("job"), headline=job_headline(job), notes=job_notes(job),
        compiling=compiling_lines(job), ranks=job.compiling[:_MAX_LISTED_RANKS],
        location_text=job_location_text, processes_text=processes_text,
        processes=list(zip(map(process_name, job.processes), summaries, reports, strict=True)),
    ).strip()  # fmt: skip


def pack_processes(job: Job) -> list[dict[str, Any]]:
    """Return the data of each report that the HTML of a job shows; see :func:`.pack_text_and_rest`."""
    return [{"gzip": pack_text_and_rest(process.report)} for process in job.processes[:_MAX_REPORTS]]


def render_job_page(job: Job) -> str:
    """Return a job as a standalone page."""
    return build_page(render_job_html(job, with_data=True), f"compile_explain: {job_headline(job)}")


def render_reports_page(reports: Sequence[Report]) -> str:
    """Return the reports of a notebook's cells as one standalone page."""
    sections = [f"<section>{render_with_data(report)}</section>" for report in reports]
    return build_page("".join(sections) or "<p>no reports</p>", "compile_explain")

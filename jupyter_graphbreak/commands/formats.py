"""Render the result of a command in the requested format."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.gate.verdict import details, headline, ids_of_new_breaks

if TYPE_CHECKING:
    from jupyter_graphbreak.gate.verdict import GateVerdict
    from jupyter_graphbreak.results import Job, Report

FORMATS = ("text", "json", "html", "markdown", "sarif")

#: The maximum number of breaks that the Markdown of a job lists because only some ranks have them.
_MAX_UNEVEN_BREAKS = 50


@dataclass(frozen=True)
class CommandResult:
    """The result of a command."""

    reports: list[Report] = field(default_factory=list)
    job: Job | None = None
    notebook: str | None = None

    def redacted(self) -> CommandResult:
        """Return the result without the user's code."""
        if self.job is not None:
            return result_of_job(self.job.redacted())
        return CommandResult([report.redacted() for report in self.reports], None, self.notebook and "notebook.ipynb")


def result_of_job(job: Job) -> CommandResult:
    """Return a job of several processes as the result of a command."""
    from jupyter_graphbreak.results import Report

    return CommandResult([Report.of(process.report) for process in job.processes], job)


def render(result: CommandResult, output_format: str, verdict: GateVerdict | None, *, redacted: bool = False) -> str:
    """Return a result as text in a format, with the gate's verdict if the format can contain it.

    The verdict refers to the unredacted result.
    """
    new_break_ids = [ids_of_new_breaks(verdict, report) for report in result.reports] if verdict is not None else None
    shown_result = result.redacted() if redacted else result
    match output_format:
        case "json":
            return _render_json(shown_result)
        case "html":
            return _render_html(shown_result)
        case "markdown":
            return _render_markdown(shown_result, verdict, new_break_ids or [], redacted=redacted)
        case "sarif":
            return _render_sarif(shown_result, new_break_ids)
        case _:
            return _render_text(shown_result, verdict, redacted=redacted)


def verdict_lines(verdict: GateVerdict, *, redacted: bool) -> list[str]:
    """Return the gate's verdict as lines of text; if redacted, only its headline."""
    from jupyter_graphbreak.views.words.plain_text import escape_controls

    return [headline(verdict), *([] if redacted else [escape_controls(f"  {line}") for line in details(verdict)])]


def _render_text(result: CommandResult, verdict: GateVerdict | None, *, redacted: bool) -> str:
    parts = [result.job.to_text()] if result.job is not None else [report.to_text() for report in result.reports]
    if not parts:
        parts = [f"no reports in {result.notebook}: --execute runs it with every cell explained"]
    if verdict is not None:
        parts.append("\n".join(verdict_lines(verdict, redacted=redacted)))
    return "\n\n".join(parts)


def _render_json(result: CommandResult) -> str:
    if result.job is not None:
        return result.job.to_json().decode()
    if result.notebook is None:
        return result.reports[0].to_json().decode()
    return json.dumps([report.to_dict() for report in result.reports])


def _render_html(result: CommandResult) -> str:
    from jupyter_graphbreak.views.html.job import render_job_page, render_reports_page
    from jupyter_graphbreak.views.html.render import render_page

    if result.job is not None:
        return render_job_page(result.job)
    if len(result.reports) == 1:
        return render_page(result.reports[0])
    return render_reports_page(result.reports)


def _render_markdown(
    result: CommandResult, verdict: GateVerdict | None, new_break_ids: list[set[str]], *, redacted: bool
) -> str:
    from jupyter_graphbreak.views.markdown import render_markdown, render_markdown_lines
    from jupyter_graphbreak.views.words.jobs import (
        compiling_lines,
        job_headline,
        job_location_text,
        process_name,
        processes_text,
    )

    parts = []
    if verdict is not None:
        lines = [] if redacted else details(verdict)
        parts.append(render_markdown_lines(headline(verdict), lines))
    titles: list[str] = []
    if result.job is not None:
        job = result.job
        uneven_breaks = [
            f"{job_location_text(break_.place)}: {break_.gb_type}, {processes_text(job, break_)}"
            for break_ in itertools.islice((break_ for break_ in job.breaks if break_.missing_in), _MAX_UNEVEN_BREAKS)
        ]
        parts.append(render_markdown_lines(job_headline(job), [*uneven_breaks, *compiling_lines(job)]))
        titles = [process_name(process) for process in job.processes]
    parts.append(render_markdown(result.reports, titles, new_break_ids))
    return "\n\n".join(part for part in parts if part)


def _render_sarif(result: CommandResult, new_break_ids: list[set[str]] | None) -> str:
    import jupyter_graphbreak
    from jupyter_graphbreak.views.sarif import render_sarif

    reports: list[Any] = list(result.reports)
    return render_sarif(reports, jupyter_graphbreak.__version__, new_break_ids, result.notebook)

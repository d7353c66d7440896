"""Write what a command found in the format that was asked for."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.gate import gate_words
from jupyter_graphbreak.gate.verdict import new_breaks

if TYPE_CHECKING:
    from jupyter_graphbreak.gate.verdict import Verdict
    from jupyter_graphbreak.results import Job, Report

FORMATS = ("text", "json", "html", "markdown", "sarif")

#: Breaks that only some ranks have, of which the Markdown of a job says where they are.
_MOST_UNEVEN = 50


@dataclass(frozen=True)
class Found:
    """What a command found.

    Parameters
    ----------
    reports : list of Report
        Of a job those of its processes.
    job : Job or None
    notebook : str or None
        The path of the notebook that the reports are of.
    """

    reports: list[Report] = field(default_factory=list)
    job: Job | None = None
    notebook: str | None = None

    def redacted(self) -> Found:
        """Return the same without its reader's code."""
        if self.job is not None:
            return of_job(self.job.redacted())
        return Found([report.redacted() for report in self.reports], None, self.notebook and "notebook.ipynb")


def of_job(job: Job) -> Found:
    """Return what was found in several processes."""
    from jupyter_graphbreak.results import Report

    return Found([Report.of(process.report) for process in job.processes], job)


def written(found: Found, form: str, verdict: Verdict | None, *, redacted: bool = False) -> str:
    """Return what was found as text of a format, with the verdict of the gate where the format has a place for it.

    Parameters
    ----------
    found : Found
        As it is, since the gate's verdict names what it found.
    form : str
        One of :data:`FORMATS`.
    verdict : Verdict or None
    redacted : bool
        Whether to leave out the reader's code.
    """
    new = [new_breaks(verdict, report) for report in found.reports] if verdict is not None else None
    shown = found.redacted() if redacted else found
    match form:
        case "json":
            return _json(shown)
        case "html":
            return _html(shown)
        case "markdown":
            return _markdown(shown, verdict, new or [], redacted=redacted)
        case "sarif":
            return _sarif(shown, new)
        case _:
            return _text(shown, verdict, redacted=redacted)


def verdict_lines(verdict: Verdict, *, redacted: bool) -> list[str]:
    """Return the gate's decision as lines of text; redacted, without what they name."""
    from jupyter_graphbreak.views.words.plain_text import plain

    return [gate_words.headline(verdict), *([] if redacted else [plain(f"  {d}") for d in gate_words.details(verdict)])]


def _text(found: Found, verdict: Verdict | None, *, redacted: bool) -> str:
    parts = [found.job.to_text()] if found.job is not None else [report.to_text() for report in found.reports]
    if not parts:
        parts = [f"no reports in {found.notebook}: run it with --execute"]
    if verdict is not None:
        parts.append("\n".join(verdict_lines(verdict, redacted=redacted)))
    return "\n\n".join(parts)


def _json(found: Found) -> str:
    if found.job is not None:
        return found.job.to_json().decode()
    if found.notebook is None:
        return found.reports[0].to_json().decode()
    return json.dumps([report.to_dict() for report in found.reports])


def _html(found: Found) -> str:
    from jupyter_graphbreak.views.html.render import render_page
    from jupyter_graphbreak.views.jobs.job_html import render_job_page, render_reports_page

    if found.job is not None:
        return render_job_page(found.job)
    if len(found.reports) == 1:
        return render_page(found.reports[0])
    return render_reports_page(found.reports)


def _markdown(found: Found, verdict: Verdict | None, new: list[set[str]], *, redacted: bool) -> str:
    from jupyter_graphbreak.views.exchange.markdown import render_markdown, render_markdown_lines
    from jupyter_graphbreak.views.jobs.job_words import job_headline, process_name, where_in_job, who_has

    parts = []
    if verdict is not None:
        details = [] if redacted else gate_words.details(verdict)
        parts.append(render_markdown_lines(gate_words.headline(verdict), details))
    titles: list[str] = []
    if found.job is not None:
        job = found.job
        uneven = [
            f"{where_in_job(each.place)}: {each.gb_type}, {who_has(job, each)}"
            for each in itertools.islice((each for each in job.breaks if each.missing_in), _MOST_UNEVEN)
        ]
        parts.append(render_markdown_lines(job_headline(job), uneven))
        titles = [process_name(process) for process in job.processes]
    parts.append(render_markdown(found.reports, titles, new))
    return "\n\n".join(part for part in parts if part)


def _sarif(found: Found, new: list[set[str]] | None) -> str:
    import jupyter_graphbreak
    from jupyter_graphbreak.views.exchange.sarif import render_sarif

    reports: list[Any] = list(found.reports)
    return render_sarif(reports, jupyter_graphbreak.__version__, new, found.notebook)

"""A job as text: its breaks, those that only some ranks have first, and one line for each process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.jobs.job_words import job_headline, job_notes, process_name, where_in_job, who_has
from jupyter_graphbreak.views.text.report_text import summary_line
from jupyter_graphbreak.views.text.terminal import INDENT, cut, wrapped
from jupyter_graphbreak.views.words.bounds import bounded
from jupyter_graphbreak.views.words.plain_text import one_line, plain
from jupyter_graphbreak.views.words.reason import reason_of

if TYPE_CHECKING:
    from jupyter_graphbreak.report.job import Job

#: More breaks and processes than so many are counted, not told one by one.
_MOST = 50


def render_job(job: Job) -> str:
    """Return a job as text, without a line break at the end."""
    lines = [plain(f"compile_explain: {job_headline(job)}")]
    for number, listed in enumerate(map(bounded, job.breaks[:_MOST]), start=1):
        code = one_line(listed.place.code) if listed.place is not None and listed.place.code else ""
        head = f"{number:>2}  {where_in_job(listed.place)}"
        lines.append(cut(f"{head}   {code}" if code else head))
        lines.append(cut(INDENT + reason_of(listed)))
        lines.append(cut(INDENT + who_has(job, listed)))
    if len(job.breaks) > _MOST:
        lines.append(f"{INDENT}and {len(job.breaks) - _MOST} more breaks")
    for process in job.processes[:_MOST]:
        summary = summary_line(process.report).removeprefix("compile_explain").lstrip(": ")
        lines.append(cut(f" -  {process_name(process)}: {summary}"))
    if len(job.processes) > _MOST:
        lines.append(f"{INDENT}and {len(job.processes) - _MOST} more processes")
    notes = job_notes(job)
    for note in notes[:_MOST]:
        lines += wrapped(f"{note.level}: ", note.message, indent="")
    if len(notes) > _MOST:
        lines.append(f"and {len(notes) - _MOST} more notes")
    return "\n".join(lines)

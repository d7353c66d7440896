"""Render reports as Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyter_graphbreak.report.remedies import WORKING
from jupyter_graphbreak.views.text import render_text, summary_line
from jupyter_graphbreak.views.words.aftermath import aftermath
from jupyter_graphbreak.views.words.bounds import shown_part
from jupyter_graphbreak.views.words.lines import ordered_breaks
from jupyter_graphbreak.views.words.locations import location_text
from jupyter_graphbreak.views.words.plain_text import escape_controls, is_known_page, one_line
from jupyter_graphbreak.views.words.reason import reason_of
from jupyter_graphbreak.views.words.remedies import change_lines, code_of, outcome_text, target_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from jupyter_graphbreak.report.schema import Break, Report

#: The maximum number of lines in a code block.
_MAX_LINES = 200
_MAX_LINE_LENGTH = 1_000
#: The maximum number of characters in a table cell.
_MAX_CELL_LENGTH = 400
_SPECIAL_CHARACTER = re.compile(r"[!-/:-@\[-`{-~]")
# GitHub limits a comment to 65,536 characters.
_MAX_REPORTS = 50
#: The maximum number of breaks per report.
_MAX_BREAKS = 50
#: The maximum number of remedies per report.
_MAX_REMEDIES = 5
#: The maximum number of characters in one code block.
_MAX_TEXT_LENGTH = 8_000
#: The maximum number of differences per remedy.
_MAX_DIFFERENCES = 20


def render_markdown(
    reports: Sequence[Report], titles: Sequence[str] = (), new_break_ids: Sequence[AbstractSet[str]] = ()
) -> str:
    """Return reports as Markdown, each with the breaks that a gate does not allow."""
    parts = []
    for index, report in enumerate(map(shown_part, reports[:_MAX_REPORTS])):
        title = titles[index] if index < len(titles) else ""
        parts.append(_render_report(report, title, new_break_ids[index] if index < len(new_break_ids) else frozenset()))
    if len(reports) > _MAX_REPORTS:
        parts.append(f"and {len(reports) - _MAX_REPORTS} more reports")
    return "\n\n".join(parts)


def render_markdown_lines(head: str, lines: Sequence[str]) -> str:
    """Return a bold sentence and, if there are lines, a block of preformatted text with them."""
    shown_lines = [escape_controls(line[:_MAX_LINE_LENGTH]) for line in lines[:_MAX_LINES]]
    if len(lines) > _MAX_LINES:
        shown_lines.append(f"and {len(lines) - _MAX_LINES} more")
    return "\n\n".join([f"**{_escape(head)}**", *([_fence("\n".join(shown_lines))] if lines else [])])


def _render_report(report: Report, title: str, new_break_ids: AbstractSet[str]) -> str:
    summary = summary_line(report)
    parts = [f"**{_escape(title)}**: {_escape(summary)}" if title else f"**compile_explain**: {_escape(summary)}"]
    if report.breaks:
        rows = ["| | where | line | why | then |", "|---|---|---|---|---|"]
        rows += [
            _render_row(report, number, break_, new_break_ids)
            for number, break_ in enumerate(ordered_breaks(report)[:_MAX_BREAKS], start=1)
        ]
        if len(report.breaks) > _MAX_BREAKS:
            rows.append(f"| | and {len(report.breaks) - _MAX_BREAKS} more | | | |")
        parts.append("\n".join(rows))
    parts += _render_remedies(report)
    text = render_text(report)
    if len(text) > _MAX_TEXT_LENGTH:
        text = text[:_MAX_TEXT_LENGTH].rpartition("\n")[0] + "\n..."
    parts.append(f"<details><summary>the whole report</summary>\n\n{_fence(text)}\n\n</details>")
    return "\n\n".join(parts)


def _render_remedies(report: Report) -> list[str]:
    """Return Markdown for each remedy that works: its outcome, with the change collapsed below it."""
    parts = []
    working_remedies = [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]
    for remedy in working_remedies[:_MAX_REMEDIES]:
        headline = f"{target_text(report, remedy)}: {remedy.title}: {outcome_text(remedy)}"
        differences = "".join(f"\n- {_escape(difference)}" for difference in remedy.differences[:_MAX_DIFFERENCES])
        lines = [f"{'' if line.sign == '@' else line.sign}{line.text}" for line in change_lines(report, remedy)]
        text = "\n".join(map(escape_controls, lines or code_of(remedy).split("\n")))[:_MAX_TEXT_LENGTH]
        block = _fence(text, "diff" if lines else "python")
        parts.append(f"<details><summary>{_escape(headline)}</summary>\n{differences}\n\n{block}\n\n</details>")
    return parts


def _render_row(report: Report, number: int, break_: Break, new_break_ids: AbstractSet[str]) -> str:
    cause = _escape(reason_of(break_))
    if is_known_page(break_.url):
        cause = f"[{cause}]({break_.url})"
    code = one_line(break_.location.code) if break_.location is not None and break_.location.code else ""
    code_markup = f"<code>{_escape(code)}</code>" if code else ""
    sign = f"**{number} new**" if break_.id in new_break_ids else str(number)
    aftermath_text = _escape("; ".join(aftermath(report, break_)))
    return (
        f"| {sign} | {_escape(location_text(report, break_.location))} | {code_markup} | {cause} | {aftermath_text} |"
    )


def _escape(text: str) -> str:
    """Shorten text to one line, and escape it so that it cannot contain markup, mention a user or end a table cell."""
    text = one_line(text)
    text = text if len(text) <= _MAX_CELL_LENGTH else f"{text[:_MAX_CELL_LENGTH]}..."
    return _SPECIAL_CHARACTER.sub(lambda match: match[0] if match[0] in "(),.;:=/'+-" else f"&#{ord(match[0])};", text)


def _fence(text: str, language: str = "text") -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"

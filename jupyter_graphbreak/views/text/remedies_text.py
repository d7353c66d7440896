"""What was tried to remove breaks, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.text.terminal import INDENT, cut, wrapped
from jupyter_graphbreak.views.words.experiments.remedy_words import (
    breaks_of,
    change_lines,
    code_of,
    outcome,
    shown_elsewhere,
    together,
    tried_for,
    tried_for_frame,
)
from jupyter_graphbreak.views.words.plain_text import counted, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Report, Skipped
    from jupyter_graphbreak.views.words.experiments.remedy_words import Tried

#: Of more remedies than so many that work only the titles are shown; of more that fail, how many they are.
_MOST_WORKING, _MOST_FAILED = 2, 5
_MOST_NAMED = 20
#: Lines of a change that are shown.
_MOST_LINES = 16
_DEEPER = INDENT + "     "


def remedies_of_break(report: Report, number: int, listed: Break) -> list[str]:
    """Return what was tried for a break: what works with its change, what does not in a line each."""
    tried = tried_for(report, listed)
    if tried is None:
        return []
    return _tried(report, tried, number) or [f"{INDENT}tried: nothing, there is no remedy of a known kind"]


def remedies_of_frame(report: Report, skipped: Skipped) -> list[str]:
    """Return what was tried for a function that runs eagerly without a break."""
    tried = tried_for_frame(report, skipped)
    return _tried(report, tried, None) if tried is not None else []


def all_that_work(report: Report) -> list[str]:
    """Return the remedies that can be applied together, where that removes several breaks."""
    chosen = together(report)
    if len({ident for remedy in chosen for ident in remedy.breaks}) < 2:  # noqa: PLR2004
        return []
    named = joined([f"{_plain(remedy.title)} ({breaks_of(report, remedy)})" for remedy in chosen], "; ")
    alone = " (each was tried alone)" if len(chosen) > 1 else ""
    return wrapped("", f"all that work together{alone}: {named}", indent="")


def _tried(report: Report, tried: Tried, number: int | None) -> list[str]:
    lines: list[str] = []
    shown = 0
    for remedy in tried.working[:_MOST_NAMED]:
        elsewhere = shown_elsewhere(report, remedy, number) if number is not None else None
        if elsewhere is not None:
            if shown:  # the one for this break alone is there
                continue
            lines += wrapped("remedy: ", f"{_plain(remedy.title)}: {remedy.verdict}, see break {elsewhere}")
        elif shown < _MOST_WORKING:
            shown += 1
            lines += _working(report, remedy)
        else:
            lines += wrapped("remedy: ", f"{_plain(remedy.title)}: {_plain(outcome(remedy))}")
    if len(tried.working) > _MOST_NAMED:
        lines.append(f"{INDENT}and {len(tried.working) - _MOST_NAMED} more that work")
    for remedy in tried.failed[:_MOST_FAILED]:
        lines += wrapped("tried: ", f"{_plain(remedy.title)}: {_plain(outcome(remedy))}")[:2]
    if len(tried.failed) > _MOST_FAILED:
        lines.append(f"{INDENT}and {counted(len(tried.failed) - _MOST_FAILED, 'more attempt')} that did not work")
    for person in tried.person[:_MOST_NAMED]:
        lines += wrapped("decide: ", person)
    return lines


def _working(report: Report, remedy: Remedy) -> list[str]:
    lines = wrapped("remedy: ", _plain(remedy.title))
    lines += wrapped("", _plain(outcome(remedy)), _DEEPER)
    lines += [line for each in remedy.differences[:_MOST_LINES] for line in wrapped("differs: ", _plain(each), _DEEPER)]
    changes = change_lines(report, remedy)
    shown = [line.text if line.sign == "@" else f"{line.sign}{line.text}" for line in changes]
    if not remedy.edits or remedy.settings:
        shown += code_of(remedy).split("\n")
    return lines + [cut(f"{_DEEPER}  {line.expandtabs(4)}") for line in _some(shown)]


def _some(lines: Sequence[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return list(lines)
    return [*lines[:_MOST_LINES], f"... and {len(lines) - _MOST_LINES} more lines"]


def _plain(text: str) -> str:
    return text.replace("`", "")

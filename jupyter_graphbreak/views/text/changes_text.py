"""What changed between two runs, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.text.terminal import cut, wrapped
from jupyter_graphbreak.views.words.bounds import bounded
from jupyter_graphbreak.views.words.changes import described, figures, headline
from jupyter_graphbreak.views.words.plain_text import plain

if TYPE_CHECKING:
    from jupyter_graphbreak.report.diff import Changes

#: More changed breaks than so many are counted instead of listed.
_MOST = 50


def render_changes(changes: Changes) -> list[str]:
    """Return the changes as lines for a terminal 100 columns wide: what it comes to, the figures, each break."""
    changes = bounded(changes)
    width = max((len(change.change) + 1 for change in changes.breaks), default=0)
    name = plain(changes.before.name or "the run before")
    lines = wrapped("", f"since {name}: {headline(changes)}", "")
    lines += wrapped("", ", ".join(figures(changes)))
    lines += [
        cut(f"    {change.change:<{width}}{'   '.join(filter(None, described(change)))}")
        for change in changes.breaks[:_MOST]
    ]
    if len(changes.breaks) > _MOST:
        lines.append(f"    and {len(changes.breaks) - _MOST} more")
    return lines

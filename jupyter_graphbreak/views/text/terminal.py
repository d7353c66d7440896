"""Lines of text for a terminal 100 columns wide."""

from __future__ import annotations

from jupyter_graphbreak.views.words.plain_text import one_line, plain

WIDTH = 100
INDENT = "    "
#: Characters of one sentence.
_LONGEST = 20_000


def wrapped(head: str, text: str, indent: str = INDENT) -> list[str]:
    """Return a sentence in lines of at most 100 columns, the further ones under the first word."""
    words = one_line(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...").split(" ")
    lines, line = [], indent + head
    for word in words:
        if len(line) + len(word) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(indent + head)
        line += word + " "
    return [*lines, line.rstrip()]


def cut(line: str) -> str:
    """Return a line of at most 100 columns, its end cut off where it is longer."""
    line = plain(line[: WIDTH + 1])
    return line if len(line) <= WIDTH else line[: WIDTH - 3].rstrip() + "..."

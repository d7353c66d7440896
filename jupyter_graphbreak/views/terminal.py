"""Lines of text for a terminal 100 columns wide."""

from __future__ import annotations

import re
import unicodedata

WIDTH = 100
INDENT = "    "


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 break", "2 breaks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def wrapped(head: str, text: str, indent: str = INDENT) -> list[str]:
    """Return a sentence in lines of at most 100 columns, the further ones under the first word."""
    words = one_line(text).split(" ")
    lines, line = [], indent + head
    for word in words:
        if len(line) + len(word) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(indent + head)
        line += word + " "
    return [*lines, line.rstrip()]


def one_line(text: str) -> str:
    """Return a text on one line, as a terminal may show it."""
    return plain(re.sub(r"\s+", " ", text).strip())


def cut(line: str) -> str:
    """Return a line of at most 100 columns, its end cut off where it is longer."""
    line = plain(line)
    return line if len(line) <= WIDTH else line[: WIDTH - 3].rstrip() + "..."


def plain(text: str) -> str:
    """Show characters that would steer a terminal or reorder the text as escapes."""
    return "".join(
        char
        if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )

"""Python source as HTML: escaped, coloured by Pygments where it can be, with parts marked."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Columns of a line that belong together: start, end, class of the style sheet.
Run: TypeAlias = tuple[int, int, str]

_CLASSES = (
    ("Comment", "c"),
    ("Literal.String", "s"),
    ("Literal.Number", "m"),
    ("Keyword", "k"),
    ("Operator.Word", "k"),
    ("Name.Decorator", "d"),
    ("Name.Function", "f"),
    ("Name.Class", "f"),
    ("Name.Builtin", "b"),
)

# Controls, but for tab and line feed, and what changes the order or the visibility of the text around it.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """Return a text in which no character hides or reorders others: those that would are shown as escapes."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def token_runs(text: str) -> list[list[Run]]:
    r"""Return the coloured parts of each line of a Python text; a line break is ``"\n"`` only."""
    lines: list[list[Run]] = [[] for _ in range(text.count("\n") + 1)]
    number = column = 0
    for name, value in _tokens(text):
        for index, part in enumerate(value.split("\n")):
            if index:
                number, column = number + 1, 0
            if part and name:
                lines[number].append((column, column + len(part), name))
            column += len(part)
    return lines


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    from pygments.lexers.python import PythonLexer

    # Unprocessed, because get_tokens() rewrites line ends and the columns would shift.
    for _, kind, value in PythonLexer().get_tokens_unprocessed(text):
        path = str(kind).removeprefix("Token.")
        yield next((name for prefix, name in _CLASSES if path.startswith(prefix)), ""), value


def marked_code(text: str, runs: Iterable[Run], marks: Sequence[tuple[int, int]] = ()) -> Markup:
    """Return one line as HTML, its runs as ``<span>`` and the marked columns within ``<mark>``."""
    edges = {0, len(text)}
    names: dict[int, str] = {}
    for start, end, name in runs:
        edges.update((start, end))
        names[start] = name
        names.setdefault(end, "")
    for start, end in marks:
        edges.update((start, end))
    pieces: list[str] = []
    within, name = False, ""
    for start, end in pairwise(sorted(edges)):
        inside = any(first <= start and end <= last for first, last in marks)
        if inside != within:
            pieces.append("<mark>" if inside else "</mark>")
            within = inside
        name = names.get(start, name)
        piece = str(escape(visible(text[start:end])))
        pieces.append(f'<span class="{name}">{piece}</span>' if name else piece)
    if within:
        pieces.append("</mark>")
    return Markup("".join(pieces))  # noqa: S704 - every piece of the text went through escape()

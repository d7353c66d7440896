"""Python source as HTML: escaped, coloured by Pygments where it can be, with parts marked."""

from __future__ import annotations

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


def token_runs(text: str) -> list[list[Run]]:
    r"""Return the coloured parts of each line of a Python text; a line break is ``"\\n"`` only."""
    lines: list[list[Run]] = [[] for _ in range(text.count("\n") + 1)]
    number, line_start = 0, 0
    for start, name, value in _tokens(text):
        for index, part in enumerate(value.split("\n")):
            if index:
                number += 1
                start = line_start = start + 1
            if part and name:
                lines[number].append((start - line_start, start - line_start + len(part), name))
            start += len(part)
    return lines


def _tokens(text: str) -> Iterator[tuple[int, str, str]]:
    from pygments.lexers.python import PythonLexer

    # Unprocessed, because get_tokens() rewrites line ends and the columns would shift.
    for start, kind, value in PythonLexer().get_tokens_unprocessed(text):
        path = str(kind).removeprefix("Token.")
        yield start, next((name for prefix, name in _CLASSES if path.startswith(prefix)), ""), value


def marked_code(text: str, runs: Iterable[Run], marks: Sequence[tuple[int, int]] = ()) -> Markup:
    """Return one line as HTML, its runs as ``<span>`` and the marked columns within ``<mark>``."""
    edges = {0, len(text)}
    names: dict[int, str] = {}
    for start, end, name in runs:
        edges.update((start, end))
        names.update(dict.fromkeys(range(start, end), name))
    for start, end in marks:
        edges.update((start, end))
    ordered = sorted(edges)
    pieces: list[str] = []
    within = False
    for start, end in pairwise(ordered):
        inside = any(first <= start and end <= last for first, last in marks)
        if inside != within:
            pieces.append("<mark>" if inside else "</mark>")
            within = inside
        piece = str(escape(text[start:end]))
        pieces.append(f'<span class="{names[start]}">{piece}</span>' if start in names else piece)
    if within:
        pieces.append("</mark>")
    # Every piece of the text went through escape(); the rest is written above.
    return Markup("".join(pieces))

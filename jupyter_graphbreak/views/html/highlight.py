"""Turn Python source into HTML: escape it, colour its tokens, and mark ranges of columns."""

from __future__ import annotations

import builtins
import keyword
import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: A range of columns with one colour: the start, the end, and the CSS class.
ColoredRange: TypeAlias = tuple[int, int, str]

#: Python tokens; the first alternative that matches wins. This is faster than a full lexer, and colours invalid code
#: as well. The names of the groups are the CSS classes, except for ``name``.
_TOKEN = re.compile(
    r"""(?P<c>\#[^\n]*)
    |(?P<s>(?:[rRbBfFuU]{1,2})?(?:\"{3}(?:[^\\]|\\.)*?(?:\"{3}|\Z)|'{3}(?:[^\\]|\\.)*?(?:'{3}|\Z)
        |"(?:[^"\\\n]|\\.)*(?:"|$)|'(?:[^'\\\n]|\\.)*(?:'|$)))
    |(?P<m>(?<![\w.])(?:0[xXoObB][\da-fA-F_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?[jJ]?))
    |(?P<d>^[ \t]*@[\w.]+)
    |(?P<f>(?<=\bdef\ )\w+|(?<=\bclass\ )\w+)
    |(?P<name>(?<![\w.])[^\W\d]\w*)""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_KEYWORDS = frozenset(keyword.kwlist)
_BUILTINS = frozenset(name for name in dir(builtins) if name.islower() and not name.startswith("_"))

# Control characters except tab and line feed, and characters that reorder or hide the text around them.
_INVISIBLE_CHARACTER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)

_ESCAPED_CHARACTER = re.compile(f"[&<>'\"]|{_INVISIBLE_CHARACTER.pattern}")


def escape_invisible(text: str) -> str:
    """Escape control characters except tab and line feed, and characters that hide or reorder text."""
    if text.isascii() and text.isprintable():
        return text  # the common case
    return _INVISIBLE_CHARACTER.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def colored_ranges(text: str) -> list[list[ColoredRange]]:
    r"""Return the coloured ranges of columns for each line of Python source; only ``"\n"`` ends a line."""
    lines: list[list[ColoredRange]] = [[] for _ in range(text.count("\n") + 1)]
    number = start = 0  # the current line and its start in the text
    for token in _TOKEN.finditer(text):
        name = _css_class_of(token)
        if not name:
            continue
        skipped_lines = text.count("\n", start, token.start())
        if skipped_lines:
            number, start = number + skipped_lines, text.rindex("\n", start, token.start()) + 1
        column = token.start() - start
        first, *further_parts = token[0].split("\n")
        lines[number].append((column, column + len(first), name))
        for part in further_parts:
            start = text.index("\n", start) + 1
            number += 1
            if part:
                lines[number].append((0, len(part), name))
    return lines


def highlight_python(text: str) -> Markup:
    """Return Python source as coloured HTML."""
    if '"""' in text or "'''" in text:
        return Markup(_highlight_part(text))  # noqa: S704 - every part was escaped
    return Markup("\n".join(map(_highlight_part, text.split("\n"))))  # noqa: S704 - every part was escaped


@lru_cache(maxsize=512)  # the code of different graphs has many lines in common
def _highlight_part(text: str) -> str:
    pieces: list[str] = []
    end = 0
    for token in _TOKEN.finditer(text):
        if name := _css_class_of(token):
            pieces += escape_html(text[end : token.start()]), f'<span class="{name}">{escape_html(token[0])}</span>'
            end = token.end()
    pieces.append(escape_html(text[end:]))
    return "".join(pieces)


def _css_class_of(token: re.Match[str]) -> str:
    if token.lastgroup != "name":
        return token.lastgroup or ""
    return "k" if token[0] in _KEYWORDS else "b" if token[0] in _BUILTINS else ""


def marked_code(text: str, colors: Iterable[ColoredRange], marks: Sequence[tuple[int, int]] = ()) -> Markup:
    """Return one line as HTML, with each coloured range as a ``<span>`` and each marked range as a ``<mark>``."""
    edges = {0, len(text)}
    names: dict[int, str] = {}
    for start, end, name in colors:
        edges.update((start, end))
        names[start] = name
        names.setdefault(end, "")
    for start, end in marks:
        edges.update((start, end))
    pieces: list[str] = []
    is_in_mark, name = False, ""
    for start, end in pairwise(sorted(edges)):
        is_marked = any(first <= start and end <= last for first, last in marks)
        if is_marked != is_in_mark:
            pieces.append("<mark>" if is_marked else "</mark>")
            is_in_mark = is_marked
        name = names.get(start, name)
        piece = escape_html(text[start:end])
        pieces.append(f'<span class="{name}">{piece}</span>' if name else piece)
    if is_in_mark:
        pieces.append("</mark>")
    return Markup("".join(pieces))  # noqa: S704 - every part was escaped


def escape_html(text: str) -> str:
    """Escape a string, including its invisible characters; faster than ``markupsafe.escape`` for many short strings."""
    if _ESCAPED_CHARACTER.search(text) is None:
        return text
    text = escape_invisible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("'", "&#39;").replace('"', "&#34;")

"""Make text safe to show, and put numbers and lists into words."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Pages that a report may link to: PyTorch's pages, and its registry of graph breaks.
_KNOWN_PAGES = re.compile(
    r"https://(?:(?:[a-z0-9-]+\.)*pytorch\.org|meta-pytorch\.github\.io/compile-graph-break-site)(?:/[\w./#-]*)?",
    re.ASCII,
)

#: The maximum number of items of one list to show.
_MAX_WORDS = 40
#: :func:`whole_clauses` cuts the first clause if it is longer than this many times the limit.
_MAX_CLAUSE_FACTOR = 3


def is_known_page(url: str | None) -> bool:
    """Return whether a report may link to a page. An untrusted report may contain any address."""
    return url is not None and _KNOWN_PAGES.fullmatch(url) is not None


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun: "1 break", "2 breaks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def times_text(number: int) -> str:
    """Return how often something happened: "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def join_words(words: Sequence[str], separator: str, limit: int = _MAX_WORDS) -> str:
    """Join words; of a list that is longer than the limit, join only the first ones and add the number of the rest."""
    more = len(words) - limit
    return separator.join(words[:limit]) + (f" and {more} more" if more > 0 else "")


def join_with_and(words: Sequence[str]) -> str:
    """Join words with commas and a final "and": "A", "A and B", "A, B and C"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def graph_names(ids: Sequence[str]) -> str:
    """Return the names of graphs: "graph A", "graphs A and B"; of a very long list, only the first."""
    more = len(ids) - _MAX_WORDS
    names = [*ids[:_MAX_WORDS], *([f"{more} more"] if more > 0 else [])]
    return f"graph{'s' if len(ids) > 1 else ''} {join_with_and(names)}"


def join_numbers(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text, in which three or more in a row become a range: "1 to 7 and 9"."""
    parts = number_ranges(numbers, " to ")
    return join_with_and(parts) if len(parts) <= _MAX_WORDS else join_words(parts, ", ")


def breaks_text(numbers: Sequence[int]) -> str:
    """Return sorted numbers of breaks with their noun: "break 1", "breaks 1 and 2"."""
    return f"break{'s' if len(numbers) > 1 else ''} {join_numbers(numbers)}"


def number_ranges(numbers: Sequence[int], separator: str) -> list[str]:
    """Return sorted numbers as strings; three or more in a row become a range."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    parts: list[str] = []
    for row in ranges:
        parts += [f"{row[0]}{separator}{row[-1]}"] if len(row) > 2 else map(str, row)  # noqa: PLR2004
    return parts


def with_arrows(text: str) -> str:
    """Replace each "->" between spaces with an arrow: "2 -> 3" becomes "2 → 3"."""
    return text.replace(" -> ", " → ")


def without_backticks(text: str) -> str:
    """Return a string without its backticks, for output that cannot show code in a different font."""
    return text.replace("`", "")


def duration_text(seconds: float) -> str:
    """Return a time in a suitable unit: "12 µs", "84 ms", "5.10 s", "31.2 s", "1.4 min"."""
    for limit, factor, form in (
        (0.001, 1e6, "{:.0f} µs"),
        (0.1, 1e3, "{:.0f} ms"),
        (10, 1, "{:.2f} s"),
        (60, 1, "{:.1f} s"),
    ):
        if seconds < limit:
            return form.format(seconds * factor)
    return f"{seconds / 60:.1f} min"


def whole_clauses(text: str, limit: int) -> str:
    """Return the first clauses of the text, about as many as fit into a number of characters."""
    if len(text) <= limit:
        return text
    ends = [match.start() for match in re.finditer(r"(?:; |\. |, (?=and |but |then ))", text)]
    fitting_ends = [end for end in ends if end <= limit]
    if fitting_ends:
        return text[: fitting_ends[-1]]
    clause, longest = text[: ends[0]] if ends else text, _MAX_CLAUSE_FACTOR * limit
    return clause if len(clause) <= longest else f"{clause[:longest]}..."


def one_line(text: str) -> str:
    """Return a string as one line that is safe to show in a terminal."""
    return escape_controls(re.sub(r"\s+", " ", text).strip())


def escape_controls(text: str) -> str:
    """Escape characters that control a terminal or reorder the text."""
    if text.isascii() and text.isprintable():
        return text  # the common case
    return "".join(
        char
        if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )

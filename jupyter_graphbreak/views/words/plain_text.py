"""Text that nothing in it can turn against its reader, and numbers with their nouns."""

from __future__ import annotations

import re
import unicodedata

#: The pages to which links of a report may lead: PyTorch's, and its registry of graph breaks.
_KNOWN_PAGES = re.compile(
    r"https://(?:(?:[a-z0-9-]+\.)*pytorch\.org|meta-pytorch\.github\.io/compile-graph-break-site)(?:/[\w./#-]*)?",
    re.ASCII,
)


def is_known_page(url: str | None) -> bool:
    """Whether a report may link to a page: a report may come from anybody, and so may the addresses in it."""
    return url is not None and _KNOWN_PAGES.fullmatch(url) is not None


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 break", "2 breaks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def one_line(text: str) -> str:
    """Return a text on one line, as a terminal may show it."""
    return plain(re.sub(r"\s+", " ", text).strip())


def plain(text: str) -> str:
    """Show characters that would steer a terminal or reorder the text as escapes."""
    return "".join(
        char
        if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )

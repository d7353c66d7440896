"""The lines whose values a user has requested."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.schema import Report
    from jupyter_graphbreak.report.values import EntryValues

_LINE = re.compile(r"(?:(?P<file>.*):)?(?P<line>\d{1,9})")


class RequestedLine(NamedTuple):
    """A line whose operations are listed. If ``file`` is ``None``, the line may be in any cell or file of the user."""

    line: int
    file: str | None = None

    @classmethod
    def parse(cls, specification: str) -> RequestedLine:
        """Return the line that a string such as ``12`` or ``model.py:12`` specifies."""
        match = _LINE.fullmatch(specification.strip())
        if match is None:
            raise ValueError(f"{specification!r} is not a line: use, for example, 12 or model.py:12")
        return cls(int(match["line"]), match["file"] or None)

    def __str__(self) -> str:
        return f"{self.line} of {self.file}" if self.file is not None else str(self.line)

    def matches(self, location: Location, source: Source | None) -> bool:
        """Return whether a location is on this line."""
        if location.line != self.line or source is None:
            return False
        if self.file is None:
            return source.kind != "library"
        return f"/{source.path or source.name}".endswith(f"/{self.file.removeprefix('./')}") or source.name == self.file


def parse_lines(specifications: Iterable[str]) -> list[RequestedLine]:
    """Return the lines that strings specify, or raise a ValueError; see :meth:`RequestedLine.parse`."""
    return [RequestedLine.parse(specification) for specification in specifications]


def sentences_about_missing_lines(
    lines: Iterable[RequestedLine], values: Sequence[EntryValues], report: Report
) -> list[str]:
    """Return a sentence for each requested line that computed no tensor."""
    sources = {source.id: source for source in report.sources}
    locations = [value.location for entry in values for value in entry.lines]
    return [
        f"Line {line} computed no tensor in the examined calls."
        for line in lines
        if not any(line.matches(location, sources.get(location.source)) for location in locations)
    ]

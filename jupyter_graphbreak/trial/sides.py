"""Which sides of conditions were taken over several runs: the source text is changed so that each test is noted."""

from __future__ import annotations

import builtins
import contextlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What the changed text calls.
NAME = "__graphbreak_side__"


@dataclass(frozen=True)
class Range:
    """Where a test stands, as ``ast`` counts: lines from 1, columns in bytes of UTF-8."""

    line: int
    column: int
    end_line: int
    end_column: int


def noting(text: str, tests: Sequence[Range], first: int = 0) -> str:
    """Return a text in which each test ``E`` is ``__graphbreak_side__(i, E)``, ``i`` counting the tests.

    Lines stay where they are. One test may lie within another.

    Parameters
    ----------
    text : str
    tests : sequence of Range
    first : int
        The number of the first test.
    """
    lines = [line.encode() for line in text.split("\n")]
    # Of two that end at one place the inner one is closed first, of two that begin there the outer one opened first;
    # what is inserted from the end of the text on moves nothing that is yet to come.
    marks: list[tuple[tuple[int, ...], bytes]] = []
    for index, test in enumerate(tests, start=first):
        begin, end = (test.line, test.column), (test.end_line, test.end_column)
        marks.append(((*begin, 1, -end[0], -end[1]), f"{NAME}({index}, (".encode()))
        marks.append(((*end, 0, -begin[0], -begin[1]), b"))"))
    for (line, column, *_), inserted in sorted(marks, reverse=True):
        lines[line - 1] = lines[line - 1][:column] + inserted + lines[line - 1][column:]
    return b"\n".join(lines).decode()


@contextlib.contextmanager
def noted() -> Iterator[dict[int, set[bool]]]:
    """Note which sides are taken while the context is open: ``{index: {True, False}}``."""
    taken: dict[int, set[bool]] = defaultdict(set)

    def note(index: int, value: Any) -> bool:
        side = bool(value)
        taken[index].add(side)
        return side

    setattr(builtins, NAME, note)
    try:
        yield taken
    finally:
        delattr(builtins, NAME)

"""Where the breaks of a program stand in a changed one: a place still breaks, whatever the cause is by then."""

from __future__ import annotations

import difflib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.report.schema import Break, Report

#: The file name of a source and one of its lines.
Line = tuple[str, int]


class RunBreaks(NamedTuple):
    """The breaks of one run, and the file name of each source of its report, by the source's id."""

    report: Report
    files: Mapping[str, str]

    def placed(self) -> Iterator[tuple[Break, frozenset[Line]]]:
        """Yield each break with the lines that it stands on; with none, where nobody knows them."""
        for graph_break in self.report.breaks:
            yield graph_break, _lines_of(graph_break, self.files)


@dataclass(frozen=True)
class Comparison:
    """The breaks of a program and those of a changed one.

    Parameters
    ----------
    gone : frozenset of str
        The ids of the program's breaks whose places no longer break, on any input.
    other_cause : dict
        For breaks whose places break for another cause now: what breaks there.
    new : list of Break
        What breaks where the program does not, in the order in which it came.
    """

    gone: frozenset[str]
    other_cause: Mapping[str, Break]
    new: list[Break]


def compare_breaks(
    before: Sequence[RunBreaks], after: Sequence[RunBreaks], texts: Mapping[str, tuple[str, str]]
) -> Comparison:
    """Compare the breaks of a program with those of a changed one.

    Parameters
    ----------
    before : sequence of RunBreaks
        The program's, first those of its first call, whose ids count; then those on other inputs.
    after : sequence of RunBreaks
        The changed program's, on all inputs.
    texts : mapping
        The text of each file that was changed, before and after, by its name.
    """
    moved = {name: _moved(*both) for name, both in texts.items()}

    def there(lines: Iterable[Line]) -> frozenset[Line]:
        return frozenset(
            (name, new) for name, line in lines for new in (moved[name][line] if name in moved else {line})
        )

    known = [(graph_break, lines, there(lines)) for run in before for graph_break, lines in run.placed()]
    now = [placed for run in after for placed in run.placed()]
    first = before[0].report.breaks
    still: dict[str, list[Break]] = {}
    for graph_break, lines, places in known[: len(first)]:
        others = [(other, at) for other, of, at in known if other is not graph_break and of.isdisjoint(lines)]
        still[graph_break.id] = [
            found
            for found, at in now
            if _meets(graph_break, places, found, at)
            and not (not _alike(graph_break, found) and any(_alike(o, found) and at & of for o, of in others))
        ]
    return Comparison(
        frozenset(ident for ident, found in still.items() if not found),
        {
            graph_break.id: still[graph_break.id][0]
            for graph_break in first
            if still[graph_break.id] and all(found.gb_type != graph_break.gb_type for found in still[graph_break.id])
        },
        [found for found, at in now if not any(_meets(old, places, found, at) for old, _, places in known)],
    )


def _meets(old: Break, places: frozenset[Line], found: Break, at: frozenset[Line]) -> bool:
    """Whether a break stands at the place of another; those that nobody knows a place of are known by their cause."""
    return bool(places & at) if places or at else old.gb_type == found.gb_type


def _alike(one: Break, other: Break) -> bool:
    return (one.gb_type, _code(one)) == (other.gb_type, _code(other))


def _code(graph_break: Break) -> str | None:
    return graph_break.location.code if graph_break.location is not None else None


def _lines_of(graph_break: Break, files: Mapping[str, str]) -> frozenset[Line]:
    at = graph_break.location
    if at is None:
        return frozenset()
    name = files.get(at.source, at.source)
    return frozenset((name, line) for line in range(at.line, max(at.end_line, at.line) + 1))


def _moved(old: str, new: str) -> dict[int, set[int]]:
    """Return for each line of a text the lines of a changed text that it is now, or that took its place."""
    before, after = old.split("\n"), new.split("\n")
    moved: dict[int, set[int]] = defaultdict(set)
    added: dict[str, set[int]] = defaultdict(set)
    lost: list[int] = []
    for kind, first, last, new_first, new_last in difflib.SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        if kind == "equal":
            moved.update((first + step + 1, {new_first + step + 1}) for step in range(last - first))
            continue
        for number in range(new_first, new_last):
            added[after[number].strip()].add(number + 1)
        for number in range(first, last):
            moved[number + 1] = set(range(new_first + 1, new_last + 1))
            lost.append(number)
    for number in lost:  # a block that stands elsewhere now, further in or out
        if before[number].strip():
            moved[number + 1] |= added[before[number].strip()]
    return moved

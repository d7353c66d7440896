"""Compare the breaks of a program with those of a changed one, by their places: the causes may change."""

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

    def with_lines(self) -> Iterator[tuple[Break, frozenset[Line]]]:
        """Yield each break with its lines; with none if its location is not known."""
        for break_ in self.report.breaks:
            yield break_, _lines_of(break_, self.files)


@dataclass(frozen=True)
class BreakComparison:
    """The breaks of a program and those of a changed one.

    Parameters
    ----------
    gone : frozenset of str
        The ids of the program's breaks whose places no longer break on any input.
    other_cause : dict
        For breaks whose places now break for a different cause: the new break.
    new : list of Break
        The breaks at places where the program does not break, in the order in which they occurred.
    """

    gone: frozenset[str]
    other_cause: Mapping[str, Break]
    new: list[Break]


def compare_breaks(
    before: Sequence[RunBreaks], after: Sequence[RunBreaks], texts: Mapping[str, tuple[str, str]]
) -> BreakComparison:
    """Compare the breaks of a program with those of a changed one.

    Parameters
    ----------
    before : sequence of RunBreaks
        The breaks of the program: first those of its first call, to whose ids the result refers, then those on other
        inputs.
    after : sequence of RunBreaks
        The breaks of the changed program on all inputs.
    texts : mapping
        The old and the new text of each changed file, by its name.
    """
    line_maps = {name: _line_map(*both) for name, both in texts.items()}

    def new_lines_of(lines: Iterable[Line]) -> frozenset[Line]:
        return frozenset(
            (name, new) for name, line in lines for new in (line_maps[name][line] if name in line_maps else {line})
        )

    known = [(break_, lines, new_lines_of(lines)) for run in before for break_, lines in run.with_lines()]
    breaks_after = [pair for run in after for pair in run.with_lines()]
    first = before[0].report.breaks
    breaks_at_place: dict[str, list[Break]] = {}
    for break_, lines, places in known[: len(first)]:
        others = [(other, at) for other, of, at in known if other is not break_ and of.isdisjoint(lines)]
        breaks_at_place[break_.id] = [
            new_break
            for new_break, at in breaks_after
            if _is_same_place(break_, places, new_break, at)
            and not (
                not _has_same_cause(break_, new_break)
                and any(_has_same_cause(o, new_break) and at & of for o, of in others)
            )
        ]
    return BreakComparison(
        frozenset(ident for ident, new_breaks in breaks_at_place.items() if not new_breaks),
        {
            break_.id: breaks_at_place[break_.id][0]
            for break_ in first
            if breaks_at_place[break_.id]
            and all(new_break.gb_type != break_.gb_type for new_break in breaks_at_place[break_.id])
        },
        [
            new_break
            for new_break, at in breaks_after
            if not any(_is_same_place(old, places, new_break, at) for old, _, places in known)
        ],
    )


def _is_same_place(old: Break, places: frozenset[Line], new_break: Break, at: frozenset[Line]) -> bool:
    """Return whether two breaks are at the same place; breaks without a known place are compared by their cause."""
    return bool(places & at) if places or at else old.gb_type == new_break.gb_type


def _has_same_cause(one: Break, other: Break) -> bool:
    return (one.gb_type, _code(one)) == (other.gb_type, _code(other))


def _code(break_: Break) -> str | None:
    return break_.location.code if break_.location is not None else None


def _lines_of(break_: Break, files: Mapping[str, str]) -> frozenset[Line]:
    at = break_.location
    if at is None:
        return frozenset()
    name = files.get(at.source, at.source)
    return frozenset((name, line) for line in range(at.line, max(at.end_line, at.line) + 1))


def _line_map(old: str, new: str) -> dict[int, set[int]]:
    """Map each line of a text to the lines of the changed text that it became, or that replaced it."""
    before, after = old.split("\n"), new.split("\n")
    line_map: dict[int, set[int]] = defaultdict(set)
    added: dict[str, set[int]] = defaultdict(set)
    lost: list[int] = []
    for kind, first, last, new_first, new_last in difflib.SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        if kind == "equal":
            line_map.update((first + step + 1, {new_first + step + 1}) for step in range(last - first))
            continue
        for number in range(new_first, new_last):
            added[after[number].strip()].add(number + 1)
        for number in range(first, last):
            line_map[number + 1] = set(range(new_first + 1, new_last + 1))
            lost.append(number)
    for number in lost:  # a block that was moved, or whose indentation changed
        if before[number].strip():
            line_map[number + 1] |= added[before[number].strip()]
    return line_map

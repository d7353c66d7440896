"""Compare two runs of the same code: breaks that are gone, new or moved, and the figures of both runs.

Edits shift lines, so line numbers cannot identify a break. The lines of both runs are aligned like in a text diff, and
two breaks of one kind are the same break if their lines correspond or if their expressions are equal.

Code that PyTorch holds from earlier runs is not recorded when it runs, so only code that both runs compiled is compared
(:mod:`~jupyter_graphbreak.analysis.reports.reuse`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.analysis.reports.reuse import Line, Reuse
from jupyter_graphbreak.report.diff import Change, Changes, Place, Reused, RunFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.report.location import Source
    from jupyter_graphbreak.report.schema import Break, Frame, Report, Skipped

#: Comparisons of lines that a diff of two texts may take.
_MOST_STEPS = 100_000_000


def compare_runs(before: Report, after: Report) -> Changes:
    """Return the changes from one run to a later run of the same code, edited or not."""
    moved_to = _corresponding_lines(before, after)
    pairs, gone, new = _matched(before.breaks, after.breaks, moved_to)
    old_names, new_names = _names(before), _names(after)
    later = Reuse(before, after, gone, moved_to)
    earlier = Reuse(after, before, new, {now: old for old, now in moved_to.items()})
    in_part = later.hides_something or earlier.hides_something
    hidden = {id(break_) for break_ in (*later.hidden, *earlier.hidden)}
    gone = [old for old in gone if id(old) not in hidden]
    new = [now for now in new if id(now) not in hidden]
    moved = [(old, now) for old, now in pairs if _place(old, old_names) != _place(now, new_names)]
    shifted = {now.id for _, now in moved}
    return Changes(
        before=_figures(before, later if in_part else None),
        after=_figures(after, earlier if in_part else None),
        breaks=[
            *(_change("gone", old, _place(old, old_names), None) for old in gone),
            *(_change("new", now, None, _place(now, new_names)) for now in new),
            *(_change("moved", now, _place(old, old_names), _place(now, new_names)) for old, now in moved),
            *(_change("unknown", old, _place(old, old_names), None) for old in later.hidden),
            *(_change("unknown", now, None, _place(now, new_names)) for now in earlier.hidden),
        ],
        same=[now.id for _, now in pairs if now.id not in shifted],
        reused=[
            *(_reused(part, old_names, "after") for part in later.functions),
            *(_reused(part, new_names, "before") for part in earlier.functions),
        ],
    )


def same_breaks(before: Report, after: Report) -> dict[str, str]:
    """Return, for each break that both runs have, its id in the later run by its id in the earlier run."""
    pairs, _, _ = _matched(before.breaks, after.breaks, _corresponding_lines(before, after))
    return {old.id: now.id for old, now in pairs}


def _matched(
    before: list[Break], after: list[Break], moved_to: dict[Line, Line]
) -> tuple[list[tuple[Break, Break]], list[Break], list[Break]]:
    """Pair the breaks of two runs, the most certain first; return the pairs and the unpaired breaks of each run."""

    def line(break_: Break) -> Line | None:
        return (break_.location.source, break_.location.line) if break_.location is not None else None

    def function(break_: Break) -> str | None:
        return break_.location.function if break_.location is not None else None

    def code(break_: Break) -> str | None:
        text = break_.location.code if break_.location is not None else None
        return " ".join(text.split()) if text is not None else None

    def old_line(break_: Break) -> Any:
        at = line(break_)
        return moved_to.get(at, break_.id) if at is not None else None  # a deleted line matches no other line

    # Keys of a break in the earlier and in the later run, from the most to the least certain.
    keys: list[tuple[Callable[[Break], Any], Callable[[Break], Any]]] = [
        (lambda old: (old_line(old), code(old)), lambda now: (line(now), code(now))),
        (old_line, line),
        (lambda old: (function(old), code(old)), lambda now: (function(now), code(now))),
        (code, code),
    ]
    pairs: list[tuple[Break, Break]] = []
    gone, new = list(before), list(after)
    for old_key, new_key in keys:
        waiting: dict[Any, deque[Break]] = defaultdict(deque)
        paired: set[int] = set()
        for now in new:
            waiting[now.gb_type, new_key(now)].append(now)
        left = []
        for old in gone:
            same = waiting.get((old.gb_type, old_key(old)))
            if same:
                now = same.popleft()
                pairs.append((old, now))
                paired.add(id(now))
            else:
                left.append(old)
        gone, new = left, [now for now in new if id(now) not in paired]
    order = {break_.id: index for index, break_ in enumerate(after)}
    return sorted(pairs, key=lambda pair: order[pair[1].id]), gone, new


def _corresponding_lines(before: Report, after: Report) -> dict[Line, Line]:
    """Return the line in the later run of each line that is unchanged or was edited in place."""
    lines: dict[Line, Line] = {}
    for old, new in _corresponding_sources(before, after):
        old_lines, new_lines = list(_lines(old)), list(_lines(new))
        for start, new_start, number in _aligned([text for _, text in old_lines], [text for _, text in new_lines]):
            for offset in range(number):
                at, to = old_lines[start + offset][0], new_lines[new_start + offset][0]
                lines[old.id, at] = (new.id, to)
    return lines


def _aligned(old: list[str], new: list[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the lines of two texts that correspond: where they begin in both, and how many they are.

    A text diff takes far too long for long texts in which many lines are the same; of these only the lines at the
    beginning and at the end that are the same correspond, and those that are there once.
    """
    first = _same(old, new)
    last = _same(old[first:][::-1], new[first:][::-1])
    yield 0, 0, first
    yield len(old) - last, len(new) - last, last
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    counts, new_counts = Counter(old), Counter(new)
    steps = sum(number * new_counts[text] for text, number in counts.items()) * min(len(old), len(new))
    if steps > _MOST_STEPS:
        places = {text: place for place, text in enumerate(new) if new_counts[text] == 1}
        once = [(place, places[text]) for place, text in enumerate(old) if counts[text] == 1 and text in places]
        for start, new_start in _rising(once):
            yield first + start, first + new_start, 1
        return
    for kind, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal" or (kind == "replace" and end - start == new_end - new_start):
            yield first + start, first + new_start, end - start


def _same(old: list[str], new: list[str]) -> int:
    """Return the number of equal lines at the beginning of two texts."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest series of pairs of which both numbers rise; the first ones do in any case."""
    ends: list[int] = []  # of the series of each length the one that ends lowest, as its last pair
    before: list[int] = []
    for index, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second, key=lambda end: pairs[end][1])
        before.append(ends[length - 1] if length else -1)
        ends[length : length + 1] = [index]
    rising = []
    index = ends[-1] if ends else -1
    while index >= 0:
        rising.append(pairs[index])
        index = before[index]
    return rising[::-1]


def _corresponding_sources(before: Report, after: Report) -> Iterator[tuple[Source, Source]]:
    """Yield the sources of both runs in pairs: files with equal paths, cells with equal texts, the cells that ran."""
    by_path = {(source.path, source.name): source for source in after.sources if source.kind != "cell"}
    new_cells = [source for source in after.sources if source.kind == "cell"]
    by_text = {source.segments[0].text: source for source in reversed(new_cells) if source.segments}
    old_cells = [source for source in before.sources if source.kind == "cell"]
    for old in before.sources:
        if old.kind != "cell":
            new = by_path.get((old.path, old.name))
        else:
            new = by_text.get(old.segments[0].text) if old.segments else None
            if new is None and new_cells and old is old_cells[0]:
                new = new_cells[0]
        if new is not None:
            yield old, new


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    for segment in source.segments:
        for offset, text in enumerate(segment.text.split("\n")):
            yield segment.first_line + offset, text.rstrip()


def _names(report: Report) -> dict[str, str]:
    """Return the names of sources; the cell that ran has the name "", because its number changes with every run."""
    names = {source.id: source.name for source in report.sources}
    own = next((source.id for source in report.sources if source.kind == "cell"), None)
    return {**names, own: ""} if own is not None else names


def _place(part: Break | Frame | Skipped, names: dict[str, str]) -> Place | None:
    location = part.location
    return Place(names.get(location.source) or None, location.line) if location is not None else None


def _change(kind: Any, break_: Break, before: Place | None, after: Place | None) -> Change:
    location = break_.location
    return Change(
        change=kind,
        gb_id=break_.gb_id,
        gb_type=break_.gb_type,
        function=location.function if location is not None else None,
        code=location.code if location is not None else None,
        before=before,
        after=after,
        break_=break_.id if kind in {"new", "moved"} or (kind == "unknown" and before is None) else None,
    )


def _reused(part: Frame | Skipped, names: dict[str, str], run: Any) -> Reused:
    return Reused(part.function, _place(part, names), run)


def _figures(report: Report, compared: Reuse | None) -> RunFigures:
    own = next((source.name for source in report.sources if source.kind == "cell"), None)
    summary, timing = compared.figures() if compared is not None else (report.summary, report.timing)
    return RunFigures(own, report.status, summary, timing)

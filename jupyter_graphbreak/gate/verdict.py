"""Hold what happened against what is allowed: which breaks are new, which are the same ones, which are gone.

The same break is one of the same function and cause, however its line reads now; or, where the old function is gone
(renamed, moved, its file renamed), one of the same line and cause. Each allowed break allows one.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jupyter_graphbreak.gate.baseline import (
    AllowedBreak,
    AllowedEager,
    AllowedRecompiles,
    Baseline,
    allowed_by,
    baseline_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from jupyter_graphbreak.report.schema import Report

_A = TypeVar("_A", AllowedBreak, AllowedEager, AllowedRecompiles)
_Key = "Callable[[_A], Hashable]"


class MoreRecompiles(msgspec.Struct, frozen=True):
    """A function that was compiled again more often than before."""

    path: str
    function: str
    before: int
    now: int


class Verdict(msgspec.Struct, frozen=True):
    """What the gate decided.

    Parameters
    ----------
    new : list of AllowedBreak
        Breaks that are not allowed.
    eager : list of AllowedEager
        Functions that newly run eagerly, not because of a break.
    recompiles : list of MoreRecompiles
    gone : list of AllowedBreak
        Breaks that are allowed and were not met any more.
    same : int
        How many allowed breaks were met.
    nothing_compiled : bool
        Whether nothing was compiled, so that the absence of breaks proves nothing.
    """

    new: list[AllowedBreak]
    eager: list[AllowedEager]
    recompiles: list[MoreRecompiles]
    gone: list[AllowedBreak]
    same: int
    nothing_compiled: bool = False

    @property
    def passed(self) -> bool:
        """Whether something was compiled, and nothing happened that is not allowed."""
        return not (self.new or self.eager or self.recompiles or self.nothing_compiled)


def judge(baseline: Baseline, reports: Sequence[Report]) -> Verdict:
    """Hold some reports against a baseline."""
    now = baseline_of(reports)
    there = _functions(reports)

    def gone(old: AllowedBreak | AllowedEager | AllowedRecompiles) -> bool:
        return (old.path, old.function) not in there

    by_break: list[tuple[Callable[[AllowedBreak], Hashable], bool]] = [
        (lambda each: (each.path, each.function, each.cause, each.line), False),
        (lambda each: (each.path, each.function, each.cause), False),
        (lambda each: (each.function, each.cause, each.line) if each.line else each, True),
        (lambda each: (each.cause, each.line) if each.line else each, True),
    ]
    if _release(baseline.torch) != _release(now.torch):  # releases rename causes
        by_break.append((lambda each: (each.path, each.function, each.line) if each.line else each, False))
    left, new = _without_pairs(baseline.breaks, now.breaks, by_break, gone)
    by_function: list[tuple[Callable[[AllowedEager], Hashable], bool]] = [
        (lambda each: each, False),
        (lambda each: (each.function, each.reason), True),
        (lambda each: (each.path, each.reason), True),
    ]
    _, eager = _without_pairs(baseline.eager, now.eager, by_function, gone)
    return Verdict(
        new=new,
        eager=eager,
        recompiles=list(_more_recompiles(baseline.recompiles, now.recompiles, gone)),
        gone=left,
        same=len(now.breaks) - len(new),
        nothing_compiled=nothing_compiled(reports),
    )


def nothing_compiled(reports: Sequence[Report]) -> bool:
    """Whether reports show neither compiled code nor anything that PyTorch failed to compile."""
    return not any(
        report.breaks
        or report.skipped
        or report.recompiles
        or any(frame.outcome == "compiled" for frame in report.frames)
        for report in reports
    )


def _without_pairs(
    before: Sequence[_A], now: Sequence[_A], keys: Iterable[tuple[Any, bool]], gone: Callable[[_A], bool]
) -> tuple[list[_A], list[_A]]:
    """Pair old and new ones, surest first; return what is left of both.

    Parameters
    ----------
    keys : iterable of (callable, bool)
        By what to pair, and whether only those of functions that are gone.
    """
    old: list[_A | None] = list(before)
    new = list(now)
    for key, only_gone in keys:
        waiting: dict[Hashable, deque[int]] = defaultdict(deque)
        for place, each in enumerate(old):
            if each is not None and (not only_gone or gone(each)):
                waiting[key(each)].append(place)
        left = []
        for each in new:
            same = waiting.get(key(each))
            if same:
                old[same.popleft()] = None
            else:
                left.append(each)
        new = left
    return [each for each in old if each is not None], new


def _more_recompiles(
    before: Sequence[AllowedRecompiles], now: Sequence[AllowedRecompiles], gone: Callable[[AllowedRecompiles], bool]
) -> Iterable[MoreRecompiles]:
    allowed = {(each.path, each.function): each.times for each in before}
    moved = _Moved(each for each in before if gone(each))
    for each in now:
        times = allowed.get((each.path, each.function))
        if times is None:
            # A function that is gone may be this one under another name or in another file.
            same = moved.take(each)
            times = same.times if same is not None else 0
        if each.times > times:
            yield MoreRecompiles(each.path, each.function, times, each.times)


class _Moved:
    """Functions that are gone, each of which may be another one under another name or in another file, once."""

    def __init__(self, gone: Iterable[AllowedRecompiles]) -> None:
        self._left = dict(enumerate(gone))
        self._by_function: defaultdict[str, deque[int]] = defaultdict(deque)
        self._by_path: defaultdict[str, deque[int]] = defaultdict(deque)
        for place, each in self._left.items():
            self._by_function[each.function].append(place)
            self._by_path[each.path].append(place)

    def take(self, now: AllowedRecompiles) -> AllowedRecompiles | None:
        """Return the first function of the same name or file, and take it away."""
        places = [same[0] for same in (self._by_function[now.function], self._by_path[now.path]) if self._is_left(same)]
        return self._left.pop(min(places)) if places else None

    def _is_left(self, same: deque[int]) -> bool:
        while same and same[0] not in self._left:
            same.popleft()
        return bool(same)


def _functions(reports: Sequence[Report]) -> set[tuple[str, str]]:
    """Return path and name of every function that the reports mention or whose definition they hold."""
    mentioned = set()
    for report in reports:
        paths = {source.id: source.path or "" for source in report.sources}
        places = [
            *(frame.location for frame in report.frames),
            *(skipped.location for skipped in report.skipped),
            *(op.location for graph in report.graphs for op in graph.ops),
            *(place for found in report.breaks for occurrence in found.occurrences for place in occurrence.stack),
            *(found.location for found in report.breaks),
        ]
        for place in places:
            if place is not None:
                function = place.function or ""
                mentioned.add((paths.get(place.source, ""), "" if function == "<module>" else function))
        for source in report.sources:
            for segment in source.segments:
                for line in segment.text.split("\n"):
                    words = line.split("(")[0].split()
                    if "def" in words[:2]:
                        mentioned.add((source.path or "", words[-1]))
    return mentioned


def _release(torch: str) -> str:
    return ".".join(torch.split(".")[:2])


def new_breaks(verdict: Verdict, report: Report) -> set[str]:
    """Return the ids of the breaks of a report that are not allowed."""
    left = Counter(verdict.new)
    ids = set()
    pairs = zip(report.breaks, allowed_by(report), strict=True)
    for found, key in reversed(list(pairs)):  # of several alike the last ones are the new ones
        if left[key] > 0:
            left[key] -= 1
            ids.add(found.id)
    return ids

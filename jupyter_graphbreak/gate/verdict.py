"""Compare reports with a baseline: find the breaks that are new, the same, or gone.

Two breaks are the same if function and cause are the same, even if the line was edited. If the old function is gone
(renamed, moved, or its file was renamed), line and cause must be the same. Each allowed break allows one break.
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


class MoreRecompiles(msgspec.Struct, frozen=True):
    """A function with more recompiles than allowed."""

    path: str
    function: str
    before: int
    now: int


class GateVerdict(msgspec.Struct, frozen=True):
    """The gate's decision.

    Parameters
    ----------
    new : list of AllowedBreak
        Breaks that are not allowed.
    eager : list of AllowedEager
        Functions that run eagerly for a reason other than a break, and are not allowed to.
    recompiles : list of MoreRecompiles
        Functions with more recompiles than allowed.
    gone : list of AllowedBreak
        Allowed breaks that no longer occur.
    same : int
        The number of allowed breaks that occurred.
    versions : dict
        The old and the new version of each library that has changed, by the name of its module.
    nothing_compiled : bool
        Whether nothing was compiled, so that the absence of breaks proves nothing.
    """

    new: list[AllowedBreak]
    eager: list[AllowedEager]
    recompiles: list[MoreRecompiles]
    gone: list[AllowedBreak]
    same: int
    nothing_compiled: bool = False
    versions: dict[str, tuple[str, str]] = {}

    @property
    def passed(self) -> bool:
        """Whether something was compiled and everything that happened is allowed."""
        return not (self.new or self.eager or self.recompiles or self.nothing_compiled)


def judge(baseline: Baseline, reports: Sequence[Report]) -> GateVerdict:
    """Compare reports with a baseline."""
    now = baseline_of(reports)
    existing = _functions(reports)

    def is_gone(old: AllowedBreak | AllowedEager | AllowedRecompiles) -> bool:
        return (old.path, old.function) not in existing

    by_break: list[tuple[Callable[[AllowedBreak], Hashable], bool]] = [
        (lambda allowed: (allowed.path, allowed.function, allowed.cause, allowed.line), False),
        (lambda allowed: (allowed.path, allowed.function, allowed.cause), False),
        (lambda allowed: (allowed.function, allowed.cause, allowed.line) if allowed.line else allowed, True),
        (lambda allowed: (allowed.cause, allowed.line) if allowed.line else allowed, True),
    ]
    if _release(baseline.torch) != _release(now.torch):  # releases rename causes
        by_break.append(
            (lambda allowed: (allowed.path, allowed.function, allowed.line) if allowed.line else allowed, False)
        )
    left, new = _without_pairs(baseline.breaks, now.breaks, by_break, is_gone)
    by_function: list[tuple[Callable[[AllowedEager], Hashable], bool]] = [
        (lambda allowed: allowed, False),
        (lambda allowed: (allowed.function, allowed.reason), True),
        (lambda allowed: (allowed.path, allowed.reason), True),
    ]
    _, eager = _without_pairs(baseline.eager, now.eager, by_function, is_gone)
    return GateVerdict(
        new=new,
        eager=eager,
        recompiles=list(_more_recompiles(baseline, now.recompiles, is_gone)),
        gone=left,
        same=len(now.breaks) - len(new),
        nothing_compiled=nothing_compiled(reports),
        versions=_changed_versions(baseline, now),
    )


def _changed_versions(baseline: Baseline, now: Baseline) -> dict[str, tuple[str, str]]:
    """Return the old and new versions that differ, of libraries that both name; local builds of a release are equal."""
    before, after = ({"torch": known.torch, **known.libraries} for known in (baseline, now))
    pairs = {name: (before[name].partition("+")[0], after[name].partition("+")[0]) for name in before if name in after}
    return {name: (old, new) for name, (old, new) in pairs.items() if old and new and old != new}


def nothing_compiled(reports: Sequence[Report]) -> bool:
    """Return whether reports show neither compiled code nor anything that PyTorch failed to compile."""
    return not any(
        report.breaks
        or report.skipped
        or report.recompiles
        or any(frame.outcome == "compiled" for frame in report.frames)
        for report in reports
    )


def _without_pairs(
    before: Sequence[_A], now: Sequence[_A], keys: Iterable[tuple[Any, bool]], is_gone: Callable[[_A], bool]
) -> tuple[list[_A], list[_A]]:
    """Pair old and new entries, the most certain pairs first; return the unpaired entries of both.

    Parameters
    ----------
    before, now : sequence
        The old and the new entries.
    keys : iterable of (callable, bool)
        Functions that return the key by which to pair, and whether to pair only entries whose function is gone.
    is_gone : callable
        Returns whether the function of an old entry is gone.
    """
    old: list[_A | None] = list(before)
    new = list(now)
    for key, only_gone in keys:
        waiting: dict[Hashable, deque[int]] = defaultdict(deque)
        for index, entry in enumerate(old):
            if entry is not None and (not only_gone or is_gone(entry)):
                waiting[key(entry)].append(index)
        unpaired = []
        for entry in new:
            matching = waiting.get(key(entry))
            if matching:
                old[matching.popleft()] = None
            else:
                unpaired.append(entry)
        new = unpaired
    return [entry for entry in old if entry is not None], new


def _more_recompiles(
    baseline: Baseline, now: Sequence[AllowedRecompiles], is_gone: Callable[[AllowedRecompiles], bool]
) -> Iterable[MoreRecompiles]:
    before = baseline.recompiles
    allowed = {(old.path, old.function): old.times for old in before}
    moved = _GoneFunctions(old for old in before if is_gone(old))
    for new in now:
        times = allowed.get((new.path, new.function))
        if times is None:
            # A function that is gone may have been renamed, or moved to a different file.
            former = moved.pop_match(new)
            times = former.times if former is not None else 0
        most = max(times, baseline.max_recompiles)
        if new.times > most:
            yield MoreRecompiles(new.path, new.function, most, new.times)


class _GoneFunctions:
    """Functions that are gone. A new function may be one of them, renamed or moved to a different file."""

    def __init__(self, gone: Iterable[AllowedRecompiles]) -> None:
        self._left = dict(enumerate(gone))
        self._by_function: defaultdict[str, deque[int]] = defaultdict(deque)
        self._by_path: defaultdict[str, deque[int]] = defaultdict(deque)
        for place, allowed in self._left.items():
            self._by_function[allowed.function].append(place)
            self._by_path[allowed.path].append(place)

    def pop_match(self, now: AllowedRecompiles) -> AllowedRecompiles | None:
        """Return and remove the first function with the same name or file."""
        places = [
            matching[0]
            for matching in (self._by_function[now.function], self._by_path[now.path])
            if self._has_unused(matching)
        ]
        return self._left.pop(min(places)) if places else None

    def _has_unused(self, places: deque[int]) -> bool:
        while places and places[0] not in self._left:
            places.popleft()
        return bool(places)


def _functions(reports: Sequence[Report]) -> set[tuple[str, str]]:
    """Return the path and name of every function that the reports mention or whose definition they contain."""
    mentioned = set()
    for report in reports:
        paths = {source.id: source.path or "" for source in report.sources}
        places = [
            *(frame.location for frame in report.frames),
            *(skipped.location for skipped in report.skipped),
            *(op.location for graph in report.graphs for op in graph.ops),
            *(place for break_ in report.breaks for occurrence in break_.occurrences for place in occurrence.stack),
            *(break_.location for break_ in report.breaks),
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


def new_breaks(verdict: GateVerdict, report: Report) -> set[str]:
    """Return the ids of the breaks of a report that are not allowed."""
    left = Counter(verdict.new)
    ids = set()
    pairs = zip(report.breaks, allowed_by(report), strict=True)
    for break_, key in reversed(list(pairs)):  # of several equal breaks, the last ones are the new ones
        if left[key] > 0:
            left[key] -= 1
            ids.add(break_.id)
    return ids


NOTHING_COMPILED = "nothing was compiled, so the absence of breaks proves nothing"
COMPILE_SOMETHING = (
    "call a compiled function in this process, and check that compiling is not switched off by "
    'TORCH_COMPILE_DISABLE=1, torch._dynamo.config.disable or the stance "force_eager"'
)


def headline(verdict: GateVerdict) -> str:
    """Return the decision in one line, e.g. "gate failed: 1 new break, 1 function newly runs eagerly"."""
    if verdict.nothing_compiled:
        return f"gate failed: {NOTHING_COMPILED}"
    parts = [
        _counted(len(verdict.new), "new break"),
        _counted(len(verdict.eager), "function newly runs eagerly", "functions newly run eagerly"),
        _counted(len(verdict.recompiles), "function recompiled more often", "functions recompiled more often"),
    ]
    failed = ", ".join(part for part in parts if part)
    notes = [_counted(verdict.same, "allowed break", "allowed breaks")]
    notes.append(_counted(len(verdict.gone), "allowed break gone", "allowed breaks gone"))
    rest = ", ".join(note for note in notes if note)
    if not failed:
        return f"gate passed: {rest or 'no breaks'}"
    return f"gate failed: {failed}; {rest}" if rest else f"gate failed: {failed}"


def details(verdict: GateVerdict) -> list[str]:
    """Return one line per difference from the baseline, or the advice if nothing was compiled."""
    if verdict.nothing_compiled:
        return [COMPILE_SOMETHING]
    differs = bool(verdict.new or verdict.eager or verdict.recompiles or verdict.gone)
    return [
        *(f"new    {_break(break_)}{_changed_library(verdict, break_.path)}" for break_ in verdict.new),
        *(
            f"eager  {_where(function.path, function.function)}: {function.reason}"
            f"{_changed_library(verdict, function.path)}"
            for function in verdict.eager
        ),
        *(
            f"again  {_where(function.path, function.function)}: recompiled {function.now} times, "
            f"{function.before} allowed"
            for function in verdict.recompiles
        ),
        *(f"gone   {_break(break_)}{_changed_library(verdict, break_.path)}" for break_ in verdict.gone),
        *(
            f"since  the baseline was written: {name} {old} -> {new}; differences may be due to that"
            for name, (old, new) in verdict.versions.items()
            if differs
        ),
    ]


def _changed_library(verdict: GateVerdict, path: str) -> str:
    """Return a note for the end of a line if the version of the library that contains the file has changed."""
    name = path.partition("/")[0].removesuffix(".py")
    if name not in verdict.versions:
        return ""
    old, new = verdict.versions[name]
    return f"   [{name} {old} -> {new}]"


def _break(break_: AllowedBreak) -> str:
    cause = break_.cause + (f" ({break_.gb_id})" if break_.gb_id else "")
    return "   ".join(part for part in (_where(break_.path, break_.function), break_.line, cause) if part)


def _where(path: str, function: str) -> str:
    where = path or "a cell"
    return f"{where} in {function}" if function else where


def _counted(number: int, singular: str, plural: str | None = None) -> str:
    return "" if not number else f"{number} {singular if number == 1 else plural or singular + 's'}"

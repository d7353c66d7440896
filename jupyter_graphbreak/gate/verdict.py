"""Compare reports with a baseline: find the breaks that are new, the same, or gone.

Two breaks are the same if their function and cause are the same, even if the line was edited. If the old function is
gone (it was renamed or moved, or its file was renamed), the line and the cause must be the same. With a different
release of PyTorch, which may have renamed the cause, the same function and line are enough. Each entry of a baseline
allows one break.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from jupyter_graphbreak.gate.baseline import (
    AllowedBreak,
    AllowedEagerFunction,
    AllowedRecompiles,
    Baseline,
    baseline_entries,
    baseline_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from jupyter_graphbreak.report.schema import Report

_Allowed = TypeVar("_Allowed", AllowedBreak, AllowedEagerFunction, AllowedRecompiles)
_Keys: TypeAlias = "tuple[tuple[Callable[[_Allowed], Hashable], bool], ...]"
#: The ways to pair old and new entries, most certain first: a function that returns the key for pairing, and
#: whether to pair only entries whose function no longer exists.
_BREAK_KEYS: _Keys[AllowedBreak] = (
    (lambda allowed: (allowed.path, allowed.function, allowed.cause, allowed.line), False),
    (lambda allowed: (allowed.path, allowed.function, allowed.cause), False),
    (lambda allowed: (allowed.function, allowed.cause, allowed.line) if allowed.line else allowed, True),
    (lambda allowed: (allowed.cause, allowed.line) if allowed.line else allowed, True),
)
#: The ways to pair breaks of different releases of PyTorch, which may have renamed the cause.
_BREAK_KEYS_ACROSS_RELEASES: _Keys[AllowedBreak] = (
    *_BREAK_KEYS,
    (lambda allowed: (allowed.path, allowed.function, allowed.line) if allowed.line else allowed, False),
)
_EAGER_KEYS: _Keys[AllowedEagerFunction] = (
    (lambda allowed: allowed, False),
    (lambda allowed: (allowed.function, allowed.reason), True),
    (lambda allowed: (allowed.path, allowed.reason), True),
)
_RECOMPILE_KEYS: _Keys[AllowedRecompiles] = (
    (lambda allowed: (allowed.path, allowed.function), False),
    (lambda allowed: allowed.function, True),
    (lambda allowed: allowed.path, True),
)


class MoreRecompiles(msgspec.Struct, frozen=True):
    """A function with more recompiles than allowed."""

    path: str
    function: str
    allowed_times: int
    times: int


class GateVerdict(msgspec.Struct, frozen=True):
    """The gate's decision.

    ``newly_eager`` functions run eagerly for a reason other than a break although the baseline does not allow it.
    ``gone_breaks`` are allowed but no longer occur. ``changed_versions`` contains the old and the new version of each
    library, by the name of its module. If nothing was compiled, the absence of breaks proves nothing.
    """

    new_breaks: list[AllowedBreak]
    newly_eager: list[AllowedEagerFunction]
    more_recompiles: list[MoreRecompiles]
    gone_breaks: list[AllowedBreak]
    allowed_count: int
    nothing_compiled: bool = False
    changed_versions: dict[str, tuple[str, str]] = {}

    @property
    def has_passed(self) -> bool:
        """Whether something was compiled and everything that happened is allowed."""
        return not (self.new_breaks or self.newly_eager or self.more_recompiles or self.nothing_compiled)


def judge(baseline: Baseline, reports: Sequence[Report]) -> GateVerdict:
    """Return the verdict on reports: whether a baseline allows what they contain, and all differences."""
    current_baseline = baseline_of(reports)
    existing_functions = _existing_functions(reports)

    def is_gone(old: AllowedBreak | AllowedEagerFunction | AllowedRecompiles) -> bool:
        return (old.path, old.function) not in existing_functions

    is_same_release = _release_of(baseline.torch) == _release_of(current_baseline.torch)
    break_keys = _BREAK_KEYS if is_same_release else _BREAK_KEYS_ACROSS_RELEASES
    _, gone_breaks, new_breaks = _pair_entries(baseline.breaks, current_baseline.breaks, break_keys, is_gone)
    _, _, new_eager = _pair_entries(baseline.eager, current_baseline.eager, _EAGER_KEYS, is_gone)
    pairs, _, _ = _pair_entries(baseline.recompiles, current_baseline.recompiles, _RECOMPILE_KEYS, is_gone)
    allowed_times = {new: max(old.times, baseline.max_recompiles) for old, new in pairs}
    return GateVerdict(
        new_breaks=new_breaks,
        newly_eager=new_eager,
        more_recompiles=[
            MoreRecompiles(new.path, new.function, limit, new.times)
            for new in current_baseline.recompiles
            if new.times > (limit := allowed_times.get(new, baseline.max_recompiles))
        ],
        gone_breaks=gone_breaks,
        allowed_count=len(current_baseline.breaks) - len(new_breaks),
        nothing_compiled=have_compiled_nothing(reports),
        changed_versions=_changed_versions(baseline, current_baseline),
    )


def _changed_versions(baseline: Baseline, current_baseline: Baseline) -> dict[str, tuple[str, str]]:
    """Return the old and the new version of each library that changed; builds of one release are treated as equal."""
    before, after = ({"torch": allowed.torch, **allowed.libraries} for allowed in (baseline, current_baseline))
    pairs = {name: (before[name].partition("+")[0], after[name].partition("+")[0]) for name in before if name in after}
    return {name: (old, new) for name, (old, new) in pairs.items() if old and new and old != new}


def have_compiled_nothing(reports: Sequence[Report]) -> bool:
    """Return whether reports contain neither compiled code nor code that PyTorch failed to compile."""
    return not any(
        report.breaks
        or report.skipped
        or report.recompiles
        or any(frame.outcome == "compiled" for frame in report.frames)
        for report in reports
    )


def _pair_entries(
    before: Sequence[_Allowed], after: Sequence[_Allowed], keys: _Keys[_Allowed], is_gone: Callable[[_Allowed], bool]
) -> tuple[list[tuple[_Allowed, _Allowed]], list[_Allowed], list[_Allowed]]:
    """Pair old and new entries, most certain pairs first; return the pairs, and the unpaired old and new entries.

    ``is_gone`` returns whether the function of an old entry is gone.
    """
    pairs = []
    old: list[_Allowed | None] = list(before)
    new = list(after)
    for key, needs_gone_function in keys:
        unpaired_old: dict[Hashable, deque[int]] = defaultdict(deque)
        for index, entry in enumerate(old):
            if entry is not None and (not needs_gone_function or is_gone(entry)):
                unpaired_old[key(entry)].append(index)
        unpaired_new = []
        for entry in new:
            matching_indexes = unpaired_old.get(key(entry))
            if matching_indexes:
                index = matching_indexes.popleft()
                pairs.append((before[index], entry))
                old[index] = None
            else:
                unpaired_new.append(entry)
        new = unpaired_new
    return pairs, [entry for entry in old if entry is not None], new


def _existing_functions(reports: Sequence[Report]) -> set[tuple[str, str]]:
    """Return the path and the name of every function that the reports mention or define in their source text."""
    functions = set()
    for report in reports:
        paths = {source.id: source.path or "" for source in report.sources}
        locations = [
            *(frame.location for frame in report.frames),
            *(skipped.location for skipped in report.skipped),
            *(op.location for graph in report.graphs for op in graph.ops),
            *(
                location
                for break_ in report.breaks
                for occurrence in break_.occurrences
                for location in occurrence.stack
            ),
            *(break_.location for break_ in report.breaks),
        ]
        for location in locations:
            if location is not None:
                function = location.function or ""
                functions.add((paths.get(location.source, ""), "" if function == "<module>" else function))
        for source in report.sources:
            for segment in source.segments:
                for line in segment.text.split("\n"):
                    words = line.split("(")[0].split()
                    if "def" in words[:2]:
                        functions.add((source.path or "", words[-1]))
    return functions


def _release_of(torch: str) -> str:
    return ".".join(torch.split(".")[:2])


def ids_of_new_breaks(verdict: GateVerdict, report: Report) -> set[str]:
    """Return the ids of the breaks of a report that are not allowed."""
    unmatched_breaks = Counter(verdict.new_breaks)
    ids = set()
    pairs = zip(report.breaks, baseline_entries(report), strict=True)
    for break_, allowed in reversed(list(pairs)):  # of several equal breaks, the last ones are the new ones
        if unmatched_breaks[allowed] > 0:
            unmatched_breaks[allowed] -= 1
            ids.add(break_.id)
    return ids


NOTHING_COMPILED_TEXT = "nothing was compiled, so the absence of breaks proves nothing"
NOTHING_COMPILED_ADVICE = (
    "call a compiled function in this process, and check that compiling is not switched off by "
    'TORCH_COMPILE_DISABLE=1, torch._dynamo.config.disable or the stance "force_eager"'
)


def headline(verdict: GateVerdict) -> str:
    """Return the verdict in one line: "gate failed: 1 new break, 1 function newly runs eagerly"."""
    if verdict.nothing_compiled:
        return f"gate failed: {NOTHING_COMPILED_TEXT}"
    parts = [
        _count_text(len(verdict.new_breaks), "new break"),
        _count_text(len(verdict.newly_eager), "function newly runs eagerly", "functions newly run eagerly"),
        _count_text(len(verdict.more_recompiles), "function recompiled more often", "functions recompiled more often"),
    ]
    failed_parts = ", ".join(filter(None, parts))
    notes = [
        _count_text(verdict.allowed_count, "allowed break"),
        _count_text(len(verdict.gone_breaks), "allowed break gone", "allowed breaks gone"),
    ]
    counts = ", ".join(filter(None, notes))
    if not failed_parts:
        return f"gate passed: {counts or 'no breaks'}"
    return f"gate failed: {failed_parts}; {counts}" if counts else f"gate failed: {failed_parts}"


def details(verdict: GateVerdict) -> list[str]:
    """Return one line for each difference from the baseline; if nothing was compiled, return advice instead."""
    if verdict.nothing_compiled:
        return [NOTHING_COMPILED_ADVICE]
    has_differences = bool(verdict.new_breaks or verdict.newly_eager or verdict.more_recompiles or verdict.gone_breaks)
    return [
        *(f"new    {_break_text(break_)}{_library_change_note(verdict, break_.path)}" for break_ in verdict.new_breaks),
        *(
            f"eager  {_location_text(function.path, function.function)}: {function.reason}"
            f"{_library_change_note(verdict, function.path)}"
            for function in verdict.newly_eager
        ),
        *(
            f"again  {_location_text(function.path, function.function)}: "
            f"recompiled {_count_text(function.times, 'time')}, {function.allowed_times} allowed"
            for function in verdict.more_recompiles
        ),
        *(
            f"gone   {_break_text(break_)}{_library_change_note(verdict, break_.path)}"
            for break_ in verdict.gone_breaks
        ),
        *(
            f"since  the baseline was written: {name} {old} -> {new}; differences may be due to that"
            for name, (old, new) in verdict.changed_versions.items()
            if has_differences
        ),
    ]


def _library_change_note(verdict: GateVerdict, path: str) -> str:
    """Return a note to append if the version of the library that contains the file has changed; otherwise empty."""
    name = path.partition("/")[0].removesuffix(".py")
    if name not in verdict.changed_versions:
        return ""
    old, new = verdict.changed_versions[name]
    return f"   [{name} {old} -> {new}]"


def _break_text(break_: AllowedBreak) -> str:
    cause = break_.cause + (f" ({break_.gb_id})" if break_.gb_id else "")
    return "   ".join(part for part in (_location_text(break_.path, break_.function), break_.line, cause) if part)


def _location_text(path: str, function: str) -> str:
    file = path or "a cell"
    return f"{file} in {function}" if function else file


def _count_text(number: int, singular: str, plural: str | None = None) -> str:
    return "" if not number else f"{number} {singular if number == 1 else plural or singular + 's'}"

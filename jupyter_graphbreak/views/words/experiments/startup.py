"""What the first call waits for: which functions take long to compile, and how much of it is compiling again."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.plain_text import counted
from jupyter_graphbreak.views.words.where import function_of, place

if TYPE_CHECKING:
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Frame, Graph, Report

#: Functions that are named; compiling that takes less than a second is not worth a sentence.
_MOST = 3
_WORTH_SAYING_S = 1.0
#: A block is one that is there so often; compiling it alone must save such a share.
_FEWEST_TIMES = 3
_WORTH_A_BLOCK = 0.4


def startup(report: Report) -> str:
    """Return where the time of compiling went, the longest first; the empty string where it was short.

    "start-up: 17.0 s of compiling: step resumed at line 12 7.1 s, step 4.0 s, 2 more functions 5.9 s; 2.1 s of it was
    spent on recompiles; inductor's cache had the code of 2 of 6 graphs; what begins at line 31 is in graph A 12 times,
    with 96% of its operations: compiling that block alone, once for all of them, may save 88% of what the graph takes".
    """
    times: defaultdict[str, float] = defaultdict(float)
    for frame in report.frames:
        times[_name(report, frame)] += frame.compile_s or 0.0
    whole = sum(times.values())
    if whole < _WORTH_SAYING_S:
        return ""
    longest = sorted(times.items(), key=lambda item: -item[1])
    parts = [f"{name} {seconds:.1f} s" for name, seconds in longest[:_MOST]]
    rest = longest[_MOST:]
    if rest:
        parts.append(f"{counted(len(rest), 'more function')} {sum(seconds for _, seconds in rest):.1f} s")
    again = sum(frame.compile_s or 0.0 for frame in report.frames if frame.recompile_of is not None)
    said = [f"start-up: {whole:.1f} s of compiling: {', '.join(parts)}"]
    said += [f"{again:.1f} s of it was spent on recompiles"] if again else []
    return "; ".join([*said, *_cache(report), *_block(report)])


def _cache(report: Report) -> list[str]:
    """Return how much of the code was there from an earlier start."""
    hits, misses = report.timing.cache_hits, report.timing.cache_misses
    if hits is None or misses is None:
        return []
    if hits:
        return [f"inductor's cache had the code of {hits} of {counted(hits + misses, 'graph')}"]
    return ["inductor's cache had none of it: keep the folder that TORCHINDUCTOR_CACHE_DIR names for the next start"]


def _block(report: Report) -> list[str]:
    """Return which block of a model was captured again and again, so that compiling it alone would do."""
    found = max(filter(None, map(repeated, report.graphs)), key=lambda block: block.saving, default=None)
    if found is None or found.saving < _WORTH_A_BLOCK:
        return []
    block = f"what begins at {place(report, found.place)} is in graph {found.graph} {found.times} times"
    share = f"with {found.share:.0%} of its operations"
    advice = f"compiling that block alone, once for all of them, may save {found.saving:.0%} of what the graph takes"
    return [f"{block}, {share}: {advice}"]


@dataclass(frozen=True)
class Block:
    """Operations that a graph holds several times: which share of all its operations these are."""

    graph: str
    place: Location
    times: int
    share: float

    @property
    def saving(self) -> float:
        """The share of the graph that would not be compiled again."""
        return self.share * (1 - 1 / self.times)


def repeated(graph: Graph) -> Block | None:
    """Return the largest run of operations that a graph holds over and over, ``None`` if there is none.

    An operation is known by its line and by what it calls. One that comes again at equal distances is in such a block,
    which is named by the function that spans most of it.
    """
    numbers: defaultdict[tuple[str, int, str], list[int]] = defaultdict(list)
    for number, op in enumerate(graph.ops):
        if op.location is not None:
            numbers[op.location.source, op.location.line, op.target].append(number)
    found: tuple[int, list[int]] | None = None
    for own in numbers.values():
        distances = {later - number for number, later in itertools.pairwise(own)}
        if len(own) < _FEWEST_TIMES or len(distances) > 1:
            continue
        covered = distances.pop() * len(own)
        if covered <= len(graph.ops) and (found is None or covered > found[0]):
            found = covered, own
    if found is None:
        return None
    covered, own = found
    spans: dict[str | None, list[int]] = {}
    for number in range(own[0], own[1]):
        location = graph.ops[number].location
        if location is not None:
            spans.setdefault(location.function, []).append(number)
    widest = max(spans.values(), key=lambda span: span[-1] - span[0])
    begin = graph.ops[widest[0]].location
    return Block(graph.id, begin, len(own), covered / len(graph.ops)) if begin is not None else None


def _name(report: Report, frame: Frame) -> str:
    begin = frame.location
    name = function_of(report, begin) if begin is not None else frame.function
    return f"{name} resumed at line {begin.line}" if frame.role == "resume" and begin is not None else name

"""Read profiles of calls: how long the choice of compiled code takes, and which operations ran outside of graphs."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak._torch_compat.profile_ranges import Range


def lookups_us(profiles: Iterable[Sequence[Range]]) -> dict[str, float]:
    """Return how long it took to choose the code of each frame, by its compile id: the median of some calls."""
    seen: defaultdict[str, list[float]] = defaultdict(list)
    for ranges in profiles:
        kept = [read for read in ranges if read.kind in {"lookup", "region"}]
        for lookup, region in itertools.pairwise(kept):
            if (lookup.kind, region.kind) == ("lookup", "region"):
                seen[region.name].append(lookup.end_us - lookup.start_us)
    return {name: statistics.median(times) for name, times in seen.items()}


def operations_outside(ranges: Sequence[Range]) -> int:
    """Count the operations that ran neither in a graph nor in one's backward pass, each with all that it is made of.

    Of ranges in which no graph ran it is the number of all operations. Those of which a tensor is printed do not count.
    """
    count = 0
    hidden: dict[int, float] = {}  # until when a thread is inside a graph or an operation
    for read in ranges:
        if read.start_us < hidden.get(read.thread, 0.0):
            continue
        if read.kind in {"graph", "backward", "printing", "operation"}:
            hidden[read.thread] = read.end_us
            count += read.kind == "operation"
    return count

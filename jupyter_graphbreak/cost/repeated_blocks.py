"""Find functions that graphs hold again and again, so that compiling one of them alone would do."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Report

_FEWEST_TIMES = 3
_FEWEST_OPS = 3


@dataclass(frozen=True)
class RepeatedBlock:
    """A function that was captured a number of times, and how many of the run's operations are its own."""

    function: str
    times: int
    ops: int


def repeated_blocks(report: Report) -> list[RepeatedBlock]:
    """Return the functions that were captured several times within the graphs of a run, the largest share first.

    Each of its own lines then led to as many operations as often; lines that ran less often, such as those of a branch,
    do not count against it.
    """
    lines: defaultdict[tuple[str, str], Counter[tuple[int, str]]] = defaultdict(Counter)
    for graph in report.graphs:
        for op in graph.ops:
            if op.location is not None and op.location.function is not None:
                lines[op.location.source, op.location.function][op.location.line, op.target] += 1
    blocks = []
    for (_, function), counted in lines.items():
        times, _ = Counter(counted.values()).most_common(1)[0]
        ops = counted.total()
        if times >= _FEWEST_TIMES and ops >= _FEWEST_OPS * times:
            blocks.append(RepeatedBlock(function, times, ops))
    return sorted(blocks, key=lambda block: -block.ops)


def advice(block: RepeatedBlock) -> str:
    """Return what to do about a block, in a sentence."""
    return (
        f"{block.function} was captured {block.times} times: compile its module alone ({block.ops} operations in all), "
        "so that it is compiled once (regional compilation)."
    )

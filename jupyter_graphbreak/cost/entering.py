"""How long it takes to leave one graph and to enter the next, when nothing is between them."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import torch

from jupyter_graphbreak._torch_compat.profile_ranges import profiled
from jupyter_graphbreak.cost.clock import ProcessorClock
from jupyter_graphbreak.cost.graph_timer import GraphTimer
from jupyter_graphbreak.cost.parts import Entering
from jupyter_graphbreak.cost.timeline import read_timeline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType

    from jupyter_graphbreak._torch_compat.profile_ranges import Range
    from jupyter_graphbreak.cost.timing import CallTime


class EmptyBreak:
    """A break that does nothing, timed on this machine and now: what Dynamo does around graphs.

    That belongs to no line of the user's, so it is not counted as time that a line takes.
    """

    def __init__(self) -> None:
        def nothing() -> None:
            pass

        broken = torch.compiler.disable(nothing)

        def blank(x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            broken()
            return y + 1

        self._timer = GraphTimer("eager", ProcessorClock())
        self._x = torch.zeros(4)
        self._call = torch.compile(blank, backend=self._timer)
        self.code: CodeType = blank.__code__

    def run(self) -> CallTime:
        """Call the function with the break, and return what that took."""
        return self._timer.time(lambda: self._call(self._x))

    def profiled(self) -> list[Range]:
        """Call the function with the break, and return what a profiler saw."""
        return self._timer.profiling(lambda: profiled(lambda: self._call(self._x)))

    @staticmethod
    def entering(calls: Sequence[CallTime], profiles: Sequence[Sequence[Range]]) -> Entering:
        """Return what Dynamo did between the graphs of some calls."""
        gap = statistics.median(call.runs[1].start_us - call.runs[0].end_us for call in calls)
        between = [[piece for piece in read_timeline(profile).pieces if piece.gap == 1] for profile in profiles]
        guards = [piece.us for pieces in between for piece in pieces if piece.kind == "guards"]
        left = [pieces[0].us for pieces in between if pieces and pieces[0].kind == "python"]
        if not guards or not left:
            return Entering(0.0, 0.0)
        return Entering(max(0.0, gap - statistics.median(guards)), statistics.median(left))

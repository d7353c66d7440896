"""Read the profile of one call: what ran between its graphs, and which operations ran outside of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak._torch_compat.profile_ranges import Range


@dataclass(frozen=True)
class Piece:
    """A stretch of a call between two graphs.

    Parameters
    ----------
    kind : {"guards", "backward", "python"}
        The choice of compiled code; the backward pass of a graph; anything else.
    gap : int
        How many graphs ran before it in this call.
    frame : str or None
        The compile id of the frame that is chosen, or in which Python runs; ``None`` outside of compiled frames.
    graph : int or None
        The graph whose backward pass it is.
    begun : bool
        Of Python: whether it comes after the frame's graph, not before it.
    """

    kind: Literal["guards", "backward", "python"]
    gap: int
    us: float
    frame: str | None = None
    graph: int | None = None
    begun: bool = False


@dataclass
class Timeline:
    """The pieces of a call in the order in which they ran, and the graphs between them."""

    graphs: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)


@dataclass
class _Node:
    range: Range
    inner: list[_Node] = field(default_factory=list)


def read_timeline(ranges: Sequence[Range]) -> Timeline:
    """Return what a profiled call did on the thread that made it."""
    call = next((read for read in ranges if read.kind == "call"), None)
    if call is None:
        return Timeline()
    timeline = Timeline()
    kinds = {"call", "lookup", "region", "graph", "forward", "backward"}
    root = _nested([read for read in ranges if read.thread == call.thread and read.kind in kinds])
    _Reader(timeline).read(root, None)
    return timeline


def _nested(ranges: Sequence[Range]) -> _Node:
    """Return the ranges, sorted by their beginning, as a tree under the call."""
    first = next(number for number, read in enumerate(ranges) if read.kind == "call")
    root = _Node(ranges[first])
    open_nodes = [root]
    for read in ranges[first + 1 :]:
        while len(open_nodes) > 1 and read.start_us >= open_nodes[-1].range.end_us:
            open_nodes.pop()
        if read.start_us >= root.range.end_us:
            break
        node = _Node(read)
        open_nodes[-1].inner.append(node)
        open_nodes.append(node)
    return root


class _Reader:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._forward: dict[int, int] = {}  # which graph a forward pass belonged to

    def read(self, node: _Node, frame: str | None) -> None:
        """Read what ran in a call or in the region of a frame."""
        begun = False
        cursor = node.range.start_us
        for number, inner in enumerate(node.inner):
            self._python(inner.range.start_us - cursor, frame, begun=begun)
            begun = begun or inner.range.kind in {"graph", "region"}
            self._read_inner(inner, node.inner[number + 1 : number + 2])
            cursor = max(cursor, inner.range.end_us)
        self._python(node.range.end_us - cursor, frame, begun=begun)

    def _read_inner(self, node: _Node, following: list[_Node]) -> None:
        found, timeline = node.range, self._timeline
        duration = found.end_us - found.start_us
        match found.kind:
            case "region":
                self.read(node, found.name)
            case "graph":
                number = int(found.name)
                self._forward |= {inner.range.link: number for inner in node.inner if inner.range.kind == "forward"}
                timeline.graphs.append(number)
            case "lookup":
                chosen = following[0].range.name if following and following[0].range.kind == "region" else None
                timeline.pieces.append(Piece("guards", len(timeline.graphs), duration, chosen))
            case "backward":
                graph = self._forward.get(found.link)
                timeline.pieces.append(Piece("backward", len(timeline.graphs), duration, graph=graph))
            case _:
                self._python(duration, None, begun=False)

    def _python(self, duration: float, frame: str | None, *, begun: bool) -> None:
        if duration > 0:
            self._timeline.pieces.append(Piece("python", len(self._timeline.graphs), duration, frame, begun=begun))


def operations_outside(ranges: Sequence[Range]) -> int:
    """Count the operations that ran neither in a graph nor in one's backward pass, each with all that it is made of.

    Of ranges in which no graph ran it is the number of all operations.
    """
    count = 0
    hidden: dict[int, float] = {}  # until when a thread is inside a graph or an operation
    for read in ranges:
        if read.start_us < hidden.get(read.thread, 0.0):
            continue
        if read.kind in {"graph", "backward", "operation"}:
            hidden[read.thread] = read.end_us
            count += read.kind == "operation"
    return count

"""Make graphs of what frames captured: operations with their places in the source, inputs, readable code."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak import graph_code
from jupyter_graphbreak.records import stack_entries
from jupyter_graphbreak.report import Diagnostic, Graph, GraphLine, Location, Op, Tensor, TensorMeta
from jupyter_graphbreak.source import plain_function

if TYPE_CHECKING:
    from jupyter_graphbreak.breaks import FoldedBreak
    from jupyter_graphbreak.ledger import FrameLedger
    from jupyter_graphbreak.source import Sources


class GraphTable:
    """Lists the graphs of a run; letters name them in the order of their capture.

    Parameters
    ----------
    sources : Sources
        Places and texts.
    notes : list of Diagnostic
        Where to put what could not be read.
    """

    def __init__(self, sources: Sources, notes: list[Diagnostic]) -> None:
        self._sources = sources
        self._notes = notes
        self._graphs: list[Graph] = []
        self._of_frame: dict[str, list[str]] = {}

    def graphs(self) -> list[Graph]:
        """Return the graphs added so far."""
        return list(self._graphs)

    def of_frame(self, frame: str) -> list[str]:
        """Return the ids of the graphs that a frame captured."""
        return self._of_frame.get(frame, [])

    def add(self, frame: FrameLedger, ending: FoldedBreak | None) -> None:
        """Add the graphs of a frame, and the break at which they end."""
        for code, stacks in frame.graphs:
            parsed = graph_code.parse_graph(code)
            if frame.start is not None and stacks is None and not parsed.ops:
                continue  # torch >= 2.15 writes an empty graph to the trace and does not compile it
            ident = _letter(len(self._graphs))
            if parsed.unread:
                self._notes.append(Diagnostic("warning", f"{parsed.unread} lines of graph {ident} could not be read."))
            traces = [stack_entries(each) for each in stacks["stacks"]] if stacks else []
            ops = [self._op(each, traces, stacks) for each in parsed.ops]
            self._graphs.append(
                Graph(
                    id=ident,
                    name=plain_function(frame.code[0]),
                    frame=frame.ident,
                    ops=ops,
                    inputs=[
                        Tensor(each.name, each.tensor.shape, each.tensor.dtype, each.tensor.device)
                        if each.tensor
                        else Tensor(each.name, None, "unknown")
                        for each in parsed.inputs
                    ],
                    lines=self._lines(parsed.ops, traces, stacks),
                    code=self._readable(code),
                    ends="break" if ending is not None else "return",
                    break_=ending.ident if ending is not None else None,
                )
            )
            self._of_frame.setdefault(frame.ident, []).append(ident)

    def _readable(self, code: str) -> str:
        """Return a graph's code with places named as everywhere else, without what only frees memory."""

        def renamed(match: re.Match[str]) -> str:
            location = self._sources.location(match["file"], int(match["line"]), match["name"].strip())
            if location is None:
                return match[0]
            return f"# {self._sources.name(match['file'])}:{location.line} in {location.function}, code:"

        code = re.sub(r";  (?:\w+ = )+None$", "", code, flags=re.MULTILINE)
        return re.sub(r"# File: (?P<file>.+?):(?P<line>\d+) in (?P<name>[^,\n]+), code:", renamed, code)

    def _op(self, op: graph_code.CodeOp, traces: list[list[tuple[str, int, str]]], stacks: dict[str, Any] | None) -> Op:
        trace = _trace(op, traces, stacks)
        shown = [entry for entry in trace if self._sources.kind(entry[0], entry[2]) != "machinery"]
        inner = next((e for e in reversed(shown) if "/torch/" not in e[0].replace("\\", "/")), None)
        entry = inner or (shown[-1] if shown else (trace[-1] if trace else None))
        tensor = op.tensor
        return Op(
            name=op.name,
            target=op.target,
            location=_line_only(self._sources.location(*entry)) if entry else None,
            output=TensorMeta(tensor.shape, tensor.dtype, tensor.device)
            if tensor and tensor.shape is not None
            else None,
        )

    def _lines(
        self,
        ops: list[graph_code.CodeOp],
        traces: list[list[tuple[str, int, str]]],
        stacks: dict[str, Any] | None,
    ) -> list[GraphLine]:
        counted: dict[tuple[str, int], int] = {}
        for op in ops:
            places = {
                (location.source, location.line)
                for filename, line, name in _trace(op, traces, stacks)
                if self._sources.kind(filename, name) in {"cell", "file"}
                and (location := self._sources.location(filename, line, name)) is not None
            }
            for place in places:
                counted[place] = counted.get(place, 0) + 1
        return [GraphLine(source, line, number) for (source, line), number in sorted(counted.items())]


def _line_only(location: Location | None) -> Location | None:
    """Leave out the text of a place: of ten thousand operations it would make half of the report."""
    return msgspec.structs.replace(location, code=None) if location is not None else None


def _trace(
    op: graph_code.CodeOp, traces: list[list[tuple[str, int, str]]], stacks: dict[str, Any] | None
) -> list[tuple[str, int, str]]:
    index = stacks["ops"].get(op.name) if stacks else None
    if index is not None:
        return traces[index]
    return [op.place[:3]] if op.place else []


def _letter(index: int) -> str:
    letters = string.ascii_uppercase
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, len(letters))
        text = letters[rest] + text
    return text

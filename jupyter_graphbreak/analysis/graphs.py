"""List the graphs that frames captured: operations with their places in the source, inputs, readable code."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.analysis.torch_text import graph_code
from jupyter_graphbreak.recording.records import StackEntry, compiled_function, read_stack, strip_torch_function_frames
from jupyter_graphbreak.report.schema import CudagraphSkip, Diagnostic, Graph, GraphLine, Op, Tensor, TensorMeta

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.breaks import FoldedBreak
    from jupyter_graphbreak.analysis.ledger import FrameLedger, Ledger
    from jupyter_graphbreak.analysis.source.locations import Sources
    from jupyter_graphbreak.recording.additions import GraphStacks
    from jupyter_graphbreak.report.location import Location


#: The beginning of PyTorch's reason for not using a CUDA graph. ``_FOUND_FROM`` precedes the stack of the cause.
_SKIPPING = re.compile(r"^skipping cudagraphs? due to (?:skipping cudagraphs? due to )?", re.IGNORECASE)
_PLACE = re.compile(
    r"^(?P<indent>[ \t]*)# File: (?P<file>.{1,4096}?):(?P<line>\d{1,9}) in (?P<name>[^,\n]{1,300}), code:", re.MULTILINE
)
_FOUND_FROM = re.compile(r"\.?\s*Found from\s*:")


class GraphTable:
    """Lists the graphs of a run, named by letters in the order of their capture.

    Parameters
    ----------
    sources : Sources
        The source texts, and the locations in them.
    notes : list of Diagnostic
        Receives a warning about lines that could not be read.
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
        """Add the graphs of a frame, which end at the given break."""
        for captured in frame.graphs:
            code, stacks = captured.code, captured.stacks
            parsed = graph_code.parse_graph(code)
            if frame.start is not None and stacks is None and not parsed.ops:
                continue  # torch >= 2.15 writes an empty graph to the trace and does not compile it
            ident = _letter(len(self._graphs))
            if parsed.unread:
                self._notes.append(Diagnostic("warning", f"{parsed.unread} lines of graph {ident} could not be read."))
            traces = _Traces(stacks)
            self._graphs.append(
                Graph(
                    id=ident,
                    name=compiled_function(frame.code[0]),
                    frame=frame.ident,
                    ops=[self._op(op, traces) for op in parsed.ops],
                    inputs=[
                        Tensor(parameter.name, parameter.tensor.shape, parameter.tensor.dtype, parameter.tensor.device)
                        if parameter.tensor
                        else Tensor(parameter.name, None, "unknown")
                        for parameter in parsed.inputs
                    ],
                    lines=self._lines(parsed.ops, traces),
                    code=self._readable(code),
                    ends="break" if ending is not None else "return",
                    break_=ending.ident if ending is not None else None,
                )
            )
            self._of_frame.setdefault(frame.ident, []).append(ident)

    def cudagraph_skips(self, ledger: Ledger) -> list[CudagraphSkip]:
        """Return why graphs run without a CUDA graph, each reason once per graph."""
        skips = []
        for frame, message in ledger.cudagraph_skips:
            reason, stack = _split_reason(message)
            graphs = self.of_frame(frame.ident) if frame is not None else []
            entry = next(reversed(strip_torch_function_frames(read_stack(stack), ledger.packages)), None)
            location = self._sources.place(entry) if entry is not None else None
            skips.append(CudagraphSkip(reason, graphs[-1] if graphs else None, location))
        return [skip for number, skip in enumerate(skips) if skip not in skips[:number]]

    def _readable(self, code: str) -> str:
        """Return a graph's code without assignments that only free memory, and with places named as in the report."""

        def renamed(match: re.Match[str]) -> str:
            location = self._sources.location(match["file"], int(match["line"]), match["name"].strip())
            if location is None:
                return match[0]
            return (
                f"{match['indent']}# {self._sources.name(match['file'])}:{location.line} in {location.function}, code:"
            )

        code = re.sub(r";  (?:\w+ = )+None$", "", code, flags=re.MULTILINE)
        return _PLACE.sub(renamed, code)

    def _op(self, op: graph_code.CodeOp, traces: _Traces) -> Op:
        trace = traces.of(op)
        shown = [entry for entry in trace if self._sources.kind(entry.filename, entry.function) != "machinery"]
        inner = next((e for e in reversed(shown) if not self._is_in_torch(e)), None)
        entry = inner or (shown[-1] if shown else (trace[-1] if trace else None))
        tensor = op.tensor
        return Op(
            name=op.name,
            target=op.target,
            location=_line_only(self._sources.place(entry)) if entry else None,
            output=TensorMeta(tensor.shape, tensor.dtype, tensor.device)
            if tensor and tensor.shape is not None
            else None,
        )

    def _is_in_torch(self, entry: StackEntry) -> bool:
        return (self._sources.module_path(entry.filename) or "").startswith("torch/")

    def _lines(self, ops: list[graph_code.CodeOp], traces: _Traces) -> list[GraphLine]:
        counted: dict[tuple[str, int], int] = {}
        for op in ops:
            places = {
                (location.source, location.line)
                for entry in traces.of(op)
                if self._sources.kind(entry.filename, entry.function) in {"cell", "file"}
                and (location := self._sources.place(entry)) is not None
            }
            for place in places:
                counted[place] = counted.get(place, 0) + 1
        return [GraphLine(source, line, number) for (source, line), number in sorted(counted.items())]


def _line_only(location: Location | None) -> Location | None:
    """Remove the text of a place: for ten thousand operations it would be half of the report."""
    return msgspec.structs.replace(location, code=None) if location is not None else None


class _Traces:
    """The call stacks of the operations of one graph, as recorded, or else the single line that its code names."""

    def __init__(self, stacks: GraphStacks | None) -> None:
        self._stacks = [read_stack(text) for text in stacks.stacks] if stacks is not None else []
        self._ops = stacks.ops if stacks is not None else {}

    def of(self, op: graph_code.CodeOp) -> list[StackEntry]:
        """Return the stack of an operation, outermost entry first."""
        index = self._ops.get(op.name)
        if index is not None and 0 <= index < len(self._stacks):
            return self._stacks[index]
        return [StackEntry(*op.place[:3])] if op.place else []


def _split_reason(message: str) -> tuple[str, str]:
    """Return the reason for not using a CUDA graph, and the stack of the cause."""
    text = _SKIPPING.sub("", message.strip())
    reason, *stack = _FOUND_FROM.split(text, maxsplit=1)
    return reason.strip(), "".join(stack)


def _letter(index: int) -> str:
    letters = string.ascii_uppercase
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, len(letters))
        text = letters[rest] + text
    return text

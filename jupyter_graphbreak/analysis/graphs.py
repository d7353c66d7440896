"""List the graphs of a run, and parse a graph from its readable code.

The trace's ``dynamo_output_graph`` contains the output of ``torch.fx.GraphModule.print_readable``::

    class GraphModule(torch.nn.Module):
        def forward(self, L_x_: "f32[3][1]cpu"):
            l_x_ = L_x_

            # File: a.py:3 in leaf, code: x = x + 1
            x: "f32[3][1]cpu" = l_x_ + 1;  l_x_ = None
            return (x,)
"""

from __future__ import annotations

import ast
import re
import string
from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.records.records import StackFrame, display_name, read_stack, strip_inserted_frames
from jupyter_graphbreak.report.schema import CudagraphSkip, Diagnostic, Graph, GraphLine, Op, Tensor, TensorMeta

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.breaks import FoldedBreak
    from jupyter_graphbreak.analysis.ledger import FrameLedger, Ledger
    from jupyter_graphbreak.analysis.locations import Sources
    from jupyter_graphbreak.records.additions import GraphStacks
    from jupyter_graphbreak.report.location import Location

#: The beginning of PyTorch's reason for not using a CUDA graph.
_CUDAGRAPH_SKIP = re.compile(r"^skipping cudagraphs? due to (?:skipping cudagraphs? due to )?", re.IGNORECASE)
#: The words before the stack of the cause.
_FOUND_FROM = re.compile(r"\.?\s*Found from\s*:")
_LOCATION_COMMENT = re.compile(
    r"^(?P<indent>[ \t]*)# File: (?P<file>.{1,4096}?):(?P<line>\d{1,9}) in (?P<name>[^,\n]{1,300}), code:", re.MULTILINE
)


class GraphTable:
    """Lists the graphs of a run, named by letters in the order of their capture; notes lines that it cannot read."""

    def __init__(self, sources: Sources, notes: list[Diagnostic]) -> None:
        self._sources = sources
        self._notes = notes
        self._graphs: list[Graph] = []
        self._ids_by_frame: dict[str, list[str]] = {}

    def graphs(self) -> list[Graph]:
        """Return the graphs added so far."""
        return list(self._graphs)

    def ids_of_frame(self, frame: str) -> list[str]:
        """Return the ids of the graphs that a frame captured."""
        return self._ids_by_frame.get(frame, [])

    def add(self, frame: FrameLedger, ending_break: FoldedBreak | None) -> None:
        """Add the graphs of a frame that end at the given break, or at a return if there is none."""
        for captured_graph in frame.lasting_graphs:
            parsed_graph = parse_graph(captured_graph.code)
            if frame.start is not None and captured_graph.stacks is None and not parsed_graph.ops:
                continue  # torch >= 2.15 writes an empty graph to the trace and does not compile it
            ident = _graph_id(len(self._graphs))
            if parsed_graph.unparsed_count:
                self._notes.append(
                    Diagnostic(
                        "warning", f"Lines of graph {ident} that could not be read: {parsed_graph.unparsed_count}."
                    )
                )
            stacks = _OpStacks(captured_graph.stacks)
            self._graphs.append(
                Graph(
                    id=ident,
                    name=display_name(frame.code[0]),
                    frame=frame.ident,
                    ops=[self._op_for_report(op, stacks.stack_of(op)) for op in parsed_graph.ops],
                    inputs=parsed_graph.inputs,
                    lines=self._line_counts(parsed_graph.ops, stacks),
                    code=self._readable_code(captured_graph.code),
                    ends="break" if ending_break is not None else "return",
                    break_=ending_break.ident if ending_break is not None else None,
                )
            )
            self._ids_by_frame.setdefault(frame.ident, []).append(ident)

    def cudagraph_skips(self, ledger: Ledger) -> list[CudagraphSkip]:
        """Return the reasons why graphs run without a CUDA graph, each once per graph."""
        skips = []
        for frame, message in ledger.cudagraph_skips:
            reason, stack = _split_reason(message)
            graphs = self.ids_of_frame(frame.ident) if frame is not None else []
            stack_frame = next(reversed(strip_inserted_frames(read_stack(stack), ledger.packages)), None)
            location = self._sources.stack_frame_location(stack_frame) if stack_frame is not None else None
            skips.append(CudagraphSkip(reason, graphs[-1] if graphs else None, location))
        return [skip for number, skip in enumerate(skips) if skip not in skips[:number]]

    def _readable_code(self, code: str) -> str:
        """Return a graph's code without assignments that only free memory, and with the report's names and lines."""

        def rename_location(match: re.Match[str]) -> str:
            location = self._sources.location(match["file"], int(match["line"]), match["name"].strip())
            if location is None:
                return match[0]
            return (
                f"{match['indent']}# {self._sources.name(match['file'])}:{location.line} in {location.function}, code:"
            )

        code = re.sub(r";  (?:\w+ = )+None$", "", code, flags=re.MULTILINE)
        return _LOCATION_COMMENT.sub(rename_location, code)

    def _op_for_report(self, op: CodeOp, stack: list[StackFrame]) -> Op:
        shown_frames = [
            stack_frame
            for stack_frame in stack
            if self._sources.kind(stack_frame.filename, stack_frame.function) != "machinery"
        ]
        innermost = next((e for e in reversed(shown_frames) if not self._is_in_torch(e)), None)
        stack_frame = innermost or next(reversed(shown_frames or stack), None)
        tensor = op.tensor
        return Op(
            name=op.name,
            target=op.target,
            location=_line_only(self._sources.stack_frame_location(stack_frame)) if stack_frame else None,
            output=TensorMeta(tensor.shape, tensor.dtype, tensor.device)
            if tensor and tensor.shape is not None
            else None,
        )

    def _is_in_torch(self, stack_frame: StackFrame) -> bool:
        return (self._sources.module_path(stack_frame.filename) or "").startswith("torch/")

    def _line_counts(self, ops: list[CodeOp], stacks: _OpStacks) -> list[GraphLine]:
        counts: dict[tuple[str, int], int] = {}
        for op in ops:
            lines = {
                (location.source, location.line)
                for stack_frame in stacks.stack_of(op)
                if self._sources.kind(stack_frame.filename, stack_frame.function) in {"cell", "file"}
                and (location := self._sources.stack_frame_location(stack_frame)) is not None
            }
            for line in lines:
                counts[line] = counts.get(line, 0) + 1
        return [GraphLine(source, number, count) for (source, number), count in sorted(counts.items())]


def _line_only(location: Location | None) -> Location | None:
    """Return a location without its code, because the code of ten thousand operations would be half of the report."""
    return msgspec.structs.replace(location, code=None) if location is not None else None


class _OpStacks:
    """The call stacks of a graph's operations; without recorded stacks, only the lines in the graph's code."""

    def __init__(self, stacks: GraphStacks | None) -> None:
        self._stacks = [read_stack(text) for text in stacks.stacks] if stacks is not None else []
        self._ops = stacks.ops if stacks is not None else {}

    def stack_of(self, op: CodeOp) -> list[StackFrame]:
        """Return the stack of an operation, outermost frame first."""
        index = self._ops.get(op.name)
        if index is not None and 0 <= index < len(self._stacks):
            return self._stacks[index]
        return [StackFrame(*op.source_line[:3])] if op.source_line else []


def _split_reason(message: str) -> tuple[str, str]:
    """Return the reason for not using a CUDA graph, and the stack of the cause."""
    text = _CUDAGRAPH_SKIP.sub("", message.strip())
    reason, *stack = _FOUND_FROM.split(text, maxsplit=1)
    return reason.strip(), "".join(stack)


def _graph_id(index: int) -> str:
    """Return the letters for a graph: A to Z, then AA, AB and so on."""
    letters = string.ascii_uppercase
    text = ""
    index += 1
    while index:
        index, letter_index = divmod(index - 1, len(letters))
        text = letters[letter_index] + text
    return text


_COMMENT = re.compile(r"#\s*File: (?P<file>.{1,4096}):(?P<line>\d{1,9}) in (?P<name>[^,]{1,300}), code: ?(?P<code>.*)$")
_TENSOR_ANNOTATION = re.compile(
    r"^(?P<dtype>[a-z][a-z0-9_]*)\[(?P<shape>[^\]]*)\](?:\[(?P<stride>[^\]]*)\])?(?P<device>\S*)$"
)
#: The errors of ``ast.parse`` for text that is not Python, or that is nested too deeply.
_PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
_SIZE = re.compile(r"[0-9]{1,18}")
_GRAPH_CLASS = re.compile(r"^\s*class \w+\(torch\.nn\.Module\):")
_OPERATOR_NAMES = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Invert: "invert",
    ast.Not: "not_",
    ast.Is: "is_",
    ast.IsNot: "is_not",
    ast.In: "contains",
}  # fmt: skip - names of the standard library's operator module
_DTYPES = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "b8": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
}  # fmt: skip - the inverse of dtype_abbrs in torch/utils/_dtype_abbrs.py


class CodeTensor(msgspec.Struct, frozen=True):
    """A tensor, parsed from its annotation; ``shape`` is ``None`` for a number."""

    shape: list[int | str] | None
    dtype: str
    device: str | None


class CodeOp(msgspec.Struct, frozen=True):
    """A statement that calls an operation; ``source_line`` is the file, line, function and code that it comes from."""

    name: str
    target: str
    tensor: CodeTensor | None
    source_line: tuple[str, int, str, str] | None


class GraphCode(msgspec.Struct, frozen=True):
    """A graph, parsed from its code; ``unparsed_count`` is the number of lines that could not be parsed."""

    inputs: list[Tensor]
    ops: list[CodeOp]
    unparsed_count: int = 0


def parse_graph(code: str) -> GraphCode:
    """Parse the inputs and the operations of a graph; a control-flow subgraph is one operation."""
    inputs: list[Tensor] = []
    ops: list[CodeOp] = []
    source_line: tuple[str, int, str, str] | None = None
    unparsed_count = 0
    is_in_forward = False
    value_names: set[str] = set()
    for line in code.splitlines():
        text = line.strip()
        if _GRAPH_CLASS.match(line):
            if is_in_forward:  # the classes of subgraphs follow the graph's forward()
                break
            continue
        if text.startswith("def forward("):
            is_in_forward = True
            inputs, is_parsed = _read_inputs(text)
            value_names = {parameter.name for parameter in inputs}
            unparsed_count += not is_parsed
            continue
        if not is_in_forward or not text:
            continue
        comment = _COMMENT.match(text)
        if comment:
            source_line = (comment["file"], int(comment["line"]), comment["name"].strip(), comment["code"].strip())
            continue
        if text.startswith(("#", "return")):
            continue
        op, is_parsed = _read_statement(text, value_names)
        if op is not None:
            value_names.add(op[0])
            ops.append(CodeOp(op[0], op[1], op[2], source_line))
        unparsed_count += not is_parsed
    return GraphCode(inputs, ops, unparsed_count)


def parse_tensor(annotation: str) -> CodeTensor:
    """Parse an annotation such as ``f32[3, s0][1, 1]cuda:0``; for ``Sym(s0)``, the dtype is the whole annotation."""
    match = _TENSOR_ANNOTATION.match(annotation)
    if match is None:
        return CodeTensor(None, annotation, None)
    sizes = [part.strip() for part in match["shape"].split(",") if part.strip()]
    shape: list[int | str] = [int(size) if _SIZE.fullmatch(size) else size for size in sizes]
    return CodeTensor(shape, _DTYPES.get(match["dtype"], match["dtype"]), match["device"] or None)


def _read_inputs(signature: str) -> tuple[list[Tensor], bool]:
    """Return the parameters in a signature, and whether the signature was understood."""
    try:
        function = ast.parse(signature + " pass").body[0]
    except _PARSE_ERRORS:
        return [], False
    if not isinstance(function, ast.FunctionDef):
        return [], False
    inputs = []
    for parameter in function.args.args:
        if parameter.arg != "self":
            tensor = _annotated_tensor(parameter.annotation) or CodeTensor(None, "unknown", None)
            inputs.append(Tensor(parameter.arg, tensor.shape, tensor.dtype, tensor.device))
    return inputs, True


def _annotated_tensor(node: ast.expr | None) -> CodeTensor | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return parse_tensor(node.value)
    return None


def _read_statement(text: str, value_names: set[str]) -> tuple[tuple[str, str, CodeTensor | None] | None, bool]:
    """Return the operation in a statement, if any, and whether the statement was understood."""
    try:
        statement, *later_statements = ast.parse(text).body
    except _PARSE_ERRORS:
        return None, False
    if isinstance(statement, ast.AugAssign) and later_statements:  # a += b;  iadd = a
        in_place_operator = f"operator.i{_operator_name(statement.op)}".rstrip("_")
        match later_statements[0]:
            case ast.Assign(targets=[ast.Name(id=name)]):
                return (name, in_place_operator, None), True
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                return (name, in_place_operator, _annotated_tensor(annotation)), True
        return None, False
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        name, value, tensor = statement.target.id, statement.value, _annotated_tensor(statement.annotation)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        name, value, tensor = statement.targets[0].id, statement.value, None
    elif isinstance(statement, ast.Assign):  # x.grad = ...: a side effect, not a node of the graph
        return None, True
    else:
        return None, isinstance(statement, ast.Expr | ast.Pass)
    if isinstance(value, ast.Name) and value.id in value_names:  # l_x_ = L_x_: a second name for an input
        value_names.add(name)
        return None, True
    called_name = _called_name(value, value_names) if value is not None else None
    return ((name, called_name, tensor) if called_name else None), True


def _called_name(value: ast.expr, value_names: set[str]) -> str | None:
    """Return the name of the function that an expression calls; ``None`` if it only reads ``self.weight``."""
    match value:
        case ast.Call(func=func):
            return _callee(func, value_names)
        case ast.BinOp(op=op) | ast.UnaryOp(op=op) | ast.Compare(ops=[op]):
            return f"operator.{_operator_name(op)}"
        case ast.Subscript():
            return "operator.getitem"
        case ast.Attribute(value=base):
            # self.weight is a parameter; x.grad reads an attribute in the graph
            return None if _root_name(base) == "self" else f"getattr.{value.attr}"
        case _:
            return None


def _operator_name(operator: ast.AST) -> str:
    return _OPERATOR_NAMES.get(type(operator), type(operator).__name__)


def _callee(func: ast.expr, value_names: set[str]) -> str:
    if isinstance(func, ast.Attribute) and _root_name(func) in value_names:
        return f"Tensor.{func.attr}"
    try:
        return ast.unparse(func)
    except RecursionError:
        return "unknown"


def _root_name(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None

"""Parse a graph from its readable code.

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

import msgspec

_COMMENT = re.compile(r"#\s*File: (?P<file>.{1,4096}):(?P<line>\d{1,9}) in (?P<name>[^,]{1,300}), code: ?(?P<code>.*)$")
_TENSOR = re.compile(r"^(?P<dtype>[a-z][a-z0-9_]*)\[(?P<shape>[^\]]*)\](?:\[(?P<stride>[^\]]*)\])?(?P<device>\S*)$")
#: The errors of ``ast.parse`` for a text that is not Python, or that is nested too deeply.
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
_SIZE = re.compile(r"[0-9]{1,18}")
_SUBGRAPH = re.compile(r"^\s*class \w+\(torch\.nn\.Module\):")
_OPERATORS = {
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
}  # fmt: skip - torch/fx/_utils or graph.py dtype_abbrs


class CodeTensor(msgspec.Struct, frozen=True):
    """A tensor, parsed from its annotation; ``shape`` is ``None`` for a number."""

    shape: list[int | str] | None
    dtype: str
    device: str | None


class CodeInput(msgspec.Struct, frozen=True):
    """A parameter of the graph's function."""

    name: str
    tensor: CodeTensor | None


class CodeOp(msgspec.Struct, frozen=True):
    """A statement that calls an operation; ``place`` has the file, line, function and text of its source line."""

    name: str
    target: str
    tensor: CodeTensor | None
    place: tuple[str, int, str, str] | None


class GraphCode(msgspec.Struct, frozen=True):
    """A graph, parsed from its code; ``unread`` is the number of lines that could not be parsed."""

    inputs: list[CodeInput]
    ops: list[CodeOp]
    unread: int = 0


def parse_graph(code: str) -> GraphCode:
    """Parse the inputs and the operations of a graph; a subgraph of control flow counts as one operation."""
    inputs: list[CodeInput] = []
    ops: list[CodeOp] = []
    place: tuple[str, int, str, str] | None = None
    unread = 0
    in_forward = False
    values: set[str] = set()
    for line in code.splitlines():
        text = line.strip()
        if _SUBGRAPH.match(line):
            if in_forward:  # the classes of subgraphs follow the forward of the graph
                break
            continue
        if text.startswith("def forward("):
            in_forward = True
            inputs, read = _inputs(text)
            values = {parameter.name for parameter in inputs}
            unread += not read
            continue
        if not in_forward or not text:
            continue
        comment = _COMMENT.match(text)
        if comment:
            place = (comment["file"], int(comment["line"]), comment["name"].strip(), comment["code"].strip())
            continue
        if text.startswith(("#", "return")):
            continue
        op, known = _statement(text, values)
        if op is not None:
            values.add(op[0])
            ops.append(CodeOp(op[0], op[1], op[2], place))
        unread += not known
    return GraphCode(inputs, ops, unread)


def parse_tensor(annotation: str) -> CodeTensor:
    """Parse an annotation such as ``f32[3, s0][1, 1]cuda:0``; for ``Sym(s0)``, the dtype is the whole annotation."""
    match = _TENSOR.match(annotation)
    if match is None:
        return CodeTensor(None, annotation, None)
    sizes = [part.strip() for part in match["shape"].split(",") if part.strip()]
    shape: list[int | str] = [int(size) if _SIZE.fullmatch(size) else size for size in sizes]
    return CodeTensor(shape, _DTYPES.get(match["dtype"], match["dtype"]), match["device"] or None)


def _inputs(signature: str) -> tuple[list[CodeInput], bool]:
    try:
        function = ast.parse(signature + " pass").body[0]
    except _UNREADABLE:
        return [], False
    if not isinstance(function, ast.FunctionDef):
        return [], False
    return [CodeInput(arg.arg, _annotation(arg.annotation)) for arg in function.args.args if arg.arg != "self"], True


def _annotation(node: ast.expr | None) -> CodeTensor | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return parse_tensor(node.value)
    return None


def _statement(text: str, values: set[str]) -> tuple[tuple[str, str, CodeTensor | None] | None, bool]:
    """Return the operation in a statement, if any, and whether the statement was understood."""
    try:
        statement, *more = ast.parse(text).body
    except _UNREADABLE:
        return None, False
    if isinstance(statement, ast.AugAssign) and more:  # a += b;  iadd = a
        target = f"operator.i{_OPERATORS.get(type(statement.op), type(statement.op).__name__)}".rstrip("_")
        match more[0]:
            case ast.Assign(targets=[ast.Name(id=name)]):
                return (name, target, None), True
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                return (name, target, _annotation(annotation)), True
        return None, False
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        name, value, tensor = statement.target.id, statement.value, _annotation(statement.annotation)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        name, value, tensor = statement.targets[0].id, statement.value, None
    elif isinstance(statement, ast.Assign):  # x.grad = ...: a side effect, not a node of the graph
        return None, True
    else:
        return None, isinstance(statement, ast.Expr | ast.Pass)
    if isinstance(value, ast.Name) and value.id in values:  # l_x_ = L_x_: a second name for an input
        values.add(name)
        return None, True
    called = _target(value, values) if value is not None else None
    return ((name, called, tensor) if called else None), True


def _target(value: ast.expr, values: set[str]) -> str | None:
    """Return the name of what an expression calls, ``None`` if it calls nothing, such as ``self.weight``."""
    match value:
        case ast.Call(func=func):
            return _callee(func, values)
        case ast.BinOp(op=op) | ast.UnaryOp(op=op):
            return f"operator.{_OPERATORS.get(type(op), type(op).__name__)}"
        case ast.Compare(ops=[op]):
            return f"operator.{_OPERATORS.get(type(op), type(op).__name__)}"
        case ast.Subscript():
            return "operator.getitem"
        case ast.Attribute(value=base):
            # self.weight is a parameter; x.grad reads an attribute in the graph
            return None if _root(base) == "self" else f"getattr.{value.attr}"
        case _:
            return None


def _callee(func: ast.expr, values: set[str]) -> str:
    if isinstance(func, ast.Attribute) and _root(func) in values:
        return f"Tensor.{func.attr}"
    try:
        return ast.unparse(func)
    except RecursionError:
        return "unknown"


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None

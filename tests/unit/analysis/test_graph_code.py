"""Operations, inputs and source lines are parsed from the readable code of graphs."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.analysis.graphs import CodeTensor, parse_graph, parse_tensor
from jupyter_graphbreak.report.schema import Tensor

CODE = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[s0, 3][3, 1]cuda:0", s0: "Sym(s0)", L_w_):
        l_x_ = L_x_

         # No stacktrace found for following nodes
        _set_grad_enabled = torch._C._set_grad_enabled(False);  _set_grad_enabled = None

        # File: /a b/m.py:3 in f, code: x = x + 1, "odd: text"
        x: "f32[s0, 3][3, 1]cuda:0" = l_x_ + 1
        weight = self.weight
        y: "bf16[][]cpu" = x.sum();  x = None
        linear = torch._C._nn.linear(y, weight)
        # File: /a b/m.py:4 in f, code: x += 1
        y += 1;  y_1: "f32[][]" = y;  y = None
        split = torch.functional.split(linear, 2)
        getitem = split[0];  split = None
        gt = y_1 > 3
        neg = -y_1
        cond_true_0 = self.cond_true_0
        cond = torch.ops.higher_order.cond(gt, cond_true_0, cond_true_0, (y_1,))
        return (getitem, cond)

    class cond_true_0(torch.nn.Module):
        def forward(self, a):
            b = a + 1
            return (b,)
"""


def test_operations_have_names_and_targets() -> None:
    parsed = parse_graph(CODE)
    assert [(op.name, op.target) for op in parsed.ops] == [
        ("_set_grad_enabled", "torch._C._set_grad_enabled"),
        ("x", "operator.add"),
        ("y", "Tensor.sum"),
        ("linear", "torch._C._nn.linear"),
        ("y_1", "operator.iadd"),
        ("split", "torch.functional.split"),
        ("getitem", "operator.getitem"),
        ("gt", "operator.gt"),
        ("neg", "operator.neg"),
        ("cond", "torch.ops.higher_order.cond"),
    ]
    assert parsed.unparsed_count == 0


def test_operations_have_source_lines_and_tensors() -> None:
    ops = {op.name: op for op in parse_graph(CODE).ops}
    assert ops["_set_grad_enabled"].source_line is None
    assert ops["x"].source_line == ("/a b/m.py", 3, "f", 'x = x + 1, "odd: text"')
    assert ops["y_1"].source_line is not None
    assert ops["y_1"].source_line[1] == 4
    assert ops["x"].tensor == CodeTensor(["s0", 3], "float32", "cuda:0")
    assert ops["y"].tensor == CodeTensor([], "bfloat16", "cpu")


def test_inputs_have_shapes_and_types() -> None:
    inputs = parse_graph(CODE).inputs
    assert inputs == [
        Tensor("L_x_", ["s0", 3], "float32", "cuda:0"),
        Tensor("s0", None, "Sym(s0)"),
        Tensor("L_w_", None, "unknown"),
    ]


@pytest.mark.parametrize(
    ("annotation", "tensor"),
    [
        ("f32[3]", CodeTensor([3], "float32", None)),
        ("i64[2, 3][3, 1]cpu", CodeTensor([2, 3], "int64", "cpu")),
        ("b8[]", CodeTensor([], "bool", None)),
        ("f32[s77 + 1]", CodeTensor(["s77 + 1"], "float32", None)),
        ("f8e4m3fn[2]", CodeTensor([2], "f8e4m3fn", None)),
        ("Sym(u0)", CodeTensor(None, "Sym(u0)", None)),
    ],
)
def test_type_annotations_are_read(annotation: str, tensor: CodeTensor) -> None:
    assert parse_tensor(annotation) == tensor


@pytest.mark.parametrize("code", ["", "nonsense (", "def forward(self", "class GraphModule(torch.nn.Module):\n  x = ("])
def test_invalid_code_of_a_graph_has_no_operations(code: str) -> None:
    assert parse_graph(code).ops == []

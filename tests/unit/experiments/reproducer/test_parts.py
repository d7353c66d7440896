"""The parts of a reproducer that need no process: its target, reduction, redaction and writing."""

from __future__ import annotations

import ast
import enum
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from jupyter_graphbreak.experiments.reproducer.definitions import UnwritableError
from jupyter_graphbreak.experiments.reproducer.reduction import reduce_script
from jupyter_graphbreak.experiments.reproducer.renaming import redact_script
from jupyter_graphbreak.experiments.reproducer.target import (
    first_line_of_message,
    guard_kind,
    reproducible_ids,
    target_of,
)
from jupyter_graphbreak.experiments.reproducer.writer import ScriptWriter
from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.schema import Break, Device, GuardFailure, Recompile, Report, RunError


def break_in(code: str, gb_id: str | None = "GB0170", outcome: Any = "resumed") -> Break:
    return Break("b1", gb_id, "Data-dependent branching", Location("s1", 1, 1, code=code), outcome)


def report(**fields: Any) -> Report:
    return Report("ok", Device("auto", "cpu"), **fields)


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (break_in("x.sum() > 0"), True),
        (break_in("if x.sum()  > 0:"), True),
        (break_in("if y.sum() > 0:"), False),
        (break_in("x.sum() > 0", "GB0059"), False),
        (break_in("x.sum() > 0", outcome="error"), False),
    ],
)
def test_the_same_break_has_the_same_cause_code_and_outcome(other: Break, is_same: bool) -> None:
    target = target_of(report(breaks=[break_in("x.sum() > 0")]), "b1")
    assert target is not None
    assert target.is_shown_by(report(breaks=[other]), {}) is is_same


def test_code_that_the_script_names_differently_is_the_same() -> None:
    target = target_of(report(breaks=[break_in("helpers.norm(x)")]), "b1")
    assert target is not None
    assert target.is_shown_by(report(breaks=[break_in("norm(x)")]), {"helpers.norm": "norm"})


@pytest.mark.parametrize(
    ("guard", "other", "is_same"),
    [
        ("'x' size mismatch at 0. expected 3, actual 4", "'y' size mismatch at 1. expected 8, actual 2", True),
        ("L['n'] == 2", "L['k'] == 7", True),
        ("L['n'] == 2", "'x' size mismatch at 0. expected 3, actual 4", False),
        ("'x' dtype mismatch. expected Float, actual Double", "'x' size mismatch at 0. expected 3, actual 4", False),
    ],
)  # fmt: skip
def test_guards_are_compared_by_kind(guard: str, other: str, is_same: bool) -> None:
    assert (guard_kind(guard) == guard_kind(other)) is is_same


def test_the_same_recompile_has_the_same_function_and_kind_of_reason() -> None:
    recompile = Recompile("0/1", "0/0", "f", None, [GuardFailure("L['n'] == 2")], id="r1")
    target = target_of(report(recompiles=[recompile]), "r1")
    assert target is not None
    assert target.is_shown_by(report(recompiles=[replace(recompile, reasons=[GuardFailure("L['n'] == 5")])]), {})
    assert not target.is_shown_by(report(recompiles=[replace(recompile, function="g")]), {})
    assert not target.is_shown_by(report(recompiles=[replace(recompile, limit_hit=True)]), {})


def test_an_error_is_reproduced_by_its_type_and_first_line() -> None:
    error = RunError("BackendCompilerFailed", "backend='be' raised:\nRuntimeError: no\n\nmore", None, "b1")
    failed_report = report(error=error, breaks=[break_in("f(x)", outcome="error")], order=["b1"])
    assert reproducible_ids(failed_report) == ["error"]
    target = target_of(failed_report, "error")
    assert target is not None
    assert target.is_shown_by(failed_report, {})
    assert not target.is_shown_by(report(error=RunError("BackendCompilerFailed", "backend='be' raised:\nother")), {})
    assert target_of(failed_report, "check") is None


def test_the_first_line_includes_the_error_of_the_backend() -> None:
    assert (
        first_line_of_message("backend='be' raised:\nRuntimeError: no\nmore") == "backend='be' raised: RuntimeError: no"
    )


PROGRAM = """\
import torch

def helper(x, scale):
    return x * scale

def f(x, y, z):
    a = helper(x, 2)
    b = a
    if y is not None:
        c = b.sum() + y
        print(c)
    return b + z

compiled = torch.compile(f)
compiled(torch.randn(3), 1, 2)
"""


def test_reduction_keeps_only_the_lines_that_reproduce_the_finding() -> None:
    def is_reproduced(text: str) -> bool:
        return "print(" in text and "compiled(" in text.replace("compiled = ", "") and "torch.compile(f)" in text

    tree, steps = reduce_script(ast.parse(PROGRAM), is_reproduced, lambda: False)
    text = ast.unparse(tree)
    assert steps > 3
    assert "helper" not in text
    assert "print(c)" in text
    assert "if" not in text
    assert len(text.split("\n")) < 9


def test_reduction_stops_when_time_is_up_and_keeps_the_condition_of_an_error() -> None:
    tree = ast.parse("def f(x):\n    if x > 1:\n        raise ValueError('no')\n    return x\nf(2)")
    assert reduce_script(tree, lambda _: True, lambda: True) == (tree, 0)
    reduced_tree, _ = reduce_script(
        tree, lambda text: "raise ValueError('no')" in text and "f(2)" in text, lambda: False
    )
    assert "if x > 1:" in ast.unparse(reduced_tree)


def test_a_redacted_script_keeps_names_that_pytorch_needs() -> None:
    program = (
        "import torch\nclass Secret(torch.nn.Module):\n    def forward(self, x, mask):\n"
        "        self.total = self.count(x, mask=mask)\n        return self.total.sum()\n"
        "    def count(self, x, mask):\n        print('secret')\n        return x.to(device='cpu')\n"
        "secret = Secret()\ncompiled = torch.compile(secret, backend='eager')\ncompiled(torch.randn(2), mask=None)\n"
    )
    text = redact_script(ast.parse(program), keeps_strings=False)
    compile(text, "<redacted>", "exec")
    assert "secret" not in text.lower()
    assert "count" not in text
    for part in (
        "torch.compile(",
        "backend='eager'",
        "device='cpu'",
        ".sum()",
        "def forward(self",
        "torch.nn.Module",
    ):
        assert part in text


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.ones(2, 3), "torch.randn(2, 3)"),
        (torch.ones(2).half().requires_grad_(), "torch.randn(2, dtype=torch.float16, requires_grad=True)"),
        (torch.tensor([3, 1]), "torch.tensor([3, 1])"),
        (torch.arange(40), "torch.randint(0, 40, (40,))"),
        (torch.ones(2, 3).t(), "torch.empty_strided((3, 2), (1, 3)).normal_()"),
        (torch.ones(30) > 0, "torch.rand(30) > 0.5"),
        (torch.nn.Linear(2, 3, bias=False), "torch.nn.Linear(2, 3, bias=False)"),
        (torch.nn.Sequential(torch.nn.ReLU()).eval(), "torch.nn.Sequential(torch.nn.ReLU().eval()).eval()"),
        (torch.nn.LSTM(2, 3, batch_first=True), "torch.nn.LSTM(2, 3, batch_first=True)"),
        ({"a": [1, (2.5, None)], "b": float("inf")}, "{'a': [1, (2.5, None)], 'b': float('inf')}"),
        (torch.float16, "torch.float16"),
        (Colour.RED, "Colour.RED"),
        (slice(1, None), "slice(1, None, None)"),
        (open, "open"),
    ],
)  # fmt: skip
def test_values_are_written_as_expressions(value: Any, expected: str) -> None:
    assert ast.unparse(ScriptWriter().expression_of(value)) == expected


class BoxTensor(torch.Tensor):
    def area(self) -> torch.Tensor:
        return self.prod(1)


class TensorWithAttribute(torch.Tensor):
    def __init__(self, _: torch.Tensor) -> None:
        self.mark = 1


SPARSE = torch.sparse_coo_tensor(torch.tensor([[0, 2], [1, 0]]), torch.ones(2), (3, 2))
LARGE_SPARSE_TENSOR = torch.sparse_coo_tensor(
    torch.stack([torch.arange(9), torch.zeros(9, dtype=torch.int64)]), torch.ones(9)
)


@pytest.mark.parametrize(
    "tensor",
    [SPARSE, SPARSE.coalesce(), SPARSE.to_sparse_csr(), LARGE_SPARSE_TENSOR, torch.ones(3, 2).as_subclass(BoxTensor)],
)
def test_unusual_tensors_are_written_with_their_class_and_layout(tensor: torch.Tensor) -> None:
    tensor_copy = eval(ast.unparse(ScriptWriter().expression_of(tensor)), {"torch": torch, "BoxTensor": BoxTensor})
    assert (type(tensor_copy), tensor_copy.layout, tensor_copy.shape) == (type(tensor), tensor.layout, tensor.shape)


def test_small_tensors_keep_their_values_if_values_matter() -> None:
    assert ast.unparse(ScriptWriter(uses_values=True).expression_of(torch.ones(2))) == "torch.tensor([1.0, 1.0])"


def test_an_object_that_is_used_twice_has_one_name() -> None:
    writer = ScriptWriter()
    module = torch.nn.TransformerEncoderLayer(4, 2)
    first, second = writer.expression_of(module), writer.expression_of(module)
    assert ast.unparse(first) == ast.unparse(second)


@pytest.mark.parametrize("value", [object(), torch.eye(4).to_sparse_bsr((2, 2)), TensorWithAttribute(torch.ones(2))])
def test_a_value_that_cannot_be_written_raises(value: Any) -> None:
    with pytest.raises(UnwritableError):
        ScriptWriter().expression_of(value)


def test_closures_of_one_function_stay_separate() -> None:
    def make_adder(number: int) -> Any:
        return lambda x: x + number

    writer = ScriptWriter()
    names = {ast.unparse(writer.expression_of(make_adder(number))) for number in (1, 2)}
    text = ast.unparse(writer.build_script([]))
    assert len(names) == 2
    assert "number = 1" in text
    assert "number_2 = 2" in text


def test_reduction_removes_options_of_torch_compile_except_the_backend() -> None:
    script = "import torch\nfrom own import f\ncompiled = torch.compile(f, backend='eager'"
    reduced_tree, _ = reduce_script(
        ast.parse(f"{script}, options={{'a': 1}})"),
        lambda text: "torch.compile(f" in text and "backend=" in text,
        lambda: False,
    )
    assert ast.unparse(reduced_tree) == f"{script})"

"""Values inside compiled code: the operations at which NaN and Inf arise, and the values that lines compute."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.views.rows.sections import measurement_sections

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.report.values import EntryValues
    from jupyter_graphbreak.results import Report


def compile_with(fn: Callable[..., Any], backend: Any = "eager") -> Any:
    return torch.compile(fn, backend=backend)


def line_of(fn: Callable[..., Any], text: str) -> int:
    """Return the number of the first line of a function that contains a string."""
    lines, first = inspect.getsourcelines(fn)
    return first + next(number for number, line in enumerate(lines) if text in line)


def only_entry(report: Report) -> EntryValues:
    (values,) = report.values or []
    return values


def findings(values: EntryValues) -> list[tuple[Any, ...]]:
    return [
        (first.direction, first.kind, first.op.rpartition(".")[2], first.location and first.location.line, first.graph)
        for first in values.first
    ]


def sentences(report: Report) -> list[str]:
    return [row.label for section in measurement_sections(report) for row in section.rows if not row.details]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def divide_zero(x: torch.Tensor) -> torch.Tensor:
    return (x - x) / (x - x)


def activate_with_breaks(x: torch.Tensor) -> torch.Tensor:
    y = x.sigmoid() * 2
    y = y + divide_zero(y)
    torch._dynamo.graph_break()
    total: torch.Tensor = y.cos().sum()
    return total


def test_values_of_a_model_with_breaks_keep_its_graphs_and_include_eager_code() -> None:
    x = torch.zeros(3, requires_grad=True)
    report = jupyter_graphbreak.values(compile_with(activate_with_breaks), x)
    plain_report = jupyter_graphbreak.explain(compile_with(activate_with_breaks), x)
    assert report.summary.graphs == plain_report.summary.graphs == 3
    assert report.summary.breaks == plain_report.summary.breaks == 2
    values = only_entry(report)
    line = line_of(divide_zero, "x - x")
    assert findings(values)[0] == ("forward", "nan", "div", line, None)
    assert sentences(report)[0] == (
        f"NaN first appears at test_values.py:{line} in divide_zero (div), not compiled: 3 of 3 elements, float32"
    )
    by_line = {value.location.line: value for value in values.lines}
    assert by_line[line].graph is None
    first = by_line[line_of(activate_with_breaks, "sigmoid")]
    assert (first.op, first.graph) == ("operator.mul", "A")
    assert (first.forward.shape, first.forward.dtype) == ([3], "float32")
    assert (first.forward.low, first.forward.high, first.forward.mean) == (1.0, 1.0, 1.0)
    assert by_line[line_of(activate_with_breaks, "y.cos")].forward.nan == 1
    assert x.grad is None


def root(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y.sqrt()
    return z.sum()


def test_inf_that_appears_only_in_the_backward_pass_is_found() -> None:
    x = torch.tensor([0.0, 4.0, 9.0], requires_grad=True)
    report = jupyter_graphbreak.values(compile_with(root), x)
    values = only_entry(report)
    assert findings(values) == [("backward", "inf", "sqrt", line_of(root, "sqrt"), "A")]
    assert values.first[0].eager == "same"
    assert values.results[0].gradient_inf == 1
    scaled_line = next(value for value in values.lines if value.location.line == line_of(root, "x * 2"))
    assert scaled_line.backward is not None
    assert (scaled_line.forward.inf, scaled_line.backward.inf, scaled_line.backward.elements) == (0, 1, 3)
    assert sentences(report)[0].startswith("In the backward pass, Inf first appears at test_values.py:")
    assert "the gradient that reaches the operation has no Inf; eager also has Inf there" in sentences(report)[0]


def run_backward_pass(x: torch.Tensor) -> torch.Tensor:
    (x - x).sqrt().mul(0).sum().backward()
    assert x.grad is not None
    return x.grad + 1


def test_nan_in_a_backward_pass_within_the_call_is_found() -> None:
    x = torch.ones(2, requires_grad=True)
    values = only_entry(jupyter_graphbreak.values(compile_with(run_backward_pass), x))
    assert ("backward", "nan", "sqrt", line_of(run_backward_pass, "sqrt"), "A") in findings(values)
    assert x.grad is None


def attend(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = scores.masked_fill(mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ weights


def test_a_mask_that_the_program_writes_is_not_a_finding() -> None:
    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask[0, 1] = True
    values = only_entry(jupyter_graphbreak.values(compile_with(attend), torch.randn(4, 4), mask))
    assert values.first == []
    assert values.lines[0].forward.inf == 1
    mask[1] = True
    values = only_entry(jupyter_graphbreak.values(compile_with(attend), torch.randn(4, 4), mask))
    assert findings(values) == [("forward", "nan", "softmax", line_of(attend, "softmax"), "A")]
    assert (values.first[0].count, values.first[0].elements) == (4, 16)


def scale_up(x: torch.Tensor) -> torch.Tensor:
    y = x * 300
    y = y * 300
    y /= 30000
    return y


def test_half_precision_overflows_where_fused_code_does_not() -> None:
    def compute_in_float32(module: Any, _: Any) -> Any:
        return lambda *args: tuple(part.half() for part in module(*(arg.float() for arg in args)))

    x = torch.full((4,), 200.0, dtype=torch.float16)
    report = jupyter_graphbreak.values(compile_with(scale_up, compute_in_float32), x)
    values = only_entry(report)
    second = line_of(scale_up, "y * 300")
    assert findings(values) == [("forward", "inf", "mul", second, "A")]
    assert values.first[0].eager == "same"
    assert "the largest float16 is 65504" in sentences(report)[0]
    assert sentences(report)[1] == (
        "Run one by one, the operations produce Inf in the result; compute_in_float32's code does not. It may keep "
        "more digits between operations"
    )
    assert {counts.by: counts.inf for counts in values.results} == {"graphs": 4, "eager": 4, "backend": 0}


def test_nan_that_only_the_backend_creates_is_attributed_to_it() -> None:
    def return_nan(module: Any, _: Any) -> Any:
        return lambda *args: tuple(part * math.nan for part in module(*args))

    report = jupyter_graphbreak.values(compile_with(root, return_nan), torch.ones(3))
    assert only_entry(report).first == []
    assert sentences(report)[1] == (
        "Only the code compiled with return_nan produces NaN in the result; the operations do not if they run one by "
        "one. `--check` names the first operation that differs"
    )


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            torch._dynamo.graph_break()
            x = self.round(x)
        return x

    def round(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y.log1p()


def test_inf_in_a_parameter_before_the_call_is_named() -> None:
    net = Net()
    torch.nn.init.constant_(net.inner.weight, math.inf)
    report = jupyter_graphbreak.values(net, torch.ones(1, 2))
    values = only_entry(report)
    assert [(tensor.name, tensor.nan, tensor.inf) for tensor in values.given] == [("inner.weight", 0, 4)]
    redacted = report.redacted()
    assert only_entry(redacted).lines
    assert all(line.forward.low is None and line.forward.mean is None for line in only_entry(redacted).lines)
    assert only_entry(redacted).given[0].name == "input"
    assert only_entry(redacted).first[0].kind == values.first[0].kind
    assert "inner" not in redacted.to_json().decode()


class LogModule(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        torch.nn.init.eye_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layer(x)
        return {"rate": torch.log(y), "sum": y.sum()}


@pytest.mark.skipif(torch.__version__ < "2.12", reason="torch before 2.12 has no variable with the result of a call")
def test_a_later_call_is_shown_if_its_result_is_the_first_with_nan() -> None:
    net = LogModule()
    program = torch.compile(net, backend="eager")
    with jupyter_graphbreak.capture(entries=True) as run:
        for number in range(1, 41):
            program(torch.full((3, 2), -1.0 if number >= 37 else 1.0))
    report = run.values()
    values = only_entry(report)
    assert (values.call, values.calls) == (37, 40)
    assert findings(values) == [("forward", "nan", "log", line_of(LogModule, "torch.log"), "A")]
    assert (
        "The values are those of call 37 of 40 calls of LogModule, the first whose result had NaN; "
        "its arguments have the values that they had after the call"
    ) in sentences(report)
    with jupyter_graphbreak.capture(entries=True) as run:
        program(torch.full((3, 2), -1.0))
        program(torch.full((3, 2), 1.0))
    assert only_entry(run.values()).call == 1


def test_values_of_a_graph_that_runs_several_times_are_combined() -> None:
    net = Net()
    torch.nn.init.constant_(net.inner.weight, -0.3)
    torch.nn.init.zeros_(net.inner.bias)
    with jupyter_graphbreak.capture(entries=True) as run:
        program = torch.compile(net, backend="eager")
        for _ in range(5):
            program(torch.ones(1, 2))
    parameters_before = [parameter.clone() for parameter in net.parameters()]
    state = torch.get_rng_state()
    report = run.values()
    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, parameters_before, net.parameters()))
    values = only_entry(report)
    assert values.calls == 5
    assert "The values are those of the first of 5 calls of Net; to see another call, run only that call in a cell" in (
        sentences(report)
    )
    # The second and the third round have an input that requires gradients, so PyTorch compiles the method again.
    lines = [line for line in values.lines if line.location.line == line_of(Net, "log1p")]
    assert [(line.op, line.graph, line.executions) for line in lines] == [
        ("Tensor.log1p", "A", 1),
        ("Tensor.log1p", "B", 2),
    ]
    assert [(line.forward.elements, line.forward.nan) for line in lines] == [(2, 0), (4, 0)]


def test_the_operations_of_one_line_are_listed() -> None:
    line = line_of(scale_up, "y * 300")
    sigmoid = line_of(activate_with_breaks, "sigmoid")
    report = jupyter_graphbreak.values(
        compile_with(activate_with_breaks), torch.zeros(2), at=[f"test_values.py:{sigmoid}", str(line)]
    )
    values = only_entry(report)
    assert [(value.location.line, value.op.rpartition(".")[2]) for value in values.lines] == [
        (sigmoid, "sigmoid"),
        (sigmoid, "mul"),
    ]
    assert [note.message for note in report.diagnostics] == [f"Line {line} computed no tensor in the examined calls."]
    with pytest.raises(ValueError, match=r"'model\.py' is not a line: use, for example, 12 or model\.py:12"):
        jupyter_graphbreak.values(activate_with_breaks, torch.zeros(2), at=["model.py"])


def raise_if_not_finite(x: torch.Tensor) -> torch.Tensor:
    y = x.log()
    if not torch.isfinite(y).all():
        raise ArithmeticError("not finite")
    return y


def test_a_call_that_raises_because_of_nan_has_findings() -> None:
    report = jupyter_graphbreak.values(compile_with(raise_if_not_finite), torch.tensor([-1.0]))
    assert findings(only_entry(report)) == [("forward", "nan", "log", line_of(raise_if_not_finite, "x.log"), "A")]
    assert any("raises ArithmeticError" in sentence for sentence in sentences(report))


def write_file(x: torch.Tensor) -> torch.Tensor:
    with open("graphbreak-values.txt", "w") as file:  # noqa: PTH123
        file.write("x")
    return x + 1


def test_a_function_with_effects_is_stopped_before_them(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = jupyter_graphbreak.values(compile_with(write_file), torch.ones(2))
    assert report.values == []
    assert [effect.kind for effect in report.effects or []] == ["file"]
    assert list(tmp_path.iterdir()) == []


def make_tensor_kinds(x: torch.Tensor, integers: torch.Tensor) -> tuple[Any, ...]:
    cast = x.to(torch.float8_e5m2)
    wave = torch.fft.fft(x)
    unsigned = integers.to(torch.uint16)
    sparse = torch.eye(3).to_sparse()
    empty = x[:0]
    return cast, wave, unsigned, sparse, empty, integers > 1


def test_tensors_of_every_kind_have_values() -> None:
    values = only_entry(jupyter_graphbreak.values(compile_with(make_tensor_kinds), torch.ones(4), torch.arange(3)))
    by_type = {value.forward.dtype: value.forward for value in values.lines}
    assert values.first == []
    assert (by_type["float8_e5m2"].low, by_type["float8_e5m2"].high) == (1.0, 1.0)
    assert by_type["complex64"].low is None
    assert by_type["bool"].mean == pytest.approx(1 / 3)
    assert values.results[0].raised is None


def test_large_numbers_stay_as_they_are() -> None:
    report = jupyter_graphbreak.values(compile_with(root), torch.full((2,), 1e30))
    (row,) = [
        row for section in measurement_sections(report) for row in section.rows if row.details and "mul" in row.label
    ]
    assert "all 2e+30" in row.label
    assert "all 2e+30" in report.to_text()

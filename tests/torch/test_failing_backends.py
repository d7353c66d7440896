"""If a backend fails, the report says what failed and what to do, and does not call the failure an allowed break."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch._inductor.exc import InductorError

import jupyter_graphbreak


def fail_to_compile(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    raise NotImplementedError("this operation")


def scale_relu(x: torch.Tensor) -> torch.Tensor:
    return x.relu() * 3


def test_the_report_shows_the_error_and_calls_no_break_allowed() -> None:
    with jupyter_graphbreak.capture() as run, pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(scale_relu, backend=fail_to_compile)(torch.ones(2))
    (break_,) = run.report.breaks
    assert break_.outcome == "error"
    assert break_.advice[0].text.startswith("the graph was captured, but the backend could not compile it")
    text = run.report.to_text()
    assert (
        "Backend error (BackendCompilerFailed): backend='fail_to_compile' raised: NotImplementedError: this"
        in re.sub(r"\s+", " ", text)
    )
    assert "an error, although breaks are allowed" in text
    assert "allowed by default" not in re.sub(r"\s+", " ", text)
    assert "an error, although breaks are allowed" in run.report.to_html()


def test_an_inductor_failure_leads_to_the_doctor() -> None:
    def fail(*_: Any) -> Any:
        raise InductorError(RuntimeError("No working C++ compiler found"), None)

    with jupyter_graphbreak.capture() as run, pytest.raises(InductorError):
        torch.compile(scale_relu, backend=fail)(torch.ones(2))
    (break_,) = run.report.breaks
    assert "`graphbreak doctor` lists what the machine lacks" in break_.advice[0].text
    assert "Inductor error (InductorError)" in run.report.to_text()


class PaddedModule(torch.nn.Module):
    """A module that assigns through a mask. Its backward pass needs the number of selected elements."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = torch.tensor([True, False, True])
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = torch.zeros(3)
        padded[self.mask] = self.weight * 2
        return padded * x


def test_an_operation_that_only_the_backend_cannot_trace_is_one_break_with_a_setting_that_removes_it() -> None:
    model = PaddedModule()
    compiled = torch.compile(model, backend="aot_eager")
    with jupyter_graphbreak.capture() as run:
        compiled(torch.ones(3))
    (break_,) = run.report.breaks
    assert (break_.gb_id, break_.outcome) == ("GB0219", "skipped")
    assert (run.report.graphs, run.report.summary.graphs, run.report.summary.ops) == ([], 0, 0)
    assert "Nothing was compiled: PaddedModule.forward ran eagerly. " in f"{run.report.to_text()} ".replace("\n", " ")
    assert break_.location is not None
    assert (break_.location.function, break_.location.code) == ("forward", "return padded * x")
    assert break_.advice[0].text.startswith("set torch._dynamo.config.capture_dynamic_output_shape_ops = True if")
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled(torch.ones(3)).sum().backward()
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.full((2,), 2.0))


def test_a_graph_of_an_attempt_that_dynamo_repeats_is_not_counted() -> None:
    graphs = []

    def compile_at_second_attempt(graph: torch.fx.GraphModule, _: list[Any]) -> Any:
        graphs.append(graph)
        if len(graphs) == 1:
            raise torch._dynamo.exc.TensorifyScalarRestartAnalysis(restart_reason="test")
        return graph.forward

    with jupyter_graphbreak.capture() as run:
        torch.compile(scale_relu, backend=compile_at_second_attempt)(torch.ones(2))
    assert len(graphs) == 2
    assert (run.report.summary.graphs, run.report.summary.ops) == (1, 2)
    assert (run.report.frames[0].outcome, run.report.frames[0].attempts) == ("compiled", 2)


def test_the_location_of_a_failure_is_the_operation_that_the_backend_could_not_run() -> None:
    class InterpreterWithoutSums(torch.fx.Interpreter):
        def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target == "sum":
                raise ValueError("no sums")
            return super().call_method(target, args, kwargs)

    def run_graph(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        InterpreterWithoutSums(graph).run(*inputs)

    def total(x: torch.Tensor) -> torch.Tensor:
        return x.sum()

    def mean(x: torch.Tensor) -> torch.Tensor:
        y = total(x.relu())
        return y / x.numel()

    with jupyter_graphbreak.capture() as run, pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(mean, backend=run_graph)(torch.ones(2))
    (break_,) = run.report.breaks
    assert [location.code for location in break_.stack[-2:]] == ["y = total(x.relu())", "return x.sum()"]


def test_dynamos_internal_error_is_the_break_that_ended_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise AttributeError("'method' object has no attribute '__dict__'")

    monkeypatch.setattr(torch._dynamo.variables.tensor.TensorVariable, "call_method", fail)
    with jupyter_graphbreak.capture() as run, pytest.raises(torch._dynamo.exc.InternalTorchDynamoError) as caught:
        torch.compile(scale_relu, backend="eager")(torch.ones(2))
    assert "'__dict__'" in str(caught.value)
    (break_,) = run.report.breaks
    text = re.sub(r"\s+", " ", run.report.to_text())
    assert "Internal error in Dynamo (AttributeError): 'method' object has no attribute '__dict__'" in text
    assert "PyTorch considers this its own bug" in break_.advice[0].text


def test_with_suppressed_errors_a_function_is_reported_as_not_compiled() -> None:
    with jupyter_graphbreak.capture() as run, torch._dynamo.config.patch(suppress_errors=True):
        result = torch.compile(scale_relu, backend=fail_to_compile)(torch.ones(2))
    assert result.tolist() == [3, 3]
    assert "Nothing was compiled: scale_relu ran eagerly." in run.report.to_text().replace("\n", " ")


def test_an_error_of_the_program_itself_is_an_error_although_breaks_are_allowed() -> None:
    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    with jupyter_graphbreak.capture() as run, pytest.raises(RuntimeError):
        torch.compile(product, backend="eager")(torch.ones(2, 3))
    assert "an error, although breaks are allowed" in run.report.to_text()


def test_the_advice_for_an_exception_of_the_program_is_to_correct_the_program() -> None:
    def scale(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] != 4:
            raise ValueError("4 rows are needed")
        return x * 2

    with pytest.raises(ValueError, match="4 rows"), jupyter_graphbreak.capture() as run:
        torch.compile(scale, backend="eager")(torch.ones(2))
    (break_,) = run.report.breaks
    assert [advice.text for advice in break_.advice] == [
        "correct the ValueError: the program also raises it without torch.compile"
    ]


def test_an_operator_with_wrong_arguments_is_not_called_a_bug_of_pytorch() -> None:
    with jupyter_graphbreak.capture() as run, pytest.raises(RuntimeError):
        torch.compile(torch.nn.Linear(4, 2), backend="eager")(torch.ones(3, 5))
    (break_,) = run.report.breaks
    assert break_.owner == "torch"
    assert break_.advice[0].text.startswith("correct the arguments of this call; most likely it also fails without")

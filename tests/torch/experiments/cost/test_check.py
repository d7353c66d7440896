"""The check finds the wrong operation of backends that are wrong on purpose, and accepts rounding."""

from __future__ import annotations

import gc
import importlib
import inspect
import operator
import sys
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import tqdm

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.tried_settings import SettingChange
from jupyter_graphbreak.experiments.check import checking
from jupyter_graphbreak.experiments.check.checking import check_entry, check_instances, group_instances
from jupyter_graphbreak.experiments.trial import memory
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.report.cost import Check
from jupyter_graphbreak.views.words.verdict import verdict


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (x @ w).relu()
    if y.sum() > -1:
        y = y.sin() + x
        y = y.cos() * 2
    print(end="")
    z = torch.exp(y / 10)
    return (z - y).mean(0)


LINES = {"relu": 1, "sin": 3, "cos": 4, "exp": 6, "sub": 7}
FIRST_LINE = f.__code__.co_firstlineno


def check_call(fn: Callable[..., Any], backend: Any, *args: Any) -> Check:
    return check_entry(Entry("f", None, fn, Arguments(*args), backend)).check


def make_arguments() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.rand(16, 16), torch.randn(16, 16, requires_grad=True)


def replace_target(gm: torch.fx.GraphModule, target: Any, new_target: Any) -> None:
    for node in gm.graph.nodes:
        if node.target == target:
            node.target = new_target
    gm.recompile()


def replace_cos_by_sin(gm: torch.fx.GraphModule, _: Any) -> Any:
    replace_target(gm, "cos", "sin")
    return gm.forward


def subtract_wrongly_before_aot(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    from torch._dynamo.backends.registry import lookup_backend

    replace_target(gm, operator.sub, operator.add)
    return lookup_backend("aot_eager")(gm, inputs)


class BackendWrongInSecondGraph:
    """A backend that is wrong only in the second graph that it compiles, so the error cannot be reproduced."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: torch.fx.GraphModule, _: Any) -> Any:
        self.graphs += 1
        if self.graphs == 2:
            replace_target(gm, "sin", "tanh")
        return gm.forward


def scale_exp_slightly(gm: torch.fx.GraphModule, _: Any) -> Any:
    if not any(node.target is torch.exp for node in gm.graph.nodes):
        return gm.forward
    for node in list(gm.graph.nodes):
        if node.target is torch.exp:
            with gm.graph.inserting_after(node):
                product = gm.graph.call_function(operator.mul, (node, 1.001))
            node.replace_all_uses_with(product, delete_user_cb=lambda user, product=product: user is not product)
    gm.recompile()
    return gm.forward


def add_error_at_run_time(gm: torch.fx.GraphModule, _: Any) -> Any:
    def run(*args: Any) -> Any:
        out = gm(*args)
        is_wrong = any(node.target == "relu" for node in gm.graph.nodes)
        return tuple(part + 0.01 if part.dim() else part for part in out) if is_wrong else out

    return run


@pytest.mark.parametrize(
    ("backend", "graph", "op"),
    [
        pytest.param(replace_cos_by_sin, "B", "cos", marks=pytest.mark.exhaustive),
        (subtract_wrongly_before_aot, "C", "sub"),
        pytest.param(BackendWrongInSecondGraph(), "B", "sin", marks=pytest.mark.exhaustive),
        pytest.param(scale_exp_slightly, "C", "exp", marks=pytest.mark.exhaustive),
        (add_error_at_run_time, "A", "relu"),
    ],
)
def test_a_wrong_operation_is_named(backend: Any, graph: str, op: str) -> None:
    check = check_call(f, backend, *make_arguments())
    assert not check.equal
    assert check.differences[0].startswith("the result: ")
    assert check.step == "backend"
    assert check.first is not None
    assert check.first.graph == graph
    assert check.first.location is not None
    assert check.first.location.line == FIRST_LINE + LINES[op]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_correct_backend_has_no_difference(backend: str) -> None:
    check = check_call(f, backend, *make_arguments())
    assert check.equal
    assert (check.differences, check.first, check.step) == ([], None, None)


def test_a_backend_that_reorders_a_sum_is_right() -> None:
    def sum_in_pieces(gm: torch.fx.GraphModule, _: Any) -> Any:
        def sum_pieces(x: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(())
            for part in x.flatten().split(1000):
                total = total + part.sum()
            return total

        replace_target(gm, "sum", None)
        for node in gm.graph.nodes:
            if node.target is None:
                node.op, node.target = "call_function", sum_pieces
        gm.recompile()
        return gm.forward

    def sum_all(x: torch.Tensor) -> torch.Tensor:
        return x.sum()

    torch.manual_seed(0)
    half = torch.randn(100_000) * 100
    x = torch.cat([half, -half[torch.randperm(len(half))], torch.ones(3)])  # the sum of these large terms is 3
    with pytest.raises(AssertionError):
        torch.testing.assert_close(sum(part.sum() for part in x.split(1000)), x.sum())
    assert check_call(sum_all, sum_in_pieces, x).equal

    def leave_one_out(gm: torch.fx.GraphModule, _: Any) -> Any:
        replace_target(gm, "sum", None)
        for node in gm.graph.nodes:
            if node.target is None:
                node.op, node.target = "call_function", lambda x: x[:-1].sum()
        gm.recompile()
        return gm.forward

    assert not check_call(sum_all, leave_one_out, x).equal


half_precision_net = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1)
)


def loss_under_autocast(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.nn.functional.mse_loss(half_precision_net(x).float(), target)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_rounding_in_half_precision_is_not_a_difference_in_a_float32_result(backend: str) -> None:
    torch.manual_seed(0)
    check = check_call(loss_under_autocast, backend, torch.randn(4, 8), torch.randn(4, 1))
    assert (check.equal, check.differences, check.first) == (True, [], None)


def test_rounding_in_half_precision_is_not_a_difference_in_gradients() -> None:
    """PyTorch 2.9 refuses the backward pass of ``mse_loss`` if only one of its inputs is in double precision."""

    def loss_of(net: torch.nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.nn.functional.mse_loss(net(x).float(), target)

    torch.manual_seed(0)
    check = check_call(loss_of, "aot_eager", half_precision_net, torch.randn(4, 8), torch.randn(4, 1))
    assert (check.equal, check.differences, check.first) == (True, [], None)


def test_the_operation_with_a_wrong_gradient_is_found_despite_rounding_in_half_precision() -> None:
    def double_gradient_of_loss(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        for node in gm.graph.nodes:
            if node.target is torch.nn.functional.mse_loss:
                node.target = lambda *args: 2 * (loss := torch.nn.functional.mse_loss(*args)) - loss.detach()
        gm.recompile()
        return torch._dynamo.lookup_backend("aot_eager")(gm, inputs)

    torch.manual_seed(0)
    check = check_call(loss_under_autocast, double_gradient_of_loss, torch.randn(4, 8), torch.randn(4, 1))
    assert (check.equal, check.first and check.first.op) == (False, "mse_loss")


def test_a_wrong_result_under_autocast_is_found() -> None:
    def scale_results(gm: torch.fx.GraphModule, _: Any) -> Any:
        return lambda *args: tuple(part * 1.5 for part in gm(*args))

    torch.manual_seed(0)
    check = check_call(loss_under_autocast, scale_results, torch.randn(4, 8), torch.randn(4, 1))
    assert not check.equal
    assert check.differences[0].startswith("the result: ")


def test_a_wrong_gradient_is_found_although_the_values_are_right() -> None:
    def double_gradient_of_exp(gm: torch.fx.GraphModule, _: Any) -> Any:
        for node in list(gm.graph.nodes):
            if node.target is torch.exp:
                with gm.graph.inserting_after(node):
                    detached = gm.graph.call_method("detach", (node,))
                with gm.graph.inserting_after(detached):
                    zero = gm.graph.call_function(operator.sub, (node, detached))
                with gm.graph.inserting_after(zero):
                    total = gm.graph.call_function(operator.add, (node, zero))
                new_nodes = {detached, zero, total}
                node.replace_all_uses_with(
                    total, delete_user_cb=lambda user, new_nodes=new_nodes: user not in new_nodes
                )
        gm.recompile()
        return gm.forward

    check = check_call(f, double_gradient_of_exp, *make_arguments())
    assert [text.partition(":")[0] for text in check.differences] == ["the gradient of w"]
    assert check.first is not None
    assert check.first.location is not None
    assert (check.first.graph, check.first.location.line) == ("C", FIRST_LINE + LINES["exp"])


@pytest.mark.exhaustive
def test_a_module_is_checked_with_its_parameters_and_buffers() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(8)
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(self.linear(self.norm(x)), 0.5).sum()

    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    report = jupyter_graphbreak.check(torch.compile(net, backend="aot_eager"), torch.rand(4, 8))
    assert report.check is not None
    (check,) = report.check
    assert (check.equal, check.backend, check.function) == (True, "aot_eager", "Net")
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert jupyter_graphbreak.Report.from_json(report.to_json()) == report

    def double_bias(gm: torch.fx.GraphModule, _: Any) -> Any:
        replace_target(gm, torch._C._nn.linear, lambda x, w, b: torch.nn.functional.linear(x, w, b * 2))
        return gm.forward

    assert "the gradient of linear.bias" in " ".join(check_call(net, double_bias, torch.rand(4, 8)).differences)


class MeanFromInput(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.data = x.mean(0).data
        return (x - self.mean).square()


def test_the_gradient_of_a_parameter_whose_data_is_replaced_is_the_one_of_backward() -> None:
    check = check_call(MeanFromInput(), "aot_eager", torch.rand(3, 4))
    assert (check.equal, check.differences, check.first) == (True, [], None)


class Cosine(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cos(x)


class OuterCosine(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Cosine()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mul(self.inner(x), 2)


def make_compiled_cosine() -> Any:
    module = Cosine()
    module.compile(backend=replace_torch_cos_by_sin)
    return module


def make_module_with_compiled_cosine() -> Any:
    module = OuterCosine()
    module.inner.compile(backend=replace_torch_cos_by_sin)
    return module


def replace_torch_cos_by_sin(gm: torch.fx.GraphModule, _: Any) -> Any:
    replace_target(gm, torch.cos, torch.sin)
    return gm.forward


@pytest.mark.parametrize("make_module", [make_compiled_cosine, make_module_with_compiled_cosine])
def test_a_module_that_was_compiled_in_place_is_compared_with_its_eager_run(make_module: Callable[[], Any]) -> None:
    module = make_module()
    with jupyter_graphbreak.capture(entries=True) as run:
        module(torch.ones(3))
    assert [check.equal for check in run.check().check or []] == [False]


def test_a_call_that_also_raises_in_eager_code_has_no_result_to_compare() -> None:
    def fail(_: torch.Tensor) -> torch.Tensor:
        raise ValueError

    entry = Entry("fail", None, fail, Arguments(torch.ones(2)), "eager")
    assert check_entry(entry).error_name == "ValueError"


def test_an_exception_of_the_compiled_call_is_a_difference() -> None:
    def fail_at_run_time(_: torch.fx.GraphModule, __: Any) -> Any:
        def run(*_: Any) -> Any:
            raise ArithmeticError("no")

        return run

    check = check_call(f, fail_at_run_time, *make_arguments())
    assert check.differences == ["raises ArithmeticError, but eager code returns"]
    assert check.step == "backend"


def test_a_gradient_that_jumps_within_rounding_is_right() -> None:
    x = torch.ones(64) + torch.finfo(torch.float32).eps

    def round_differently(_: torch.fx.GraphModule, __: Any) -> Any:
        return lambda x: [(x - 1 - torch.finfo(torch.float32).eps).relu()]

    def excess_over_one(x: torch.Tensor) -> torch.Tensor:
        return (x - 1).relu()

    assert check_call(excess_over_one, round_differently, x.clone().requires_grad_()).equal


def test_a_result_that_is_more_precise_than_in_eager_mode_is_right() -> None:
    def compute_norm_in_double(_: torch.fx.GraphModule, __: Any) -> Any:
        return lambda x: [x.double().norm().float()]

    x = torch.rand(2_000_000, generator=torch.Generator().manual_seed(0))
    assert check_call(lambda x: x.norm(), compute_norm_in_double, x).equal


def test_a_smooth_function_with_a_larger_error_than_rounding_is_wrong() -> None:
    def add_relative_error(graph: torch.fx.GraphModule, _: Any) -> Any:
        return lambda *arguments: [result * (1 + 1e-3) for result in graph(*arguments)]

    check = check_call(lambda x: x * 2, add_relative_error, torch.rand(64, requires_grad=True))
    assert not check.equal


def test_an_exception_of_the_compiled_backward_pass_is_a_difference() -> None:
    class FailingBackward(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, __: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    def fail_in_backward(graph: torch.fx.GraphModule, _: Any) -> Any:
        return lambda *arguments: [FailingBackward.apply(result) for result in graph(*arguments)]  # type: ignore[no-untyped-call]

    net = torch.nn.Linear(3, 3)
    net(torch.ones(2, 3)).sum().backward()  # creates a gradient, which a failed backward pass leaves unchanged
    check = check_call(net, fail_in_backward, torch.ones(2, 3))
    assert check.differences == ["the backward pass raises ValueError, but in eager code it returns"]


def test_a_wrong_step_before_the_backend_is_named() -> None:
    def shift(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.compiler.is_compiling() else x + 2

    for backend in ("eager", "aot_eager"):
        check = check_call(shift, backend, torch.rand(3))
        assert (check.equal, check.step, check.first) == (False, "eager", None)


def sign_of_exp(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 2
    y = y.exp() * 3
    print(end="")
    return y.sign()


def test_a_wrong_graph_is_named_even_if_a_later_graph_hides_its_error() -> None:
    def replace_exp_by_cosh(gm: torch.fx.GraphModule, _: Any) -> Any:
        replace_target(gm, "exp", "cosh")
        return gm.forward

    check = check_call(sign_of_exp, replace_exp_by_cosh, torch.rand(8))
    assert not check.equal
    assert check.first is not None
    assert (check.first.graph, check.step) == ("A", "backend")
    assert check.first.location is not None
    assert check.first.location.line == 2 + sign_of_exp.__code__.co_firstlineno
    assert check.differences == ["graph A computes a different value, which does not affect the result"]
    assert check_call(sign_of_exp, "aot_eager", torch.rand(8)).equal


def sign_of_rounded_sum(x: torch.Tensor) -> torch.Tensor:
    """Compare a value that eager mode first rounds to bfloat16, but that fused code does not round."""
    y = x + 0.001
    return torch.where((y - x) == 0, x * 0 - 5.0, x * 0 + 5.0)


def silu_of(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x) + 1


def try_changes(fn: Callable[..., Any], *args: Any) -> dict[str, tuple[bool, bool]]:
    """Return for each tried change whether the result is right and whether the call was timed."""
    check = check_call(fn, "inductor", *args)
    assert (check.equal, check.step) == (False, "backend")
    return {trial.change: (trial.equal, trial.time_ratio is not None) for trial in check.restored_by}


@pytest.mark.exhaustive
def test_a_setting_that_makes_a_wrong_result_right_is_found() -> None:
    config = torch._inductor.config.save_config()
    generator = inspect.getsource(importlib.import_module("torch._inductor.codegen.cpp"))
    has_effect = "emulate_precision_casts" in generator  # in torch 2.9, the setting has no effect on code for the CPU
    changes = try_changes(sign_of_rounded_sum, torch.linspace(1, 2, 64).bfloat16())
    assert changes == {
        "torch._inductor.config.emulate_precision_casts = True": (has_effect, has_effect),
        'backend="aot_eager"': (True, True),
    }
    assert torch._inductor.config.save_config() == config


@pytest.mark.exhaustive
def test_a_decomposition_that_makes_a_result_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)  # if it is set, Inductor refuses to run without a decomposition
    table = importlib.import_module("torch._inductor.decomposition").decompositions
    overload = torch.ops.aten.silu.default
    monkeypatch.setitem(table, overload, lambda x: x.sigmoid() * x * 1.5)
    before = dict(table)
    with torch._inductor.config.patch(force_disable_caches=True):  # the key of a cache does not contain the table
        changes = try_changes(silu_of, torch.linspace(-2, 2, 64))
    assert changes == {
        "torch._inductor.config.emulate_precision_casts = True": (False, False),
        "torch._inductor.decomposition.decompositions.pop(torch.ops.aten.silu.default)": (True, True),
        'backend="aot_eager"': (True, True),
    }
    assert table == before


class ModuleWithUnequalState(torch.nn.Module):
    """A module whose state, except for the sum, differs after every run."""

    def __init__(self) -> None:
        super().__init__()
        self.called_at = 0.0
        self.by_id: dict[int, float] = {}
        self.by_key: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
        self.key = Key()
        self.sum = torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sine of the argument."""
        y = x.sin()
        self.sum = self.sum + y.sum()
        self.called_at = time.perf_counter()
        self.by_id[id(self.key)] = 1.5
        self.by_key[self.key] = 2.5  # torch 2.9 compiles nothing from here on
        return y


class Key:
    """A key that equals only itself."""


@pytest.mark.exhaustive
def test_times_and_addresses_in_the_state_do_not_count_as_differences_but_other_state_does() -> None:
    assert check_call(ModuleWithUnequalState(), "eager", torch.ones(3)).differences == []

    def replace_sum_by_mean(gm: torch.fx.GraphModule, _: Any) -> Any:
        replace_target(gm, "sum", "mean")
        return gm.forward

    comparison = check_call(ModuleWithUnequalState(), replace_sum_by_mean, torch.ones(3))
    assert [text.partition(":")[0] for text in comparison.differences] == ["self afterwards"]
    assert comparison.differences[0].endswith("at .sum")


class CountingOptimizer(torch.optim.Optimizer):
    """An optimizer outside of PyTorch that counts its steps in the group, as many packages do."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "k": 0})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["k"] += 1
            for parameter in group["params"]:
                parameter.sub_(parameter.grad * group["lr"] / group["k"])


def test_the_key_that_dynamo_adds_to_the_groups_of_an_optimizer_is_not_a_difference() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = CountingOptimizer([weight])

    def step() -> None:
        optimizer.step()

    assert check_call(step, "eager").equal
    torch.compile(step, backend="eager")()
    adds_no_key = hasattr(torch._dynamo.variables.optimizer, "OptimizerCapturableVariable")  # torch 2.15
    assert adds_no_key or "capturable" in optimizer.param_groups[0], "otherwise, nothing is tested"


def test_no_setting_of_inductor_is_tried_for_other_backends() -> None:
    check = check_call(f, replace_cos_by_sin, *make_arguments())
    assert not check.equal
    assert [trial.change for trial in check.restored_by] == ['backend="aot_eager"']
    assert check_call(silu_of, "eager", torch.ones(3)).restored_by == []


class CallCounter(torch.nn.Module):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_later_calls_are_compared_with_the_guards_that_the_filter_keeps() -> None:
    assert check_call(CallCounter(), "eager", torch.ones(3)).equal  # the module is compiled again
    options: dict[str, Any] = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
    with jupyter_graphbreak.capture(entries=True) as run:
        torch.compile(CallCounter(), backend="eager", options=options)(torch.ones(3))
    (check,) = run.check().check or []
    assert not check.equal
    assert check.differences[0] == "after 3 calls, the result: tensor([1., 1., 1.]) instead of tensor([3., 3., 3.])"
    assert [(trial.change, trial.equal) for trial in check.restored_by] == [('options={"guard_filter_fn": None}', True)]


@pytest.mark.exhaustive
def test_a_change_with_which_pytorch_fails_has_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise RuntimeError("not here")

    failing_change = SettingChange("torch._inductor.config.emulate_precision_casts = True", refuse)
    monkeypatch.setattr(checking, "precision_changes", lambda *_, **__: [failing_change])
    assert try_changes(sign_of_rounded_sum, torch.linspace(1, 2, 64).bfloat16()) == {
        failing_change.code: (False, False),
        'backend="aot_eager"': (True, True),
    }


class Scale(torch.nn.Module):
    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def make_entries(*factors: int, guard_filter: Callable[..., Any] | None = None) -> list[Entry]:
    return [
        Entry("Scale", None, Scale(factor), Arguments(torch.ones(3)), "eager", guard_filter=guard_filter)
        for factor in factors
    ]


def test_an_instance_that_uses_the_code_of_a_different_one_is_wrong() -> None:
    guard_filter = torch.compiler.skip_guard_on_all_nn_modules_unsafe
    entries = make_entries(2, 3, guard_filter=guard_filter)
    assert [check_entry(entry).check.equal for entry in entries] == [True, True]  # each alone
    (group,) = group_instances(entries)
    check = check_instances(group, check_entry(entries[0]).report).check
    assert (check.equal, check.instances, check.step) == (False, 2, None)
    assert check.differences[0].startswith(
        "instance 2 of 2: with code that was compiled for an earlier instance, the result: "
    )
    assert [trial.change for trial in check.restored_by if trial.equal] == []


def test_instances_that_are_guarded_are_right_together() -> None:
    entries = make_entries(2, 3, 4)
    (group,) = group_instances(entries)
    check = check_instances(group, check_entry(entries[0]).report).check
    assert (check.equal, check.instances, check.differences) == (True, 3, [])


def test_entries_are_instances_if_they_have_the_same_code() -> None:
    def make_scale(factor: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def scale(x: torch.Tensor) -> torch.Tensor:
            return x * factor

        return scale

    x = Arguments(torch.ones(3))
    functions = [Entry("scale", None, make_scale(factor), x, "eager") for factor in (2, 3)]
    sine_entry = Entry("sin", None, lambda x: x.sin(), x, "eager")
    assert group_instances([functions[0], sine_entry, functions[1]]) == [functions, [sine_entry]]
    check = check_instances(functions, check_entry(sine_entry).report).check
    assert (check.equal, check.instances) == (True, 2)


def test_an_operator_that_also_fails_in_eager_code_is_not_a_wrong_result() -> None:
    @torch.compile(backend="eager")
    def multiply(x: torch.Tensor) -> torch.Tensor:
        y = x.relu()
        torch._dynamo.graph_break()
        return y @ x

    with pytest.raises(RuntimeError), jupyter_graphbreak.capture(entries=True) as run:
        multiply(torch.ones(2, 3))
    run.try_remedies()
    run.measure()
    report = run.check()
    assert [check.equal for check in report.check or []] == [True] * len(report.check or [])
    (note,) = [diagnostic.message for diagnostic in report.diagnostics]
    assert note.startswith("multiply also fails without torch.compile: RuntimeError: ")
    assert "mat1 and mat2 shapes" in note
    assert "not tried" not in report.to_text()


class Pair(tuple[float, float]):  # noqa: SLOT001 - libraries have such classes with a `__dict__`
    """A tuple whose length Dynamo cannot guard on."""

    def __len__(self) -> int:
        raise NotImplementedError


def test_an_error_of_the_compiler_is_not_reported_as_an_error_of_eager_code() -> None:
    pair = Pair((2.0, 3.0))

    @torch.compile(backend="eager")
    def scale(x: torch.Tensor) -> torch.Tensor:
        first, second = pair
        return torch.mul(x, first * second)

    with pytest.raises(RuntimeError), jupyter_graphbreak.capture(entries=True) as run:
        scale(torch.ones(3))
    run.measure()
    report = run.check()
    (note,) = [diagnostic.message for diagnostic in report.diagnostics]
    assert note.startswith("Compiling a copy of ")
    assert "scale failed again: InternalTorchDynamoError: NotImplementedError" in note
    assert "wrong result" not in verdict(report).text


LIBRARY = """
import importlib.metadata
class Requirement:
    def __bool__(self):
        if not hasattr(self, "available"):
            try:
                self.available = bool(importlib.metadata.version("no-such-package"))
            except importlib.metadata.PackageNotFoundError:
                self.available = False
        return self.available
REQUIREMENT = Requirement()
class Metric:
    def update(self, x):
        return x + 1 if REQUIREMENT else x * 2
"""


def test_state_that_a_library_stores_on_first_use_is_restored_after_each_eager_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Dynamo cannot trace the first use, but it would trace every later one.
    library: Any = types.ModuleType("library_of_this_test")
    library.__file__ = tqdm.__file__.replace("tqdm", library.__name__)
    monkeypatch.setitem(sys.modules, library.__name__, library)
    exec(compile(LIBRARY, library.__file__, "exec"), vars(library))
    metric = library.Metric()

    @torch.compile(backend="eager")
    def step(x: torch.Tensor) -> Any:
        return metric.update(x)

    with pytest.raises(RuntimeError), jupyter_graphbreak.capture(entries=True) as run:
        step(torch.ones(3))
    run.try_remedies()
    run.measure()
    report = run.check()
    assert [check.is_error for check in report.check or []] == [True]
    assert any("PackageNotFoundError" in diagnostic.message for diagnostic in report.diagnostics)
    assert report.cost is None or not report.cost.entries
    assert vars(library.REQUIREMENT) == {}


large_layer = torch.nn.Linear(600, 600)


class ModuleWithView(torch.nn.Module):
    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(8.0).reshape(2, 4))
        self.second_row = self.table[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table += x.sum()
        return self.second_row * 2


def test_tensors_share_memory_in_double_precision_as_well() -> None:
    entry = Entry("f", None, ModuleWithView(), Arguments(torch.ones(3)))
    with entry.set_up(), sandbox_runs():
        observation = checking._observe_in_double(entry, 1, noise_size=0, eps=0.0)
    assert observation is not None
    expected = 2 * (torch.arange(4.0, 8.0, dtype=torch.float64) + 3)
    assert torch.equal(observation.values["the result"], expected)


class SelfCopyingTensor(torch.Tensor):
    def __deepcopy__(self, memo: Any) -> Any:
        return self.detach().clone()


def test_tensors_that_their_class_copies_are_converted_to_double_precision() -> None:
    model: Any = torch.nn.Linear(3, 1)
    model.factor = torch.ones(1).as_subclass(SelfCopyingTensor)

    def f(x: torch.Tensor) -> Any:
        return model(x.as_subclass(torch.Tensor)) * model.factor.as_subclass(torch.Tensor)

    entry = Entry("f", None, f, Arguments(torch.ones(2, 3).as_subclass(SelfCopyingTensor)))
    with entry.set_up(), sandbox_runs():
        observation = checking._observe_in_double(entry, 1, noise_size=1, eps=0.0)
    assert observation is not None
    assert observation.values["the result"].dtype == torch.float64


def test_gradients_from_before_a_call_are_converted_to_double_precision() -> None:
    model = torch.nn.Linear(3, 1)
    model(torch.ones(2, 3)).sum().backward()

    def add_gradients(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x).sum()
        loss.backward()
        return loss.detach()

    entry = Entry("f", None, add_gradients, Arguments(torch.ones(2, 3)))
    with entry.set_up(), sandbox_runs():
        observation = checking._observe_in_double(entry, 1, noise_size=0, eps=0.0)
    assert observation is not None
    copy = observation.values["model afterwards"]
    assert torch.equal(copy.weight.grad, torch.full((1, 3), 4.0, dtype=torch.float64))


def test_a_run_in_double_precision_does_not_use_the_working_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(storage: torch.UntypedStorage) -> None:
        discarded_sizes.append(storage.nbytes())
        torch.empty(0, dtype=torch.uint8).set_(storage).fill_(255)

    def f(x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = large_layer(x).sum()
        return total

    discarded_sizes: list[int] = []
    monkeypatch.setattr(memory, "_discard_content", overwrite)
    x = torch.ones(1, 600)
    entry = Entry("f", None, f, Arguments(x))
    with entry.set_up(), sandbox_runs():
        subject = Subject(entry.function, entry.arguments)
        observation = checking._observe_in_double(entry, 1, noise_size=0, eps=0.0)
        assert discarded_sizes == [large_layer.weight.nbytes]
        assert observation is not None
        assert torch.allclose(observation.values["the result"], large_layer(x).sum().double(), atol=1e-3)
        assert torch.equal(dict(subject.roots())["large_layer"].weight, large_layer.weight)


def test_state_in_double_precision_is_freed_after_a_run() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = large_layer(x).sum()
        return total if f.__name__ else x  # its closure refers to itself

    entry = Entry("f", None, f, Arguments(torch.ones(1, 600)))
    gc.collect()
    gc.disable()  # as long as no garbage is collected, the cycle keeps the copies
    try:
        with entry.set_up(), sandbox_runs():
            Subject(entry.function, entry.arguments)
            assert checking._observe_in_double(entry, 1, noise_size=0, eps=0.0) is not None
        weights = [item for item in gc.get_objects() if isinstance(item, torch.nn.Parameter)]
        assert not [
            weight for weight in weights if weight.shape == large_layer.weight.shape and weight.dtype.itemsize > 4
        ]
    finally:
        gc.enable()

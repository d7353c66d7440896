"""Trials, measurements and checks run under the modes of the recorded call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.call_modes import CallModes, functorch_depth
from jupyter_graphbreak.experiments.trial.entry import record_entries
from jupyter_graphbreak.report.remedies import WORKING


def break_once(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x * 2


@contextlib.contextmanager
def no_gradients_on_meta() -> Any:
    with torch.no_grad(), torch.device("meta"):
        yield


MODES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "none": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "no_grad and device": no_gradients_on_meta,
}


@contextlib.contextmanager
def use_double_dtype() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "mode",
    [
        "no_grad and device",
        *(
            pytest.param(mode, marks=pytest.mark.exhaustive)
            for mode in ("none", "no_grad", "device", "inference", "autocast", "dtype")
        ),
    ],
)
def test_runs_use_the_modes_of_the_call(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_graphbreak.experiments.trial import subject

    modes_of_runs: list[CallModes] = []
    activate = subject.Subject.activate

    @contextlib.contextmanager
    def record_modes(self: Any) -> Any:
        with activate(self):
            modes_of_runs.append(CallModes.now())
            yield

    monkeypatch.setattr(subject.Subject, "activate", record_modes)
    torch._dynamo.reset()
    context: Any = use_double_dtype if mode == "dtype" else MODES[mode]
    x = torch.ones(3)
    modes_before = CallModes.now()
    with jupyter_graphbreak.capture(entries=True) as run, context():
        modes_inside = CallModes.now()
        torch.compile(break_once, backend="eager")(x)
    for analyze in (run.try_remedies, run.measure, run.check):
        modes_of_runs.clear()
        analyze()
        assert set(modes_of_runs) == {modes_inside}
    assert CallModes.now() == modes_before
    with context():
        for function in (jupyter_graphbreak.measure, jupyter_graphbreak.check, jupyter_graphbreak.compare_frontends):
            modes_of_runs.clear()
            function(break_once, x)
            assert set(modes_of_runs) == {modes_inside}
        assert CallModes.now() == modes_inside


def add_numpy_values(x: torch.Tensor) -> Any:
    y = x * 2
    torch._dynamo.graph_break()
    return torch.from_numpy(y.numpy()) + y


@pytest.mark.exhaustive
def test_a_call_without_gradients_has_a_working_remedy_and_equal_results() -> None:
    torch._dynamo.reset()
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad(), jupyter_graphbreak.capture(entries=True) as run:
        torch.compile(add_numpy_values, backend="eager")(x)
    report = run.try_remedies()
    assert [remedy.verdict for remedy in report.remedies or [] if remedy.verdict in WORKING] == ["works"]
    (check,) = run.check().check or []
    assert check.equal


def double_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
        torch._dynamo.graph_break()
        y = y.sin()
    return x * y


@pytest.mark.parametrize("mode", ["none", "no_grad", "inference"])
def test_graphs_without_a_backward_pass_are_equal(mode: str) -> None:
    torch._dynamo.reset()
    module = torch.nn.Linear(3, 3)
    x = torch.ones(2, 3, requires_grad=True)
    with jupyter_graphbreak.capture(entries=True) as run, MODES[mode]():
        torch.compile(module, backend="aot_eager")(x)
        torch.compile(double_without_gradients, backend="aot_eager")(x)
    checks = run.check().check or []
    assert [check.differences for check in checks] == [[], []]
    assert [check.gradients for check in checks] == [mode == "none"] * 2


class Scale(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor: torch.Tensor
        self.register_buffer("factor", torch.full((1,), factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def add_one_for_factor_three(gm: torch.fx.GraphModule, _: Any) -> Any:
    def run(*args: Any) -> Any:
        is_wrong = any(isinstance(arg, torch.Tensor) and arg.numel() == 1 and float(arg) == 3 for arg in args)
        return tuple(part + is_wrong for part in gm(*args))

    return run


def test_an_instance_that_reuses_compiled_code_is_checked_and_timed() -> None:
    torch._dynamo.reset()
    x = torch.ones(2)
    with jupyter_graphbreak.capture(entries=True) as run:
        for factor in (2.0, 3.0):
            torch.compile(Scale(factor), backend=add_one_for_factor_three)(x)
    assert run.report.summary.frames == 1
    assert [(check.equal, check.instances) for check in run.check().check or []] == [(False, 2)]
    cost = run.measure().cost
    assert cost is not None
    assert [entry.function for entry in cost.entries] == ["Scale", "Scale"]


def test_a_recompilation_for_a_mode_is_a_new_entry() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2, backend="eager")
    with record_entries() as recorded_entries:
        for _ in range(3):
            compiled(torch.ones(2))
        with torch.no_grad():
            compiled(torch.ones(2))
    assert [entry.modes.records_gradients for entry in recorded_entries.entries] == [True, False]


def test_the_number_of_instances_is_limited_with_a_note() -> None:
    torch._dynamo.reset()
    with record_entries() as recorded_entries:
        for factor in range(20):
            torch.compile(Scale(factor), backend="eager")(torch.ones(2))
    assert len(recorded_entries.entries) == 17
    assert recorded_entries.omission_reasons == [
        "Only the first 16 calls that reuse code compiled for other calls are examined."
    ]


def test_a_failed_transform_leaves_no_functorch_level() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        jacobians: torch.Tensor = torch.func.vmap(torch.func.jacrev(lambda y: (y**2).sum() * y))(x)
        return jacobians

    report = jupyter_graphbreak.check(torch.compile(f, backend="aot_eager"), torch.rand(2, 3))
    assert functorch_depth() == 0
    assert torch.randn(2).shape == (2,)
    assert report.check is None or len(report.check) == 1

    with CallModes.now().apply():
        torch._C._functorch._vmap_increment_nesting(2, "error")  # the state after a failure inside vmap
    assert functorch_depth() == 0

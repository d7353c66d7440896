"""Operations that are slower compiled than eager are found in slow graphs, with their line."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from jupyter_graphbreak.experiments.cost import operations
from jupyter_graphbreak.experiments.cost.entry_cost import MeasuredEntry, measure_entry
from jupyter_graphbreak.experiments.cost.timing import Budget
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.entry import Entry


def work(us: float) -> None:
    end = time.thread_time() + us * 1e-6
    while time.thread_time() < end:
        pass


def slow_sine(x: torch.Tensor) -> torch.Tensor:
    work(5000)
    return torch.sin(x)


class SineReplacingBackend:
    """A backend that replaces the sine, and records the name of each operation that it compiles alone."""

    def __init__(self, sine: Callable[..., Any]) -> None:
        self.sine = sine
        self.compiled_alone: list[str] = []

    def __call__(self, module: torch.fx.GraphModule, _: Any) -> Any:
        calls = [node for node in module.graph.nodes if node.op in {"call_function", "call_method"}]
        if len(calls) == 1:
            self.compiled_alone.append(calls[0].name)
        for node in calls:
            if node.target is torch.sin:
                node.target = self.sine
        module.recompile()
        return module.forward


def wave(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x @ w
    y = y.cos()
    y.mul_(2)
    y = torch.sin(y)
    return torch.topk(y, 2)


def measure_wave(backend: SineReplacingBackend, *, requires_grad: bool = False) -> MeasuredEntry:
    arguments = Arguments(torch.rand(16, 16), torch.rand(16, 16, requires_grad=requires_grad))
    return measure_entry(Entry("wave", None, wave, arguments, backend), budget=Budget(seconds=0.0, max_runs=7))


def test_the_slow_operation_is_named_with_its_line() -> None:
    backend = SineReplacingBackend(slow_sine)
    measured_entry = measure_wave(backend)
    assert measured_entry.cost.ops is not None
    (op,) = measured_entry.cost.ops
    assert (op.graph, op.op) == ("A", "torch.sin")
    assert op.location is not None
    assert op.location.line == wave.__code__.co_firstlineno + 4
    assert op.compiled.median_us - op.eager.median_us == pytest.approx(5000, rel=0.5)
    assert op.compiled.runs >= 7
    assert not {"y", "mul_"} & set(backend.compiled_alone)  # a matrix product, and an operation in place


def test_one_copy_of_the_inputs_is_alive_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[weakref.ref[torch.Tensor]] = []
    counts_of_live_copies: list[int] = []

    def clone_and_count(value: list[torch.Tensor]) -> Any:
        counts_of_live_copies.append(sum(copy() is not None for copy in copies))
        result = clone(value)
        copies.extend(map(weakref.ref, result))
        return result

    monkeypatch.setattr(operations, "clone", clone_and_count)
    assert measure_wave(SineReplacingBackend(slow_sine), requires_grad=True).cost.ops
    assert len(counts_of_live_copies) > 4
    assert set(counts_of_live_copies) == {0}


def test_operations_of_a_fast_graph_are_not_compiled_alone() -> None:
    backend = SineReplacingBackend(torch.sin)
    assert measure_wave(backend).cost.ops == []
    assert backend.compiled_alone == []

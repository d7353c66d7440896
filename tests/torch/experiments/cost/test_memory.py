"""The memory of a call agrees with sizes that are known."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from jupyter_graphbreak._torch_compat.profile_ranges import record_device_activities
from jupyter_graphbreak.experiments.cost.entry_cost import MeasuredEntry, measure_entry
from jupyter_graphbreak.experiments.cost.timing import Budget
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry
from jupyter_graphbreak.report.cost import MemoryCost

#: The shape of a float32 tensor, and its size in bytes.
SHAPE, SIZE = (64, 256), 1 << 16


def measure_call(fn: Callable[..., Any], *args: Any, backend: Any = "eager") -> MeasuredEntry:
    return measure_entry(Entry("fn", None, fn, Arguments(*args), backend), budget=Budget(seconds=0.0, max_runs=7))


def memory_of(fn: Callable[..., Any], *args: Any, backend: Any = "eager") -> MemoryCost:
    memory = measure_call(fn, *args, backend=backend).cost.memory
    assert memory is not None
    return memory


def kept_tensors_by_line(fn: Callable[..., Any], memory: MemoryCost) -> dict[int, float]:
    """Return how many tensors each line of a function keeps, by line number within the function."""
    first = fn.__code__.co_firstlineno
    return {line.location.line - first: line.eager_bytes / SIZE for line in memory.lines}


def chain(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y = y.sin()
    y = y.sin()
    return y.sum()


def compile_wastefully(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """Return code that needs memory for eight tensors more than eager code, and keeps two for the backward pass."""

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(torch.zeros(2, *SHAPE))
            return x.clone()

        @staticmethod
        def backward(_: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad.clone()

    def run(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (result,) = module(*args)
        spare = torch.zeros(6, *SHAPE)
        result = Keep.apply(result)  # type: ignore[no-untyped-call]
        del spare
        return (result,)

    return run


def test_peak_memory_and_memory_kept_for_the_backward_pass_are_measured() -> None:
    memory = memory_of(chain, torch.rand(SHAPE, requires_grad=True), backend=compile_wastefully)
    # The inputs of the second and the third sine are kept. The backward pass adds a cosine and a product.
    assert memory.eager_saved_bytes == 2 * SIZE
    assert memory.eager_peak_bytes == pytest.approx(4 * SIZE, rel=0.05)
    assert memory.compiled_saved_bytes == 4 * SIZE
    assert memory.compiled_peak_bytes == pytest.approx((2 + 1 + 6 + 2) * SIZE, rel=0.15)
    assert kept_tensors_by_line(chain, memory) == {2: 1.0, 3: 1.0}


def test_memory_includes_buffers_of_inductor() -> None:
    def products(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w) @ w) @ w

    memory = memory_of(products, torch.rand(SHAPE), torch.rand(256, 256), backend="inductor")
    # The peak is the input and the result of the second or third product. The input of the first one is an argument.
    assert memory.compiled_peak_bytes == pytest.approx(2 * SIZE, rel=0.15)
    assert memory.compiled_saved_bytes == memory.eager_saved_bytes == 0


def test_parameters_and_inputs_are_not_kept_for_the_backward_pass_and_shared_memory_counts_once() -> None:
    layer = torch.nn.Linear(256, 256)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = layer(x)
        y = y.exp()
        total: torch.Tensor = (y * y.T.T).sum()
        return total

    x = torch.rand(SHAPE, requires_grad=True)
    memory = memory_of(f, x)
    assert memory.eager_saved_bytes == memory.compiled_saved_bytes == 1 * SIZE
    assert kept_tensors_by_line(f, memory) == {2: 1.0}
    assert x.grad is None
    assert layer.weight.grad is None


def test_a_step_that_runs_backward_passes_keeps_memory_for_one_at_a_time() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            chain(x).backward()
        return x.detach()

    memory = memory_of(step, torch.rand(SHAPE, requires_grad=True))
    assert memory.eager_saved_bytes == 2 * SIZE  # at any one time
    assert memory.eager_peak_bytes == pytest.approx(4 * SIZE, rel=0.01)  # with the gradient of earlier calls


def test_checkpointing_keeps_nothing_for_the_backward_pass() -> None:
    def checkpoint_calls(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.utils.checkpoint.checkpoint(chain, x, use_reentrant=False)
        return result

    memory = memory_of(checkpoint_calls, torch.rand(SHAPE, requires_grad=True))
    assert memory.eager_saved_bytes == 0
    assert memory.eager_peak_bytes == pytest.approx(4 * SIZE, rel=0.05)


def test_if_the_backward_pass_fails_only_the_memory_is_missing() -> None:
    class FailingBackward(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, *__: Any) -> Any:
            raise RuntimeError("no gradient")

    def f(x: torch.Tensor) -> Any:
        return FailingBackward.apply(x) + 1  # type: ignore[no-untyped-call]

    cost = measure_call(f, torch.rand(4, requires_grad=True)).cost
    assert cost.memory is None
    assert cost.settled
    assert cost.compiled.runs == 7


def test_the_allocators_warnings_are_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    tensors = [torch.ones(1000) for _ in range(1001)]  # the allocator warns at the first of each thousand that is freed

    def call() -> None:
        tensors.clear()
        os.write(2, b"from the call\n")

    record_device_activities(call, None)
    assert capfd.readouterr().err == "from the call\n"

"""Memory that stays after each call is found in programs that keep a known amount."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jupyter_graphbreak._torch_compat.profile_ranges import Activity
from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
from jupyter_graphbreak.experiments.cost.growth import bytes_per_call, common_holder, memory_growth
from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
from jupyter_graphbreak.experiments.cost.variants import Variant
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.records.records import StackFrame
from jupyter_graphbreak.report.cost import MemoryCost, MemoryGrowth
from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.schema import Device, Report

#: The shape of a float32 tensor, and its size in bytes.
SHAPE, SIZE = (64, 256), 1 << 16
REPORT = Report("ok", Device("auto", "cpu"))

outputs: list[torch.Tensor] = []


def locate(stack: Sequence[StackFrame]) -> Location | None:
    lines = [entry.line for entry in stack if entry.filename == __file__ and entry.line is not None]
    return Location("s1", lines[-1], lines[-1]) if lines else None


def growth_of(fn: Callable[..., Any], *args: Any) -> MemoryGrowth | None:
    entry = Entry("fn", None, fn, Arguments(*args), "eager")
    with entry.set_up(), sandbox_runs():
        eager, compiled = Variant(entry, compiled=False), Variant(entry, compiled=True)
        for variant in (eager, compiled):
            assert variant.warm_up()
        state = SteadyState(entry, eager, compiled, Correspondence(REPORT, REPORT), locate)
        return memory_growth(state, MemoryCost(SIZE, SIZE, 0, 0))


def test_outputs_in_a_list_are_found_with_the_line_and_the_list() -> None:
    weight = torch.rand(256, 256, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = (x @ weight).relu()
        outputs.append(y)
        return y.sum()

    growth = growth_of(f, torch.rand(SHAPE))
    assert growth is not None
    assert (growth.compiled_bytes, growth.eager_bytes, growth.holder) == (SIZE, SIZE, "outputs")
    assert growth.location is not None
    assert growth.location.line - f.__code__.co_firstlineno == 1
    # The autograd graph keeps the input of each call, which is a new tensor each time. The weight is always the same.
    assert growth.without_backward_bytes == 2 * SIZE
    assert outputs == []
    assert weight.grad is None


class Layer(torch.nn.Module):
    def __init__(self, storage: Any) -> None:
        super().__init__()
        self.storage = storage

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        if isinstance(self.storage, dict):
            self.storage[x] = y
        else:
            self.storage.append(y.detach())
        return y * 2


def test_a_cache_by_inputs_grows_and_a_bounded_one_does_not() -> None:
    growth = growth_of(Layer({}), torch.rand(SHAPE))
    assert growth is not None
    # The keys of the cache also stay. A program that passes the same tensor again has only one key.
    assert (growth.compiled_bytes, growth.holder) == (2 * SIZE, "self.storage")
    assert growth_of(Layer(deque(maxlen=3)), torch.rand(SHAPE)) is None


def test_reference_cycles_and_gradients_are_not_reported_as_growth() -> None:
    layer = torch.nn.Linear(256, 256)

    def f(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = layer(x)
        cycle: list[Any] = [y]
        cycle.append(cycle)
        torch._dynamo.graph_break()
        return y.sum()

    assert growth_of(f, torch.rand(SHAPE)) is None


def test_an_autograd_graph_that_grows_with_each_call_is_found() -> None:
    class Total(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = torch.zeros(())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total = self.total + x.exp().sum()
            return self.total

    growth = growth_of(Total(), torch.rand(SHAPE, requires_grad=True))
    assert growth is not None
    assert growth.holder == "self.total"
    assert SIZE <= growth.compiled_bytes <= SIZE + 64  # the result of exp, and a number


def test_bytes_per_call_are_computed_from_activities() -> None:
    def growth_of_rounds(*sizes: tuple[int, ...], end: int = 0) -> int:
        activities = [Activity("before", "cpu", 1000)]
        for round_sizes in sizes:
            activities.append(Activity("graphbreak call in a row"))
            activities += [Activity("", "cuda", size) for size in round_sizes]
        return bytes_per_call([*activities, Activity("graphbreak end of calls"), Activity("", "cuda", end)])

    assert growth_of_rounds((100, 900), (100,), (100, 50, -50), (100,)) == 100
    assert growth_of_rounds((100,), (100,), (100, -100), (100,)) == 0
    assert growth_of_rounds((100,), (100,), (100,), end=-300) == 0


def test_the_holder_of_most_tensors_is_found() -> None:
    assert common_holder([]) is None
    assert common_holder(["total"]) == "total"
    assert common_holder(["cache[3][0]", "cache[3][1]", "cache[4][0]"]) == "cache"
    assert common_holder(["layers[2].kept[5]", "layers[2].kept[6]", "last"]) == "layers[2].kept"

"""The lines for which compiled graphs keep memory are found in small programs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from jupyter_graphbreak._torch_compat.backends import saved_tensors
from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak.report.cost import MemoryCost
from tests.torch.experiments.cost.test_memory import SHAPE, SIZE, memory_of


def program(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y = torch.nn.functional.layer_norm(y, (256,))
    torch._dynamo.graph_break()
    for _ in range(2):
        y = (y * 2).tanh()
    return y.sum()


def compiled_memory_by_line(memory: MemoryCost) -> dict[int, float | None]:
    """Return the memory that each line of the program keeps when compiled, in units of the program's input."""
    first = program.__code__.co_firstlineno
    return {
        line.location.line - first: line.compiled_bytes / SIZE if line.compiled_bytes is not None else None
        for line in memory.lines
    }


#: Two numbers for each row, in units of the input: layer normalization keeps a mean and a deviation.
ROW_STATISTICS = 2 / 256


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_lines_are_found_in_two_graphs(backend: str) -> None:
    memory = memory_of(program, torch.rand(SHAPE, requires_grad=True), backend=backend)
    assert compiled_memory_by_line(memory) == {1: 1.0, 2: ROW_STATISTICS, 5: 2.0}
    assert memory.compiled_saved_bytes == sum(line.compiled_bytes or 0 for line in memory.lines)


def test_the_lines_are_unknown_if_the_backend_is_unknown() -> None:
    def unknown_backend(module: torch.fx.GraphModule, _: Any) -> Any:
        return module.forward

    x = torch.rand(SHAPE, requires_grad=True)
    assert set(compiled_memory_by_line(memory_of(program, x, backend=unknown_backend)).values()) == {None}


def test_lines_are_found_for_inductor() -> None:
    captured_graphs: list[tuple[torch.fx.GraphModule, Any]] = []

    def capture(module: torch.fx.GraphModule, inputs: Any) -> Any:
        captured_graphs.append((torch.fx.GraphModule(module, copy.deepcopy(module.graph)), inputs))
        return module.forward

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sort(dim=1).values
        y = y @ y.T
        return y.tanh().sum()

    x = torch.rand(8, 4, requires_grad=True)
    torch.compile(f, backend=capture)(x)
    tensors = saved_tensors("inductor", clone_backend("inductor"), captured_graphs[0][0], [x])
    assert tensors is not None
    first = f.__code__.co_firstlineno
    lines = {(tensor.shape, tensor.stack[-1].line - first) for tensor in tensors if tensor.stack[-1].line is not None}
    # These are the indices and the values of the sort, and the result of tanh.
    assert lines == {((8, 4), 1), ((8, 4), 2), ((8, 8), 3)}

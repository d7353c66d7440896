"""Find the source lines for which compiled graphs keep memory."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.partitions import SavedTensor, saved_tensors, stack_of
from jupyter_graphbreak.experiments.cost.graph_timer import as_leaves
from jupyter_graphbreak.experiments.cost.memory import MAX_LINES, SavedBytes, stack_in_call
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.time_limit import require_time
from jupyter_graphbreak.report.cost import MemoryCost, MemoryLine

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.cost.graph_timer import GraphTimer
    from jupyter_graphbreak.experiments.cost.memory import Stack
    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.experiments.cost.variants import Variant
    from jupyter_graphbreak.report.location import Location

    #: The number of a graph, and of a run of the graph.
    _Run = tuple[int, int]
    #: The shape and dtype of a tensor.
    _ShapeAndDtype = tuple[tuple[int, ...], torch.dtype]


class _SavedPlace(NamedTuple):
    """A run of a graph, and the number of a tensor that it saves."""

    run: _Run
    number: int


def with_compiled_lines(memory: MemoryCost, steady_state: SteadyState) -> MemoryCost:
    """Add the bytes that each line keeps in the compiled call to measured memory, which has those of the eager call."""
    compiled = steady_state.compiled
    saved_by_run = _SavedByRun(compiled.timer)
    compiled_bytes = SavedBytes(compiled.held_memory(), saved_by_run.key)
    compiled.with_backward(compiled_bytes.observe)
    stacks = _stacks(compiled, saved_by_run) if saved_by_run.tensors else {}
    lines: Counter[Location | None] = Counter()
    for key, nbytes in compiled_bytes.by_key.items():
        stack = stacks.get(key, ()) if isinstance(key, _SavedPlace) else key
        lines[steady_state.locate(stack)] += nbytes
    bytes_without_line = lines.pop(None, 0)
    eager = {line.location: line.eager_bytes for line in memory.lines}
    compiled_lines = [
        MemoryLine(place, eager.get(place, 0), lines.get(place, None if bytes_without_line else 0))
        for place in dict.fromkeys([*eager, *lines])
        if place is not None
    ]
    compiled_lines.sort(key=lambda line: -max(line.eager_bytes, line.compiled_bytes or 0))
    return replace(memory, lines=compiled_lines[:MAX_LINES])


class _SavedByRun:
    """The tensors that autograd saves in each run of a graph, in order.

    Parameters
    ----------
    timer : GraphTimer
        Knows which graph runs.
    """

    def __init__(self, timer: GraphTimer) -> None:
        self._timer = timer
        self.tensors: defaultdict[_Run, list[_ShapeAndDtype]] = defaultdict(list)

    def key(self, tensor: torch.Tensor) -> _SavedPlace | Stack:
        """Note a saved tensor; return the graph's run and the tensor's number in it, or the stack outside of graphs."""
        run = self._timer.running_graph
        if run is None:
            return stack_in_call(inspect.currentframe())
        self.tensors[run].append((tuple(tensor.shape), tensor.dtype))
        return _SavedPlace(run, len(self.tensors[run]) - 1)


def _stacks(compiled: Variant, saved_by_run: _SavedByRun) -> dict[_SavedPlace | Stack, Stack]:
    """Return the known stacks of the operations for which tensors are kept, by the tensors' places."""
    timer, inputs = compiled.timer, compiled.graph_inputs()
    expected: dict[int, list[SavedTensor] | None] = {}
    for number in dict.fromkeys(number for number, _ in saved_by_run.tensors):
        require_time()
        module, graph_inputs = timer.modules[number], inputs[number]
        expected[number] = compiled.run_in_modes(lambda: _expected_tensors(timer, module, graph_inputs))  # noqa: B023 - called here
    return {
        _SavedPlace(run, number): tensor.stack
        for run, saved_kinds in saved_by_run.tensors.items()
        for number, tensor in _paired(saved_kinds, expected[run[0]] or []).items()
    }


def _paired(saved_kinds: list[_ShapeAndDtype], expected: list[SavedTensor]) -> dict[int, SavedTensor]:
    """Pair saved tensors with the expected ones, by shape and dtype, in order.

    If there are more or fewer tensors of a shape and dtype than expected, they are left out. The overall order may
    differ slightly: PyTorch prefers parameters, and knows them only when it compiles a call.
    """
    places, expected_by_kind = defaultdict(list), defaultdict(list)
    for place, kind in enumerate(saved_kinds):
        places[kind].append(place)
    for saved_tensor in expected:
        expected_by_kind[saved_tensor.shape, saved_tensor.dtype].append(saved_tensor)
    pairs = (
        zip(places_of_kind, expected_by_kind[kind], strict=True)
        for kind, places_of_kind in places.items()
        if len(places_of_kind) == len(expected_by_kind[kind])
    )
    return dict(itertools.chain.from_iterable(pairs))


def _expected_tensors(timer: GraphTimer, module: torch.fx.GraphModule, inputs: list[Any]) -> list[SavedTensor] | None:
    name = str(getattr(timer.backend, "compiler_name", None) or getattr(timer.backend, "__name__", ""))
    leaves = as_leaves(inputs)
    if name != "eager":
        return saved_tensors(name, timer.backend, module, leaves)
    run = _SavingInterpreter(module)
    with torch.autograd.graph.saved_tensors_hooks(run.note, lambda tensor: tensor):
        run.run(*clone(leaves))
    return run.saved


class _SavingInterpreter(torch.fx.Interpreter):
    """Runs a graph operation by operation, and records the tensors that autograd saves for each."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.saved: list[SavedTensor] = []
        self._node: torch.fx.Node | None = None

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run an operation."""
        self._node = n
        return super().run_node(n)

    def note(self, tensor: torch.Tensor) -> torch.Tensor:
        """Record that the running operation saves a tensor."""
        stack = stack_of(self._node) if self._node is not None else ()
        self.saved.append(SavedTensor(tuple(tensor.shape), tensor.dtype, stack))
        return tensor

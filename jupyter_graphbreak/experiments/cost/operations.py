"""Find operations that are slower compiled than eager, by compiling the operations of slow graphs one by one."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak.experiments.cost.timing import Budget, spread_of_calls, time_in_turn
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.memory import memory_limit
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, require_time
from jupyter_graphbreak.report.cost import OpCost, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyter_graphbreak.experiments.cost.graph_timer import GraphTimer
    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.experiments.cost.timing import CallTime, Clock
    from jupyter_graphbreak.report.schema import Graph, Op

#: A graph is examined if it takes at least this share of the time that its operations take one by one, and at least
#: this many microseconds: calling a graph takes about 20 microseconds, whatever it contains.
_SLOW_SHARE = 0.7
_SLOW_US = 200.0
#: An operation is reported if, compiled alone, it takes longer than eager by at least this many microseconds and this
#: share of its eager time, in each of ``_MEASUREMENT_COUNT`` measurements: on a busy machine, one measurement may
#: differ by chance.
_LOSS_US, _LOSS_SHARE = 50.0, 0.5
_MEASUREMENT_COUNT = 2
#: The number of runs in which operations are timed one by one, and the minimum number of times to compare.
_RUN_COUNT = 3
#: The maximum number of a graph's operations to compile alone, slowest first.
_MAX_COMPILED = 8
#: The minimum share of the time for an operation to be compiled alone.
_MIN_SHARE = 0.01
#: No further operation is compiled if the slow ones found so far explain all but this share of the graph's time.
_MAX_UNEXPLAINED_SHARE = 0.3
_BUDGET = Budget(seconds=0.4, max_runs=60)
#: Operations that Inductor computes with the same libraries as eager mode.
_LIBRARY_OPERATIONS = frozenset(
    {
        "addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "einsum", "linear", "matmul", "mm",
        "scaled_dot_product_attention",
    }
)  # fmt: skip


@dataclass(frozen=True)
class _Candidate:
    """An operation with its inputs, as a separate graph."""

    name: str
    module: torch.fx.GraphModule
    inputs: list[torch.Tensor]


def slow_operations(steady_state: SteadyState) -> list[OpCost]:
    """Return the operations that are slower compiled than eager, those that lose the most time first."""
    if max(steady_state.us_by_graph.values(), default=0.0) < _SLOW_US:
        return []
    inputs = steady_state.compiled.graph_inputs()
    return steady_state.compiled.run_in_modes(lambda: _find_slow_operations(steady_state, inputs))


def _find_slow_operations(steady_state: SteadyState, inputs: Mapping[int, list[Any]]) -> list[OpCost]:
    timer, correspondence = steady_state.compiled.timer, steady_state.correspondence
    us_by_graph = steady_state.us_by_graph
    # A frame has one graph, apart from rare cases.
    graph_by_frame = {graph.frame: graph for graph in correspondence.report_on_copies.graphs}
    run_graphs = {graph.id: graph for graph in correspondence.run_report.graphs}
    costs: list[OpCost] = []
    try:
        for number, graph_inputs in inputs.items():
            graph = graph_by_frame.get(timer.compile_ids[number])
            ident = correspondence.original_graph(graph.id) if graph is not None else None
            if graph is None or ident is None or us_by_graph.get(graph.id, 0.0) < _SLOW_US:
                continue
            unexplained_us = us_by_graph[graph.id]
            for candidate in _candidates(timer.modules[number], graph_inputs, unexplained_us, timer.clock):
                if unexplained_us < _MAX_UNEXPLAINED_SHARE * us_by_graph[graph.id]:
                    break
                times, op = _times_if_slower(candidate, timer), _op_of_run(candidate.name, graph, run_graphs[ident])
                if times is not None and op is not None:
                    costs.append(OpCost(ident, op.target, op.location, *times))
                    unexplained_us -= times[1].median_us
    except TimeUpError:  # the findings so far are kept
        if not costs:
            raise
    return sorted(costs, key=lambda cost: cost.eager.median_us - cost.compiled.median_us)


def _op_of_run(name: str, graph: Graph, run_graph: Graph) -> Op | None:
    """Return the operation of the run that corresponds to the operation of this name on copies, if there is one."""
    return next((run_op for op, run_op in zip(graph.ops, run_graph.ops, strict=True) if op.name == name), None)


def _candidates(module: torch.fx.GraphModule, inputs: list[Any], graph_us: float, clock: Clock) -> Iterator[_Candidate]:
    """Yield the operations of a graph that may be slower compiled, slowest first."""
    size = sum(value.nbytes for value in inputs if isinstance(value, torch.Tensor))
    if 4 * size > memory_limit():
        return
    runs: list[Mapping[torch.fx.Node, float]] = []
    for _ in range(_RUN_COUNT):
        require_time()
        runs.append(_TimedRun(module, clock).time_operations(inputs))
    times = {node: min(run[node] for run in runs) for node in runs[0]}
    total_us = sum(times.values())
    if graph_us < _SLOW_SHARE * total_us:
        return
    nodes_by_signature: dict[Any, torch.fx.Node] = {}
    for node in sorted(times, key=lambda node: -times[node]):
        if times[node] > _MIN_SHARE * total_us and _has_generated_code(node):
            nodes_by_signature.setdefault(_signature(node), node)
    nodes = list(nodes_by_signature.values())[:_MAX_COMPILED]
    candidates = _TimedRun(module, clock, set(nodes)).collect_candidates(inputs)
    order = [node.name for node in nodes]
    yield from sorted(candidates, key=lambda candidate: order.index(candidate.name))


def _has_generated_code(node: torch.fx.Node) -> bool:
    """Return whether Inductor generates code for an operation instead of calling a library."""
    name = _name(node)
    return not name.endswith("_") and name not in _LIBRARY_OPERATIONS and name not in {"getitem", "get_attr"}


def _name(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _signature(node: torch.fx.Node) -> tuple[str, str]:
    """Return a key of an operation and its inputs' shapes and dtypes; one operation with each key is compiled."""
    arguments: list[tuple[Any, str]] = [(value.meta.get("example_value"), value.name) for value in node.all_input_nodes]
    shapes = [
        (tuple(map(str, value.shape)), value.dtype) if hasattr(value, "shape") else name for value, name in arguments
    ]
    return _name(node), repr(shapes)


class _TimedRun(torch.fx.Interpreter):
    """Runs a graph once, operation by operation, and times each operation; ``candidate_nodes`` are those to return."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        clock: Clock,
        candidate_nodes: set[torch.fx.Node] | frozenset[Any] = frozenset(),
    ) -> None:
        super().__init__(module)
        self._clock = clock
        self._candidate_nodes = candidate_nodes
        self._marks: list[Any] = []
        self._nodes: list[torch.fx.Node] = []
        self._candidates: list[_Candidate] = []

    def time_operations(self, inputs: list[Any]) -> Mapping[torch.fx.Node, float]:
        """Run the graph on copies of inputs, and return the time of each operation in microseconds."""
        self.run(*clone(inputs))
        times = self._clock.times_us(self._marks)
        return {node: end - start for node, start, end in zip(self._nodes, times[::2], times[1::2], strict=True)}

    def collect_candidates(self, inputs: list[Any]) -> list[_Candidate]:
        """Run the graph on copies of inputs, and return the candidates whose results are tensors."""
        self.run(*clone(inputs))
        return self._candidates

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run an operation."""
        if n in self._candidate_nodes:
            self._add_candidate(n)
        start = self._clock.mark()
        value = super().run_node(n)
        if n.op in {"call_function", "call_method"}:
            self._marks += [start, self._clock.mark()]
            self._nodes.append(n)
        if n in self._candidate_nodes and not _are_tensors(value):
            self._candidates.pop()
        elif n in self._candidate_nodes and isinstance(value, tuple | list):
            _return_items(self._candidates[-1].module, len(value))
        return value

    def _add_candidate(self, node: torch.fx.Node) -> None:
        graph, placeholders = torch.fx.Graph(), {}
        inputs = []
        for input_node in node.all_input_nodes:
            value = self.env[input_node]
            placeholders[input_node] = graph.placeholder(input_node.name)
            inputs.append(_copy_as_leaf(value) if isinstance(value, torch.Tensor) else clone(value))
        graph.output((graph.node_copy(node, placeholders.__getitem__),))
        self._candidates.append(_Candidate(node.name, torch.fx.GraphModule(self.module, graph), inputs))


def _copy_as_leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that requires a gradient if the tensor does."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _are_tensors(value: Any) -> bool:
    values = value if isinstance(value, tuple | list) else [value]
    return all(isinstance(item, torch.Tensor) for item in values)


def _return_items(module: torch.fx.GraphModule, count: int) -> None:
    """Make the graph of one operation return the items of the operation's result."""
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    (result,) = output.all_input_nodes
    with module.graph.inserting_before(output):
        output.args = (tuple(module.graph.call_function(operator.getitem, (result, index)) for index in range(count)),)
    module.recompile()


def _times_if_slower(candidate: _Candidate, timer: GraphTimer) -> tuple[Spread, Spread] | None:
    """Return the times of an operation, eager and compiled alone; ``None`` if it is not clearly slower compiled.

    The times do not include a backward pass.
    """

    def timer_of(function: Callable[..., Any]) -> Callable[[], CallTime]:
        return lambda: timer.time(lambda: function(*candidate.inputs))

    module = torch.fx.GraphModule(candidate.module, candidate.module.graph)  # the backend may change it
    compiled = clone_backend(timer.backend)(module, clone(candidate.inputs))
    for call in (candidate.module, compiled):
        call(*candidate.inputs)
    times = None
    for _ in range(_MEASUREMENT_COUNT):
        calls = time_in_turn([timer_of(candidate.module), timer_of(compiled)], _BUDGET)
        times = spread_of_calls(calls[0]), spread_of_calls(calls[1])
        if not _is_slower(*times):
            return None
    return times


def _is_slower(eager: Spread, compiled: Spread) -> bool:
    loss_us = compiled.median_us - eager.median_us
    is_certain = min(eager.runs, compiled.runs) >= _RUN_COUNT and compiled.low_us > eager.high_us
    return is_certain and loss_us > max(_LOSS_US, _LOSS_SHARE * eager.median_us)

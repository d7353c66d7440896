"""Compare compiled graphs with the same operations run one by one, and find the first wrong operation."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak._torch_compat.structured_trace import current_compile_id
from jupyter_graphbreak.experiments.check.closeness import (
    LARGE_NOISE,
    SMALL_NOISE,
    CastToDouble,
    DoublePrecisionResults,
    difference_beyond_rounding,
    eps_of,
    flatten,
    to_double,
)
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.effects import preserve_random_generators, seed_torch
from jupyter_graphbreak.experiments.trial.outcome import gradient_weights
from jupyter_graphbreak.experiments.trial.saved_state import SavedState
from jupyter_graphbreak.experiments.trial.time_limit import require_time
from jupyter_graphbreak.experiments.trial.values import largest_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jupyter_graphbreak.experiments.trial.subject import Subject

    Inputs = list[Any]

_SEED = 0


@dataclass(frozen=True)
class WrongGraph:
    """A compiled graph whose result differs from the result of its operations run one by one.

    ``module`` is the graph as Dynamo captured it, and ``changed_module`` the graph after the backend has changed it.
    The inputs are copies. If ``is_only_backward``, the gradients of the graph differ, but not its values.
    """

    compile_id: str
    module: torch.fx.GraphModule
    changed_module: torch.fx.GraphModule
    compiled: Callable[..., Any]
    inputs: Inputs
    is_only_backward: bool


class GraphComparison:
    """A backend that wraps a different backend, and compares its graphs with the operations run one by one.

    The subject is the copied function that is compiled. Its graphs may change shared memory. ``compared_results`` tells
    which results of graphs to compare in the next call. ``wrong_graph`` is the first graph whose result differed.
    ``eps`` is the largest rounding error of the dtypes in the graphs so far; see :func:`eps_of`.
    """

    def __init__(self, backend: str | Callable[..., Any], subject: Subject) -> None:
        self._subject = subject
        self._backend = clone_backend(backend) if isinstance(backend, str) else backend
        self.compared_results: Literal["nothing", "values", "gradients"] = "nothing"
        self.wrong_graph: WrongGraph | None = None
        self.eps = 0.0

    def __getattr__(self, name: str) -> Any:
        """Return the wrapped backend's attribute, such as a setting that Dynamo reads."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._backend, name)

    def __call__(self, module: Any, inputs: Any, **kwargs: Any) -> Callable[..., Any]:
        """Compile a graph."""
        compile_id = current_compile_id()
        captured_module = torch.fx.GraphModule(module, copy.deepcopy(module.graph))  # a backend may change the original
        self.eps = max(self.eps, eps_of(captured_module.graph))
        compiled: Callable[..., Any] = self._backend(module, inputs, **kwargs)

        def run(*args: Any) -> Any:
            compares_gradients = self.compared_results == "gradients"
            # A graph that was compiled for a call without gradients has no backward pass.
            is_compared = torch.is_grad_enabled() if compares_gradients else self.compared_results == "values"
            if is_compared and self.wrong_graph is None:
                # The inputs are not copied, because they include all parameters.
                leaves = _leaves_of(args)
                if computes_differently(
                    captured_module,
                    compiled,
                    leaves,
                    self._subject,
                    eps=eps_of(captured_module.graph),
                    compares_gradients=compares_gradients,
                ):
                    self.wrong_graph = WrongGraph(
                        compile_id, captured_module, module, compiled, clone(leaves), compares_gradients
                    )
            return compiled(*args)

        return run

    def first_wrong_operation(self) -> str | None:
        """Compile prefixes of the wrong graph; return the name of the operation that makes them wrong.

        If the backend does not reproduce the error, return the first operation that the backend has changed in the
        graph, or else the operation of the first wrong output. Without a wrong graph, return ``None``.
        """
        wrong_graph = self.wrong_graph
        if wrong_graph is None:
            return None
        names: list[str] = [node.name for node in wrong_graph.module.graph.nodes if node.op.startswith("call")]
        eps = eps_of(wrong_graph.module.graph)

        def is_wrong(length: int) -> bool:
            part = _graph_prefix(wrong_graph, set(names[:length]))
            if part is None:
                return False
            try:
                compiled = self._backend(_copy_graph(part), clone(wrong_graph.inputs))
                return computes_differently(
                    part,
                    compiled,
                    wrong_graph.inputs,
                    self._subject,
                    eps=eps,
                    compares_gradients=wrong_graph.is_only_backward,
                )
            except Exception:  # noqa: BLE001 - the backend cannot compile the prefix
                return False

        last_right, first_wrong = 0, len(names)
        if not is_wrong(first_wrong):
            return _changed_operation(wrong_graph) or _wrong_output(wrong_graph)
        while first_wrong - last_right > 1:
            middle = (last_right + first_wrong) // 2
            if is_wrong(middle):
                first_wrong = middle
            else:
                last_right = middle
        return names[first_wrong - 1]


def _changed_operation(wrong_graph: WrongGraph) -> str | None:
    """Return the name of the first operation whose value differs in the backend's changed graph, if there is one."""
    expected = _values_by_operation(wrong_graph.module, wrong_graph.inputs)
    try:
        actual = _values_by_operation(wrong_graph.changed_module, wrong_graph.inputs)
    except Exception:  # noqa: BLE001 - the backend may leave a graph that cannot run
        return None
    return next(
        (name for name in expected if difference_beyond_rounding(expected[name], actual.get(name)) is not None), None
    )


def _wrong_output(wrong_graph: WrongGraph) -> str | None:
    """Return the name of the operation that computes the first wrong output; ``None`` if it cannot be found."""
    nodes = next(node for node in wrong_graph.module.graph.nodes if node.op == "output").all_input_nodes
    expected = _values_by_operation(wrong_graph.module, wrong_graph.inputs)
    with torch.no_grad():
        outputs = wrong_graph.compiled(*clone(wrong_graph.inputs))
    tensors = [output for output in outputs if isinstance(output, torch.Tensor)]
    if len(tensors) != len(nodes):
        return None
    names: list[str] = [node.name for node in nodes]
    pairs = zip(names, tensors, strict=True)
    return next(
        (name for name, output in pairs if difference_beyond_rounding(expected[name], output) is not None), None
    )


def computes_differently(
    module: torch.fx.GraphModule,
    compiled: Callable[..., Any],
    inputs: Inputs,
    subject: Subject,
    *,
    eps: float,
    compares_gradients: bool,
) -> bool:
    """Return whether a compiled graph and the same operations run one by one have different results.

    ``eps`` is the largest rounding error of the dtypes in the graph; see :func:`eps_of`.
    """
    expected = _compute(_interpreter(module), inputs, subject, computes_gradients=compares_gradients)
    actual = _compute(compiled, inputs, subject, computes_gradients=compares_gradients)
    if difference_beyond_rounding(expected, actual) is None:
        return False
    exact_results: list[Any] = []
    try:
        for noise_size in (0, SMALL_NOISE, LARGE_NOISE):
            change = functools.partial(to_double, noise_size=noise_size, eps=eps)
            exact_interpreter = _interpreter(_copy_graph(module, change))
            with CastToDouble():
                exact_results.append(
                    _compute(exact_interpreter, change(inputs), subject, computes_gradients=compares_gradients)
                )
            if not noise_size:
                continue
            largest = largest_number(flatten(exact_results[0]))
            reference = DoublePrecisionResults(largest, *exact_results)._replace(eps=eps)
            if difference_beyond_rounding(expected, actual, reference, are_gradients=compares_gradients) is None:
                return False
    except Exception:  # noqa: BLE001, S110 - the operations may mix precisions
        pass
    return True


def _leaves_of(inputs: Iterable[Any]) -> Inputs:
    """Return the inputs of a graph, with each plain tensor replaced by a leaf tensor that shares its memory."""
    return [
        item.detach().requires_grad_(item.requires_grad) if type(item) in {torch.Tensor, torch.nn.Parameter} else item
        for item in inputs
    ]


def _compute(function: Callable[..., Any], inputs: Inputs, subject: Subject, *, computes_gradients: bool) -> Any:
    """Call a function with a fixed seed; return its result and the inputs, or their gradients; restore the inputs."""
    require_time("call")
    saved_state = SavedState(inputs, subject.memory.is_intact)
    unchanged_keys = subject.unchanged_memo()
    try:
        with preserve_random_generators(), torch.set_grad_enabled(computes_gradients):
            seed_torch(_SEED)
            value = function(*inputs)
            if computes_gradients:
                require_time("backward")
                value = gradients_of(value, [item for item in inputs if isinstance(item, torch.Tensor)])
                return subject.snapshot(value, {})
        return subject.snapshot((value, inputs), subject.unchanged_memo())
    finally:
        subject.memory.restore(unchanged_keys)
        subject.memory.return_free_memory()
        saved_state.restore()


def gradients_of(value: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Return the gradients that a backward pass from the weighted result would add to the ``grad`` of the inputs."""
    differentiable_inputs = [tensor for tensor in inputs if tensor.requires_grad and tensor.is_leaf]
    results = [part for part in flatten(value) if isinstance(part, torch.Tensor) and part.requires_grad]
    if not differentiable_inputs or not results:
        return []
    edges = _accumulating_edges(results)
    sources = [
        edges.get(id(tensor), [torch.autograd.graph.get_gradient_edge(tensor)]) for tensor in differentiable_inputs
    ]
    weights = [gradient_weights(part) for part in results]
    gradients = iter(
        torch.autograd.grad(results, [edge for part in sources for edge in part], weights, allow_unused=True)
    )
    return [_sum([next(gradients) for _ in part]) for part in sources]


def _accumulating_edges(results: list[torch.Tensor]) -> dict[int, list[torch.autograd.graph.GradientEdge]]:
    """Return the edges through which the backward pass adds to the ``grad`` of each leaf, by the leaf's id.

    ``autograd.grad`` would use only the newest accumulator of the leaf, but ``set_`` gives the leaf a new accumulator.
    """
    edges: dict[int, list[torch.autograd.graph.GradientEdge]] = {}
    pending = [part.grad_fn for part in results]
    visited_nodes = set()
    while pending:
        node = pending.pop()
        if node is None or node in visited_nodes:
            continue
        visited_nodes.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            edges.setdefault(id(leaf), []).append(torch.autograd.graph.GradientEdge(node, 0))
        pending += [function for function, _ in node.next_functions]
    return edges


def _sum(gradients: list[torch.Tensor | None]) -> torch.Tensor | None:
    parts = [gradient for gradient in gradients if gradient is not None]
    return functools.reduce(torch.add, parts) if parts else None


def _interpreter(module: torch.fx.GraphModule) -> Callable[..., Any]:
    return torch.fx.Interpreter(module).run


def _copy_graph(module: torch.fx.GraphModule, change: Callable[[Any], Any] = clone) -> torch.fx.GraphModule:
    """Return a copy of a graph and of its tensors."""
    result = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    for name, value in list(vars(result).items()):
        if isinstance(value, torch.Tensor):
            setattr(result, name, change(value))
    for name, buffer in list(result.named_buffers(recurse=False)):
        setattr(result, name, change(buffer))
    return result


def _graph_prefix(wrong_graph: WrongGraph, prefix_names: set[str]) -> torch.fx.GraphModule | None:
    """Return a graph of the given operations whose outputs are the tensors that others use, if there are any."""
    values = _values_by_operation(wrong_graph.module, wrong_graph.inputs)
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in wrong_graph.module.graph.nodes:
        if node.op in {"placeholder", "get_attr"} or node.name in prefix_names:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            # Other metadata, such as example values, belongs to the original trace.
            copies[node].meta = {key: node.meta[key] for key in ("stack_trace",) if key in node.meta}
    outputs = [
        node
        for node in copies
        if node.name in prefix_names
        and isinstance(values.get(node.name), torch.Tensor)
        and any(user not in copies for user in node.users)
    ]
    if not outputs:
        return None
    graph.output(tuple(copies[node] for node in outputs))
    return torch.fx.GraphModule(wrong_graph.module, graph)


def _values_by_operation(module: torch.fx.GraphModule, inputs: Inputs) -> dict[str, Any]:
    """Return the value of each operation in a graph, by the operation's name."""
    values: dict[str, Any] = {}

    class RecordingInterpreter(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            value = super().run_node(n)
            if n.op != "output":
                values[n.name] = clone(value)  # a later operation may change it in place
            return value

    with torch.no_grad(), preserve_random_generators():
        seed_torch(_SEED)
        RecordingInterpreter(_copy_graph(module)).run(*clone(inputs))
    return values

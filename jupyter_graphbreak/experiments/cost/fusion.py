"""List pairs of kernels that Inductor does not fuse although one passes a lot of data to the other, and say why."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import torch
from msgspec import structs

from jupyter_graphbreak._torch_compat.backends import unfused_pairs
from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak.experiments.cost.graph_timer import as_leaves
from jupyter_graphbreak.experiments.trial.entry import backend_name
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_compilations, require_time
from jupyter_graphbreak.report.cost import UnfusedKernels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jupyter_graphbreak._torch_compat.backends import UnfusedPair
    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.experiments.trial.effect_locations import Locate
    from jupyter_graphbreak.report.cost import WhyNotFused
    from jupyter_graphbreak.report.location import Location

#: A graph is examined if it takes at least this many microseconds, and this share of the time of all graphs.
_SLOW_US, _SLOW_SHARE = 200.0, 0.2
#: A pair of kernels is reported if it passes at least this many bytes, and this share of the bytes that all pairs pass.
_NOTABLE_BYTES, _NOTABLE_SHARE = 1 << 18, 0.1
_MAX_PAIRS = 5
#: The kinds of reasons that Inductor gives, by the words that identify them.
_KIND_BY_WORDS: dict[str, WhyNotFused] = {
    "intermediate nodes": "between",
    "memory deps did not match": "order",
    "no shared data": "order",
    "tiling": "order",
    "device mismatch": "device",
}
#: Operations that eager mode also computes with libraries, so nobody expects them to be fused.
_LIBRARY_OPERATIONS = re.compile(r"(addmm|baddbmm|bmm|mm|convolution|linear|scaled_dot_product)")


def unfused_kernels(steady_state: SteadyState) -> list[UnfusedKernels]:
    """Return pairs of kernels that Inductor does not fuse in slow graphs, those that pass the most data first."""
    compiled, us_by_graph, timer = steady_state.compiled, steady_state.us_by_graph, steady_state.compiled.timer
    min_us = max(_SLOW_US, _SLOW_SHARE * sum(us_by_graph.values()))
    if max(us_by_graph.values(), default=0.0) < min_us or backend_name(timer.backend) != "inductor":
        return []
    inputs = compiled.graph_inputs()
    graph_by_frame = {graph.frame: graph.id for graph in steady_state.correspondence.report_on_copies.graphs}
    unfused: list[UnfusedKernels] = []
    for number, graph_inputs in inputs.items():
        graph = graph_by_frame.get(timer.compile_ids[number], "")
        ident = steady_state.correspondence.original_graph(graph)
        if ident is None or us_by_graph.get(graph, 0.0) < min_us:
            continue
        module = timer.modules[number]
        try:
            pairs = compiled.run_in_modes(lambda: _unfused_pairs_of_graph(timer.backend, module, graph_inputs))  # noqa: B023 - called in this iteration only
        except TimeUpError:  # the findings so far are kept
            break
        unfused += notable_kernels(ident, pairs, steady_state.locate)
    return sorted(unfused, key=lambda kernels: -kernels.nbytes)[:_MAX_PAIRS]


def _unfused_pairs_of_graph(
    backend: str | Callable[..., Any], module: torch.fx.GraphModule, inputs: list[Any]
) -> list[UnfusedPair]:
    require_time()
    graph = torch.fx.GraphModule(module, copy.deepcopy(module.graph))  # the backend may change it
    with limit_compilations():
        return unfused_pairs(lambda: clone_backend(backend)(graph, as_leaves(inputs)))


def notable_kernels(graph: str, pairs: Sequence[UnfusedPair], locate: Locate) -> list[UnfusedKernels]:
    """Return the pairs that pass a lot of data; pairs on the same lines are merged, with the reason of the largest."""
    min_bytes = max(_NOTABLE_BYTES, _NOTABLE_SHARE * sum(pair.nbytes for pair in pairs))
    merged_pairs: dict[tuple[Location, Location | None], UnfusedKernels] = {}
    for pair in sorted(pairs, key=lambda pair: -pair.nbytes):
        reason, first, second = why_not_fused(pair), locate(pair.first_kernel.stack), locate(pair.second_kernel.stack)
        op = pair.first_kernel.library_op or pair.second_kernel.library_op
        if reason is None or first is None or _LIBRARY_OPERATIONS.search(op or ""):
            continue
        kernels_of_lines = merged_pairs.get((first, second), UnfusedKernels(graph, reason, 0, 0, op, first, second))
        merged_pairs[first, second] = structs.replace(
            kernels_of_lines, nbytes=kernels_of_lines.nbytes + pair.nbytes, count=kernels_of_lines.count + 1
        )
    return [kernels for kernels in merged_pairs.values() if kernels.nbytes >= min_bytes]


def why_not_fused(pair: UnfusedPair) -> WhyNotFused | None:
    """Return why two kernels are not fused; ``None`` if neither Inductor's reason nor the kernels show it."""
    first, second = pair.first_kernel, pair.second_kernel
    if first.library_op is not None or second.library_op is not None:
        return "library"
    stated_reason = next((kind for words, kind in _KIND_BY_WORDS.items() if words in pair.inductor_reason), None)
    if stated_reason in {"between", "device"}:
        return stated_reason
    if first.is_reduction:
        return "reduction"
    return "sizes" if first.sizes != second.sizes and not second.is_reduction else stated_reason

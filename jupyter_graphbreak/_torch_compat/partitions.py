"""Find the tensors that a graph's compiled forward pass keeps for its backward pass, and the lines that need them."""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.patching import patch_on_thread
from jupyter_graphbreak.records.records import read_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jupyter_graphbreak.records.records import StackEntry

_PARTITION_FUNCTION = "min_cut_rematerialization_partition"
#: The modules in which backends look up the function that divides a graph into forward and backward pass.
_PARTITION_USERS = ("torch._inductor.compile_fx", "torch._dynamo.backends.debugging")
#: The backends that divide graphs with this function.
_PARTITIONING_BACKENDS = frozenset({"inductor", "aot_eager", "aot_eager_decomp_partition"})


@dataclass(frozen=True)
class SavedTensor:
    """A tensor that the forward pass saves for the backward pass.

    Parameters
    ----------
    stack : tuple of StackEntry
        The stack of the program's first operation whose backward pass needs the tensor, outermost entry first; empty
        if unknown.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    stack: tuple[StackEntry, ...]


class _PartitionedError(Exception):
    """Stops a compilation when the graph has been divided."""


def saved_tensors(
    name: str, backend: Callable[..., Any], module: torch.fx.GraphModule, inputs: Sequence[Any]
) -> list[SavedTensor] | None:
    """Return the tensors that a backend's code for a graph keeps, in the order in which autograd saves them.

    The graph is traced and divided as the backend would do it, but no code is generated.

    Parameters
    ----------
    name : str
        The name of the backend.

    Returns
    -------
    list or None
        ``None`` if the backend divides graphs in its own way, or if there is no backward pass.
    """
    if name not in _PARTITIONING_BACKENDS:
        return None
    tensors: list[SavedTensor] = []

    def partition(*args: Any, **kwargs: Any) -> Any:
        forward, backward = original(*args, **kwargs)
        tensors.extend(_tensors_saved_for_backward(forward, backward, kwargs["num_fwd_outputs"]))
        raise _PartitionedError

    original = getattr(importlib.import_module("functorch.compile"), _PARTITION_FUNCTION)
    with contextlib.ExitStack() as exit_stack:
        for module_name in _PARTITION_USERS:
            exit_stack.enter_context(
                patch_on_thread(importlib.import_module(module_name), _PARTITION_FUNCTION, partition)
            )
        config: Any = importlib.import_module("torch._functorch.config")
        exit_stack.enter_context(config.patch(enable_autograd_cache=False))
        try:
            backend(module, list(inputs))
        except _PartitionedError:
            return tensors
    return None


def _tensors_saved_for_backward(
    forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, result_count: int
) -> list[SavedTensor]:
    """Return those outputs of a forward graph that only the backward graph needs."""
    (output,) = (node for node in forward.graph.nodes if node.op == "output")
    backward_inputs = {node.name: node for node in backward.graph.nodes if node.op == "placeholder"}
    order = {node: number for number, node in enumerate(backward.graph.nodes)}
    tensors = []
    for node in output.args[0][result_count:]:
        value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if isinstance(value, torch.Tensor):
            users = sorted(getattr(backward_inputs.get(node.name), "users", ()), key=lambda user: -order[user])
            stacks = (stack_of(user) for user in (*users, node))  # the backward pass begins with the last operation
            tensors.append(
                SavedTensor(tuple(map(int, value.shape)), value.dtype, next((stack for stack in stacks if stack), ()))
            )
    return tensors


def stack_of(node: torch.fx.Node) -> tuple[StackEntry, ...]:
    """Return the stack of the program's operation that a node comes from, outermost entry first."""
    return tuple(read_stack(node.meta.get("stack_trace") or ""))

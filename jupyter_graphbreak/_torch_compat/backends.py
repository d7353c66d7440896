"""Find out which tensors a backend saves for the backward pass of a graph, and which kernels Inductor does not fuse."""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.patching import observe_calls_on_thread, patch_on_thread
from jupyter_graphbreak._torch_compat.tried_settings import disable_caches
from jupyter_graphbreak.records.records import read_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyter_graphbreak.records.records import StackFrame

_PARTITION_FUNCTION = "min_cut_rematerialization_partition"
#: The modules in which backends look up the function that divides a graph into forward and backward pass.
_PARTITION_USERS = ("torch._inductor.compile_fx", "torch._dynamo.backends.debugging")
#: The backends that divide a graph into forward and backward pass.
_PARTITIONING_BACKENDS = frozenset({"inductor", "aot_eager", "aot_eager_decomp_partition"})


@dataclass(frozen=True)
class SavedTensor:
    """A tensor that the forward pass saves for the backward pass.

    ``stack`` leads to the program's first operation whose backward pass needs the tensor; if that is unknown, to the
    operation that computes the tensor. It is empty if both are unknown.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    stack: tuple[StackFrame, ...]


class _PartitionedError(Exception):
    """Stops a compilation when the graph has been divided."""


def saved_tensors(
    name: str, backend: Callable[..., Any], module: torch.fx.GraphModule, inputs: Sequence[Any]
) -> list[SavedTensor] | None:
    """Return the tensors that a backend's code for a graph saves for the backward pass, in the order of autograd.

    The graph is traced and divided as the backend would do it, but no code is generated. The result is ``None`` if the
    backend divides graphs in its own way, or if there is no backward pass.
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
    """Return those tensors among the outputs of a forward graph that only the backward graph needs."""
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


def stack_of(node: torch.fx.Node) -> tuple[StackFrame, ...]:
    """Return the stack of the program's operation that a node comes from, outermost frame first."""
    return tuple(read_stack(node.meta.get("stack_trace") or ""))


@dataclass(frozen=True)
class Kernel:
    """A kernel of a graph.

    ``stack`` leads to the operation that writes or reads the value that one kernel of an :class:`UnfusedPair` passes to
    the other. ``library_op`` is the operation of a kernel that belongs to a library; for other kernels, ``sizes``
    contains the numbers of elements over which Inductor loops, for the result and for the reduction.
    """

    stack: tuple[StackFrame, ...]
    library_op: str | None
    is_reduction: bool
    sizes: tuple[str, ...]


@dataclass(frozen=True)
class UnfusedPair:
    """Two kernels; the second one uses the result of the first.

    ``nbytes`` is the size of the buffers that the second kernel reads and that the first one reads or writes.
    ``inductor_reason`` says in Inductor's words why they are not fused; it is empty if Inductor gives no reason.
    """

    first_kernel: Kernel
    second_kernel: Kernel
    nbytes: int
    inductor_reason: str


class _ScheduledError(BaseException):
    """Stops a compilation after its kernels are known."""


def unfused_pairs(compile_: Callable[[], object]) -> list[UnfusedPair]:
    """Return the pairs of dependent kernels that Inductor does not fuse in a graph, without generating their code."""
    scheduler_module = importlib.import_module("torch._inductor.scheduler")
    reasons: dict[tuple[str, str], str] = {}
    pairs: list[UnfusedPair] = []

    def note_reason(_: None, pair: Any, reason: str, *args: Any) -> None:
        reasons[pair.name1, pair.name2] = reason % args if args else reason

    def stop_before_codegen(inductor_scheduler: Any, *_: Any, **__: Any) -> None:
        pairs.extend(_dependent_pairs(inductor_scheduler.nodes, reasons, scheduler_module.ExternKernelSchedulerNode))
        raise _ScheduledError

    with (
        disable_caches(),
        observe_calls_on_thread(scheduler_module.WhyNoFuse, "__call__", note_reason),
        patch_on_thread(scheduler_module.Scheduler, "codegen", stop_before_codegen),
        contextlib.suppress(_ScheduledError),
    ):
        compile_()
    return pairs


def _dependent_pairs(
    nodes: list[Any], reasons: dict[tuple[str, str], str], library_kernel_class: type
) -> Iterator[UnfusedPair]:
    """Yield each pair of kernels in which the second uses results of the first."""
    writers: dict[str, Any] = {}
    for node in nodes:
        reads = {dependency.name: dependency for dependency in node.read_writes.reads}
        for first in dict.fromkeys(writers[name] for name in reads if name in writers):
            passed_names = {dependency.name for dependency in first.read_writes.writes} & reads.keys()
            shared_names = passed_names | ({dependency.name for dependency in first.read_writes.reads} & reads.keys())
            yield UnfusedPair(
                _kernel_of(_part_with_buffer(first, passed_names, "writes"), library_kernel_class),
                _kernel_of(_part_with_buffer(node, passed_names, "reads"), library_kernel_class),
                sum(int(reads[name].numbytes_hint()) for name in shared_names),
                reasons.get((first.get_name(), node.get_name()), ""),
            )
        writers.update({dependency.name: node for dependency in node.read_writes.writes})


def _part_with_buffer(node: Any, names: set[str], direction: str) -> Any:
    """Return the first part of a fused kernel that writes or reads one of the given buffers, or else the kernel."""
    parts = (
        part
        for part in node.get_nodes()
        if names & {dependency.name for dependency in getattr(part.read_writes, direction)}
    )
    return next(parts, node)


def _kernel_of(node: Any, library_kernel_class: type) -> Kernel:
    buffer = node.node
    origins = sorted(getattr(buffer, "origins", ()), key=lambda origin: str(origin.name))
    main_node = getattr(buffer, "origin_node", None) or next(iter(origins), None)
    is_extern = isinstance(node, library_kernel_class)
    sizes = () if is_extern else tuple(str(size) for size in node.group[1])
    name = (str(getattr(main_node, "target", "")) or None) if is_extern else None
    return Kernel(stack_of(main_node) if main_node is not None else (), name, bool(node.is_reduction()), sizes)

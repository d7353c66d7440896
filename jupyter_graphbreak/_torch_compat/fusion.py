"""Find the kernels that Inductor does not fuse, with the reasons that it logs."""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.partitions import stack_of
from jupyter_graphbreak._torch_compat.patching import observe_calls_on_thread, patch_on_thread
from jupyter_graphbreak._torch_compat.tried_settings import disable_caches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.records.records import StackEntry


@dataclass(frozen=True)
class Kernel:
    """A kernel of a graph.

    Parameters
    ----------
    stack : tuple of StackEntry
        The stack of the kernel's operation that writes or reads the value passed from one kernel to the other,
        outermost entry first.
    library_op : str or None
        The name of the operation if the kernel belongs to a library.
    is_reduction : bool
        Whether the kernel reduces dimensions.
    sizes : tuple of str
        The numbers of elements over which Inductor loops, for the result and for the reduction; empty for a library's
        kernel.
    """

    stack: tuple[StackEntry, ...]
    library_op: str | None
    is_reduction: bool
    sizes: tuple[str, ...]


@dataclass(frozen=True)
class UnfusedPair:
    """Two kernels; the second one uses the result of the first.

    Parameters
    ----------
    nbytes : int
        The size, in bytes, of the buffers that the second kernel reads and that the first one reads or writes.
    inductor_reason : str
        The reason why the kernels are not fused, in Inductor's words; empty if it gives none.
    """

    first: Kernel
    second: Kernel
    nbytes: int
    inductor_reason: str


class _ScheduledError(BaseException):
    """Stops a compilation after its kernels are known."""


def unfused_pairs(compile_: Callable[[], object]) -> list[UnfusedPair]:
    """Return the pairs of kernels of a graph that Inductor does not fuse, without generating code for them."""
    scheduler_module = importlib.import_module("torch._inductor.scheduler")
    reasons: dict[tuple[str, str], str] = {}
    pairs: list[UnfusedPair] = []

    def note_reason(_: None, why: Any, reason: str, *args: Any) -> None:
        reasons[why.name1, why.name2] = reason % args if args else reason

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

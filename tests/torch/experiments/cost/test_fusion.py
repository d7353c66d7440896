"""Kernels that Inductor does not fuse are found with the reason, in graphs whose kernels are known."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Sequence

import pytest
import torch

from jupyter_graphbreak._torch_compat.backends import Kernel, UnfusedPair, unfused_pairs
from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak.experiments.cost.fusion import notable_kernels, why_not_fused
from jupyter_graphbreak.records.records import StackFrame
from jupyter_graphbreak.report.location import Location


def chain_graph() -> torch.fx.GraphModule:
    """Return a graph with a reduction, an operation that needs its result, and one that a library computes."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    norm = graph.call_function(torch.softmax, (x, 0))
    total = graph.call_function(operator.add, (norm, x))
    product = graph.call_function(torch.matmul, (total, x))
    for line, node in enumerate((norm, total, product), start=1):
        node.meta["stack_trace"] = f'  File "model.py", line {line}, in forward\n    x\n'
    graph.output((product,))
    return torch.fx.GraphModule({}, graph)


def test_unfused_pairs_have_their_reasons_and_lines(capfd: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("torch._inductor.scheduler.__fusion")
    level, folder = log.level, os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    x = torch.rand(96, 96)
    with torch.no_grad():
        pairs = unfused_pairs(lambda: clone_backend("inductor")(chain_graph(), [x]))
    reasons = {why_not_fused(pair) for pair in pairs}
    assert "library" in reasons
    assert "reduction" in reasons
    library_pairs = [pair for pair in pairs if pair.second_kernel.library_op is not None]
    assert library_pairs[-1].second_kernel.library_op == "aten.mm.default"
    assert library_pairs[-1].second_kernel.stack[-1].line == 3
    assert library_pairs[-1].nbytes >= x.nbytes
    reductions = [pair for pair in pairs if pair.first_kernel.is_reduction and not pair.second_kernel.is_reduction]
    assert {pair.first_kernel.stack[-1].line for pair in reductions} == {1}
    assert "".join(capfd.readouterr()) == ""
    assert (log.level, os.environ.get("TORCHINDUCTOR_CACHE_DIR")) == (level, folder)


def kernel(*sizes: str, reduces: bool = False, library_op: str | None = None) -> Kernel:
    return Kernel((), library_op, reduces, sizes)


@pytest.mark.parametrize(
    ("first", "second", "log_message", "reason"),
    [
        (kernel("64"), kernel(library_op="aten.mm.default"), "node2 is extern or nop", "library"),
        (kernel(library_op="aten.mm.default"), kernel("64"), "", "library"),
        (kernel("8", "8", reduces=True), kernel("64"), "", "reduction"),
        (kernel("64"), kernel("64"), "intermediate nodes between node1 & node2", "between"),
        (kernel("64"), kernel("64"), "memory deps did not match", "order"),
        (kernel("64"), kernel("64"), "no shared data", "order"),
        (kernel("64"), kernel("32"), "numel/rnumel mismatch (non-reduce) (64, 32), (1, 1)", "sizes"),
        (kernel("64"), kernel("64"), "device mismatch (cpu vs cuda)", "device"),
        (kernel("64"), kernel("64"), "", None),
    ],
)
def test_each_pair_of_kernels_has_its_reason(
    first: Kernel, second: Kernel, log_message: str, reason: str | None
) -> None:
    assert why_not_fused(UnfusedPair(first, second, 1, log_message)) == reason


def test_pairs_of_the_same_lines_count_as_one() -> None:
    def kernel_on_line(line: int, *sizes: str, reduces: bool = False, library_op: str | None = None) -> Kernel:
        return Kernel((StackFrame("model.py", line, "forward"),), library_op, reduces, sizes)

    pairs = [
        UnfusedPair(kernel_on_line(1, "64"), kernel_on_line(1, "64"), 1 << 20, "memory deps did not match"),
        UnfusedPair(kernel_on_line(1, "8", reduces=True), kernel_on_line(1, "64"), 3 << 20, ""),
        UnfusedPair(kernel_on_line(1, "64"), kernel_on_line(2, library_op="aten.cumsum.default"), 2 << 20, ""),
        UnfusedPair(kernel_on_line(2, "64"), kernel_on_line(3, "32"), 1 << 10, ""),  # moves little data
        UnfusedPair(
            kernel_on_line(2, "64"), kernel_on_line(4, library_op="aten.addmm.default"), 2 << 20, ""
        ),  # a separate kernel in eager code as well
        UnfusedPair(kernel_on_line(9, "64"), kernel_on_line(3, "32"), 9 << 20, ""),  # not in the program
    ]

    def locate(stack: Sequence[StackFrame]) -> Location | None:
        line = stack[-1].line or 0
        return Location("s1", line, line) if line < 9 else None

    kernels = [
        (kernels.reason, kernels.nbytes >> 20, kernels.count, kernels.op)
        for kernels in notable_kernels("A", pairs, locate)
    ]
    assert kernels == [("reduction", 4, 2, None), ("library", 2, 1, "aten.cumsum.default")]

"""Tests on a real GPU: the choice of the device, reports of code that runs there, and the GPU work of a call.

``make test-cuda`` runs only these tests.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

from jupyter_graphbreak import capture, measure
from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.results import Report

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CELL = """import torch
@torch.compile(backend="eager")
def f(n):
    x = torch.ones(n)
    torch._dynamo.graph_break()
    return x * 2
y = f(3)
"""


def run_cell(code: str) -> tuple[Any, list[Report]]:
    InteractiveShell.clear_instance()
    torch._dynamo.reset()
    shell: Any = InteractiveShell.instance()
    shell.display_pub = CapturingDisplayPublisher()
    shell.run_line_magic("load_ext", "jupyter_graphbreak")
    shell.run_cell(code)
    bundles = [output["data"] for output in shell.display_pub.outputs]
    return shell, [Report.from_dict(bundle[MIME_TYPE]) for bundle in bundles if MIME_TYPE in bundle]


def test_auto_uses_the_gpu_and_restores_the_default_device() -> None:
    default_device = torch.get_default_device()
    shell, (report,) = run_cell(f"%%compile_explain\n{CELL}")
    assert shell.user_ns["y"].device.type == "cuda"
    assert report.device.used == f"cuda:{torch.cuda.current_device()}"
    assert report.device.name == torch.cuda.get_device_name()
    assert report.graphs[0].ops[0].output is not None
    assert report.graphs[0].ops[0].output.device is not None
    assert report.graphs[0].ops[0].output.device.startswith("cuda")
    assert torch.get_default_device() == default_device


def test_auto_leaves_code_that_uses_a_cpu_tensor_on_the_cpu() -> None:
    shell, _ = run_cell("import torch\nweights = torch.ones(3)")
    shell.display_pub.outputs.clear()
    shell.run_cell(f"%%compile_explain\n{CELL}y = y + weights\n")
    (report,) = [Report.from_dict(e["data"][MIME_TYPE]) for e in shell.display_pub.outputs if MIME_TYPE in e["data"]]
    assert shell.user_ns["y"].device.type == "cpu"
    assert report.device.note == "weights is on the CPU, so the code's own devices are used"


@pytest.mark.parametrize(("option", "kind"), [("cpu", "cpu"), ("cuda", "cuda"), ("cuda:0", "cuda")])
def test_the_device_option_forces_the_device(option: str, kind: str) -> None:
    shell, (report,) = run_cell(f"%%compile_explain --device {option}\n{CELL}")
    assert shell.user_ns["y"].device.type == kind
    assert report.device.requested == option


def test_inductor_on_the_gpu_finds_the_same_break() -> None:
    _, (report,) = run_cell(f"%%compile_explain --backend inductor\n{CELL}")
    assert [graph_break.gb_id for graph_break in report.breaks] == ["GB0025"]
    assert report.timing.compile_s


def test_the_gpu_work_of_a_call_is_counted() -> None:
    def branch_on_sum(x: torch.Tensor) -> torch.Tensor:
        y = (x @ x).relu()
        if y.sum() > 0:  # the processor waits for the sum
            y = y + 1
        return y.sin()

    report = measure(torch.compile(branch_on_sum), torch.rand(256, 256, device="cuda"))
    assert report.cost is not None
    (entry,) = report.cost.entries
    assert entry.settled
    assert entry.eager_device_work is not None
    assert entry.device_work is not None
    assert entry.eager_device_work.launches >= 5
    assert entry.eager_device_work.synchronizations == entry.device_work.synchronizations == 1
    assert entry.device_work.peak_bytes >= 256 * 256 * 4
    assert entry.device_work.graph_launches == 0


def test_a_mutated_input_keeps_a_graph_from_being_a_cuda_graph() -> None:
    def fill(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        out.add_(x)
        return out * 2

    torch.compiler.reset()
    with capture() as run:
        compiled = torch.compile(fill, mode="reduce-overhead")
        for _ in range(3):
            compiled(torch.ones(8, device="cuda"), torch.ones(8, device="cuda"))
    (skip,) = run.report.cudagraph_skips
    assert "mutated inputs" in skip.reason
    assert skip.location is not None
    assert skip.location.function == "fill"

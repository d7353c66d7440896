"""Compare the memory that ``--cost`` measures with an independent measurement, and show the changes that lower it.

Three models made of torch's own layers are measured twice, by :func:`jupyter_graphbreak.measure` and in plain PyTorch:
the profiler measures the peak, and hooks on saved tensors count the bytes kept for the backward pass.

    python benchmarks/call_memory.py             # all models, on the CPU
    python benchmarks/call_memory.py --changes   # also the changes that lower the peak, without a time limit
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import jupyter_graphbreak
from jupyter_graphbreak.experiments.cost import entry_cost
from jupyter_graphbreak.views.words.cost import memory_text
from jupyter_graphbreak.views.words.cost_findings import cost_findings

if TYPE_CHECKING:
    from collections.abc import Callable


class Encoder(nn.Module):
    """Three transformer layers."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a loss."""
        loss: torch.Tensor = self.head(self.encoder(x)).sum()
        return loss


class Convolutions(nn.Module):
    """Convolutions with batch normalization and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.GELU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a loss."""
        loss: torch.Tensor = self.body(x).sum()
        return loss


class RecurrentNet(nn.Module):
    """A GRU cell in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(64, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a loss."""
        h = x.new_zeros(x.shape[0], 128)
        outputs = []
        for step in range(x.shape[1]):
            h = self.cell(x[:, step], h)
            outputs.append(self.out(h))
        return torch.stack(outputs).sum()


MODELS: list[tuple[type[nn.Module], tuple[int, ...]]] = [
    (Encoder, (8, 64, 128)),
    (Convolutions, (8, 3, 32, 32)),
    (RecurrentNet, (64, 12, 64)),
]


def peak(function: Callable[[], object]) -> int:
    """Return the peak of the profiler's totals, without what was allocated before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    totals: list[dict[str, int]] = [event["args"] for event in sorted(events, key=lambda event: float(event["ts"]))]
    return max(total["Total Allocated"] for total in totals) - (totals[0]["Total Allocated"] - totals[0]["Bytes"])


def saved_bytes(function: Callable[[], object], known_pointers: set[int]) -> int:
    """Return the bytes of all memory that a forward pass saves, except known memory."""
    sizes: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known_pointers:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = function()
    del result
    return sum(sizes.values())


def measure_independently(model: nn.Module, x: torch.Tensor) -> list[int]:
    """Return the peak of the eager and of the compiled call, and the bytes that each keeps for the backward pass."""
    known_pointers = {tensor.untyped_storage().data_ptr() for tensor in (x, *model.parameters(), *model.buffers())}
    peaks, results = [], []
    for function in (model, torch.compile(model)):

        def step(function: Callable[..., Any] = function) -> None:
            model.zero_grad(set_to_none=True)
            function(x).backward()

        step()
        step()
        model.zero_grad(set_to_none=True)
        peaks.append(peak(step))
        results.append(saved_bytes(functools.partial(function, x), known_pointers))
    return [*peaks, *results]


def main() -> None:
    """Print both measurements of each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--changes", action="store_true", help="also show what lowers the peak")
    arguments = parser.parse_args()
    names = ("eager peak", "compiled peak", "eager saved", "compiled saved")
    no_time_limit = mock.patch.object(entry_cost, "limit_time", return_value=contextlib.nullcontext())
    for kind, shape in MODELS:
        torch.manual_seed(0)
        model, x = kind(), torch.randn(shape)
        plain_values = measure_independently(model, x)
        with no_time_limit:
            report = jupyter_graphbreak.measure(torch.compile(model), x)
        memory = report.cost.entries[0].memory if report.cost is not None else None
        if memory is None:
            print(f"{kind.__name__}: not measured")
            continue
        our_values = [getattr(memory, f"{name.replace(' ', '_')}_bytes") for name in names]
        for name, our_value, plain_value in zip(names, our_values, plain_values, strict=True):
            ratio = our_value / plain_value
            print(
                f"{kind.__name__:14} {name:14} {memory_text(our_value):>10} {memory_text(plain_value):>10} {ratio:6.3f}"
            )
        for finding in cost_findings(report) if arguments.changes else []:
            print(f"    {finding.sentence}")
        for change in memory.changes if arguments.changes else []:
            print(f"    {change.change}: peak {memory_text(change.peak_bytes)}, equal: {change.equal}")


if __name__ == "__main__":
    main()

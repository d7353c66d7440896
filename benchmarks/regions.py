"""Compile a model of equal layers as a whole, layer by layer and with nested regions, from an empty cache.

python benchmarks/regions.py --layers 12   # some minutes
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from unittest import mock

import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.cost import entry_cost
from jupyter_graphbreak.views.words.cost_findings import cost_findings


class Layer(torch.nn.Module):
    """A layer of a transformer; ``scale``, which makes layers differ, scales the result of the inner layers."""

    def __init__(self, width: int, scale: float | None) -> None:
        super().__init__()
        self.scale = scale
        self.norm = torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.inner = torch.nn.Sequential(
            torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result of the layer."""
        y: torch.Tensor = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = self.inner(x)
        return x + (y if self.scale is None else y * self.scale)


class Model(torch.nn.Module):
    """Layers between an embedding and a linear layer."""

    def __init__(self, layer_count: int, *, differ: bool, width: int = 64) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(100, width)
        self.layers = torch.nn.ModuleList(
            Layer(width, 1 / (number + 1) if differ else None) for number in range(layer_count)
        )
        self.head = torch.nn.Linear(width, 100)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next token."""
        x: torch.Tensor = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        y: torch.Tensor = self.head(x)
        return y


def main() -> None:
    """Print the cost of each way, and the findings of the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--differ", action="store_true", help="give each layer a different scale")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = Model(arguments.layers, differ=arguments.differ)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        with mock.patch.object(entry_cost, "limit_time", return_value=contextlib.nullcontext()):
            report = jupyter_graphbreak.measure(torch.compile(model), torch.randint(0, 100, (4, 32)), seconds=1200.0)
    for note in report.diagnostics:
        print(note.message)
    regions = report.cost.entries[0].regions if report.cost is not None else None
    for way in regions.ways if regions is not None else []:
        ratio = "unclear" if way.time_ratio is None else f"{way.time_ratio:.2f}"
        start = "not measured" if way.start_s is None else f"{way.start_s:.1f} s"
        print(f"{way.way:7} start {start}, {way.compilations} compilations, calls {ratio}, {way.equal=}")
    for finding in cost_findings(report):
        print(f"    {finding.sentence}")


if __name__ == "__main__":
    main()

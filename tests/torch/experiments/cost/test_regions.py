"""A model that repeats blocks is compiled as a whole, block by block, and with nested regions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from jupyter_graphbreak._torch_compat.tried_settings import disable_caches
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.experiments.cost import regions
from jupyter_graphbreak.experiments.cost.blocks import RepeatedBlocks, find_repeated_blocks
from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
from jupyter_graphbreak.experiments.cost.regions import measure_regions
from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
from jupyter_graphbreak.experiments.cost.variants import Variant
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry, compile_separately
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.report.cost import CompiledWay, RegionCost


class Block(torch.nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y.tanh()


class Scaled(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y * (self.index + 1)


class Model(torch.nn.Module):
    def __init__(self, make_block: Callable[[int], torch.nn.Module]) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.layers = torch.nn.ModuleList(make_block(index) for index in range(4))
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        y: torch.Tensor = self.head(x)
        return y


class Sequence(torch.nn.Sequential):
    """A block with PyTorch's own method ``forward``."""

    def __init__(self, _: int) -> None:
        super().__init__(torch.nn.Linear(8, 8), torch.nn.Tanh())


def region_cost_of(make_block: Callable[[int], torch.nn.Module], backend: str = "aot_eager") -> RegionCost | None:
    entry = Entry("Model", None, Model(make_block), Arguments(torch.rand(3, 8)), backend)
    with entry.set_up(), sandbox_runs():
        eager, compiled = Variant(entry, compiled=False), Variant(entry, compiled=True)
        with compile_separately(compiled.subject.function):
            assert eager.warm_up()
            with recorder.record() as recording:
                assert compiled.warm_up()
            report = build_report(recording.records)
            return measure_regions(SteadyState(entry, eager, compiled, Correspondence(report, report), lambda _: None))


def ways_of(cost: RegionCost | None) -> dict[str, CompiledWay]:
    assert cost is not None
    return {way.way: way for way in cost.ways}


@pytest.mark.exhaustive
def test_equal_blocks_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_MIN_COMPILE_S", 0.0)
    monkeypatch.setattr(regions, "ratio_in_turn", lambda *_: 1.25)
    forward = Block.forward
    cost = region_cost_of(Block)
    assert cost is not None
    assert (cost.block, cost.count, cost.container) == ("Block", 4, "self.layers")
    ways = ways_of(cost)
    assert list(ways) == ["whole", "nested", "blocks"]
    assert {(way.compilations, way.graphs, way.equal) for way in ways.values()} == {(1, 1, True)}
    assert [way.regions for way in ways.values()] == [None, 1, None]
    assert all(way.start_s is not None for way in ways.values())
    assert [way.time_ratio for way in ways.values()] == [1.0, 1.25, 1.25]
    assert ways["blocks"].differences == []
    assert Block.forward is forward
    assert not hasattr(forward, "__marked_compile_region_config__")


def test_blocks_of_pytorch_are_also_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_MIN_COMPILE_S", 0.0)
    ways = ways_of(region_cost_of(Sequence, "eager"))
    assert (ways["blocks"].compilations, ways["blocks"].equal) == (1, True)


def test_an_attribute_that_differs_is_the_reason_for_compiling_blocks_separately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regions, "_MIN_COMPILE_S", 0.0)
    with torch._dynamo.config.patch(recompile_limit=3):
        ways = ways_of(region_cost_of(Scaled, "eager"))
    assert list(ways) == ["whole", "blocks"]  # no two blocks share a nested region
    blocks = ways["blocks"]
    assert (blocks.start_s, blocks.time_ratio) == (None, None)  # nothing would be gained
    assert (blocks.compilations, blocks.graphs, blocks.limit_hit, blocks.equal) == (3, 3, True, True)
    assert [(difference.compilation, difference.guard) for difference in blocks.differences[:3]] == [
        (1, "self.index == 0"), (2, "self.index == 0"), (2, "self.index == 1"),
    ]  # fmt: skip
    location = blocks.differences[0].location
    assert location is not None
    assert location.line == Scaled.forward.__code__.co_firstlineno + 2


def _region_with_doubled_result(_: object) -> Callable[..., torch.Tensor]:
    def forward(module: Block, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = module.linear(x)
        return y * 2

    return torch.compiler.nested_compile_region(forward)  # type: ignore[no-any-return]


@pytest.mark.exhaustive
def test_a_way_of_compiling_with_wrong_results_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_MIN_COMPILE_S", 0.0)
    monkeypatch.setattr(regions, "_as_nested_region", _region_with_doubled_result)
    nested_way = ways_of(region_cost_of(Block))["nested"]
    assert (nested_way.equal, nested_way.time_ratio) == (False, None)


def test_results_are_also_compared_without_a_backward_pass() -> None:
    with torch.no_grad():
        entry = Entry("relu", None, torch.relu, Arguments(torch.ones(3)), "eager")
        with entry.set_up(), sandbox_runs():
            eager = Variant(entry, compiled=False)
            assert eager.warm_up()
            assert [tensor.tolist() for tensor in eager.results_and_gradients()] == [[1.0, 1.0, 1.0]]


def test_nothing_is_compiled_in_other_ways_if_compiling_is_quick() -> None:
    assert region_cost_of(Block) is None


def test_blocks_are_found_if_they_have_one_class_and_most_parameters() -> None:
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList(Block(index) for index in range(3))
    assert find_repeated_blocks(model.named_modules(), 3) == RepeatedBlocks(
        "Block", ("layers.0", "layers.1", "layers.2")
    )
    assert find_repeated_blocks(model.named_modules(), 4) is None
    layers = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2), 3)
    blocks = find_repeated_blocks(layers.named_modules(), 3)
    assert blocks is not None
    assert (blocks.name, blocks.compiles_in_place) == ("TransformerEncoderLayer", False)
    model.head = torch.nn.Linear(99, 99)
    assert find_repeated_blocks(model.named_modules(), 3) is None  # the blocks are a small part of the model


def test_sequences_are_blocks_if_they_have_the_same_modules() -> None:
    def pair() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    model = torch.nn.Sequential(pair(), pair(), torch.nn.Sequential(torch.nn.Linear(9, 9)))
    blocks = find_repeated_blocks(
        [("model", model), *((f"model.{name}", part) for name, part in model.named_children())], 2
    )
    assert blocks == RepeatedBlocks("Sequential", ("model.0", "model.1"), compiles_in_place=False)
    assert blocks.container == "model"
    assert RepeatedBlocks("Block", ("self.first", "self.second")).container is None


def test_without_caches_nothing_is_left_on_disk() -> None:
    importlib.import_module("torch._inductor.compile_fx")
    module = sys.modules["torch._inductor.compile_fx"]
    original = module.cache_dir
    with disable_caches():
        folder = Path(module.cache_dir())
        assert folder.is_dir()
        assert sys.modules["torch._inductor.config"].force_disable_caches
    assert not folder.exists()
    assert module.cache_dir is original
    assert not sys.modules["torch._inductor.config"].force_disable_caches

"""Changes that save memory are found in programs that keep a known amount for the backward pass."""

from __future__ import annotations

import time
import warnings

import pytest
import torch

from jupyter_graphbreak.experiments.cost import memory_changes
from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
from jupyter_graphbreak.experiments.cost.memory_changes import agree_within_rounding, try_memory_changes
from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
from jupyter_graphbreak.experiments.cost.variants import Variant
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry, compile_separately
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.experiments.trial.time_limit import limit_time
from jupyter_graphbreak.report.cost import MemoryChange, MemoryCost
from jupyter_graphbreak.report.schema import Device, Report

#: The size in bytes of an input of shape (256, 256).
SIZE = 1 << 18
REPORT = Report("ok", Device("auto", "cpu"))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused_identity = torch.nn.Identity()
        self.weight = torch.nn.Parameter(torch.rand(256, 256) / 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = (x @ self.weight).tanh()
        return x


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(), Block(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.blocks(x)
        return y.sum()


def changes_of(module: torch.nn.Module, backend: str, seconds: float = 60.0) -> dict[str, MemoryChange]:
    entry = Entry("Model", None, module, Arguments(torch.rand(256, 256)), backend)
    with entry.set_up(), sandbox_runs():
        eager, compiled = Variant(entry, compiled=False), Variant(entry, compiled=True)
        with compile_separately(compiled.subject.function):
            assert eager.warm_up()
            assert compiled.warm_up()
            with limit_time(time.monotonic() + seconds):
                state = SteadyState(entry, eager, compiled, Correspondence(REPORT, REPORT), lambda _: None)
                changes = try_memory_changes(state, MemoryCost(0, 14 * SIZE, 0, 12 * SIZE))
    return {change.change: change for change in changes}


def test_settings_and_checkpointed_blocks_save_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_changes, "ratio_in_turn", lambda *_: 1.3)
    model = Model()
    changes = changes_of(model, "aot_eager")
    blocks, half, fifth = changes.values()
    assert blocks.change == (
        "torch.utils.checkpoint.checkpoint(block, ..., use_reentrant=False) for each Block of self.blocks"
    )
    # The inputs of the second and the third block are kept. The last block computes its four results again.
    assert blocks.saved_bytes == 2 * SIZE
    assert half.change == "torch._functorch.config.activation_memory_budget = 0.5"
    assert fifth.saved_bytes < half.saved_bytes < 12 * SIZE
    assert blocks.peak_bytes < 12 * SIZE
    assert all(change.equal for change in changes.values())
    assert all(change.time_ratio == 1.3 for change in changes.values())
    assert torch._functorch.config.activation_memory_budget == 1.0
    assert all("forward" not in vars(block) for block in model.blocks)


def test_a_call_without_blocks_is_checkpointed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_changes, "ratio_in_turn", lambda *_: 1.3)
    monkeypatch.setattr(memory_changes, "memory_changes", list)
    (change,) = changes_of(Block(), "eager").values()
    assert change.change == "torch.utils.checkpoint.checkpoint(Model, ..., use_reentrant=False)"
    assert (change.saved_bytes, change.equal) == (0, True)
    assert changes_of(Block(), "eager", seconds=0.0) == {}


class CountingBlock(Block):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.large_number = 1e15  # a check relative to this number would miss the change of ``calls``
        return super().forward(x)


APPENDED_STRINGS: list[str] = []


class AppendingBlock(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        APPENDED_STRINGS.append("text")
        return super().forward(x)


class PrintingBlock(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("block")
        return super().forward(x)


class WarningBlock(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        warnings.warn("block", stacklevel=1)
        return super().forward(x)


@pytest.mark.filterwarnings("always:block")
@pytest.mark.parametrize("block_class", [CountingBlock, AppendingBlock, PrintingBlock, WarningBlock])
def test_a_backward_pass_that_counts_appends_prints_or_warns_again_is_not_equal(
    block_class: type[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_changes, "ratio_in_turn", lambda *_: 1.3)
    monkeypatch.setattr(memory_changes, "memory_changes", list)
    model = Model()
    model.blocks = torch.nn.Sequential(block_class(), block_class())
    (blocks,) = changes_of(model, "eager").values()
    assert "checkpoint(block" in blocks.change
    assert not blocks.equal


def test_results_agree_except_for_rounding() -> None:
    values = torch.tensor([1.0, float("nan"), 0.0])
    assert agree_within_rounding([values, torch.tensor(3)], [values + 1e-5, torch.tensor(3)])
    assert not agree_within_rounding([values], [values + 1e-2])
    assert not agree_within_rounding([values], [])
    noise = torch.tensor([1e-6, -2e-6])
    assert not agree_within_rounding([noise], [-noise])
    assert agree_within_rounding([noise], [-noise], [noise * 2])  # eager code draws different noise
    assert not agree_within_rounding([noise], [noise + 1], [noise * 2])
    assert not agree_within_rounding([torch.tensor(3)], [torch.tensor(4)])
    assert not agree_within_rounding([values], [values.double()])


class NormalizedBlock(Block):
    """A block that estimates the largest singular value of its weight a little better with each call."""

    u: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("u", torch.ones(256) / 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.u.copy_(torch.nn.functional.normalize(self.weight @ self.u, dim=0))
        scale = self.u @ self.weight @ self.u
        return super().forward(x) / scale.abs().clamp(min=0.1)


@pytest.mark.exhaustive
def test_checkpointing_a_block_that_changes_its_state_is_wrong_from_the_second_call_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_changes, "ratio_in_turn", lambda *_: 1.3)
    monkeypatch.setattr(memory_changes, "memory_changes", list)
    torch.manual_seed(0)
    model = torch.nn.Sequential(NormalizedBlock(), NormalizedBlock(), NormalizedBlock())
    (blocks,) = changes_of(model, "aot_eager").values()
    assert not blocks.equal

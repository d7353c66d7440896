"""A change that passes sizes as numbers also works for other sizes, for which it is compiled again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import jupyter_graphbreak
from jupyter_graphbreak.experiments.families.sizes import _GRIDS_CODE
from jupyter_graphbreak.report.remedies import WORKING
from tests.torch.experiments.remedies.by_hand import LoadedProgram, apply_edits, programs

LENGTHS = ([1, 2, 3], [3, 2, 1], [6], [0, 6], [2, 2, 1, 1])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            "lengths of parts",
            marks=pytest.mark.skipif(torch.__version__ < "2.10", reason="torch 2.9 does not break here"),
        ),
        pytest.param("repeated by lengths", marks=pytest.mark.exhaustive),
    ],
)
def test_a_fix_for_one_length_works_for_other_lengths(tmp_path: Path, name: str) -> None:
    program = next(candidate for candidate in programs("loops_and_sizes") if candidate.name == name)
    loaded_program = LoadedProgram(tmp_path / "program.py", program.text)
    report = jupyter_graphbreak.try_remedies(
        torch.compile(loaded_program.f, backend="eager"), *loaded_program.make_arguments()[0]
    )
    remedy = next(candidate for candidate in report.remedies or [] if candidate.family == "sizes")
    assert remedy.verdict in WORKING
    (tmp_path / "with").mkdir()
    changed_program = LoadedProgram(tmp_path / "with" / "program.py", apply_edits(loaded_program, report, remedy))
    torch._dynamo.reset()
    counters.clear()
    for lengths in LENGTHS:
        x = torch.linspace(-1, 2, 6 if name == "lengths of parts" else len(lengths))
        expected = loaded_program.f(x, torch.tensor(lengths))
        assert torch.equal(changed_program.f(x, torch.tensor(lengths)), expected), lengths
    assert not counters["graph_break"]


class Attention(torch.nn.Module):
    """A module that reads lengths as the vision towers of models do."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, image_grid_thw: torch.Tensor) -> torch.Tensor:
        parts = torch.split(self.model(x), (image_grid_thw.prod(-1) // 2).tolist())
        first = image_grid_thw[0]
        return (
            torch.stack([part.sum(0) * part.shape[0] for part in parts]).sum(0) * first[1].item()
            + image_grid_thw[:, 2].sum()
        )


def sizes_factory() -> Any:
    """Return a function that creates sizes known while compiling, from the code of the change for transformers."""
    scope: dict[str, Any] = {"model": torch.nn.Linear(1, 1)}
    exec(_GRIDS_CODE, scope)
    return lambda grid: scope["sizes_of"](scope["text_of"](grid))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.exhaustive)])
def test_known_sizes_are_guarded_by_value(backend: str) -> None:
    pytest.importorskip("transformers")
    torch._dynamo.reset()
    counters.clear()
    make_known_sizes, model = sizes_factory(), Attention()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    grids = ([[1, 2, 3], [1, 1, 2]], [[1, 2, 2], [1, 2, 2]], [[1, 1, 8]], [[2, 2, 2]], [[1, 2, 3], [1, 1, 2]])
    for numbers in grids:
        grid = torch.tensor(numbers)
        x = torch.randn(int(grid.prod(-1).sum()) // 2, 2)
        gradients = []
        for program, sizes in ((model, grid), (compiled, make_known_sizes(grid))):
            argument = x.clone().requires_grad_()
            model.zero_grad()
            result = program(argument, sizes)
            result.sum().backward()
            gradients.append((result.detach(), argument.grad, model.model.weight.grad))
        for eager_value, compiled_value in zip(*gradients, strict=True):
            torch.testing.assert_close(eager_value, compiled_value)
    assert counters["stats"]["unique_graphs"] == len(grids) - 1


@pytest.mark.exhaustive
@pytest.mark.skipif(
    torch.__version__ < "2.13",
    reason="torch 2.9 to 2.12 lose the symbol of a mask's sum in this model: PendingUnbackedSymbolNotFound",
)
@pytest.mark.slow
def test_a_fixed_model_works_for_other_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[4] / "benchmarks"))
    import tiny_models  # type: ignore[import-not-found]

    model, inputs = tiny_models.make_tiny_model("qwen2_vl")
    changed_model, _ = tiny_models.make_tiny_model("qwen2_vl")
    exec(_GRIDS_CODE, {"model": changed_model})
    torch._dynamo.reset()
    counters.clear()
    compiled: Any = torch.compile(changed_model, backend="eager")  # a different backend would compile the same graphs
    for grid in ([[1, 4, 4]], [[1, 2, 8]], [[1, 8, 2]], [[2, 2, 4]], [[1, 4, 4]]):
        arguments = {**inputs, "image_grid_thw": torch.tensor(grid)}
        with torch._dynamo.config.patch(capture_scalar_outputs=True):
            expected, actual = model(**arguments), compiled(**arguments)
        torch.testing.assert_close(actual.logits, expected.logits)
        assert torch.equal(changed_model.model.rope_deltas, model.model.rope_deltas)
    assert not counters["graph_break"]
    sys.modules.pop("tiny_models", None)

"""The range of a large tensor is computed in parts, whose temporaries need little memory."""

from __future__ import annotations

import pytest
import torch

from jupyter_graphbreak.experiments.values import ranges
from jupyter_graphbreak.experiments.values.ranges import nonfinite_flags, range_of

TENSORS = {
    "transposed": torch.arange(30.0).reshape(2, 3, 5).permute(1, 2, 0),
    "slice": torch.arange(48.0).reshape(8, 6)[::2, 1:],
    "expanded": torch.arange(5.0).expand(9, 5),
    "scalar": torch.tensor(3.0),
    "empty": torch.zeros(2, 0, 3),
    "sparse": torch.eye(4).to_sparse(),
    "truth values": torch.arange(9) > 3,
    "complex": torch.ones(9, dtype=torch.complex64),
    "no numbers": torch.full((9,), torch.nan),
    "NaN and Inf": torch.tensor([1.0, 2.0, torch.nan, torch.inf, 3.0, -torch.inf, torch.nan]),
    "a mean that overflows": torch.full((9,), 1.0e308, dtype=torch.float64),
    "no bounds": torch.arange(9).to(torch.uint16),
}


@pytest.mark.parametrize("name", TENSORS)
def test_parts_of_a_tensor_have_the_range_of_the_whole(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def range_values() -> list[object]:
        range_ = range_of(TENSORS[name])
        bounds = range_.shape, range_.dtype, range_.elements, range_.nan, range_.inf, range_.low, range_.high
        return [
            *bounds,
            range_.mean if range_.mean is None else pytest.approx(range_.mean),
            nonfinite_flags(TENSORS[name]),
        ]

    expected = range_values()
    monkeypatch.setattr(ranges, "_ELEMENTS_IN_PART", 4)
    assert range_values() == expected

"""An index next to slices becomes ``select()``, which PyTorch compiles once for all numbers."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.experiments.families.indexing import propose_selecting


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cache[:, i] = x", "cache.select(1, i)[...] = x"),
        ("cache[:, i] += x", "cache.select(1, i)[...] += x"),
        ("y = cache[:, i]", "y = cache.select(1, i)"),
        ("y = cache[:, self.step, :3] + 1", "y = cache.select(1, self.step)[:, :3] + 1"),
        ("y = cache[..., i, :]", "y = cache.select(-2, i)"),
        ("y = cache[..., i, i - 1]", "y = cache.select(-1, i - 1).select(-1, i)"),
        ("y = cache[0, :, i]", "y = cache.select(2, i)[0]"),
        ("y = cache[:, i, 1:]\n    z = keys[:, i]", "y = cache.select(1, i)[:, 1:]\n    z = keys.select(1, i)"),
    ],
)
def test_an_index_next_to_slices_becomes_a_selection(line: str, expected: str) -> None:
    text = f"def f(self, cache, x, i):\n    {line}\n"
    proposal = propose_selecting("s1", text, 2)
    assert proposal is not None
    assert proposal.texts == {"s1": f"def f(self, cache, x, i):\n    {expected}\n"}


@pytest.mark.parametrize("line", ["y = x[i]", "y = x[:, [i]]", "y = x[:, 3]", "y = x[None, i]", "y = x[:, f(i)]"])
def test_other_indices_are_not_replaced(line: str) -> None:
    assert propose_selecting("s1", f"def f(x, i):\n    {line}\n", 2) is None

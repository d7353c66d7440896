"""Proposals for loops over the experts that a batch uses."""

from __future__ import annotations

import pytest

from tests.support.break_problems import problem, proposed_texts

HEAD = (
    "import torch\nclass Experts(torch.nn.Module):\n    def forward(self, x, chosen):\n"
    "        out = torch.zeros_like(x)\n"
)
ROWS = "            rows = (chosen == e).any(-1).nonzero().flatten()\n"
UPDATE_LINE = "            out.index_add_(0, rows, self.experts[e](x[rows]))\n"
LAST_LINE = "        return out\n"


def test_the_experts_that_occur_become_a_range() -> None:
    text = (
        f"{HEAD}        used = torch.unique(chosen)\n        for number in used:\n"
        f"            e = int(number.item())\n{ROWS}"
        f"            if rows.numel() == 0:\n                continue\n{UPDATE_LINE}{LAST_LINE}"
    )
    expected = f"{HEAD}        for e in range(len(self.experts)):\n{ROWS}{UPDATE_LINE}{LAST_LINE}"
    assert proposed_texts("experts", problem(text, "torch.unique(chosen)", "GB0036")) == [expected]
    assert proposed_texts("experts", problem(text, "number.item()", "GB0124")) == [expected]


def test_an_index_from_nonzero_keeps_its_dimension() -> None:
    loop = (
        "            expert = self.experts[e]\n            out[mask[e].squeeze(0)] += expert(x[mask[e].squeeze(0)])\n"
    )
    text = (
        f"{HEAD}        mask = chosen.T\n        used = mask.any(-1).nonzero()\n        for e in used:\n{loop}"
        f"        return out, used\n"
    )
    (proposed_text,) = proposed_texts("experts", problem(text, "mask.any(-1).nonzero()", "GB0036"))
    assert proposed_text == text.replace("in used", "in range(len(self.experts))").replace("mask[e]", "mask[[e]]")


@pytest.mark.parametrize("test", ["counts[e] == 0", "not counts[e]", "counts[e] < 1"])
def test_counts_that_only_skip_experts_are_dropped(test: str) -> None:
    counts = "        counts = torch.bincount(chosen.flatten(), minlength=4).tolist()\n"
    skip = f"            if {test}:\n                continue\n"
    text = f"{HEAD}{counts}        for e in range(4):\n{skip}{ROWS}{UPDATE_LINE}{LAST_LINE}"
    expected = text.replace(counts, "").replace(skip, "")
    assert proposed_texts("experts", problem(text, "torch.bincount(chosen.flatten(), minlength=4)", "GB0036")) == [
        expected
    ]


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (f"{ROWS}{UPDATE_LINE}            self.calls[e] += 1\n", "out"),
        (f"{ROWS}{UPDATE_LINE}            sizes.append(rows.numel())\n", "out"),
        (f"{ROWS}            y = self.experts[e](x[rows])\n            out[rows] += y\n", "out + y.sum()"),
        ("            out += self.scale(e)\n            out[0] = self.experts[e](x)\n", "out"),
        (f"{ROWS}            out.index_add_(0, rows, x[rows] * self.weight[e])\n", "out"),
    ],
    ids=["state", "a list", "value read later", "whole tensor", "no module"],
)
def test_a_loop_that_does_more_is_not_changed(body: str, result: str) -> None:
    text = f"{HEAD}        for e in torch.unique(chosen):\n{body}        return {result}\n"
    assert proposed_texts("experts", problem(text, "torch.unique(chosen)", "GB0036")) == []

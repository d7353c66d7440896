"""Rounding is not treated as a difference, but a wrong result is, however imprecise eager code is."""

from __future__ import annotations

import torch

from jupyter_graphbreak.experiments.check.closeness import DoublePrecisionResults, difference_beyond_rounding, flatten
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.values import describe_difference, largest_number

LARGE_SIZE = 1 << 18


def _random_numbers(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_gradient_near_zero_may_be_the_rounding_of_larger_gradients() -> None:
    zero = torch.zeros(64, dtype=torch.float64)
    eager, compiled = (_random_numbers(64, seed).float() * 1e-4 for seed in (1, 2))
    exact = DoublePrecisionResults(50.0, zero, zero + 1e-14)
    assert difference_beyond_rounding(eager, compiled, exact, are_gradients=True) is None
    assert difference_beyond_rounding(eager, compiled, exact._replace(largest=0.1), are_gradients=True) is not None
    assert difference_beyond_rounding(eager, compiled * 100, exact, are_gradients=True) is not None
    assert describe_difference(eager, compiled, largest=100.0) is None
    assert describe_difference(eager, compiled * 100, largest=100.0) is not None


def test_the_largest_number_is_that_of_all_finite_results() -> None:
    results = {
        "a": torch.tensor([1.0, -7.0, torch.inf]),
        "b": [torch.tensor(3), 2.5, None],
        "c": torch.empty(0),
        "d": torch.eye(2).to_sparse() * 9,
    }
    assert largest_number(flatten(results)) == 7.0


def test_a_large_result_is_compared_with_its_result_in_double_precision() -> None:
    numbers = _random_numbers(LARGE_SIZE - 1) * 100
    exact = DoublePrecisionResults(500.0, *(clone(value, digests={}) for value in (numbers, numbers * (1 + 1e-7))))
    eager = numbers.float()
    expected, rounded, wrong = (clone(value, digests={}) for value in (eager, eager + 4e-4, eager * 1.01))
    assert difference_beyond_rounding(expected, rounded, exact, are_gradients=True) is None
    assert difference_beyond_rounding(expected, wrong, exact, are_gradients=True) is not None


def test_large_results_in_half_precision_are_compared_with_digests() -> None:
    numbers = _random_numbers(LARGE_SIZE)
    exact = DoublePrecisionResults(5.0, *(clone(value, digests={}) for value in (numbers, numbers * (1 + 1e-3))))
    eager = numbers.bfloat16()
    compiled = (numbers * (1 + 2**-4)).bfloat16()
    assert describe_difference(eager, compiled) is not None, "only double precision shows that they are equal"
    assert difference_beyond_rounding(eager, compiled, exact) is None
    compiled[7] += 1
    assert difference_beyond_rounding(eager, compiled, exact) is not None

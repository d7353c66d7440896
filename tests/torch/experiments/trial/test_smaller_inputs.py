"""The inputs of a slow function are derived from a smaller one, for which the same lines run."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
import torch

from jupyter_graphbreak.experiments.trial import reference
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.inputs import Input, example_of
from jupyter_graphbreak.experiments.trial.reference import Reference, shrinkable_sizes, smaller_arguments


def test_a_batch_shrinks_to_a_size_that_no_other_dimension_has() -> None:
    arguments = Arguments(torch.ones(64, 2), torch.ones(64))
    assert shrinkable_sizes(arguments) == [64]
    small_arguments, new_size = next(smaller_arguments(arguments, 64))
    assert new_size == 3
    assert [tuple(tensor.shape) for tensor in small_arguments.args] == [(3, 2), (3,)]


def test_a_size_that_networks_halve_is_also_tried() -> None:
    assert [new_size for _, new_size in smaller_arguments(Arguments(torch.ones(1, 3, 48, 48)), 48)] == [2, 16]


@pytest.mark.parametrize(("highest", "expected"), [(9, 10), (40, None), (1000, 2)])
def test_indices_of_rows_stay_valid(highest: int, expected: int | None) -> None:
    arguments = Arguments(torch.ones(64, 5), torch.tensor([0, highest] * 32))
    assert next((new_size for _, new_size in smaller_arguments(arguments, 64)), None) == expected


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def add_one_if_large(x: torch.Tensor) -> torch.Tensor:
    if x.numel() > 50:
        x = x + 1
    return x * 2


def reference_of_slow_function(monkeypatch: pytest.MonkeyPatch, fn: Any) -> Reference:
    monkeypatch.setattr(reference, "_SLOW_S", 0.0)
    arguments = Arguments(torch.arange(64.0))
    slow_reference = Reference(fn, Input(arguments, example_of("the first input", arguments, fn)))
    slow_reference.shrink()
    return slow_reference


def test_inputs_of_a_slow_function_are_smaller_and_described_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = reference_of_slow_function(monkeypatch, double)
    descriptions = {case.input.description: case.input.arguments.args[0].numel() for case in reference.edge_cases()}
    assert descriptions["all tensors nan, with smaller tensors"] == 2
    assert descriptions["size 3 instead of 64, with smaller tensors"] == 3


def test_an_input_is_not_smaller_if_other_lines_then_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reference_of_slow_function(monkeypatch, add_one_if_large).base_input.arguments.args[0].numel() == 64


def test_a_slow_function_is_called_again_only_if_other_lines_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = reference_of_slow_function(monkeypatch, add_one_if_large)
    run_input = Mock(wraps=reference._run_input)
    monkeypatch.setattr(reference, "_run_input", run_input)
    cases = list(reference.edge_cases())
    runs = [input_ for (input_,), _ in run_input.call_args_list]
    repeated_cases = [case for case in cases if sum(run is case.input for run in runs) == 2]
    assert [case.input.arguments.args[0].numel() > 50 for case in repeated_cases] == [False]

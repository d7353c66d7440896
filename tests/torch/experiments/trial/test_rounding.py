"""Rounding errors that an optimizer turns into large differences are not differences between two programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.difference import Difference, differences
from jupyter_graphbreak.experiments.trial.inputs import Input, example_of
from jupyter_graphbreak.experiments.trial.outcome import Result, run, sandbox_runs
from jupyter_graphbreak.experiments.trial.reference import Reference, ReferenceCase
from jupyter_graphbreak.experiments.trial.subject import Subject

ULP = 2**-22


def training_step(*, factor: float = 1.0, learning_rate: float = 1e-3, runs_optimizer: bool = True) -> Any:
    """Return a training step whose model has a bias without a gradient, before a batch normalization.

    ``factor`` changes the output of the model, as the rounding of a compiler does.
    """
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=learning_rate)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = (factor * net(x)).square().mean()
        loss.backward()
        if runs_optimizer:
            optimizer.step()
        return loss.detach()

    return step


def compare(other: Any) -> list[Difference]:
    """Return the differences between a training step and the usual one, except those that rounding explains."""
    arguments = Arguments(torch.randn(16, 8, generator=torch.Generator().manual_seed(0)))
    with sandbox_runs():
        fn = training_step()
        first_input = Input(arguments, example_of("the first input", arguments, fn))
        reference = Reference(fn, first_input)
        subject = Subject(other, arguments)
        result: Result = run(subject.function, subject, subject.replace_with_copies(arguments))
        assert not all(difference.is_acceptable for difference in differences(reference.result, result))
        errors = reference.rounding_errors(ReferenceCase(first_input, reference.result))
        return [
            difference
            for difference in differences(reference.result, result, rounding_errors=errors)
            if not difference.is_acceptable
        ]


def test_adam_turns_rounding_errors_into_steps() -> None:
    assert not compare(training_step(factor=1 + ULP))


@pytest.mark.parametrize("change", [{"runs_optimizer": False}, {"learning_rate": 2e-3}, {"factor": 1.01}])
def test_a_different_step_remains_a_difference(change: dict[str, Any]) -> None:
    assert compare(training_step(**change))


def test_a_function_without_parameters_has_no_rounding_errors() -> None:
    arguments = Arguments(torch.ones(3))
    with sandbox_runs():
        first_input = Input(arguments, example_of("the first input", arguments, torch.sin))
        reference = Reference(torch.sin, first_input)
        assert reference.rounding_errors(ReferenceCase(first_input, reference.result)) == {}


def test_a_call_that_raises_only_with_noise_shows_no_rounding_errors() -> None:
    weight = torch.nn.Parameter(torch.rand(3))
    sums = {"total": torch.zeros(3)}

    def step(x: torch.Tensor, expected_weight: torch.Tensor) -> None:
        if not torch.equal(weight, expected_weight):
            raise ValueError(x)
        sums["total"] = sums["total"] + x

    arguments = Arguments(torch.ones(3), weight.detach().clone())
    with sandbox_runs():
        first_input = Input(arguments, example_of("the first input", arguments, step))
        reference = Reference(step, first_input)
        assert reference.result.error is None
        assert reference.rounding_errors(ReferenceCase(first_input, reference.result)) == {}

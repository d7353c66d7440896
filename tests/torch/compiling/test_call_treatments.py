"""Some of the user's functions are compiled; others run eagerly while the calls in them are routed."""

from __future__ import annotations

import functools
import inspect
import random
import time
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from jupyter_graphbreak.compiling.call_treatments import (
    is_metric,
    may_be_compiled,
    trains_in_forward,
    treatment_of,
    treatment_with_arguments,
)

X = torch.ones(2)
MODEL = torch.nn.Linear(2, 2)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)
COUNT = 3


def loss(x: Any) -> Any:
    return MODEL(x).pow(2).mean()


def two_losses(x: Any) -> Any:
    return loss(x) + loss(x * 2)


def train(x: Any) -> None:
    loss(x).backward()


def train_with_helper(x: Any) -> None:
    train(x)


def add_learning_rate(x: Any) -> Any:
    return x + OPTIMIZER.param_groups[0]["lr"]


def time_forward(x: Any) -> Any:
    time.perf_counter()
    return MODEL(x)


def time_doubling(x: Any) -> Any:
    time.perf_counter()
    return x * 2


def inspect_callers(x: Any) -> Any:
    return x, inspect.stack()


def make_weak_reference(x: Any) -> Any:
    return weakref.ref(x)


def add_random_integers(x: Any) -> Any:
    return x + torch.full((2,), random.randrange(9))


def mean_in_numpy(x: Any) -> Any:
    return np.mean(x.numpy())


def multiply_by_pi(x: Any) -> Any:
    return x * np.pi


def yield_input(x: Any) -> Any:
    yield x


async def return_input_async(x: Any) -> Any:
    return x


class Trainer:
    """An object with a module and an optimizer."""

    def __init__(self) -> None:
        self.net = MODEL
        self.optimizer = OPTIMIZER

    def loss(self, x: Any) -> Any:
        return self.net(x).mean()

    def rate(self, x: Any) -> Any:
        return x * self.optimizer.param_groups[0]["lr"]

    def __call__(self, x: Any) -> Any:
        return self.loss(x)


TRAINER = Trainer()


def treatment(function: Any, *args: Any, **kwargs: Any) -> str:
    return treatment_of(function) or treatment_with_arguments(function, args, kwargs)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (loss, "compile"),
        (two_losses, "compile"),
        (time_doubling, "compile"),
        (TRAINER.loss, "compile"),
        (TRAINER, "compile"),
        (lambda x: x + 1, "compile"),
        (torch.no_grad()(loss), "compile"),
        (torch.func.vmap(loss), "compile"),
        (torch.func.vmap(MODEL), "compile"),
        (torch.func.vmap(torch.func.grad(time_forward)), "compile"),
        (functools.lru_cache(loss), "leave"),
        (train, "look inside"),
        (train_with_helper, "look inside"),
        (add_learning_rate, "look inside"),
        (TRAINER.rate, "look inside"),
        (time_forward, "look inside"),
        (inspect_callers, "look inside"),
        (make_weak_reference, "look inside"),
        (add_random_integers, "look inside"),
        (mean_in_numpy, "look inside"),
        (multiply_by_pi, "compile"),
        (yield_input, "look inside"),
        (return_input_async, "look inside"),
        (torch.relu, "leave"),
        (torch.nn.functional.relu, "leave"),
        (MODEL, "leave"),
        (torch.nn.Linear, "leave"),
        (inspect.unwrap, "leave"),
        (X.sum, "leave"),
    ],
)
def test_each_kind_of_function_has_its_treatment(function: Any, expected: str) -> None:
    assert treatment(function, X) == expected


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((X,), "compile"),
        (([X],), "compile"),
        (({"x": (X,)},), "compile"),
        ((3,), "look inside"),
        ((X, OPTIMIZER), "look inside"),
        ((torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X)), X), "look inside"),
        ((X, torch.amp.GradScaler("cpu")), "look inside"),
    ],
)
def test_the_treatment_depends_on_the_arguments(args: Any, expected: str) -> None:
    assert treatment(lambda *arguments: arguments[0] + 1, *args) == expected


def test_only_user_functions_and_objects_may_be_compiled() -> None:
    assert all(map(may_be_compiled, [loss, TRAINER.loss, TRAINER, functools.partial(loss, X)]))
    assert not any(map(may_be_compiled, [MODEL, torch.relu, Trainer, len, X, 3]))


class ModuleThatTrains(torch.nn.Module):
    """A module that trains in its forward method."""

    def forward(self, x: Any) -> Any:
        x.sum().backward()
        return x


class ModuleWithOptimizer(torch.nn.Module):
    """A module with an optimizer that its forward method does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizer = OPTIMIZER

    def forward(self, x: Any) -> Any:
        return x


def test_only_a_module_that_trains_in_its_forward_method_is_recognized_as_training() -> None:
    assert trains_in_forward(ModuleThatTrains())
    assert not trains_in_forward(ModuleWithOptimizer())
    assert not trains_in_forward(MODEL)
    assert not is_metric(MODEL)

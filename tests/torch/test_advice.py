"""What the advice for a loop, a try block and a with block promises is what Dynamo does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import jupyter_graphbreak

ONES = torch.ones(3)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def breaks() -> None:
    torch._dynamo.graph_break()


def body(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def break_in_loop(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    for _ in range(3):
        x = x + 1
        breaks()
        x = x * 2
    return x.cos()


def body_in_loop(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    for _ in range(3):
        x = body(x)
    return x.cos()


def only_the_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = body(x)
    return x


def loop_in_a_function(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    x = only_the_loop(x)
    return x.cos()


def body_in_try(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    try:  # noqa: SIM105 - that is what it is about
        x = body(x)
    except ValueError:
        pass
    return x.cos()


@pytest.mark.parametrize(
    ("function", "eager", "compiled"),
    [
        (break_in_loop, ["break_in_loop"], set()),  # a function of its own for the break alone changes nothing
        (body_in_loop, ["body_in_loop"], {"body"}),
        (loop_in_a_function, ["only_the_loop"], {"body", "loop_in_a_function"}),
        (body_in_try, ["body_in_try"], {"body"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_runs_eagerly_and_what_is_compiled(
    function: Callable[..., object], eager: list[str], compiled: set[str]
) -> None:
    report = jupyter_graphbreak.explain(function, ONES)
    assert [skipped.function for skipped in report.skipped] == eager
    assert {graph.name for graph in report.graphs} == compiled

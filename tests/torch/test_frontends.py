"""What the front ends do with many kinds of functions: each verdict is what running it by hand gives."""

from __future__ import annotations

import contextlib
import importlib
import io
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from jupyter_graphbreak import compare_frontends

#: Not imported by name: it is written as people write functions, without types.
CASES: dict[str, Any] = importlib.import_module("tests.programs.front_ends.many_kinds").CASES

# -- The same by hand.


class ByHand(NamedTuple):
    outcome: str
    error: str | None
    graphs: int | None


def counting() -> tuple[Callable[..., Any], list[int]]:
    counted: list[int] = []

    def backend(gm: torch.fx.GraphModule, _: Any) -> Any:
        counted.append(1)
        return gm.forward

    return backend, counted


def exported(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, strict: bool) -> Any:
    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = getattr(fn, "__self__", None)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

    module = fn if isinstance(fn, torch.nn.Module) else Wrapped()
    return torch.export.export(module, args, kwargs, strict=strict).module()


def traced(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs:
        return torch.jit.trace(fn, example_kwarg_inputs={"x": args[0], **kwargs})
    return torch.jit.trace(fn, args)


def captured(frontend: str, fn: Any, each: Any, backend: Any) -> Any:
    args, kwargs = copies(each.first, each.kwargs)
    match frontend:
        case "torch.jit.trace":
            return traced(fn, args, kwargs)
        case "torch.jit.script":
            return torch.jit.script(fn)
        case "torch.fx.symbolic_trace":
            return torch.fx.symbolic_trace(fn)
        case "torch.compile" | "torch.compile(fullgraph=True)":
            return torch.compile(fn, backend=backend, fullgraph="fullgraph" in frontend)
    return exported(fn, args, kwargs, strict="strict" in frontend)


def by_hand(frontend: str, each: Any) -> ByHand:
    """Capture, run with both inputs, compare with eager; nothing of ours is used."""
    torch._dynamo.reset()
    backend, counted = counting()
    fn = each.make()
    initial = held(fn)
    try:
        program = captured(frontend, fn, each, backend)
        restore(fn, initial)  # capturing may run it
        got = called(program, each.first, each.kwargs)
    except Exception as error:  # noqa: BLE001
        return ByHand("raises", type(error).__name__, None)
    graphs = len(counted) if "compile" in frontend else 1
    eager = each.make()
    wrong = not same(called(eager, each.first, each.kwargs), got)
    refused, expected = None, None
    with contextlib.suppress(Exception):
        expected = called(eager, each.second, each.kwargs)
    try:
        got = called(program, each.second, each.kwargs)
        wrong = wrong or expected is None or not same(expected, got)
    except Exception as error:  # noqa: BLE001
        refused = type(error).__name__ if expected is not None else None
    if wrong:
        return ByHand("silently wrong", None, graphs)
    return ByHand("refuses" if refused else "agrees", refused, graphs)


def held(fn: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in fn.state_dict().items()} if isinstance(fn, torch.nn.Module) else {}


def restore(fn: Any, state: dict[str, torch.Tensor]) -> None:
    if state:
        fn.load_state_dict(state)


def copies(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def copy(value: Any) -> Any:
        return value.clone() if isinstance(value, torch.Tensor) else value

    return tuple(map(copy, args)), {key: copy(value) for key, value in kwargs.items()}


def called(program: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    random.seed(0)
    given, named = copies(args, kwargs)
    value = (
        program(x=given[0], **named)
        if isinstance(program, torch.jit.ScriptFunction) and named
        else program(*given, **named)
    )
    if hasattr(value, "__next__"):
        value = list(value)
    return value, [each for each in given if isinstance(each, torch.Tensor)]


def same(expected: Any, got: Any) -> bool:
    try:
        torch.testing.assert_close(got, expected, equal_nan=True)
    except AssertionError:
        return False
    return True


FRONTENDS = [
    "torch.jit.trace",
    "torch.jit.script",
    "torch.fx.symbolic_trace",
    "torch.compile",
    "torch.compile(fullgraph=True)",
    "torch.export.export",
    "torch.export.export(strict=True)",
]


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_verdict_is_what_running_the_front_end_by_hand_gives(name: str) -> None:
    each = CASES[name]
    found = compare_frontends(each.make(), *each.first, also=[each.second], **each.kwargs)
    for frontend in FRONTENDS:
        hand = by_hand(frontend, each)
        verdict = found[frontend]
        agrees = {"captures", "breaks", "eager"}
        outcome = "agrees" if verdict.outcome in agrees else verdict.outcome
        error = verdict.raised.type if verdict.raised is not None else None
        assert (outcome, error, verdict.graphs) == (hand.outcome, hand.error, hand.graphs), f"{frontend}: {verdict}"
    assert found["torch.compile"].breaks == each.breaks

"""The outermost calls of modules and the routed calls of functions are compiled, and nothing stays compiled."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from jupyter_graphbreak.compiling.compile_options import CompileOptions
from jupyter_graphbreak.compiling.compiled_calls import CompiledCalls, compile_calls
from jupyter_graphbreak.compiling.descriptions import describe_compiled_callables
from jupyter_graphbreak.compiling.tracebacks import failed_assertion, stack_of_graph_line

X = torch.ones(2)
CALL = torch.nn.Module.__call__


class Net(torch.nn.Module):
    """A module with a module in it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        return y + 1


class OwnCall(Net):
    """A module whose class does not use ``nn.Module.__call__``, as gpytorch's models do."""

    def __call__(self, x: Any) -> Any:
        return self.forward(x) * 2


def mean_of(model: Any, x: Any) -> Any:
    return model(x).mean()


def train(model: Any, x: Any) -> Any:
    loss = mean_of(model, x)
    loss.backward()
    return loss


#: Not in this file, whose assertions pytest rewrites.
ASSERTING = """def checked(x):
    y = x * 2
    assert y.sum() > 100, "too small"
    return y
def unsaid(x):
    assert x.sum() > 100
    return x
"""


def picked(x: Any, index: Any) -> Any:
    y = x * 2
    return item_of(y, index)


def item_of(x: Any, index: Any) -> Any:
    z = x + 1
    return z[index]


def turned(x: Any) -> Any:
    y = x + 1
    return y.reshape(1, 2, 1).T


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@contextmanager
def calls_compiled() -> Iterator[CompiledCalls]:
    faults: list[str] = []
    with compile_calls(CompileOptions(), lambda what, fault: faults.append(f"{what}: {fault}")) as calls:
        yield calls
    assert faults == []
    assert torch.nn.Module.__call__ is CALL


def names(calls: CompiledCalls) -> list[str]:
    return [compiled.name for compiled in calls.compiled_callables]


def test_only_the_outermost_module_is_compiled_and_once() -> None:
    net = Net()
    expected = net(X)
    with calls_compiled() as calls:
        assert torch.equal(net(X), expected)
        assert torch.equal(net(X), expected)
    assert names(calls) == ["Net"]


def test_a_module_whose_class_defines_call_is_compiled_as_a_whole() -> None:
    net = OwnCall()
    expected = net(X)
    with calls_compiled() as calls:
        assert torch.equal(calls.route(net)(X), expected)
        assert torch.equal(calls.route(net)(X), expected)
        calls.route(train)(net, X)
        with pytest.raises(RuntimeError) as raised:
            calls.route(net)(torch.ones(3))
    assert names(calls) == ["OwnCall", "mean_of"]
    files = [frame.filename for frame in traceback.extract_tb(raised.tb)]
    assert files
    assert not [name for name in files if "jupyter_graphbreak/compiling/" in name or "/_torch_compat/" in name]
    assert (
        describe_compiled_callables(calls.compiled_callables, {"net": net, "torch": torch})[0].code
        == "net = torch.compile(net)"
    )


def test_calls_of_a_function_that_trains_are_routed() -> None:
    net = Net()
    with calls_compiled() as calls:
        calls.route(train)(net, X)
    assert names(calls) == ["mean_of"]
    assert net.inner.weight.grad is not None


def test_a_partial_is_compiled_as_its_function() -> None:
    net = Net()
    with calls_compiled() as calls:
        calls.route(functools.partial(mean_of, net))(X)
    assert names(calls) == ["mean_of"]


def test_a_transformed_module_is_named_after_it() -> None:
    with calls_compiled() as calls:
        calls.route(torch.func.vmap(torch.nn.Linear(2, 2)))(torch.ones(3, 2))
    assert names(calls) == ["vmap(Linear)"]


def test_other_tracers_are_not_disturbed() -> None:
    net = Net()
    with calls_compiled() as calls:
        torch.jit.script(torch.nn.ReLU())(X)
        thread = threading.Thread(target=net, args=(X,))
        thread.start()
        thread.join()
        torch.nn.LazyLinear(2)(X)
        torch.compile(net, backend="eager")(X)
    assert names(calls) == []


def test_a_module_that_a_transform_calls_is_left_to_the_transform() -> None:
    with calls_compiled() as calls:
        torch.func.grad(lambda x: Net()(x).sum())(X)
    assert names(calls) == []
    assert (
        calls.reasons_not_compiled["Net"]
        == "a torch.func transform called it, and the transform itself was not compiled"
    )


def test_compiled_objects_are_not_kept_alive() -> None:
    with calls_compiled() as calls:
        Net()(X)
        assert calls.compiled_callables[0].get_target() is None


def test_nothing_stays_in_dynamo() -> None:
    before = dict(globals())
    with calls_compiled() as calls:
        calls.route(mean_of)(Net(), X)
    assert {name for name in set(globals()) - set(before) if not name.startswith("__warning")} == set()
    counts = torch._dynamo.testing.CompileCounter()
    torch.compile(mean_of, backend=counts)(Net(), X)
    assert counts.frame_count == 1


@pytest.mark.parametrize(("name", "message", "line"), [("checked", "too small", 3), ("unsaid", "", 6)])
def test_an_assertion_that_fails_in_a_graph_is_one_of_the_program(
    name: str, message: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filename = "<asserting>"
    known = (len(ASSERTING), None, ASSERTING.splitlines(keepends=True), filename)
    monkeypatch.setitem(linecache.cache, filename, known)
    scope: dict[str, Any] = {}
    exec(compile(ASSERTING, filename, "exec"), scope)  # noqa: S102 - the text above
    with calls_compiled() as calls, pytest.raises(AssertionError) as caught:
        calls.route(scope[name])(X)
    assert names(calls) == [name]
    assert str(caught.value) == message
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert lines(caught.value)[-1] == (name, line)


@pytest.mark.parametrize("raised", [RuntimeError("assertion error"), AssertionError("x"), ValueError()])
def test_other_errors_are_not_failed_assertions(raised: Exception) -> None:
    def fail() -> None:
        raise raised

    with pytest.raises(type(raised)) as caught:
        fail()
    assert failed_assertion(caught.value) is None


def test_an_error_in_a_graph_is_at_the_lines_of_the_program() -> None:
    with calls_compiled() as calls, pytest.raises(IndexError) as caught:
        calls.route(picked)(X, torch.tensor([7]))
    assert lines(caught.value)[-2:] == [
        ("picked", line_of(picked, "item_of(")),
        ("item_of", line_of(item_of, "z[")),
    ]
    assert not any("_dynamo" in entry.filename for entry in traceback.extract_tb(caught.value.__traceback__))


def test_an_error_without_gradients_leaves_them_on() -> None:
    with calls_compiled() as calls, pytest.raises(IndexError):
        calls.route(torch.no_grad()(picked))(X, torch.tensor([7]))
    assert torch.is_grad_enabled()


def test_a_warning_of_a_graph_is_at_the_line_of_the_program() -> None:
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as shown, calls_compiled() as calls:
            warnings.simplefilter("always")
            calls.route(turned)(X)
            calls.route(turned)(X)
    finally:
        torch.set_warn_always(always)
    assert names(calls) == ["turned"]
    assert [(one.filename, one.lineno) for one in shown] == [(__file__, line_of(turned, ".T"))] * 2


def test_a_frame_that_is_no_graph_has_no_places() -> None:
    assert stack_of_graph_line(sys._getframe(), 1) == []


def lines(error: BaseException) -> list[tuple[str, int | None]]:
    return [(entry.name, entry.lineno) for entry in traceback.extract_tb(error.__traceback__)]


def line_of(function: Any, text: str) -> int:
    source, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(source) if text in line and not line.startswith("def"))

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
MODULE_CALL = torch.nn.Module.__call__


class Net(torch.nn.Module):
    """A module with a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        return y + 1


class NetWithOwnCall(Net):
    """A module whose class overrides ``nn.Module.__call__``, as gpytorch's models do."""

    def __call__(self, x: Any) -> Any:
        return self.forward(x) * 2


def mean_of(model: Any, x: Any) -> Any:
    return model(x).mean()


def train(model: Any, x: Any) -> Any:
    loss = mean_of(model, x)
    loss.backward()
    return loss


#: Functions that are not defined in this file, because pytest rewrites the assertions of this file.
ASSERTING_PROGRAM = """def check_double_sum(x):
    y = x * 2
    assert y.sum() > 100, "too small"
    return y
def check_sum_without_message(x):
    assert x.sum() > 100
    return x
"""


def pick(x: Any, index: Any) -> Any:
    y = x * 2
    return item_of(y, index)


def item_of(x: Any, index: Any) -> Any:
    z = x + 1
    return z[index]


def transpose(x: Any) -> Any:
    y = x + 1
    return y.reshape(1, 2, 1).T


@pytest.fixture(autouse=True)
def _reset_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@contextmanager
def compile_calls_without_faults() -> Iterator[CompiledCalls]:
    faults: list[str] = []
    with compile_calls(CompileOptions(), lambda activity, fault: faults.append(f"{activity}: {fault}")) as calls:
        yield calls
    assert faults == []
    assert torch.nn.Module.__call__ is MODULE_CALL


def compiled_names(calls: CompiledCalls) -> list[str]:
    return [compiled.name for compiled in calls.compiled_callables]


def test_only_the_outermost_module_is_compiled_and_only_once() -> None:
    net = Net()
    expected = net(X)
    with compile_calls_without_faults() as calls:
        assert torch.equal(net(X), expected)
        assert torch.equal(net(X), expected)
    assert compiled_names(calls) == ["Net"]


def test_a_module_whose_class_defines_call_is_compiled_as_a_whole() -> None:
    net = NetWithOwnCall()
    expected = net(X)
    with compile_calls_without_faults() as calls:
        assert torch.equal(calls.route(net)(X), expected)
        assert torch.equal(calls.route(net)(X), expected)
        calls.route(train)(net, X)
        with pytest.raises(RuntimeError) as caught:
            calls.route(net)(torch.ones(3))
    assert compiled_names(calls) == ["NetWithOwnCall", "mean_of"]
    filenames = [frame.filename for frame in traceback.extract_tb(caught.tb)]
    assert filenames
    assert not [name for name in filenames if "jupyter_graphbreak/compiling/" in name or "/_torch_compat/" in name]
    assert (
        describe_compiled_callables(calls.compiled_callables, {"net": net, "torch": torch})[0].code
        == "net = torch.compile(net)"
    )


def test_calls_of_a_function_that_trains_are_routed() -> None:
    net = Net()
    with compile_calls_without_faults() as calls:
        calls.route(train)(net, X)
    assert compiled_names(calls) == ["mean_of"]
    assert net.inner.weight.grad is not None


def test_a_partial_is_compiled_as_its_function() -> None:
    net = Net()
    with compile_calls_without_faults() as calls:
        calls.route(functools.partial(mean_of, net))(X)
    assert compiled_names(calls) == ["mean_of"]


def test_a_transformed_module_is_named_after_its_transform_and_class() -> None:
    with compile_calls_without_faults() as calls:
        calls.route(torch.func.vmap(torch.nn.Linear(2, 2)))(torch.ones(3, 2))
    assert compiled_names(calls) == ["vmap(Linear)"]


def test_calls_by_tracers_on_threads_and_in_compiled_code_are_not_compiled() -> None:
    net = Net()
    with compile_calls_without_faults() as calls:
        torch.jit.script(torch.nn.ReLU())(X)
        thread = threading.Thread(target=net, args=(X,))
        thread.start()
        thread.join()
        torch.nn.LazyLinear(2)(X)
        torch.compile(net, backend="eager")(X)
    assert compiled_names(calls) == []


def test_a_module_that_a_transform_calls_is_not_compiled() -> None:
    with compile_calls_without_faults() as calls:
        torch.func.grad(lambda x: Net()(x).sum())(X)
    assert compiled_names(calls) == []
    assert (
        calls.reasons_not_compiled["Net"]
        == "a torch.func transform called it, and the transform itself was not compiled"
    )


def test_compiled_objects_are_not_kept_alive() -> None:
    with compile_calls_without_faults() as calls:
        Net()(X)
        assert calls.compiled_callables[0].get_target() is None


def test_no_globals_and_no_compiled_code_stay_behind() -> None:
    globals_before = dict(globals())
    with compile_calls_without_faults() as calls:
        calls.route(mean_of)(Net(), X)
    assert {name for name in set(globals()) - set(globals_before) if not name.startswith("__warning")} == set()
    counter = torch._dynamo.testing.CompileCounter()
    torch.compile(mean_of, backend=counter)(Net(), X)
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    ("name", "message", "line"), [("check_double_sum", "too small", 3), ("check_sum_without_message", "", 6)]
)
def test_an_assertion_that_fails_in_a_graph_looks_as_in_eager_code(
    name: str, message: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filename = "<asserting>"
    cache_entry = (len(ASSERTING_PROGRAM), None, ASSERTING_PROGRAM.splitlines(keepends=True), filename)
    monkeypatch.setitem(linecache.cache, filename, cache_entry)
    scope: dict[str, Any] = {}
    exec(compile(ASSERTING_PROGRAM, filename, "exec"), scope)
    with compile_calls_without_faults() as calls, pytest.raises(AssertionError) as caught:
        calls.route(scope[name])(X)
    assert compiled_names(calls) == [name]
    assert str(caught.value) == message
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert traceback_lines(caught.value)[-1] == (name, line)


@pytest.mark.parametrize("error", [RuntimeError("assertion error"), AssertionError("x"), ValueError()])
def test_other_errors_are_not_failed_assertions(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert failed_assertion(caught.value) is None


def test_an_error_in_a_graph_has_the_lines_of_the_program() -> None:
    with compile_calls_without_faults() as calls, pytest.raises(IndexError) as caught:
        calls.route(pick)(X, torch.tensor([7]))
    assert traceback_lines(caught.value)[-2:] == [
        ("pick", line_of(pick, "item_of(")),
        ("item_of", line_of(item_of, "z[")),
    ]
    assert not any("_dynamo" in entry.filename for entry in traceback.extract_tb(caught.value.__traceback__))


def test_an_error_under_no_grad_leaves_gradients_enabled() -> None:
    with compile_calls_without_faults() as calls, pytest.raises(IndexError):
        calls.route(torch.no_grad()(pick))(X, torch.tensor([7]))
    assert torch.is_grad_enabled()


def test_a_warning_in_a_graph_has_the_line_of_the_program() -> None:
    was_always_enabled = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught_warnings, compile_calls_without_faults() as calls:
            warnings.simplefilter("always")
            calls.route(transpose)(X)
            calls.route(transpose)(X)
    finally:
        torch.set_warn_always(was_always_enabled)
    assert compiled_names(calls) == ["transpose"]
    assert [(warning.filename, warning.lineno) for warning in caught_warnings] == [
        (__file__, line_of(transpose, ".T"))
    ] * 2


def test_a_frame_that_is_not_a_graph_has_no_stack() -> None:
    assert stack_of_graph_line(sys._getframe(), 1) == []


def traceback_lines(error: BaseException) -> list[tuple[str, int | None]]:
    return [(entry.name, entry.lineno) for entry in traceback.extract_tb(error.__traceback__)]


def line_of(function: Any, text: str) -> int:
    source, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(source) if text in line and not line.startswith("def"))

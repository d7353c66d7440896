"""Each kind of callable is recorded as one entry with its state before the call, and can run again."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.trial.entry import Entry, record_entries
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.report.remedies import WORKING

pytestmark = pytest.mark.usefixtures("few_unusual_inputs")


def break_and_scale(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x * scale


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.calls = torch.nn.Linear(3, 3), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        torch._dynamo.graph_break()
        return torch.relu(self.lin(x))

    def other(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.lin(x)) * 2


class Scaler:
    def __init__(self) -> None:
        self.scale = 3.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x * self.scale


ADD_AFTER_BREAK: Callable[[torch.Tensor], torch.Tensor] = lambda x: break_and_scale(x) + 1  # noqa: E731


def entries_of(run: Callable[[], Any]) -> tuple[list[Entry], Any]:
    torch._dynamo.reset()
    with record_entries() as recorded_entries:
        value = run()
    assert recorded_entries.omission_reasons == []
    return recorded_entries.entries, value


class LoadedOnFirstUse(dict[str, str]):
    def __init__(self, items: dict[str, str]) -> None:
        super().__init__(items)
        self.loaded: list[str] = []

    def __getitem__(self, name: str) -> str:
        self.loaded.append(name)
        return super().__getitem__(name)

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


REGISTRY = LoadedOnFirstUse({"a": "module a", "b": "module b"})


def test_recording_an_entry_loads_nothing_that_a_container_loads_on_first_use() -> None:
    add_length: Callable[[torch.Tensor], torch.Tensor] = lambda x: x + len(REGISTRY)  # noqa: E731
    function = torch.compile(add_length, backend="eager")
    (entry,), _ = entries_of(lambda: function(torch.ones(2)))
    subject = Subject(entry.function, entry.arguments)
    subject.restore()
    assert REGISTRY.loaded == []


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (break_and_scale, "break_and_scale"),
        (functools.partial(break_and_scale, scale=3.0), "break_and_scale"),
        (Net(), "Net"),
        (Net().other, "other"),
        (Scaler(), "Scaler"),
        (ADD_AFTER_BREAK, "<lambda>"),
    ],
    ids=["function", "partial", "module", "method", "callable", "lambda"],
)
def test_a_compiled_callable_runs_again(function: Any, name: str) -> None:
    x = torch.ones(2, 3)
    compiled: Any = torch.compile(function, backend="eager")
    entries, value = entries_of(lambda: compiled(x))
    (entry,) = entries
    assert name in entry.name
    assert entry.frame_id == "0/0"
    assert entry.arguments.args[-1] is not x
    second_value = entry.function(*entry.arguments.args, **entry.arguments.kwargs)
    torch.testing.assert_close(second_value, value)


def test_the_entry_keeps_defaults_which_a_later_call_may_use() -> None:
    (entry, *_), _ = entries_of(lambda: torch.compile(break_and_scale, backend="eager")(torch.ones(3)))
    assert torch.equal(entry.function(torch.ones(3)), break_and_scale(torch.ones(3)))


def test_a_function_that_takes_a_module_is_not_its_method() -> None:
    def apply(net: Net, x: torch.Tensor) -> Any:
        return net(x) + 1

    (entry,), value = entries_of(lambda: torch.compile(apply, backend="eager")(Net(), torch.ones(2, 3)))
    assert isinstance(entry.function, types.FunctionType)
    net, x = entry.arguments.args
    assert isinstance(net, Net)
    torch.testing.assert_close(entry.function(net, x), value)


def test_the_entry_has_the_state_before_the_call() -> None:
    net, x = Net(), torch.ones(2, 3)
    (entry,), _ = entries_of(lambda: torch.compile(net, backend="eager")(x))
    assert net.calls == 1
    assert entry.function.calls == 0  # type: ignore[attr-defined]


def test_a_recompiled_function_is_one_entry() -> None:
    compiled = torch.compile(break_and_scale, backend="eager")
    entries, _ = entries_of(lambda: [compiled(torch.ones(n)) for n in (2, 3, 4)])
    assert [entry.name for entry in entries] == ["break_and_scale"]
    assert [tuple(value.shape) for value in entries[0].arguments.args[:1]] == [(2,)]


def test_compiled_functions_inside_uncompiled_ones_are_separate_entries() -> None:
    inner = torch.compile(break_and_scale, backend="eager")

    def outer(x: torch.Tensor) -> Any:
        return inner(x) + torch.compile(Net(), backend="aot_eager")(x)

    entries, _ = entries_of(lambda: outer(torch.ones(2, 3)))
    assert [entry.name.rpartition(".")[2] for entry in entries] == ["break_and_scale", "Net"]
    assert [getattr(entry.backend, "compiler_name", None) for entry in entries] == ["eager", "aot_eager"]


@pytest.mark.parametrize("form", ["fullgraph", pytest.param("scope", marks=pytest.mark.exhaustive)])
def test_a_break_that_raises_is_fixed(form: str) -> None:
    torch._dynamo.reset()
    function = break_and_scale
    if form == "scope":
        function = torch._dynamo.error_on_graph_break(True)(break_and_scale)
    with pytest.raises(Exception, match="graph_break"), jupyter_graphbreak.capture(entries=True) as run:
        torch.compile(function, backend="eager", fullgraph=form == "fullgraph")(torch.ones(3))
    report = run.try_remedies()
    assert report.status == "error"
    assert [remedy.verdict in WORKING for remedy in report.remedies or []][:1] == [True]


class Float32Product(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return x.float() @ x.float()


def print_if_debug(x: torch.Tensor, debug: bool) -> torch.Tensor:
    y = x * 2
    if debug:
        print(y)
    return y + 1


def test_a_break_that_only_a_later_call_has_is_fixed() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(print_if_debug, backend="eager")
    with jupyter_graphbreak.capture(entries=True) as run:
        for debug in (False, True):
            compiled(torch.ones(2), debug)
    (break_,) = run.report.breaks
    working_remedies = [remedy for remedy in run.try_remedies().remedies or [] if remedy.verdict in WORKING]
    assert [remedy.breaks for remedy in working_remedies] == [[break_.id]]


def test_a_context_around_the_call_is_not_an_effect_of_code_that_uses_it() -> None:
    with jupyter_graphbreak.capture(entries=True) as run, torch.autocast("cpu", dtype=torch.bfloat16):
        torch.compile(Float32Product(), backend="eager")(torch.ones(2, 2))
    assert run.report.effects is None
    assert [check.equal for check in run.check().check or []] == [True]


def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs)

    return wrapper


class DecoratedNet(Net):
    forward = decorate(Net.forward)
    other = decorate(Net.other)


def test_a_module_whose_forward_is_decorated_keeps_its_name() -> None:
    net = DecoratedNet()
    (entry,), _ = entries_of(lambda: torch.compile(net, backend="eager")(x=torch.ones(3)))
    assert (entry.name, type(entry.function)) == ("DecoratedNet", DecoratedNet)


def test_another_method_with_the_decorator_of_forward_is_not_the_module() -> None:
    net = DecoratedNet()
    (entry,), value = entries_of(lambda: torch.compile(net.other, backend="eager")(torch.ones(3)))
    assert not isinstance(entry.function, torch.nn.Module)
    torch.testing.assert_close(entry.function(torch.ones(3)), value)

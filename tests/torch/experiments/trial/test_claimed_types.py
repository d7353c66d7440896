"""Objects that claim to be of a different class are handled by their real type: mocks, proxies and broken classes."""

from __future__ import annotations

import weakref
from typing import Any
from unittest import mock

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.object_kinds import is_data
from jupyter_graphbreak.experiments.trial.values import describe_difference


class Proxy:
    """Like a proxy of ``wrapt``."""

    __slots__ = ("__wrapped__",)

    def __init__(self, wrapped: Any) -> None:
        object.__setattr__(self, "__wrapped__", wrapped)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def add(self) -> None:
        self.calls += 1


def claiming(kind: type) -> Any:
    """Return an object that claims to be of a type."""
    return type("Claiming", (), {"__class__": property(lambda _: kind)})()


def raising(_: Any) -> Any:
    raise RuntimeError


class Unreadable:
    __class__ = property(raising)


class RaisesOnFieldAccess(type):
    __dataclass_fields__ = property(raising)


class UnreadableFields(metaclass=RaisesOnFieldAccess):
    pass


COUNTER, ITEMS, WEIGHT = Counter(), [1.0], torch.zeros(3)
CLAIMING = {
    "mock of a tensor": mock.Mock(spec=torch.Tensor),
    "mock of a module": mock.MagicMock(spec=torch.nn.Module),
    "mock of an optimizer": mock.Mock(spec=torch.optim.SGD),
    "mock of a dict": mock.MagicMock(spec=dict),
    "mock of an int": mock.Mock(spec=int),
    "mock of a function": mock.create_autospec(lambda x: x),
    **{f"claims {kind.__name__}": claiming(kind) for kind in (list, dict, type, type(raising), torch.nn.Linear)},
    "unreadable": Unreadable(),
    "unreadable fields": UnreadableFields(),
    "class with unreadable fields": UnreadableFields,
    "weak proxy": weakref.proxy(COUNTER),
    "proxy of a list": Proxy(ITEMS),
    "proxy of a tensor": Proxy(WEIGHT),
    "proxy of a counter": Proxy(COUNTER),
}

#: Copies of the other mocks take long.
CHANGED = {name: value for name, value in CLAIMING.items() if not name.startswith("mock") or name == "mock of a tensor"}


@torch.compiler.disable  # type: ignore[untyped-decorator]
def use() -> None:
    """Change all objects that can be changed."""
    objects = CHANGED
    objects["mock of a tensor"].add_(1)
    objects["weak proxy"].add()
    objects["proxy of a counter"].add()
    objects["proxy of a list"].append(2.0)
    objects["proxy of a tensor"].add_(1)


def step(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    use()
    if y.sum() > 0:
        y = y + 1
    return y


def state() -> Any:
    return COUNTER.calls, len(ITEMS), WEIGHT.sum().item(), len(CHANGED["mock of a tensor"].mock_calls)


@pytest.mark.exhaustive
def test_trials_of_a_program_that_uses_such_objects_change_nothing() -> None:
    before = state()
    report = jupyter_graphbreak.try_remedies(torch.compile(step, backend="eager"), torch.ones(3))
    assert not report.diagnostics, report.diagnostics
    assert not report.effects
    assert "works" in {remedy.verdict for remedy in report.remedies or []}
    assert state() == before


@pytest.mark.parametrize("name", CLAIMING)
def test_a_copy_has_the_real_type_and_the_same_state(name: str) -> None:
    value = CLAIMING[name]
    failed: list[Any] = []
    copied = clone({"it": value}, failures=failed)["it"]
    assert not failed
    assert type(copied).__qualname__ == type(value).__qualname__
    assert describe_difference(value, copied) is None


def test_a_proxy_of_a_copy_stands_for_the_copy() -> None:
    for make in (weakref.proxy, Proxy):
        counter = Counter()
        original, proxy = clone([counter, make(counter)])
        proxy.add()
        assert (original.calls, counter.calls) == (1, 0)
    alone = clone(Proxy(ITEMS))
    alone.append(3.0)
    assert describe_difference(alone, Proxy(ITEMS)) is not None
    assert is_data(Proxy(ITEMS))
    assert is_data(weakref.proxy(COUNTER))


def test_a_copy_that_only_a_weak_proxy_refers_to_stays_alive() -> None:
    proxy = clone(weakref.proxy(COUNTER))
    proxy.add()
    assert proxy.calls == COUNTER.calls + 1

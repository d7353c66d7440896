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
    """An object like a proxy of ``wrapt``."""

    __slots__ = ("__wrapped__",)

    def __init__(self, wrapped_object: Any) -> None:
        object.__setattr__(self, "__wrapped__", wrapped_object)

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


def make_claiming_object(kind: type) -> Any:
    """Return an object that claims to be of a type."""
    return type("Claiming", (), {"__class__": property(lambda _: kind)})()


def raise_error(_: Any) -> Any:
    raise RuntimeError


class Unreadable:
    __class__ = property(raise_error)


class MetaclassWithUnreadableFields(type):
    __dataclass_fields__ = property(raise_error)


class UnreadableFields(metaclass=MetaclassWithUnreadableFields):
    pass


COUNTER, ITEMS, WEIGHT = Counter(), [1.0], torch.zeros(3)
OBJECTS = {
    "mock of a tensor": mock.Mock(spec=torch.Tensor),
    "mock of a module": mock.MagicMock(spec=torch.nn.Module),
    "mock of an optimizer": mock.Mock(spec=torch.optim.SGD),
    "mock of a dict": mock.MagicMock(spec=dict),
    "mock of an int": mock.Mock(spec=int),
    "mock of a function": mock.create_autospec(lambda x: x),
    **{
        f"claims {kind.__name__}": make_claiming_object(kind)
        for kind in (list, dict, type, type(raise_error), torch.nn.Linear)
    },
    "unreadable": Unreadable(),
    "unreadable fields": UnreadableFields(),
    "class with unreadable fields": UnreadableFields,
    "weak proxy": weakref.proxy(COUNTER),
    "proxy of a list": Proxy(ITEMS),
    "proxy of a tensor": Proxy(WEIGHT),
    "proxy of a counter": Proxy(COUNTER),
}

#: The objects that a test changes. Copying the other mocks would take long.
CHANGEABLE_OBJECTS = {
    name: value for name, value in OBJECTS.items() if not name.startswith("mock") or name == "mock of a tensor"
}


@torch.compiler.disable  # type: ignore[untyped-decorator]
def change_objects() -> None:
    """Change all objects that can be changed."""
    objects = CHANGEABLE_OBJECTS
    objects["mock of a tensor"].add_(1)
    objects["weak proxy"].add()
    objects["proxy of a counter"].add()
    objects["proxy of a list"].append(2.0)
    objects["proxy of a tensor"].add_(1)


def step(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    change_objects()
    if y.sum() > 0:
        y = y + 1
    return y


def state() -> Any:
    return COUNTER.calls, len(ITEMS), WEIGHT.sum().item(), len(CHANGEABLE_OBJECTS["mock of a tensor"].mock_calls)


@pytest.mark.exhaustive
def test_trials_of_a_program_that_uses_mocks_and_proxies_change_nothing() -> None:
    state_before = state()
    report = jupyter_graphbreak.try_remedies(torch.compile(step, backend="eager"), torch.ones(3))
    assert not report.diagnostics, report.diagnostics
    assert not report.effects
    assert "works" in {remedy.verdict for remedy in report.remedies or []}
    assert state() == state_before


@pytest.mark.parametrize("name", OBJECTS)
def test_a_copy_has_the_real_type_and_the_same_state(name: str) -> None:
    value = OBJECTS[name]
    failures: list[Any] = []
    value_copy = clone({"it": value}, failures=failures)["it"]
    assert not failures
    assert type(value_copy).__qualname__ == type(value).__qualname__
    assert describe_difference(value, value_copy) is None


def test_a_copied_proxy_refers_to_the_copied_object() -> None:
    for make_proxy in (weakref.proxy, Proxy):
        counter = Counter()
        original, proxy = clone([counter, make_proxy(counter)])
        proxy.add()
        assert (original.calls, counter.calls) == (1, 0)
    copied_proxy = clone(Proxy(ITEMS))
    copied_proxy.append(3.0)
    assert describe_difference(copied_proxy, Proxy(ITEMS)) is not None
    assert is_data(Proxy(ITEMS))
    assert is_data(weakref.proxy(COUNTER))


def test_a_copy_that_only_a_weak_proxy_refers_to_stays_alive() -> None:
    proxy = clone(weakref.proxy(COUNTER))
    proxy.add()
    assert proxy.calls == COUNTER.calls + 1

"""Switches of libraries while a change is tried: what they set, and its restoration."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.knowledge.switches import switch_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jupyter_graphbreak.experiments.remedies.change import Change
    from jupyter_graphbreak.knowledge.switches import KnownSwitch


def library_switches(change: Change) -> list[KnownSwitch]:
    """Return the switches of a change that set something in a library, not only in the program's objects."""
    known = [switch_with(code) for code in change.codes]
    return [switch for switch in known if switch is not None and switch.state]


@contextlib.contextmanager
def restored_switches(change: Change) -> Iterator[None]:
    """Restore what the switches of a change may set when the context ends: the environment, and states of libraries."""
    before = dict(os.environ)
    owners = [owner for switch in library_switches(change) for owner in _state_owners(switch)]
    attributes = [(owner, dict(vars(owner))) for owner in owners]
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})
        for owner, values in attributes:
            _restore_attributes(owner, values)


def _state_owners(switch: KnownSwitch) -> list[Any]:
    """Return the objects whose attributes a switch may change."""
    names = {switch.library: importlib.import_module(switch.library)}
    return [eval(expression, names) for expression in switch.state]  # noqa: S307 - an entry of our table


def _restore_attributes(owner: Any, values: Mapping[str, Any]) -> None:
    """Set the attributes of an object that have changed to their earlier values."""
    for name in vars(owner).keys() - values.keys():
        delattr(owner, name)
    for name, value in values.items():
        if vars(owner).get(name) is not value:
            setattr(owner, name, value)

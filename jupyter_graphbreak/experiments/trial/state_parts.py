"""The parts of the process's state that trials restore: how each is read, restored and compared."""

from __future__ import annotations

import logging
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


#: The value of what cannot be read or does not exist.
MISSING = object()


class Part(NamedTuple):
    """A part of the state.

    Parameters
    ----------
    what : str
        The change to it, worded as the rest of a sentence.
    read, write : callable
        Return the value, and restore it.
    names : frozenset of str
        The names that code must call or assign to change it.
    owners : frozenset of str
        The names that may own ``names``: the code must contain one of them; empty if ``names`` are unambiguous.
    is_assigned : bool
        Whether only an assignment changes it, so that code which reads it is not the cause.
    """

    what: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    names: frozenset[str]
    owners: frozenset[str] = frozenset()
    is_assigned: bool = False

    def change(self, before: Any, after: Any) -> StateChange:
        """Return the description of a change to it."""
        changed = before.changed_names(after) if isinstance(before, HandlerAttributes) else ()
        return StateChange(self.what, self.names.union(changed), self.owners, self.is_assigned)


class StateChange(NamedTuple):
    """A change of the state, with the names by which to find the code that makes it."""

    what: str
    names: frozenset[str]
    owners: frozenset[str]
    is_assigned: bool = False


class Attributes(dict[Any, "Identities"]):
    """The attributes of objects, by object; objects that were not known before do not count as a change."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return False
        if dict.__eq__(self, other):
            return True
        pairs = ((state, other.get(item, state)) for item, state in self.items())
        return all(before is after or before == after for before, after in pairs)

    __hash__ = None


class HandlerAttributes(Attributes):
    """The attributes of handlers. Code that sets one has an effect: it redirects or changes log output."""

    def changed_names(self, other: HandlerAttributes) -> set[str]:
        """Return the names of the attributes that differ; code may set a private one by its public name."""
        names: set[str] = set()
        for item, state in self.items():
            one, two = state.as_dict(), other.get(item, state).as_dict()
            names |= {name for name in {**one, **two} if one.get(name, MISSING) is not two.get(name, MISSING)}
        return names | {name.lstrip("_") for name in names}


def attributes_of(items: Iterable[Any]) -> Attributes:
    """Return the attributes of objects that no other part restores."""
    return Attributes({item: further_attributes(item, _ignored_attributes(item)) for item in items})


def further_attributes(item: Any, ignored: frozenset[str]) -> Identities:
    """Return the attributes of an object except some, as names and values in turn."""
    return NONE if vars(item).keys() <= ignored else Identities(_pairs(vars(item), ignored))


def _ignored_attributes(item: Any) -> frozenset[str]:
    match item:
        case logging.Logger():
            return OF_LOGGERS
        case logging.FileHandler():
            return _OF_FILE_HANDLERS
        case logging.Handler():
            return _OF_HANDLERS
    return frozenset()


def _pairs(attributes: dict[str, Any], left_out: frozenset[str]) -> list[Any]:
    return [part for name, value in attributes.items() if name not in left_out for part in (name, value)]


#: The attributes of loggers that other parts restore, or that are caches.
OF_LOGGERS = frozenset(
    {"name", "level", "parent", "propagate", "handlers", "filters", "disabled", "manager", "_cache", "root"}
)
#: The attributes of handlers that other parts restore, or that a handler itself changes when it receives a record.
_OF_HANDLERS = frozenset({
    "level", "formatter", "filters", "lock", "_closed", "buffer", "rolloverAt", "dev", "ino", "sock", "socket",
    "retryTime", "retryPeriod",
})  # fmt: skip
_OF_FILE_HANDLERS = _OF_HANDLERS | {"stream"}


def set_attributes(before: Attributes) -> None:
    """Restore the attributes of objects."""
    for item, state in before.items():
        saved = state.as_dict()
        ignored = _ignored_attributes(item)
        for name in [name for name in vars(item) if name not in saved and name not in ignored]:
            del vars(item)[name]
        vars(item).update(saved)


def identity_of(read: Callable[[], Any]) -> Callable[[], Identities]:
    """Return a function that reads a value to be compared by identity."""
    return lambda: Identities([read()])


def setter_of(write: Callable[[Any], Any]) -> Callable[[Identities], Any]:
    """Return a function that restores such a value."""
    return lambda saved: write(saved.items[0])


class Identities:
    """Objects that are compared by identity."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = tuple(items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identities) or len(self.items) != len(other.items):
            return False
        return all(map(operator.is_, self.items, other.items))

    def as_dict(self) -> dict[Any, Any]:
        """Return the items as names with values, if they are in turn names and values."""
        return dict(zip(self.items[::2], self.items[1::2], strict=True))

    __hash__ = None  # type: ignore[assignment]


#: No objects, such as the further attributes of most loggers.
NONE = Identities(())

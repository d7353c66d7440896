"""Bindings: names that code reads or writes, with the values that they have while a program runs."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.trial.object_kinds import is_code, is_data
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.experiments.trial.shared_names import VariableKey

#: The value of a name that does not exist.
MISSING = object()


@dataclass(frozen=True)
class Binding:
    """A name that code reads or writes: a global, a variable of an outer function, an attribute of a class."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]
    #: The variable, or ``None`` for an object that is never replaced.
    key: VariableKey | None = None
    #: The namespace, cell or owner whose id the key contains, or ``None`` if it is a copy.
    holder: Any = None


class SwappedBinding:
    """A name in code that is not copied, such as a method. It refers to the copy only while a program runs."""

    def __init__(self, binding: Binding, program_value: Any, *, is_function: bool = False) -> None:
        self._is_function = is_function
        self.name = binding.name
        self.key, self.holder = binding.key, binding.holder
        self._binding = binding
        self._inactive_value = program_value
        self._is_original = program_value is binding.read()
        self._is_swapped_in = False

    def read(self) -> Any:
        """Return the value that the program sees."""
        return self._binding.read() if self._is_swapped_in else self._inactive_value

    def write(self, value: Any) -> None:
        """Replace the value that the program sees."""
        if not self._is_swapped_in:
            self._inactive_value = value
        elif value is not self._binding.read():
            self._binding.write(value)

    @property
    def may_be_seen_by_threads(self) -> bool:
        """Whether other threads may see the value while it is swapped in, because it is code or the original value."""
        return self._is_original or (is_code(self._inactive_value) and not self._is_function)

    def swap(self) -> None:
        """Swap the program's value in, or out again."""
        current_value = self._binding.read()
        if current_value is not self._inactive_value:
            self._binding.write(self._inactive_value)
        self._is_swapped_in, self._inactive_value = not self._is_swapped_in, current_value


def function_bindings(function: types.FunctionType) -> Iterator[Binding]:
    """Yield the parts of a function that a call may change: its defaults and attributes."""
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if is_data(parameter.default) and not is_instance(parameter.default, type):
            yield fixed_binding(parameter.name, parameter.default)
    if vars(function) or function.__name__ in function.__code__.co_names:
        yield Binding(f"the attributes of {function.__name__}", lambda: vars(function), _ignore)


def fixed_binding(name: str, value: Any) -> Binding:
    """Return the binding of an object that a call may change but not replace."""
    return Binding(name, lambda: value, _ignore)


def _ignore(_: Any) -> None:
    """Write nothing, because the object is never replaced."""


def cell_binding(name: str, cell: types.CellType, original: types.CellType | None = None) -> Binding:
    """Return the binding of a closure variable, with the key of the original variable."""

    def write(value: Any) -> None:
        if value is not MISSING:
            cell.cell_contents = value

    return Binding(name, lambda: cell.cell_contents, write, (id(original or cell), ""), original or cell)


def item_binding(name: str, namespace: dict[str, Any], key: str) -> Binding:
    """Return the binding of an item of a namespace, such as a global or an attribute."""

    def write(value: Any) -> None:
        if value is MISSING:
            namespace.pop(key, None)
        else:
            namespace[key] = value

    return Binding(name, lambda: namespace.get(key, MISSING), write, (id(namespace), key), namespace)


def part_binding(name: str, function: types.FunctionType, part: str) -> Binding:
    """Return the binding of a part of a function that always exists, such as its defaults."""
    read, write = functools.partial(getattr, function, part), functools.partial(setattr, function, part)
    return Binding(name, read, write, (id(function), part), function)


def attributes_binding(name: str, item: Any) -> Binding:
    """Return the binding of all attributes of an object."""

    def write(attributes: Any) -> None:
        vars(item).clear()
        vars(item).update(attributes)

    return Binding(name, lambda: dict(vars(item)), write, (id(item), ""), item)


def attribute_binding(owner: type | types.ModuleType, name: str) -> Binding:
    """Return the binding of an attribute of a class or module."""

    def write(value: Any) -> None:
        if value is not MISSING:
            setattr(owner, name, value)
        elif name in vars(owner):
            delattr(owner, name)

    return Binding(f"{owner.__name__}.{name}", lambda: vars(owner).get(name, MISSING), write, (id(owner), name), owner)

"""Bindings: names that code reads or writes, with the values that they have while a program runs.

Copied functions share names with code that is not copied, such as methods with the same globals.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import logging
import sys
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.trial.assigned_attributes import is_user_module
from jupyter_graphbreak.experiments.trial.object_kinds import is_code, is_data
from jupyter_graphbreak.recording.targets import may_be_user_defined, reachable_objects, walk_code_objects
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

#: The value of a name that does not exist.
MISSING = object()


@dataclass(frozen=True)
class Binding:
    """A name that code reads or writes: a global, a variable of an outer function, or an attribute of a class."""

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
    """Yield bindings of the parts of a function that a call may change: its defaults and attributes."""
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


def attribute_binding(owner: Any, name: str) -> Binding:
    """Return the binding of an attribute of a class, a module or an object of a library."""

    def write(value: Any) -> None:
        if value is not MISSING:
            setattr(owner, name, value)
        elif name in vars(owner):
            delattr(owner, name)

    title = f"{getattr(owner, '__name__', type(owner).__name__)}.{name}"
    return Binding(title, lambda: vars(owner).get(name, MISSING), write, (id(owner), name), owner)


#: A variable: the id of its original namespace, cell or owner, and its name there.
VariableKey = tuple[int, str]


@dataclass(frozen=True)
class NameSnapshot:
    """The values that names had when an entry was called, for code that is not copied and reads the original names.

    ``values`` contains copies of the values, by variable, and ``origin_ids`` the ids of the original namespaces, by the
    ids of their copies. ``holders`` keeps the objects with the ids in ``values`` alive, so that no other objects get
    these ids.
    """

    values: Mapping[VariableKey, Any] = field(default_factory=dict)
    origin_ids: Mapping[int, int] = field(default_factory=dict)
    holders: tuple[Any, ...] = ()


def top_level_names() -> frozenset[str]:
    """Return the top-level names of the notebook or program and the builtins, to which no change may assign."""
    return frozenset([*vars(builtins), *list(vars(sys.modules["__main__"]))])


def global_names(
    code: types.CodeType, opnames: Container[str] = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"})
) -> set[str]:
    """Return the names of the globals that code, or a function inside it, accesses with one of some instructions."""
    instructions = (instruction for inner in walk_code_objects(code) for instruction in dis.get_instructions(inner))
    return {instruction.argval for instruction in instructions if instruction.opname in opnames}


def functions_in(member: Any) -> Iterator[types.FunctionType]:
    """Yield the functions of a member of a class: a method, or the functions of a property."""
    parts: tuple[Any, ...] = (member,)
    if isinstance(member, property):
        parts = member.fget, member.fset, member.fdel
    elif isinstance(member, staticmethod | classmethod):
        parts = (member.__func__,)
    yield from (part for part in parts if isinstance(part, types.FunctionType))


def change_functions_of(member: Any, change: Callable[[Any], Any]) -> Any:
    """Return a member of a class with a change applied to its functions."""
    if isinstance(member, property):
        getter, setter, deleter = (part and change(part) for part in (member.fget, member.fset, member.fdel))
        return property(getter, setter, deleter, member.__doc__)
    return type(member)(change(member.__func__)) if isinstance(member, staticmethod | classmethod) else change(member)


#: Functions that code uses to read or write globals, or attributes, that it does not mention.
ANY_GLOBAL_READERS = frozenset({"globals", "exec", "eval"})
_ANY_ATTRIBUTE_READERS = ANY_GLOBAL_READERS | {"getattr", "attrgetter", "vars", "__dict__"}


def used_modules(roots: list[Any]) -> list[tuple[types.ModuleType, list[str]]]:
    """Return the user's modules that code refers to, each with the names that the code uses from the module."""
    functions = {
        id(item): item
        for item in reachable_objects(*roots)
        if is_instance(item, types.FunctionType) and may_be_user_defined(item)
    }
    pending = list(functions.values())
    result: dict[str, tuple[types.ModuleType, dict[str, None]]] = {}
    while pending:
        function = pending.pop()
        names = set(names_in(function.__code__))
        modules = [value for name in names if is_instance(value := function.__globals__.get(name), types.ModuleType)]
        imported_names = dict.fromkeys(names_in(function.__code__, includes_strings=True))
        modules += [sys.modules[name] for name in imported_names if name in sys.modules and name != "__main__"]
        if "modules" in names:
            defining_module = sys.modules.get(str(function.__globals__.get("__name__")))
            modules += [defining_module] if defining_module is not None else []
        for module in modules:
            if not is_user_module(module):
                continue
            used_names = result.setdefault(module.__name__, (module, {}))[1]
            readable_names = (
                vars(module) if names & _ANY_ATTRIBUTE_READERS else [name for name in names if name in vars(module)]
            )
            module_names = [name for name in readable_names if not name.startswith("__")]
            module_names += [name for name in ("__getattr__",) if name in vars(module)]  # it may provide further names
            new_values = [vars(module)[name] for name in module_names if name not in used_names]
            modules += [part for part in new_values if is_instance(part, types.ModuleType)]
            used_names.update(dict.fromkeys(module_names))
            for item in reachable_objects(*(vars(module)[name] for name in module_names)):
                if is_instance(item, types.FunctionType) and may_be_user_defined(item) and id(item) not in functions:
                    functions[id(item)] = item
                    pending.append(item)
    return [(module, list(names)) for module, names in result.values()]


def names_in(code: types.CodeType, *, includes_strings: bool = False) -> Iterator[str]:
    """Yield the names of globals, attributes and modules in code and, with ``includes_strings``, the code's strings.

    A string may be the name of an imported module.
    """
    for inner in walk_code_objects(code):
        yield from inner.co_names
        yield from (constant for constant in inner.co_consts if includes_strings and isinstance(constant, str))


def mentioned_loggers(code: types.CodeType) -> Iterator[logging.Logger]:
    """Yield the loggers that code mentions, as in ``logging.getLogger("training")``."""
    loggers = logging.root.manager.loggerDict
    for name in names_in(code, includes_strings=True):
        if isinstance(log := loggers.get(name), logging.Logger):
            yield log

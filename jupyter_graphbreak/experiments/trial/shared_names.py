"""Find the names that copied functions share with code that is not copied, such as methods with the same globals."""

from __future__ import annotations

import builtins
import dis
import logging
import sys
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.trial.assigned_attributes import is_user_module
from jupyter_graphbreak.recording.targets import may_be_user_defined, reachable_objects, walk_codes
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

#: A variable: the id of its original namespace, cell or owner, and its name there.
VariableKey = tuple[int, str]


@dataclass(frozen=True)
class NameSnapshot:
    """The values that names had when an entry was called, for code that is not copied and reads the original names.

    Parameters
    ----------
    values : mapping
        The copies of the values, by variable.
    origin_ids : mapping
        The ids of the original namespaces, by the ids of their copies.
    holders : tuple
        The objects whose ids ``values`` contains, so that no other objects get these ids.
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
    """Return the names of the globals that a function, or a function inside it, reads or writes.

    Parameters
    ----------
    opnames : container of str
        The names of the instructions to consider.
    """
    instructions = (instruction for inner in walk_codes(code) for instruction in dis.get_instructions(inner))
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
    for inner in walk_codes(code):
        yield from inner.co_names
        yield from (constant for constant in inner.co_consts if includes_strings and isinstance(constant, str))


def mentioned_loggers(code: types.CodeType) -> Iterator[logging.Logger]:
    """Yield the loggers that code mentions, as in ``logging.getLogger("training")``."""
    loggers = logging.root.manager.loggerDict
    for name in names_in(code, includes_strings=True):
        if isinstance(log := loggers.get(name), logging.Logger):
            yield log

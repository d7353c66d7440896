"""Names that copied functions share with code that is not copied, such as methods, which reads the same globals."""

from __future__ import annotations

import builtins
import dis
import sys
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: A variable: the id of its original namespace, cell or owner, and its name there.
VariableKey = tuple[int, str]


@dataclass(frozen=True)
class KeptNames:
    """What names referred to when an entry was called: code that is not copied reads them in their original place.

    Parameters
    ----------
    values : mapping
        The copies of the values, by variable.
    scopes : mapping
        The ids of the original namespaces, by the ids of their copies.
    holders : tuple
        The objects with the ids in ``values``, which must not be given to other objects.
    """

    values: Mapping[VariableKey, Any] = field(default_factory=dict)
    scopes: Mapping[int, int] = field(default_factory=dict)
    holders: tuple[Any, ...] = ()


def top_level_names() -> frozenset[str]:
    """Return the names at the top level of the notebook or program, and the builtins: no change may assign them."""
    return frozenset([*vars(builtins), *list(vars(sys.modules["__main__"]))])


def global_names(code: types.CodeType, operations: tuple[str, ...] = ("LOAD", "STORE", "DELETE")) -> set[str]:
    """Return the names of the globals that a function, or a function inside it, reads or writes."""
    opnames = {f"{operation}_GLOBAL" for operation in operations}
    names = {instr.argval for instr in dis.get_instructions(code) if instr.opname in opnames}
    inner = [global_names(constant, operations) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return names.union(*inner)


def functions_in(member: Any) -> Iterator[types.FunctionType]:
    """Yield the functions of a member of a class: a method, or the functions of a property."""
    parts: tuple[Any, ...] = (member,)
    if isinstance(member, property):
        parts = member.fget, member.fset, member.fdel
    elif isinstance(member, staticmethod | classmethod):
        parts = (member.__func__,)
    yield from (part for part in parts if isinstance(part, types.FunctionType))


def with_functions(member: Any, change: Callable[[Any], Any]) -> Any:
    """Return a member of a class with its functions changed."""
    if isinstance(member, property):
        getter, setter, deleter = (part and change(part) for part in (member.fget, member.fset, member.fdel))
        return property(getter, setter, deleter, member.__doc__)
    return type(member)(change(member.__func__)) if isinstance(member, staticmethod | classmethod) else change(member)

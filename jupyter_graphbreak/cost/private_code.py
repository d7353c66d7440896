"""Give functions that several programs share code objects that belong to one of them, for as long as it runs."""

from __future__ import annotations

import contextlib
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.recording.targets import is_own, reached

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


class PrivateCode:
    """Code objects of the methods and library functions that a callable leads to.

    Dynamo keeps what it compiled, and that it gave up, with the code object: programs that share one would run as the
    last of them was compiled.

    Parameters
    ----------
    call
        The callable.
    copies : collection of function
        Those that no other program shares. Python specializes what calls a function anew when its code was replaced,
        which takes longer than many a call.
    """

    def __init__(self, call: Any, copies: Collection[types.FunctionType] = ()) -> None:
        self._codes = {function: _copy(function.__code__) for function in _functions(call) if function not in copies}

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Have the functions run this code while the context is open."""
        before = {function: function.__code__ for function in self._codes}
        try:
            for function, code in self._codes.items():
                function.__code__ = code
            yield
        finally:
            for function, code in before.items():
                function.__code__ = code


def _functions(call: Any) -> Iterator[types.FunctionType]:
    for found in reached(call):
        held = [found] if isinstance(found, types.FunctionType) else _members(found)
        for function in held:
            if is_own(function):
                yield function


def _members(value: Any) -> Iterator[types.FunctionType]:
    """Yield the methods of an object, and the functions in them that decorators wrapped."""
    for kind in type(value).__mro__:
        for member in vars(kind).values():
            wrapped = member
            while isinstance(wrapped, types.FunctionType):
                yield wrapped
                wrapped = getattr(wrapped, "__wrapped__", None)


def _copy(code: types.CodeType) -> types.CodeType:
    inner = tuple(_copy(const) if isinstance(const, types.CodeType) else const for const in code.co_consts)
    return code.replace(co_consts=inner)

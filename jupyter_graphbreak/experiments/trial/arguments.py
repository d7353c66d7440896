"""The arguments of a call."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.trial.copies import clone

if TYPE_CHECKING:
    import types
    from collections.abc import Callable


class Arguments:
    """The positional and keyword arguments of a call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs

    def values(self) -> list[Any]:
        """Return the positional arguments, followed by the keyword arguments."""
        return [*self.args, *self.kwargs.values()]

    def to_positional(self, fn: Callable[..., Any]) -> Arguments:
        """Pass as many arguments by position as the signature allows. Arguments that do not fit it stay unchanged."""
        try:
            bound = self._bind(fn)
        except (TypeError, ValueError):
            return self
        return Arguments(*bound.args, **bound.kwargs)

    def copy(
        self, memo: dict[Any, Any] | None = None, copy_function: Callable[[types.FunctionType], Any] | None = None
    ) -> Arguments:
        """Return copies of the arguments for a run. Objects in the memo are not copied again."""
        args, kwargs = clone((self.args, self.kwargs), memo, copy_function=copy_function)
        return Arguments(*args, **kwargs)

    def map_values(self, change: Callable[[Any], Any]) -> Arguments:
        """Return the arguments after applying a function to each of them."""
        return Arguments(*map(change, self.args), **{name: change(value) for name, value in self.kwargs.items()})

    def by_name(self, fn: Callable[..., Any]) -> dict[str, Any]:
        """Return the arguments by parameter name, or by names like "argument 1" if the signature does not fit."""
        try:
            bound = self._bind(fn)
        except (TypeError, ValueError):
            return self._numbered_arguments() | self.kwargs
        return dict(bound.arguments)

    def with_argument(self, fn: Callable[..., Any], name: str, value: Any) -> Arguments:
        """Return the arguments with one added or replaced, named as :meth:`by_name` names it."""
        try:
            bound = self._bind(fn)
        except (TypeError, ValueError):  # for example, an optimizer's `step` that a scheduler has wrapped
            positional = self._numbered_arguments()
            if name not in positional:
                return Arguments(*self.args, **self.kwargs | {name: value})
            return Arguments(*(positional | {name: value}).values(), **self.kwargs)
        bound.arguments[name] = value
        return Arguments(*bound.args, **bound.kwargs)

    def _numbered_arguments(self) -> dict[str, Any]:
        return {f"argument {position}": value for position, value in enumerate(self.args, start=1)}

    def _bind(self, fn: Callable[..., Any]) -> inspect.BoundArguments:
        return inspect.signature(getattr(fn, "forward", fn)).bind(*self.args, **self.kwargs)

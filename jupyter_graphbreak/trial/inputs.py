"""Other inputs for a function, derived from one that it takes, to tell a captured program from the function itself."""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.report.frontends import Example
from jupyter_graphbreak.trial.difference import difference, show
from jupyter_graphbreak.trial.subject import clone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: So many inputs change Python values or sizes; each may cost a recompilation, of which Dynamo allows eight.
_MOST_SPECIAL = 6
_MOST_CONSTANTS = 3
_LARGEST_SIZE = 64


class Arguments:
    """What to call a function with: positional and keyword arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs

    def bound(self, fn: Callable[..., Any]) -> Arguments:
        """Return the same arguments, positional as far as the function's signature allows."""
        try:
            bound = inspect.signature(getattr(fn, "forward", fn)).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return self
        return Arguments(*bound.args, **bound.kwargs)

    def copy(self) -> Arguments:
        """Return copies of the arguments, so that a run can change them."""
        args, kwargs = clone((self.args, self.kwargs))
        return Arguments(*args, **kwargs)

    def named(self, fn: Callable[..., Any]) -> dict[str, Any]:
        """Return the arguments by the names of the parameters."""
        try:
            bound = inspect.signature(getattr(fn, "forward", fn)).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return {f"argument {index}": value for index, value in enumerate(self.args, start=1)} | self.kwargs
        return dict(bound.arguments)


@dataclass(frozen=True)
class Input:
    """Arguments and what is said of them.

    Parameters
    ----------
    special : bool
        Whether Python values or sizes differ from the first input's; captured programs may be made for these.
    again : bool
        Whether the function was called with the first input before.
    seed : int
        Of the random generators.
    """

    arguments: Arguments
    example: Example
    special: bool = False
    again: bool = False
    seed: int = 0


def describe(what: str, arguments: Arguments, fn: Callable[..., Any]) -> Example:
    """Return what is said of some arguments."""
    return Example(what, ", ".join(f"{name} = {show(value)}" for name, value in arguments.named(fn).items()))


def other_inputs(first: Arguments, fn: Callable[..., Any]) -> Iterator[Input]:
    """Yield other inputs for a function, most telling first.

    Values come before Python's numbers, flags and strings, and these before sizes; dtypes stay. Constants in the
    function's code say where its branches may part.
    """
    for what, change in _value_changes(first, fn):
        arguments = _mapped(first, change)
        if difference((first.args, first.kwargs), (arguments.args, arguments.kwargs)) is not None:
            yield Input(arguments, describe(what, arguments, fn))
    special = itertools.chain(_python_changes(first, fn), _size_changes(first, fn))
    for what, arguments in itertools.islice(special, _MOST_SPECIAL):
        yield Input(arguments, describe(what, arguments, fn), special=True)
        changed = _mapped(arguments, _random)  # two branches may agree on the values given, as 1 + 1 and 1 * 2 do
        if _tensors((changed.args, changed.kwargs)):
            yield Input(changed, describe(f"{what}, random", changed, fn), special=True)


# Values of tensors.


def _value_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    named = [(name, value) for name, value in first.named(fn).items() if _tensors(value)]
    if not named:
        return
    one = named[0][0] if len(named) == 1 and isinstance(named[0][1], torch.Tensor) else "all tensors"
    yield f"{one} negated", _negated
    yield f"{one} zero", torch.zeros_like
    if one == "all tensors":
        for name, value in named[:3]:
            chosen = {id(each) for each in _tensors(value)}
            yield f"{name} negated", lambda each, chosen=chosen: _negated(each) if id(each) in chosen else each
    yield f"{one} ten times as large", lambda each: each if each.dtype == torch.bool else each * 10
    yield f"{one} reversed", lambda each: each.flip(0) if each.dim() else each
    yield f"{one} random", _random
    for constant in _numbers(fn):
        yield f"{one} filled with {constant + 1:g}", lambda each, value=constant + 1: _filled(each, value)
    yield f"{one} with a nan", lambda each: _first_set(each, float("nan"))
    yield f"{one} with an inf", lambda each: _first_set(each, float("inf"))


def _negated(value: torch.Tensor) -> torch.Tensor:
    return ~value if value.dtype in {torch.bool, torch.uint8} else -value


def _random(value: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    made = torch.randn(value.shape, generator=generator) * 3
    return (made > 0 if value.dtype == torch.bool else made.to(value.dtype)).to(value.device)


def _filled(value: torch.Tensor, number: float) -> torch.Tensor:
    try:
        return torch.full_like(value, number)
    except RuntimeError:  # more than the dtype holds
        return value


def _first_set(value: torch.Tensor, number: float) -> torch.Tensor:
    if not value.is_floating_point() or not value.numel():
        return value
    made = value.detach().clone()
    made.view(-1)[0] = number
    return made


# Python's values, and sizes.


def _python_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    strings = [each for each in _constants(fn) if isinstance(each, str) and each.isprintable()]
    for name, value in first.named(fn).items():
        others: list[Any] = []
        match value:
            case bool():
                others = [not value]
            case int():
                others = [value + 1, -value]
            case float():
                others = [-value, value * 2 + 1]
            case str():
                others = [each for each in strings if each != value][:2]
        for other in others:
            yield f"{name} = {show(other)}", _replaced(first, fn, name, other)


def _size_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    given = _tensors((first.args, first.kwargs))
    sizes = list(dict.fromkeys(size for tensor in given for size in tensor.shape if size))
    wanted = [int(each) + more for each in _numbers(fn) if float(each).is_integer() for more in (1, 0)]
    for size in sizes[:2]:
        for new in dict.fromkeys([size + 1, *(each for each in wanted if 0 < each <= _LARGEST_SIZE), 1]):
            if new != size:
                yield f"size {new} instead of {size}", _mapped(first, functools.partial(_resized, size=size, new=new))


def _resized(value: torch.Tensor, size: int, new: int) -> torch.Tensor:
    for dim, length in enumerate(value.shape):
        if length == size:
            index = torch.arange(new, device=value.device).clamp(max=size - 1)
            value = value.index_select(dim, index)
    return value


# Arguments.


def _tensors(value: Any) -> list[torch.Tensor]:
    match value:
        case torch.Tensor():
            return [value] if value.layout == torch.strided else []
        case dict():
            return [found for each in value.values() for found in _tensors(each)]
        case list() | tuple():
            return [found for each in value for found in _tensors(each)]
    return []


def _mapped(first: Arguments, change: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
    def mapped(value: Any) -> Any:
        match value:
            case torch.Tensor() if value.layout == torch.strided:
                with torch.no_grad():
                    made = change(value).detach()
                return made.requires_grad_(value.requires_grad)
            case dict() if type(value) is dict:
                return {key: mapped(each) for key, each in value.items()}
            case list() | tuple() if type(value) in {list, tuple}:
                return type(value)(map(mapped, value))
            case tuple() if hasattr(value, "_fields"):
                return type(value)(*map(mapped, value))
        return value

    return Arguments(*map(mapped, first.args), **{key: mapped(each) for key, each in first.kwargs.items()})


def _replaced(first: Arguments, fn: Callable[..., Any], name: str, value: Any) -> Arguments:
    bound = inspect.signature(getattr(fn, "forward", fn)).bind(*first.args, **first.kwargs)
    bound.arguments[name] = value
    return Arguments(*bound.args, **bound.kwargs)


def _constants(fn: Callable[..., Any]) -> list[Any]:
    """Return the constants in a function's code and in that of functions inside it."""
    function = getattr(fn, "forward", fn)
    pending = [getattr(function, "__code__", None) or getattr(type(fn).__call__, "__code__", None)]
    found: list[Any] = []
    while pending:
        code = pending.pop()
        if isinstance(code, types.CodeType):
            found += [each for each in code.co_consts if each not in (None, code.co_name)]
            pending += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return found


def _numbers(fn: Callable[..., Any]) -> list[float]:
    numbers = [each for each in _constants(fn) if type(each) in {int, float} and abs(each) > 1]
    return list(dict.fromkeys(numbers))[:_MOST_CONSTANTS]

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
from jupyter_graphbreak.trial.copies import clone
from jupyter_graphbreak.trial.values import difference, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: How many inputs change Python values or sizes: each may cost a recompilation, and Dynamo allows eight.
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

    def copy(self, memo: dict[Any, Any] | None = None) -> Arguments:
        """Return copies of the arguments, so that a run can change them; what a memo holds is taken from there."""
        args, kwargs = clone((self.args, self.kwargs), memo)
        return Arguments(*args, **kwargs)

    def mapped(self, change: Callable[[Any], Any]) -> Arguments:
        """Return the arguments, each changed."""
        return Arguments(*map(change, self.args), **{name: change(value) for name, value in self.kwargs.items()})

    def named(self, fn: Callable[..., Any]) -> dict[str, Any]:
        """Return the arguments by the names of the parameters."""
        try:
            bound = inspect.signature(getattr(fn, "forward", fn)).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return {f"argument {index}": value for index, value in enumerate(self.args, start=1)} | self.kwargs
        return dict(bound.arguments)


@dataclass(frozen=True)
class Input:
    """Arguments and their description.

    Parameters
    ----------
    special : bool
        Whether its Python values or sizes differ from the first input's; a captured program may be made for the latter.
    again : bool
        Whether the function is called with the first input before.
    seed : int
        The seed of the random generators.
    """

    arguments: Arguments
    example: Example
    special: bool = False
    again: bool = False
    seed: int = 0


def describe(what: str, arguments: Arguments, fn: Callable[..., Any]) -> Example:
    """Describe arguments."""
    return Example(what, ", ".join(f"{name} = {show(value)}" for name, value in arguments.named(fn).items()))


def other_inputs(first: Arguments, fn: Callable[..., Any]) -> Iterator[Input]:
    """Yield other inputs for a function, the most telling first.

    Changed values of tensors come first, then changed Python numbers, flags and strings, then changed sizes; dtypes
    stay. Constants in the function's code say where its branches may part.
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


# --- Changed values of tensors ---


def _value_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    named = [(name, value) for name, value in first.named(fn).items() if _tensors(value)]
    if not named:
        return
    one = named[0][0] if len(named) == 1 and isinstance(named[0][1], torch.Tensor) else "all tensors"
    yield f"{one} negated", _negated
    yield f"{one} zero", torch.zeros_like
    if one == "all tensors":
        for name, value in named[:3]:
            chosen = {id(tensor) for tensor in _tensors(value)}
            yield f"{name} negated", lambda tensor, chosen=chosen: _negated(tensor) if id(tensor) in chosen else tensor
    yield f"{one} ten times as large", lambda tensor: tensor if tensor.dtype == torch.bool else tensor * 10
    yield f"{one} reversed", lambda tensor: tensor.flip(0) if tensor.dim() else tensor
    yield f"{one} random", _random
    for constant in _numbers(fn):
        yield f"{one} filled with {constant + 1:g}", lambda tensor, value=constant + 1: _filled(tensor, value)
    yield f"{one} with a nan", lambda tensor: _first_set(tensor, float("nan"))
    yield f"{one} with an inf", lambda tensor: _first_set(tensor, float("inf"))


def _negated(value: torch.Tensor) -> torch.Tensor:
    return ~value if value.dtype in {torch.bool, torch.uint8} else -value


def _random(value: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    made = torch.randn(value.shape, generator=generator) * 3
    return (made > 0 if value.dtype == torch.bool else made.to(value.dtype)).to(value.device)


def _filled(value: torch.Tensor, number: float) -> torch.Tensor:
    try:
        return torch.full_like(value, number)
    except RuntimeError:  # the dtype does not hold the number
        return value


def _first_set(value: torch.Tensor, number: float) -> torch.Tensor:
    if not value.is_floating_point() or not value.numel():
        return value
    made = value.detach().clone()
    made.view(-1)[0] = number
    return made


# --- Changed Python values and sizes ---


def _python_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    strings = [text for text in _constants(fn) if isinstance(text, str) and text.isprintable()]
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
                others = [text for text in strings if text != value][:2]
        for other in others:
            yield f"{name} = {show(other)}", _replaced(first, fn, name, other)


def _size_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    given = _tensors((first.args, first.kwargs))
    sizes = list(dict.fromkeys(size for tensor in given for size in tensor.shape if size))
    wanted = [int(number) + more for number in _numbers(fn) if float(number).is_integer() for more in (1, 0)]
    for size in sizes[:2]:
        for new in dict.fromkeys([size + 1, *(length for length in wanted if 0 < length <= _LARGEST_SIZE), 1]):
            if new != size:
                yield f"size {new} instead of {size}", _mapped(first, functools.partial(_resized, size=size, new=new))


def _resized(value: torch.Tensor, size: int, new: int) -> torch.Tensor:
    for dim, length in enumerate(value.shape):
        if length == size:
            index = torch.arange(new, device=value.device).clamp(max=size - 1)
            value = value.index_select(dim, index)
    return value


# --- The tensors and constants of a call ---


def _tensors(value: Any) -> list[torch.Tensor]:
    match value:
        case torch.Tensor():
            return [value] if value.layout == torch.strided else []
        case dict():
            return [tensor for item in value.values() for tensor in _tensors(item)]
        case list() | tuple():
            return [tensor for item in value for tensor in _tensors(item)]
    return []


def _mapped(first: Arguments, change: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
    def mapped(value: Any) -> Any:
        match value:
            case torch.Tensor() if value.layout == torch.strided:
                with torch.no_grad():
                    made = change(value).detach()
                return made.requires_grad_(value.requires_grad)
            case dict() if type(value) is dict:
                return {key: mapped(item) for key, item in value.items()}
            case list() | tuple() if type(value) in {list, tuple}:
                return type(value)(map(mapped, value))
            case tuple() if hasattr(value, "_fields"):
                return type(value)(*map(mapped, value))
        return value

    return Arguments(*map(mapped, first.args), **{key: mapped(item) for key, item in first.kwargs.items()})


def _replaced(first: Arguments, fn: Callable[..., Any], name: str, value: Any) -> Arguments:
    bound = inspect.signature(getattr(fn, "forward", fn)).bind(*first.args, **first.kwargs)
    bound.arguments[name] = value
    return Arguments(*bound.args, **bound.kwargs)


def _constants(fn: Callable[..., Any]) -> list[Any]:
    """Return the constants in a function's code and in that of functions inside it."""
    function = getattr(fn, "forward", fn)
    pending = [getattr(function, "__code__", None) or getattr(type(fn).__call__, "__code__", None)]
    constants: list[Any] = []
    while pending:
        code = pending.pop()
        if isinstance(code, types.CodeType):
            constants += [constant for constant in code.co_consts if constant not in (None, code.co_name)]
            pending += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return constants


def _numbers(fn: Callable[..., Any]) -> list[float]:
    numbers = [number for number in _constants(fn) if type(number) in {int, float} and abs(number) > 1]
    return list(dict.fromkeys(numbers))[:_MOST_CONSTANTS]

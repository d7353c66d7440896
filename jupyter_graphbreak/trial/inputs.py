"""Other inputs for a function, derived from one that it takes, to tell a captured program from the function itself."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import itertools
import types
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.recording.targets import reached
from jupyter_graphbreak.report.frontends import Example
from jupyter_graphbreak.trial.copies import clone
from jupyter_graphbreak.trial.values import difference, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Change = Callable[[torch.Tensor], torch.Tensor]

#: How many inputs change Python values or sizes: each may cost a recompilation, and Dynamo allows eight.
_MOST_SPECIAL = 6
_MOST_CONSTANTS = 3
_LARGEST_SIZE = 64
#: Functions of torch that take indices.
_LOOK_UPS = frozenset(
    {"embedding", "gather", "index_select", "one_hot", "scatter", "take_along_dim", "cross_entropy", "ctc_loss"}
)


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


def other_inputs(first: Arguments, fn: Callable[..., Any], most: int | None = None) -> Iterator[Input]:
    """Yield other inputs for a function, the most telling first.

    Changed values of tensors come first, then changed Python numbers, flags and strings, then changed sizes; dtypes
    stay. Constants in the function's code say where its branches may part. Indices, such as those that an embedding
    takes, stay within the range of the given ones. Modules among the arguments stay as they are.

    Parameters
    ----------
    most : int, optional
        How many to yield at most.
    """
    yield from itertools.islice(_others(first, fn), most)


def _others(first: Arguments, fn: Callable[..., Any]) -> Iterator[Input]:
    for what, change in _value_changes(first, fn):
        arguments = _mapped(first, change)
        if difference((first.args, first.kwargs), (arguments.args, arguments.kwargs)) is not None:
            yield Input(arguments, describe(what, arguments, fn))
    change = _unless(_indices(first, fn), _random, _random_within)
    special = itertools.chain(_python_changes(first, fn), _size_changes(first, fn))
    for what, arguments in itertools.islice(special, _MOST_SPECIAL):
        yield Input(arguments, describe(what, arguments, fn), special=True)
        changed = _mapped(arguments, change)  # two branches may agree on the values given, as 1 + 1 and 1 * 2 do
        if _tensors((changed.args, changed.kwargs)):
            yield Input(changed, describe(f"{what}, random", changed, fn), special=True)


# --- Changed values of tensors ---


def _value_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    named = [(name, value) for name, value in first.named(fn).items() if _tensors(value)]
    if not named:
        return
    one = named[0][0] if len(named) == 1 and isinstance(named[0][1], torch.Tensor) else "all tensors"
    indices = _indices(first, fn)
    yield f"{one} negated", _unless(indices, _negated, _rolled)
    yield f"{one} zero", _unless(indices, torch.zeros_like, _least)
    if one == "all tensors":
        for name, value in named[:3]:
            others = functools.partial(_is_none_of, {id(tensor) for tensor in _tensors(value)})
            yield f"{name} negated", _unless(others, _unless(indices, _negated, _rolled), _itself)
    yield f"{one} ten times as large", _unless(indices, _ten_times, _itself)
    yield f"{one} reversed", lambda tensor: tensor.flip(0) if tensor.dim() else tensor
    yield f"{one} random", _unless(indices, _random, _random_within)
    if any(map(_are_indices, _tensors((first.args, first.kwargs)))):
        yield "integers in another order", _unless(_are_indices, _itself, _rolled)
    for constant in _numbers(fn):
        filled = functools.partial(_filled, number=constant + 1)
        yield f"{one} filled with {constant + 1:g}", _unless(indices, filled, _itself)
    # The two sides of a branch may agree where a number is a round one.
    yield f"{one} random, negated", _unless(indices, lambda tensor: _negated(_random(tensor)), _itself)
    yield f"{one} with a nan", lambda tensor: _first_set(tensor, float("nan"))
    yield f"{one} with an inf", lambda tensor: _first_set(tensor, float("inf"))


def _unless(condition: Callable[[torch.Tensor], bool], change: _Change, otherwise: _Change) -> _Change:
    return lambda tensor: otherwise(tensor) if condition(tensor) else change(tensor)


def _itself(value: torch.Tensor) -> torch.Tensor:
    return value


def _is_none_of(ids: set[int], value: torch.Tensor) -> bool:
    return id(value) not in ids


def _never(_: torch.Tensor) -> bool:
    return False


def _indices(first: Arguments, fn: Callable[..., Any]) -> Callable[[torch.Tensor], bool]:
    """Return what tells the tensors by which a function, or a module that it leads to, looks something up."""
    modules = [item for item in reached(fn, *first.args, *first.kwargs.values()) if isinstance(item, torch.nn.Module)]
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    looks_up = any(isinstance(module, kinds) for module in modules) or not _LOOK_UPS.isdisjoint(_names(fn))
    # A model may look up by ways that cannot be seen, in a table of losses: the integers it takes are ids or labels.
    return _are_indices if looks_up or isinstance(fn, torch.nn.Module) else _never


def _are_indices(value: torch.Tensor) -> bool:
    """Whether integers may be indices: none is negative."""
    integer = value.dtype in {torch.int32, torch.int64} and not value.is_meta
    return integer and value.dim() > 0 and value.numel() > 0 and int(value.min()) >= 0


def _rolled(value: torch.Tensor) -> torch.Tensor:
    return value.roll(1, -1)


def _least(value: torch.Tensor) -> torch.Tensor:
    return torch.full_like(value, int(value.min()))


def _random_within(value: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    made = torch.randint(int(value.min()), int(value.max()) + 1, value.shape, generator=generator)
    return made.to(value.device, value.dtype)


def _ten_times(value: torch.Tensor) -> torch.Tensor:
    return value if value.dtype == torch.bool else value * 10


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
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    _map(value, note, {})
    return found


def _mapped(first: Arguments, change: _Change) -> Arguments:
    made: dict[int, Any] = {}
    return first.mapped(lambda value: _map(value, change, made))


def _map(value: Any, change: _Change, made: dict[int, Any]) -> Any:
    """Return a value with each of its tensors changed, looking into containers and dataclasses but not modules."""
    if id(value) in made:
        return made[id(value)]
    result = value
    match value:
        case torch.Tensor():
            result = _changed(value, change) if value.layout == torch.strided else value
        case list() | tuple() if type(value) in {list, tuple}:
            result = type(value)(_map(item, change, made) for item in value)
        case tuple() if hasattr(value, "_fields"):
            result = type(value)(*(_map(item, change, made) for item in value))
        case MutableMapping():
            with contextlib.suppress(Exception):  # one that does not take other sizes, such as a tensordict, stays
                changed = copy.copy(value)
                for key, item in value.items():
                    changed[key] = _map(item, change, made)
                result = changed
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type | torch.nn.Module):
            result = copy.copy(value)
            for field in dataclasses.fields(value):
                if hasattr(value, field.name):
                    object.__setattr__(result, field.name, _map(getattr(value, field.name), change, made))
    made[id(value)] = result
    return result


def _changed(value: torch.Tensor, change: _Change) -> torch.Tensor:
    try:
        with torch.no_grad():
            made = change(value)
    except Exception:  # noqa: BLE001 - a dtype or a layout for which there is no such change
        return value
    return value if made is value else made.detach().requires_grad_(value.requires_grad)


def _replaced(first: Arguments, fn: Callable[..., Any], name: str, value: Any) -> Arguments:
    bound = inspect.signature(getattr(fn, "forward", fn)).bind(*first.args, **first.kwargs)
    bound.arguments[name] = value
    return Arguments(*bound.args, **bound.kwargs)


def _codes(fn: Callable[..., Any]) -> Iterator[types.CodeType]:
    """Yield the code of a function and that of functions inside it."""
    function = getattr(fn, "forward", fn)
    pending = [getattr(function, "__code__", None) or getattr(type(fn).__call__, "__code__", None)]
    while pending:
        code = pending.pop()
        if isinstance(code, types.CodeType):
            yield code
            pending += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _names(fn: Callable[..., Any]) -> set[str]:
    return {name for code in _codes(fn) for name in code.co_names}


def _constants(fn: Callable[..., Any]) -> list[Any]:
    """Return the constants in a function's code and in that of functions inside it."""
    return [constant for code in _codes(fn) for constant in code.co_consts if constant not in (None, code.co_name)]


def _numbers(fn: Callable[..., Any]) -> list[float]:
    numbers = [number for number in _constants(fn) if type(number) in {int, float} and abs(number) > 1]
    return list(dict.fromkeys(numbers))[:_MOST_CONSTANTS]

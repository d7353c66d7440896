"""Other inputs for a function, derived from one that it takes, to tell a captured program from the function itself."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import itertools
import math
import types
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.values import difference, show
from jupyter_graphbreak.recording.targets import reached
from jupyter_graphbreak.report.frontends import Example

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    _Change = Callable[[torch.Tensor], torch.Tensor]

#: How many inputs change Python values or sizes: each may cost a recompilation, and Dynamo allows eight.
_MOST_SPECIAL = 6
_MOST_CONSTANTS = 3
_LARGEST_SIZE = 64
#: How many sizes of the given tensors are changed at the edges, and how many times all tensors are random there.
_MOST_SIZES = 2
_MOST_RANDOM = 4
#: No number of an integer's.
_HUGE = 1e9
#: The dtypes that tensors of floating-point numbers and of integers get at the edges.
_OTHER_DTYPES = {
    True: (torch.int64, torch.float64, torch.float16),
    False: (torch.float32, torch.int32),
}
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
    state : mapping
        Values of globals, closure variables and attributes that are set before the call, by their places.
    other_kind : str
        How its tensors differ in kind from the first input's: they have other dtypes, require gradients, or have lost
        their first size alone.
    """

    arguments: Arguments
    example: Example
    special: bool = False
    again: bool = False
    seed: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)
    other_kind: str = ""


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


def edge_inputs(first: Arguments, fn: Callable[..., Any], state: Mapping[str, Any]) -> Iterator[Input]:
    """Yield inputs at the edges of what a function can be given, the most telling first.

    They are empty tensors, tensors of zeros, of huge, infinite and undefined numbers, of other lengths, of other dtypes
    and such that require gradients; zero, negative and large Python numbers; and empty, shorter and longer lists. A
    function may refuse them.

    Parameters
    ----------
    first : Arguments
    fn : callable
    state : mapping
        Numbers, flags and tensors in globals, closures and attributes that the function reads, by their places.
    """
    indices = _indices(first, fn)
    # A number matters on one side of a branch, and which side is taken depends on the tensors.
    variants: dict[str, _Change] = {
        "": _itself,
        ", all tensors negated": _unless(indices, _negated, _itself),
        ", all tensors random": _unless(indices, _random, _random_within),
    }
    sides = variants if _tensors((first.args, first.kwargs)) else {"": _itself}
    numbers = [
        (f"{what}{suffix}", _mapped(changed, change))
        for what, changed in _python_edges(first, fn)
        for suffix, change in sides.items()
    ]
    for what, arguments in itertools.chain(
        _empty_tensors(first, fn), numbers, _extreme_values(first, fn), _other_lengths(first)
    ):
        if difference((first.args, first.kwargs), (arguments.args, arguments.kwargs)) is not None:
            yield Input(arguments, describe(what, arguments, fn), special=True)
    settings = [{place: other} for place, value in state.items() for other in _edges_of(value)]
    zeros = {place: 0 for place, value in state.items() if type(value) is int}
    settings += [zeros] if len(zeros) > 1 else []
    for values in settings:
        what = ", ".join(f"{place} = {show(value)}" for place, value in values.items())
        for suffix, change in sides.items():
            arguments = _mapped(first, change)
            yield Input(arguments, describe(f"{what}{suffix}", arguments, fn), special=True, state=values)
    for what, kind, arguments in _of_other_kinds(first, indices):
        yield Input(arguments, describe(what, arguments, fn), special=True, other_kind=kind)


def _of_other_kinds(first: Arguments, indices: Callable[[torch.Tensor], bool]) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments with tensors of other kinds, with values that lead to both sides of most branches."""
    values: dict[str, _Change] = {
        "": _tripled,
        ", negated": lambda tensor: _negated(_tripled(tensor)),
        ", zero": torch.zeros_like,
    }
    for kind, change in itertools.chain(_with_gradients(first), _other_dtypes(first)):
        for which, made in values.items():
            changed = _unless(indices, functools.partial(change, made), _itself)
            yield f"{kind}{which}", kind, _mapped(first, changed)
    yield "all tensors empty", "empty tensors", _mapped(first, _emptied)


def _empty_tensors(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    sizes = dict.fromkeys(tensor.shape[0] for tensor in _tensors((first.args, first.kwargs)) if tensor.dim())
    for size in list(sizes)[:_MOST_SIZES]:
        yield f"size 0 instead of {size}", _mapped(first, functools.partial(_resized, size=size, new=0))
    for name, value in first.named(fn).items():
        if _tensors(value) and len(first.named(fn)) > 1:
            ids = {id(tensor) for tensor in _tensors(value)}
            yield f"{name} empty", _mapped(first, functools.partial(_only, ids, _emptied))


def _emptied(value: torch.Tensor) -> torch.Tensor:
    return value[:0] if value.dim() else value


def _only(ids: set[int], change: _Change, value: torch.Tensor) -> torch.Tensor:
    return change(value) if id(value) in ids else value


def _python_edges(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    whole = [number for number in _constants(fn) if type(number) is int][:_MOST_CONSTANTS]
    defaults = _defaults(fn)
    for name, value in (defaults | first.named(fn)).items():
        if isinstance(value, torch.Tensor | torch.nn.Module):
            others: Iterator[Any] = iter(())
        elif type(value) is int:  # what the code subtracts from it, or compares it with, may come to zero
            others = itertools.chain(_edges_of(value), (number for number in dict.fromkeys(whole) if number != value))
        else:
            others = itertools.chain(_edges_of(value), _edges_of_parts(value))
        for other in others:
            yield f"{name} = {show(other)}", _replaced(first, fn, name, other)
        if value is not None and name in defaults and defaults[name] is None:
            yield f"{name} = None", _replaced(first, fn, name, None)


def _defaults(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the default values of a function's parameters, by name."""
    try:
        parameters = inspect.signature(getattr(fn, "forward", fn)).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}


def _edges_of_parts(value: Any) -> Iterator[Any]:
    """Yield dicts and dataclasses with another number or flag in them."""
    if type(value) is dict:
        for key, part in value.items():
            yield from ({**value, key: other} for other in _edges_of(part) if not isinstance(part, torch.Tensor))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type | torch.nn.Module):
        for field_ in dataclasses.fields(value):
            part = getattr(value, field_.name, None)
            for other in _edges_of(part) if not isinstance(part, torch.Tensor) else ():
                made = copy.copy(value)
                object.__setattr__(made, field_.name, other)
                yield made


def _edges_of(value: Any) -> Iterator[Any]:
    """Yield other values of a kind: zero, negative and large numbers, the other flag, shorter and longer lists."""
    match value:
        case bool():
            yield not value
        case int():
            yield from (other for other in dict.fromkeys((0, -1, 1, value + 1, -value, 1000)) if other != value)
        case float():
            others = (0.0, -1.5, -value, value * 2 + 1, 1e30, float("inf"), float("nan"))
            yield from (other for other in dict.fromkeys(others) if other != value)
        case list() | tuple() if type(value) in {list, tuple} and value:
            yield value[:0]
            yield value[:1]
            yield type(value)([*value, value[-1]])
        case torch.Tensor() if value.layout == torch.strided and not value.is_meta:
            with torch.no_grad():
                changes = (torch.zeros_like, _negated, lambda tensor: _filled(tensor, float("inf")))
                yield from (change(value.detach()).requires_grad_(value.requires_grad) for change in changes)


def _extreme_values(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    indices = _indices(first, fn)
    for what, number in (("ones", 1.0), ("infinite", math.inf), ("nan", math.nan), ("huge", 1e30), ("-inf", -math.inf)):
        change = _unless(indices, functools.partial(_filled, number=number), _itself)
        yield f"all tensors {what}", _mapped(first, change)
    yield "all tensors with a nan", _mapped(first, lambda tensor: _first_set(tensor, math.nan))
    yield "all tensors with an inf", _mapped(first, lambda tensor: _first_set(tensor, math.inf))
    yield "all tensors tiny", _mapped(first, lambda tensor: tensor * 1e-30 if tensor.is_floating_point() else tensor)
    yield "all tensors with a zero", _mapped(first, lambda tensor: _first_set(tensor, 0.0))
    alternating = _unless(indices, _alternating, _itself)
    yield "all tensors with alternating signs", _mapped(first, alternating)
    for seed in range(2, 2 + _MOST_RANDOM):
        change = _unless(indices, functools.partial(_random, seed=seed), _itself)
        yield f"all tensors random, {seed}", _mapped(first, change)


def _alternating(value: torch.Tensor) -> torch.Tensor:
    if value.dtype in {torch.bool, torch.uint8} or not value.numel():
        return value
    signs = torch.arange(value.numel(), device=value.device) % 2 * 2 - 1
    return value * signs.reshape(value.shape).to(value.dtype)


def _other_lengths(first: Arguments) -> Iterator[tuple[str, Arguments]]:
    given = _tensors((first.args, first.kwargs))
    sizes = list(dict.fromkeys(size for tensor in given for size in tensor.shape if size))
    for size in sizes[:_MOST_SIZES]:
        for new in dict.fromkeys((1, size - 1, size + 1, 2 * size)):
            if new not in {size, 0}:
                change = functools.partial(_resized, size=size, new=new)
                yield f"size {new} instead of {size}", _mapped(first, change)


def _with_gradients(first: Arguments) -> Iterator[tuple[str, Callable[[_Change, torch.Tensor], torch.Tensor]]]:
    """Yield what makes tensors require gradients, which may differ alone where both sides of a branch are computed."""
    given = [tensor for tensor in _tensors((first.args, first.kwargs)) if tensor.is_floating_point()]
    if torch.is_grad_enabled() and not all(tensor.requires_grad for tensor in given):
        yield "tensors that require gradients", _requiring_gradient


def _requiring_gradient(change: _Change, value: torch.Tensor) -> torch.Tensor:
    return change(value).detach().clone().requires_grad_() if value.is_floating_point() else value


def _other_dtypes(first: Arguments) -> Iterator[tuple[str, Callable[[_Change, torch.Tensor], torch.Tensor]]]:
    """Yield what gives all tensors of a kind another dtype, which operations may promote otherwise."""
    given = _tensors((first.args, first.kwargs))
    for floating, dtypes in _OTHER_DTYPES.items():
        found = {tensor.dtype for tensor in given if _is_number(tensor, floating=floating)}
        for dtype in dtypes if found else ():
            if found != {dtype}:
                converted = functools.partial(_converted, dtype=dtype, floating=floating)
                yield f"{str(dtype).removeprefix('torch.')} tensors", converted


def _is_number(value: torch.Tensor, *, floating: bool) -> bool:
    """Whether a tensor holds floating-point numbers, or else integers."""
    return value.is_floating_point() is floating and not value.is_complex() and value.dtype != torch.bool


def _converted(change: _Change, value: torch.Tensor, dtype: torch.dtype, *, floating: bool) -> torch.Tensor:
    if not _is_number(value, floating=floating):
        return value
    changed = change(value)
    return changed.round().to(dtype) if floating else changed.to(dtype)


def _tripled(value: torch.Tensor) -> torch.Tensor:
    return value * 3  # of numbers below one, rounded, not all are to become zero


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


def _random(value: torch.Tensor, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(value.shape, generator=generator) * 3
    return (made > 0 if value.dtype == torch.bool else made.to(value.dtype)).to(value.device)


def _filled(value: torch.Tensor, number: float) -> torch.Tensor:
    if not (value.is_floating_point() or value.is_complex()) and not (math.isfinite(number) and abs(number) < _HUGE):
        return value  # an integer has no such value
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
    if made is value or made.requires_grad:
        return made
    return made.detach().requires_grad_(value.requires_grad and (made.is_floating_point() or made.is_complex()))


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

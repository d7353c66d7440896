"""Derive further inputs for a function from one it accepts, to expose programs that behave differently."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import dis
import enum
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
from jupyter_graphbreak.recording.targets import own_codes, reached
from jupyter_graphbreak.records.attributes import is_dataclass, is_instance
from jupyter_graphbreak.report.frontends import Example

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    _Change = Callable[[torch.Tensor], torch.Tensor]

#: The maximum number of inputs with changed Python values or sizes: each may cost one of Dynamo's eight recompilations.
_MAX_SPECIAL = 6
_MAX_CONSTANTS = 3
_MAX_SIZE = 64
#: For edge inputs: the maximum number of sizes to change, and of inputs with random tensors.
_MAX_SIZES = 2
_MAX_RANDOM = 4
#: Integer tensors are not filled with numbers of this size or larger.
_HUGE = 1e9
#: The dtypes that floating-point (``True``) and integer (``False``) tensors get in edge inputs.
_OTHER_DTYPES = {
    True: (torch.int64, torch.float64, torch.float16, torch.bool),
    False: (torch.float32, torch.int32),
}
#: Numbers that fill all tensors of edge inputs.
_EXTREMES = {"ones": 1.0, "infinite": math.inf, "nan": math.nan, "huge": 1e30, "-inf": -math.inf, "-0.0": -0.0}
#: The maximum number of edge numbers that are combined with tensors that require gradients.
_MAX_NUMBERS_WITH_GRADIENTS = 16
#: The maximum number of arguments whose tensors become zero, one at a time.
_MAX_ZERO_ARGUMENTS = 3
#: The maximum number of keys that are left out of a dict, one at a time.
_MAX_MISSING_KEYS = 3
#: The maximum number of values of one item of a list or tuple in edge inputs.
_MAX_ITEM_VALUES = 2
#: Kinds of tensors in edge inputs.
_BOOL = "bool tensors"
_FLAG = "as a flag"
_WITHOUT_DIMENSIONS = "tensors without dimensions"
_WITH_DIMENSION = "with one more dimension"
_OF_ANOTHER_SIZE = "of another size"
_LONGER_LAST_ITEM = "a longer last item"
_NOT_CONTIGUOUS = "tensors that are not contiguous"
_TRANSPOSED = "transposed tensors"
_WITH_GRADIENT = "tensors that have a .grad"
#: The beginnings of the names of bytecode instructions that test a value.
_TESTS = ("POP_JUMP", "JUMP_IF", "UNARY_NOT", "TO_BOOL")
#: The maximum number of parameters whose tensors get one more dimension.
_MAX_RAISED_RANKS = 3
#: What a caller may pass in place of a tensor that the function tests.
_NO_TENSORS: tuple[Any, ...] = (None, [])
#: The number of tensors of which each gets the memory of each other.
_MAX_SHARING = 3
#: Names with which code reads the ``.grad`` of a tensor.
_READ_GRADIENTS = frozenset({"grad", "deepcopy"})
#: Names with which code reads the number in a tensor.
_READ_NUMBERS = frozenset({"item", "tolist", "int", "float"})
#: PyTorch functions that take indices or counts. Some do not check them and write outside of their result, which ends
#: the process: ``repeat_interleave`` with counts such as [-4, 0, 6], sparse tensors with negative indices.
_LOOKUP_FUNCTIONS = frozenset(
    {
        "embedding", "gather", "index_select", "one_hot", "scatter", "take_along_dim", "cross_entropy", "ctc_loss",
        "repeat_interleave", "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor", "sparse_coo_tensor",
        "sparse_csc_tensor", "sparse_csr_tensor",
    }
)  # fmt: skip


class Arguments:
    """The positional and keyword arguments of a call."""

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

    def copy(
        self, memo: dict[Any, Any] | None = None, functions: Callable[[types.FunctionType], Any] | None = None
    ) -> Arguments:
        """Return copies of the arguments for a run; objects in the memo are not copied again.

        Parameters
        ----------
        memo, functions
            As for :func:`.copies.clone`.
        """
        args, kwargs = clone((self.args, self.kwargs), memo, functions=functions)
        return Arguments(*args, **kwargs)

    def mapped(self, change: Callable[[Any], Any]) -> Arguments:
        """Return the arguments with a change applied to each."""
        return Arguments(*map(change, self.args), **{name: change(value) for name, value in self.kwargs.items()})

    def named(self, fn: Callable[..., Any]) -> dict[str, Any]:
        """Return the arguments by parameter name."""
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
        Whether its Python values or sizes differ from the first input's, which a captured program may depend on.
    again : bool
        Whether to call the function with the first input beforehand.
    seed : int
        The seed of the random generators.
    state : mapping
        Values of globals, closure variables and attributes to set before the call, by their places.
    other_kind : str
        The differences of its tensors from the first input's: they have different dtypes or more dimensions, require
        gradients, are not contiguous, or are empty.
    """

    arguments: Arguments
    example: Example
    special: bool = False
    again: bool = False
    seed: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)
    other_kind: str = ""

    @property
    def only_errors_count(self) -> bool:
        """Whether results may differ: truth values are promoted differently than numbers wherever sides are merged."""
        return self.other_kind == _BOOL or self.has_flag

    @property
    def is_always_accepted(self) -> bool:
        """Whether a function is meant for tensors of this kind, even if it refuses some: their values are ordinary."""
        return self.other_kind in {_NOT_CONTIGUOUS, _TRANSPOSED, _LONGER_LAST_ITEM} or self.has_flag

    @property
    def has_other_size(self) -> bool:
        """Whether a size that two arguments have in common differs: code may check for it, or may not need it."""
        return self.other_kind.endswith(_OF_ANOTHER_SIZE)

    @property
    def has_other_rank(self) -> bool:
        """Whether a tensor has more or fewer dimensions."""
        return self.other_kind.endswith((_WITHOUT_DIMENSIONS, _WITH_DIMENSION))

    @property
    def has_flag(self) -> bool:
        """Whether an argument that the function tests, or whose number it reads, is a truth value instead."""
        return self.other_kind.endswith(_FLAG)


def describe(what: str, arguments: Arguments, fn: Callable[..., Any]) -> Example:
    """Return a report's description of arguments."""
    return Example(what, ", ".join(f"{name} = {show(value)}" for name, value in arguments.named(fn).items()))


def other_inputs(first: Arguments, fn: Callable[..., Any], limit: int | None = None) -> Iterator[Input]:
    """Yield other inputs for a function, the most revealing first.

    Changed tensor values come first, then changed Python numbers, flags and strings, then changed sizes; dtypes are
    kept. Constants in the function's code hint at the conditions of its branches. Indices, such as those of an
    embedding, stay within the range of the given ones. Modules among the arguments are kept.

    Parameters
    ----------
    first : Arguments
        The input to derive from.
    fn : callable
        The function.
    limit : int, optional
        The maximum number of inputs.
    """
    yield from itertools.islice(_derive_inputs(first, fn), limit)


def _derive_inputs(first: Arguments, fn: Callable[..., Any]) -> Iterator[Input]:
    for what, change in _value_changes(first, fn):
        arguments = _map_arguments(first, change)
        if difference((first.args, first.kwargs), (arguments.args, arguments.kwargs)) is not None:
            yield Input(arguments, describe(what, arguments, fn))
    change = _unless(_indices(first, fn), _random, _random_within)
    special = itertools.chain(_python_changes(first, fn), _size_changes(first, fn))
    for what, arguments in itertools.islice(special, _MAX_SPECIAL):
        yield Input(arguments, describe(what, arguments, fn), special=True)
        changed = _map_arguments(arguments, change)  # two branches may agree for the given values, like 1 + 1 and 1 * 2
        if _tensors((changed.args, changed.kwargs)):
            yield Input(changed, describe(f"{what}, random", changed, fn), special=True)


def edge_inputs(first: Arguments, fn: Callable[..., Any], state: Mapping[str, Any]) -> Iterator[Input]:
    """Yield edge inputs for a function, the most revealing first.

    They contain empty tensors; tensors of zeros, of huge, infinite and nan values, of different lengths and dtypes,
    and with gradients; zero, negative and large Python numbers; empty, shorter and longer lists. A function may
    reject them.

    Parameters
    ----------
    first : Arguments
        The input to derive from.
    fn : callable
        The function.
    state : mapping
        Numbers, flags, strings and tensors in globals, closures and attributes that the function reads, by their
        places.
    """
    indices = _indices(first, fn)
    # A number may matter in one branch only, and the tensors decide which branch runs.
    variants: dict[str, _Change] = {
        "": _unchanged,
        ", all tensors negated": _unless(indices, _negated, _unchanged),
        ", all tensors random": _unless(indices, _random, _random_within),
    }
    sides = variants if _tensors((first.args, first.kwargs)) else {"": _unchanged}
    numbers = [
        (f"{what}{suffix}", _map_arguments(changed, change))
        for what, changed in _edge_python_values(first, fn)
        for suffix, change in sides.items()
    ]
    for what, arguments in itertools.chain(
        _few_row_changes(first, fn),
        numbers,
        _extreme_value_changes(first, fn),
        _zero_arguments(first, fn),
        _length_changes(first),
    ):
        if difference((first.args, first.kwargs), (arguments.args, arguments.kwargs)) is not None:
            yield Input(arguments, describe(what, arguments, fn), special=True)
    settings: list[dict[str, Any]] = [
        {place: other}
        for place, value in state.items()
        for other in (_other_modes(fn, value) if type(value) is str else _edge_values(value))
    ]
    zeros = {place: 0 for place, value in state.items() if type(value) is int}
    settings += [zeros] if len(zeros) > 1 else []
    for values in settings:
        what = ", ".join(f"{place} = {show(value)}" for place, value in values.items())
        for suffix, change in sides.items():
            arguments = _map_arguments(first, change)
            yield Input(arguments, describe(f"{what}{suffix}", arguments, fn), special=True, state=values)
    for what, kind, arguments in itertools.chain(_gradients_with_numbers(first, fn), _kind_changes(first, fn, indices)):
        yield Input(arguments, describe(what, arguments, fn), special=True, other_kind=kind)
    if _sees_gradients(fn, first):
        given = functools.partial(_give_gradient, _unchanged)
        arguments = _map_arguments(first, given)
        values = {place: given(value) for place, value in state.items() if is_instance(value, torch.Tensor)}
        example = describe(_WITH_GRADIENT, arguments, fn)
        yield Input(arguments, example, special=True, state=values, other_kind=_WITH_GRADIENT)


def _kind_changes(
    first: Arguments, fn: Callable[..., Any], indices: Callable[[torch.Tensor], bool]
) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments with tensors of other kinds, whose values lead to both sides of most branches."""
    values: dict[str, _Change] = {
        "": _triple,
        ", negated": lambda tensor: _negated(_triple(tensor)),
        ", zero": torch.zeros_like,
    }
    for kind, change in itertools.chain(_gradient_changes(first), _dtype_changes(first), _layout_changes(first)):
        for which, make_values in values.items():
            changed = _unless(indices, functools.partial(change, make_values), _unchanged)
            yield f"{kind}{which}", kind, _map_arguments(first, changed)
    yield "all tensors empty", "empty tensors", _map_arguments(first, _empty)
    named = [(name, _tensors(value)) for name, value in first.named(fn).items() if _tensors(value)]
    for name, tensors in named[:_MAX_RAISED_RANKS]:
        if len(named) > 1 or any(tensor.numel() == 1 for tensor in tensors):  # Python tests only one element
            changed = functools.partial(_change_only, {id(tensor) for tensor in tensors}, _with_dimension)
            kind = f"{name} {_WITH_DIMENSION}"
            yield kind, kind, _map_arguments(first, changed)
    for name, what, arguments in _shrunk(first, fn):
        if _shares_a_size(first, fn, name):
            kind = f"{what}, {_OF_ANOTHER_SIZE}"
            yield what, kind, arguments
            # Equal numbers are equal even if one row is broadcast.
            others: dict[str, _Change] = {"negated": _negated, "ones": torch.ones_like}
            for which, make_values in others.items():
                yield (
                    f"{what}, all tensors {which}",
                    kind,
                    _map_arguments(arguments, _unless(indices, make_values, _unchanged)),
                )
    yield from _longer_last_items(first, fn, indices)
    yield from _shared_memory_changes(first, fn, indices)
    yield from _other_arguments(first, fn)


def _longer_last_items(
    first: Arguments, fn: Callable[..., Any], indices: Callable[[torch.Tensor], bool]
) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments with a list or tuple whose last tensor is longer: code may leave a loop before it."""
    for name, value in first.named(fn).items():
        is_list = type(value) in {list, tuple} and len(value) > 1
        if not is_list or not all(is_instance(item, torch.Tensor) and item.dim() for item in value):
            continue
        longer = _apply(value[-1], lambda tensor: torch.cat([tensor, tensor[:1]]))
        arguments = _replace_argument(first, fn, name, type(value)([*value[:-1], longer]))
        values: dict[str, _Change] = {"": _unchanged, ", negated": _negated, ", ten times as large": _ten_times}
        for which, change in values.items():
            changed = _map_arguments(arguments, _unless(indices, change, _unchanged))
            yield f"{name} with {_LONGER_LAST_ITEM}{which}", _LONGER_LAST_ITEM, changed


def _other_arguments(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments with a default, ``None``, an empty list or a flag instead of one tensor, or without a key."""
    defaults, tested = _defaults(fn), _tested_parameters(fn)
    reads_numbers = not _READ_NUMBERS.isdisjoint(_names(fn))
    flags = [name for name, value in first.named(fn).items() if type(value) is bool]
    for name in (name for name in flags if name in tested and name not in defaults):  # None is as good as false
        without = _replace_argument(first, fn, name, None)
        yield f"{name} = None", f"{name} = None", without
        yield f"{name} = None, all tensors negated", f"{name} = None", _map_arguments(without, _negated)
    for name, value in first.named(fn).items():
        for missing in itertools.islice(value, _MAX_MISSING_KEYS) if type(value) is dict else ():
            kind = f"{name} without {show(missing)}"
            without = _replace_argument(first, fn, name, {key: part for key, part in value.items() if key != missing})
            yield kind, kind, without
            yield f"{kind}, all tensors negated", kind, _map_arguments(without, _negated)
    given = {name: value for name, value in first.named(fn).items() if is_instance(value, torch.Tensor)}
    for name, default in defaults.items():  # None is no value of another kind: the function expects it
        if name in given and is_instance(default, bool | int | float):
            for other in dict.fromkeys([default, *([not default] if type(default) is bool else [])]):
                kind = f"{name} = {show(other)}"
                yield kind, kind, _replace_argument(first, fn, name, other)
    for name, value in given.items():
        if name in tested and name not in defaults:  # a caller may pass no tensor
            for nothing in _NO_TENSORS:
                kind = f"{name} = {show(nothing)}"
                yield kind, kind, _replace_argument(first, fn, name, nothing)
        if (name in tested or reads_numbers) and value.numel() == 1 and value.dtype != torch.bool:
            for flag in (True, False):
                changed = functools.partial(_change_only, {id(value)}, functools.partial(_as_flag, flag=flag))
                yield f"{name} = {flag}", f"{name} {_FLAG}", _map_arguments(first, changed)


def _shared_memory_changes(
    first: Arguments, fn: Callable[..., Any], indices: Callable[[torch.Tensor], bool]
) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments of which one tensor is a part of another one: a change in place then changes both."""
    tensors = [(name, value) for name, value in first.named(fn).items() if is_instance(value, torch.Tensor)]
    pairs = itertools.permutations(tensors[:_MAX_SHARING], 2)
    for (name, value), (other, whole) in pairs:
        plain = type(value) is type(whole) is torch.Tensor and not (value.requires_grad or whole.requires_grad)
        if not plain or indices(value):  # the numbers of the other tensor may be no indices
            continue
        is_part = value.dtype == whole.dtype and value.device == whole.device and value.numel() <= whole.numel()
        if is_part and value.numel() and whole.layout == torch.strided and whole.is_contiguous():
            kind = f"{name} in the memory of {other}"
            memory = whole.clone()  # runs replace the given tensor itself with a copy
            arguments = _replace_argument(first, fn, other, memory)
            part = memory.view(-1)[: value.numel()].view(value.shape)
            yield kind, kind, _replace_argument(arguments, fn, name, part)


def _as_flag(value: torch.Tensor, *, flag: bool) -> torch.Tensor:
    return torch.full_like(value, flag, dtype=torch.bool)


def _tested_parameters(fn: Callable[..., Any]) -> set[str]:
    """Return the names that code tests as in ``if flag`` or ``not flag``: they are probably truth values."""
    names: set[str] = set()
    for code in _codes(fn):
        for before, after in itertools.pairwise(dis.get_instructions(code)):
            if before.opname.startswith("LOAD_FAST") and after.opname.startswith(_TESTS):
                names.add(str(before.argval))
    return names


def _few_row_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    sizes = dict.fromkeys(tensor.shape[0] for tensor in _tensors((first.args, first.kwargs)) if tensor.dim())
    for size in list(sizes)[:_MAX_SIZES]:
        yield f"size 0 instead of {size}", _map_arguments(first, functools.partial(_resize, size=size, new=0))
    for name, what, arguments in _shrunk(first, fn):
        if not _shares_a_size(first, fn, name):
            yield what, arguments


def _shrunk(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, str, Arguments]]:
    """Yield the name of an argument, and arguments in which only that one is empty or has one row."""
    for name, value in first.named(fn).items():
        if _tensors(value) and len(first.named(fn)) > 1:
            ids = {id(tensor) for tensor in _tensors(value)}
            yield name, f"{name} empty", _map_arguments(first, functools.partial(_change_only, ids, _empty))
            # A size of one is broadcast.
            yield name, f"{name} with one row", _map_arguments(first, functools.partial(_change_only, ids, _first_row))


def _shares_a_size(first: Arguments, fn: Callable[..., Any], name: str) -> bool:
    """Return whether a size of an argument's tensors is also one of another argument: the code may need both equal."""

    def sizes(value: Any) -> set[int]:
        return {size for tensor in _tensors(value) for size in tensor.shape if size > 1}

    named = first.named(fn)
    return not sizes(named[name]).isdisjoint(
        size for other, value in named.items() if other != name for size in sizes(value)
    )


def _empty(value: torch.Tensor) -> torch.Tensor:
    return value[:0] if value.dim() else value


def _first_row(value: torch.Tensor) -> torch.Tensor:
    return value[:1] if value.dim() else value


def _with_dimension(value: torch.Tensor) -> torch.Tensor:
    return torch.stack([value, value])


def _change_only(ids: set[int], change: _Change, value: torch.Tensor) -> torch.Tensor:
    return change(value) if id(value) in ids else value


def _edge_python_values(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    whole = [number for number in _constants(fn) if type(number) is int][:_MAX_CONSTANTS]
    defaults = _defaults(fn)
    for name, value in (defaults | first.named(fn)).items():
        if is_instance(value, torch.Tensor | torch.nn.Module):
            others: Iterator[Any] = iter(())
        elif is_instance(value, str | enum.Enum):
            others = iter(_other_modes(fn, value) if type(value) is str else _other_choices(fn, value))
        elif type(value) is int:  # its difference from a constant may become zero
            others = itertools.chain(
                _edge_values(value), (number for number in dict.fromkeys(whole) if number != value)
            )
        else:
            others = itertools.chain(_edge_values(value), _edge_values_of_parts(value))
        for other in others:
            yield f"{name} = {show(other)}", _replace_argument(first, fn, name, other)
        if value is not None and name in defaults and defaults[name] is None:
            without = _replace_argument(first, fn, name, None)
            yield f"{name} = None", without
            yield f"{name} = None, all tensors negated", _map_arguments(without, _negated)


def _defaults(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the default values of a function's parameters, by name."""
    try:
        parameters = inspect.signature(getattr(fn, "forward", fn)).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}


def _edge_values_of_parts(value: Any) -> Iterator[Any]:
    """Yield dicts, dataclasses, lists and tuples with one number or flag changed."""
    if type(value) is dict:
        for key, part in value.items():
            yield from ({**value, key: other} for other in _edge_values(part) if not is_instance(part, torch.Tensor))
    elif type(value) in {list, tuple}:
        for index in sorted({0, len(value) - 1} & set(range(len(value)))):  # code after a loop's exit reads the last
            part = value[index]
            others = _edge_values(part) if is_instance(part, bool | int | float) else iter(())
            for other in itertools.islice(others, _MAX_ITEM_VALUES):
                yield type(value)([*value[:index], other, *value[index + 1 :]])
    elif is_dataclass(value) and not is_instance(value, type | torch.nn.Module):
        for field_ in dataclasses.fields(value):
            part = getattr(value, field_.name, None)
            for other in _edge_values(part) if not is_instance(part, torch.Tensor) else ():
                result = copy.copy(value)
                object.__setattr__(result, field_.name, other)
                yield result


def _edge_values(value: Any) -> Iterator[Any]:
    """Yield edge values of the same type: zero, negative and large numbers, the opposite flag, other list lengths."""
    if is_instance(value, bool):
        yield not value
    elif is_instance(value, int):
        yield from (other for other in dict.fromkeys((0, -1, 1, value + 1, -value, 1000)) if other != value)
    elif is_instance(value, float):
        others = (0.0, -1.5, -value, value * 2 + 1, 1e30, float("inf"), float("nan"))
        yield from (other for other in dict.fromkeys(others) if other != value)
    elif is_instance(value, list | tuple) and type(value) in {list, tuple} and value:
        yield value[:0]
        yield value[:1]
        yield type(value)([*value, value[-1]])
    elif is_instance(value, torch.Tensor) and value.layout == torch.strided and not value.is_meta:
        with torch.no_grad():
            changes = (torch.zeros_like, _negated, lambda tensor: _filled(tensor, float("inf")))
            yield from (change(value.detach()).requires_grad_(value.requires_grad) for change in changes)


def _extreme_value_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    indices = _indices(first, fn)
    yield "all tensors with one positive number", _map_arguments(first, _unless(indices, _one_positive, _unchanged))
    for what, number in (
        ("ones", 1.0),
        ("infinite", math.inf),
        ("nan", math.nan),
        ("huge", 1e30),
        ("-inf", -math.inf),
        ("-0.0", -0.0),
    ):
        change = _unless(indices, functools.partial(_filled, number=number), _unchanged)
        yield f"all tensors {what}", _map_arguments(first, change)
    yield "all tensors with a nan", _map_arguments(first, lambda tensor: _set_first(tensor, math.nan))
    yield "all tensors with an inf", _map_arguments(first, lambda tensor: _set_first(tensor, math.inf))
    yield (
        "all tensors tiny",
        _map_arguments(first, lambda tensor: tensor * 1e-30 if tensor.is_floating_point() else tensor),
    )
    yield "all tensors with a zero", _map_arguments(first, lambda tensor: _set_first(tensor, 0.0))
    alternating = _unless(indices, _alternating, _unchanged)
    yield "all tensors with alternating signs", _map_arguments(first, alternating)
    for seed in range(2, 2 + _MAX_RANDOM):
        change = _unless(indices, functools.partial(_random, seed=seed), _unchanged)
        yield f"all tensors random, {seed}", _map_arguments(first, change)


def _zero_arguments(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    """Yield arguments of which one has only zeros: the others keep a result finite."""
    indices = _indices(first, fn)
    named = [(name, _tensors(value)) for name, value in first.named(fn).items() if _tensors(value)]
    for name, tensors in named[:_MAX_ZERO_ARGUMENTS] if len(named) > 1 else ():
        change = functools.partial(_change_only, {id(tensor) for tensor in tensors}, torch.zeros_like)
        yield f"{name} zero", _map_arguments(first, _unless(indices, change, _unchanged))


def _one_positive(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor of which a mask such as ``x > 0`` selects exactly one element."""
    if value.dtype in {torch.bool, torch.uint8} or not value.numel():
        return value
    result = -value.detach().abs() - 1
    result.view(-1)[0] *= -1
    return result


def _alternating(value: torch.Tensor) -> torch.Tensor:
    if value.dtype in {torch.bool, torch.uint8} or not value.numel():
        return value
    signs = torch.arange(value.numel(), device=value.device) % 2 * 2 - 1
    return value * signs.reshape(value.shape).to(value.dtype)


def _length_changes(first: Arguments) -> Iterator[tuple[str, Arguments]]:
    given = _tensors((first.args, first.kwargs))
    sizes = list(dict.fromkeys(size for tensor in given for size in tensor.shape if size))
    for size in sizes[:_MAX_SIZES]:
        for new in dict.fromkeys((1, size - 1, size + 1, 2 * size)):
            if new not in {size, 0}:
                change = functools.partial(_resize, size=size, new=new)
                yield f"size {new} instead of {size}", _map_arguments(first, change)


def _gradient_changes(first: Arguments) -> Iterator[tuple[str, Callable[[_Change, torch.Tensor], torch.Tensor]]]:
    """Yield a change that makes tensors require gradients: if both branches are computed, only gradients may differ."""
    given = [tensor for tensor in _tensors((first.args, first.kwargs)) if tensor.is_floating_point()]
    if torch.is_grad_enabled() and not all(tensor.requires_grad for tensor in given):
        yield "tensors that require gradients", _require_gradient


def _gradients_with_numbers(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, str, Arguments]]:
    """Yield edge numbers with tensors that require gradients: the gradient of a side that is not taken may be nan."""
    for kind, change in _gradient_changes(first):
        require = functools.partial(change, _unchanged)
        numbers = itertools.islice(_edge_python_values(first, fn), _MAX_NUMBERS_WITH_GRADIENTS)
        for what, changed in itertools.chain(numbers, _zero_arguments(first, fn)):
            yield f"{what}, {kind}", kind, _map_arguments(changed, require)


def _require_gradient(change: _Change, value: torch.Tensor) -> torch.Tensor:
    return change(value).detach().clone().requires_grad_() if value.is_floating_point() else value


def _sees_gradients(fn: Callable[..., Any], first: Arguments) -> bool:
    """Return whether code reads the ``.grad`` of tensors, or copies it with the tensors."""
    codes = own_codes(fn, *first.args, *first.kwargs.values())
    return any(not _READ_GRADIENTS.isdisjoint(code.co_names) for code in codes)


def _give_gradient(change: _Change, value: torch.Tensor) -> torch.Tensor:
    result = _require_gradient(change, value)
    if result.is_leaf and result.requires_grad:
        result.grad = torch.full_like(result, 2.0)
    return result


def _dtype_changes(first: Arguments) -> Iterator[tuple[str, Callable[[_Change, torch.Tensor], torch.Tensor]]]:
    """Yield changes of the dtype of all floating-point or all integer tensors, which may be promoted differently."""
    given = _tensors((first.args, first.kwargs))
    for floating, dtypes in _OTHER_DTYPES.items():
        present = {tensor.dtype for tensor in given if _is_number(tensor, floating=floating)}
        for dtype in dtypes if present else ():
            if present != {dtype}:
                converted = functools.partial(_convert, dtype=dtype, floating=floating)
                yield f"{str(dtype).removeprefix('torch.')} tensors", converted
        if present:  # a number in a tensor, such as `torch.where` makes, promotes them
            small = torch.float16 if floating else torch.int32
            what = f"{str(small).removeprefix('torch.')} {_WITHOUT_DIMENSIONS}"
            yield what, functools.partial(_as_scalar, dtype=small, floating=floating)


def _as_scalar(change: _Change, value: torch.Tensor, dtype: torch.dtype, *, floating: bool) -> torch.Tensor:
    is_scalar = _is_number(value, floating=floating) and value.numel() > 0
    return change(value).reshape(-1)[0].to(dtype) if is_scalar else value


def _is_number(value: torch.Tensor, *, floating: bool) -> bool:
    """Return whether a tensor contains floating-point numbers, or integers if not ``floating``."""
    return value.is_floating_point() is floating and not value.is_complex() and value.dtype != torch.bool


def _convert(change: _Change, value: torch.Tensor, dtype: torch.dtype, *, floating: bool) -> torch.Tensor:
    if not _is_number(value, floating=floating):
        return value
    changed = change(value)
    return changed.round().to(dtype) if floating else changed.to(dtype)


def _layout_changes(first: Arguments) -> Iterator[tuple[str, Callable[[_Change, torch.Tensor], torch.Tensor]]]:
    """Yield changes of the strides of tensors: with gaps, like a slice, and also transposed."""
    most = max((tensor.dim() for tensor in _tensors((first.args, first.kwargs))), default=0)
    if most > 0:
        yield _NOT_CONTIGUOUS, _with_gaps
    if most > 1:
        yield (
            _TRANSPOSED,
            lambda change, value: _transposed(_with_gaps(lambda value: _transposed(change(value)), value)),
        )


def _with_gaps(change: _Change, value: torch.Tensor) -> torch.Tensor:
    return torch.stack([change(value)] * 2, dim=-1)[..., 0] if value.dim() else change(value)


def _transposed(value: torch.Tensor) -> torch.Tensor:
    return value.transpose(0, -1) if value.dim() > 1 else value


def _triple(value: torch.Tensor) -> torch.Tensor:
    return value * 3  # otherwise all numbers below one could round to zero


# --- Changed values of tensors ---


def _value_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    named = [(name, value) for name, value in first.named(fn).items() if _tensors(value)]
    if not named:
        return
    one = named[0][0] if len(named) == 1 and is_instance(named[0][1], torch.Tensor) else "all tensors"
    indices = _indices(first, fn)
    yield f"{one} negated", _unless(indices, _negated, _rolled)
    yield f"{one} zero", _unless(indices, torch.zeros_like, _least)
    if one == "all tensors":
        for name, value in named[:3]:
            others = functools.partial(_is_not_in, {id(tensor) for tensor in _tensors(value)})
            yield f"{name} negated", _unless(others, _unless(indices, _negated, _rolled), _unchanged)
    yield f"{one} ten times as large", _unless(indices, _ten_times, _unchanged)
    yield f"{one} reversed", lambda tensor: tensor.flip(0) if tensor.dim() else tensor
    yield f"{one} random", _unless(indices, _random, _random_within)
    if any(map(_are_indices, _tensors((first.args, first.kwargs)))):
        yield "integers in a different order", _unless(_are_indices, _unchanged, _rolled)
    for constant in numbers_in_code(fn):
        filled = functools.partial(_filled, number=constant + 1)
        yield f"{one} filled with {constant + 1:g}", _unless(indices, filled, _unchanged)
    # Two branches may agree for round numbers.
    yield f"{one} random, negated", _unless(indices, lambda tensor: _negated(_random(tensor)), _unchanged)
    yield f"{one} with a nan", lambda tensor: _set_first(tensor, float("nan"))
    yield f"{one} with an inf", lambda tensor: _set_first(tensor, float("inf"))


def _unless(condition: Callable[[torch.Tensor], bool], change: _Change, otherwise: _Change) -> _Change:
    return lambda tensor: otherwise(tensor) if condition(tensor) else change(tensor)


def _unchanged(value: torch.Tensor) -> torch.Tensor:
    return value


def _is_not_in(ids: set[int], value: torch.Tensor) -> bool:
    return id(value) not in ids


def _never(_: torch.Tensor) -> bool:
    return False


def _indices(first: Arguments, fn: Callable[..., Any]) -> Callable[[torch.Tensor], bool]:
    """Return a test for tensors that a function, or the objects it uses, may use as indices or counts."""
    used = fn, *first.args, *first.kwargs.values()
    modules = [item for item in reached(*used) if is_instance(item, torch.nn.Module)]
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    names = _names(fn).union(*(code.co_names for code in own_codes(*used)))
    looks_up = any(is_instance(module, kinds) for module in modules) or not _LOOKUP_FUNCTIONS.isdisjoint(names)
    # A model may use indices in hidden ways, such as in a loss: its integers are probably ids or labels.
    return _are_indices if looks_up or is_instance(fn, torch.nn.Module) else _never


def _are_indices(value: torch.Tensor) -> bool:
    """Return whether a tensor may contain indices or counts: non-negative integers."""
    integer = value.dtype in {torch.int32, torch.int64} and not value.is_meta
    return integer and value.dim() > 0 and value.numel() > 0 and int(value.min()) >= 0


def _rolled(value: torch.Tensor) -> torch.Tensor:
    return value.roll(1, -1)


def _least(value: torch.Tensor) -> torch.Tensor:
    return torch.full_like(value, int(value.min()))


def _random_within(value: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    result = torch.randint(int(value.min()), int(value.max()) + 1, value.shape, generator=generator)
    return result.to(value.device, value.dtype)


def _ten_times(value: torch.Tensor) -> torch.Tensor:
    return value if value.dtype == torch.bool else value * 10


def _negated(value: torch.Tensor) -> torch.Tensor:
    return ~value if value.dtype in {torch.bool, torch.uint8} else -value


def _random(value: torch.Tensor, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    result = torch.randn(value.shape, generator=generator) * 3
    return (result > 0 if value.dtype == torch.bool else result.to(value.dtype)).to(value.device)


def _filled(value: torch.Tensor, number: float) -> torch.Tensor:
    if not (value.is_floating_point() or value.is_complex()) and not (math.isfinite(number) and abs(number) < _HUGE):
        return value  # an integer has no such value
    try:
        return torch.full_like(value, number)
    except RuntimeError:  # the dtype cannot represent the number
        return value


def _set_first(value: torch.Tensor, number: float) -> torch.Tensor:
    if not value.is_floating_point() or not value.numel():
        return value
    result = value.detach().clone()
    result.view(-1)[0] = number
    return result


# --- Changed Python values and sizes ---


def _python_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    for name, value in first.named(fn).items():
        others: list[Any] = []
        if is_instance(value, bool):
            others = [not value]
        elif is_instance(value, int):
            others = [value + 1, -value]
        elif is_instance(value, float):
            others = [-value, value * 2 + 1]
        elif is_instance(value, str | enum.Enum):
            others = _other_choices(fn, value)
        for other in others:
            yield f"{name} = {show(other)}", _replace_argument(first, fn, name, other)


def _other_choices(fn: Callable[..., Any], value: str | enum.Enum) -> list[Any]:
    """Return other members of an enumeration, or strings that a function may accept in place of one."""
    if isinstance(value, enum.Enum):
        return [member for member in type(value) if member is not value][:2]
    # The keys of a dict that has this one as well select between its values.
    keys = [key for known in _dicts_of_names(fn) if value in known for key in known]
    constants = [text for text in _constants(fn) if isinstance(text, str) and text.isprintable()]
    return [text for text in dict.fromkeys([*keys, *constants]) if text != value][:2]


def _size_changes(first: Arguments, fn: Callable[..., Any]) -> Iterator[tuple[str, Arguments]]:
    given = _tensors((first.args, first.kwargs))
    sizes = list(dict.fromkeys(size for tensor in given for size in tensor.shape if size))
    wanted = [int(number) + more for number in numbers_in_code(fn) if float(number).is_integer() for more in (1, 0)]
    for size in sizes[:2]:
        for new in dict.fromkeys([size + 1, *(length for length in wanted if 0 < length <= _MAX_SIZE), 1]):
            if new != size:
                yield (
                    f"size {new} instead of {size}",
                    _map_arguments(first, functools.partial(_resize, size=size, new=new)),
                )


def _resize(value: torch.Tensor, size: int, new: int) -> torch.Tensor:
    for dim, length in enumerate(value.shape):
        if length == size:
            index = torch.arange(new, device=value.device).clamp(max=size - 1)
            value = value.index_select(dim, index)
    return value


# --- The tensors and constants of a call ---


def _tensors(value: Any) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        tensors.append(tensor)
        return tensor

    _map(value, note, {})
    return tensors


def _map_arguments(first: Arguments, change: _Change) -> Arguments:
    cache: dict[int, Any] = {}
    return first.mapped(lambda value: _map(value, change, cache))


def _map(value: Any, change: _Change, cache: dict[int, Any]) -> Any:
    """Return a value with each tensor changed, including those in containers and dataclasses but not in modules."""
    if id(value) in cache:
        return cache[id(value)]
    result = value
    if is_instance(value, torch.Tensor):
        result = _apply(value, change) if value.layout == torch.strided else value
    elif is_instance(value, list | tuple) and type(value) in {list, tuple}:
        result = type(value)(_map(item, change, cache) for item in value)
    elif is_instance(value, tuple) and hasattr(value, "_fields"):
        result = type(value)(*(_map(item, change, cache) for item in value))
    elif is_instance(value, MutableMapping):
        with contextlib.suppress(Exception):  # a mapping that rejects other sizes, such as a tensordict, is kept
            changed = copy.copy(value)
            for key, item in value.items():
                changed[key] = _map(item, change, cache)
            result = changed
    elif is_dataclass(value) and not is_instance(value, type | torch.nn.Module):
        result = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                object.__setattr__(result, field.name, _map(getattr(value, field.name), change, cache))
    cache[id(value)] = result
    return result


def _apply(value: torch.Tensor, change: _Change) -> torch.Tensor:
    try:
        with torch.no_grad():
            result = change(value)
    except Exception:  # noqa: BLE001 - a dtype or a layout that does not support the change
        return value
    if result is value or result.requires_grad:
        return result
    return result.detach().requires_grad_(value.requires_grad and (result.is_floating_point() or result.is_complex()))


def _replace_argument(first: Arguments, fn: Callable[..., Any], name: str, value: Any) -> Arguments:
    bound = inspect.signature(getattr(fn, "forward", fn)).bind(*first.args, **first.kwargs)
    bound.arguments[name] = value
    return Arguments(*bound.args, **bound.kwargs)


def _codes(fn: Callable[..., Any]) -> Iterator[types.CodeType]:
    """Yield the code of a function and of functions inside it."""
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
    """Return the constants in the code of a function and of functions inside it."""
    return [constant for code in _codes(fn) for constant in code.co_consts if constant not in (None, code.co_name)]


def _other_modes(fn: Callable[..., Any], value: str) -> list[str]:
    """Return other strings for one that code compares with a constant; the last one equals no constant."""
    known = value in _constants(fn) or any(value in names for names in _dicts_of_names(fn))
    return [*_other_choices(fn, value), f"not {value}"] if known else []


def _dicts_of_names(fn: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the global dicts with names as keys that a function uses directly."""
    function = getattr(fn, "forward", fn)
    names = {name for code in _codes(fn) for name in code.co_names}
    values = [value for name, value in getattr(function, "__globals__", {}).items() if name in names]
    return [value for value in values if type(value) is dict and value and all(type(key) is str for key in value)]


def numbers_in_code(fn: Callable[..., Any]) -> list[float]:
    """Return the first numbers in the code of a function whose absolute value is larger than one."""
    numbers = [number for number in _constants(fn) if type(number) in {int, float} and abs(number) > 1]
    return list(dict.fromkeys(numbers))[:_MAX_CONSTANTS]

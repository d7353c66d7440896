"""Derive further inputs for a function from one that it accepts, to expose programs that behave differently."""

from __future__ import annotations

import enum
import functools
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.trial.code_hints import (
    alternative_choices,
    index_predicate,
    looks_like_indices,
    numbers_in_code,
    uses_variable_exponents,
)
from jupyter_graphbreak.experiments.trial.tensor_changes import (
    fill_with,
    fill_with_minimum,
    identity,
    map_tensors,
    multiply_by_ten,
    negate,
    only_for,
    randomize,
    randomize_within_range,
    replace_first,
    resize,
    roll,
    tensors_in,
    unless,
)
from jupyter_graphbreak.experiments.trial.values import describe_difference, short_repr
from jupyter_graphbreak.records.attributes import is_instance
from jupyter_graphbreak.report.frontends import Example

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.tensor_changes import Change

#: The maximum number of inputs with changed Python values or sizes. Each may use up one of Dynamo's eight recompiles.
_MAX_SPECIAL_INPUTS = 6
#: The largest size to take from the function's code.
_MAX_SIZE = 64
#: Kinds of tensors in edge inputs, and suffixes of such kinds.
BOOL_TENSORS_KIND = "bool tensors"
FLAG_SUFFIX = "as a flag"
ZERO_DIMENSIONAL_SUFFIX = "zero-dimensional"
EXTRA_DIMENSION_SUFFIX = "with one more dimension"
COLUMN_SUFFIX = "as a column"
DIFFERENT_SIZE_SUFFIX = "of a different size"
LONGER_LAST_ITEM_SUFFIX = "a longer last item"
NOT_CONTIGUOUS_KIND = "tensors that are not contiguous"
TRANSPOSED_KIND = "transposed tensors"


@dataclass(frozen=True)
class Input:
    """An input for a function: the arguments, their description, and the state before the call."""

    arguments: Arguments
    example: Example
    #: Whether Python values or sizes may differ from those of the original input. A captured program may depend on
    #: them.
    is_special: bool = False
    #: The number of calls that run beforehand with the original input, or with a smaller one derived from it, if the
    #: function changes state.
    preceding_call_count: int = 0
    seed: int = 0
    #: Values of globals, closure variables and attributes to set before the call, by name.
    state: Mapping[str, Any] = field(default_factory=dict)
    #: The difference in kind from the values of the original input, such as "float16 tensors" or "x = None". Empty if
    #: the kinds are the same.
    different_kind: str = ""
    #: Whether tensors are smaller than those of the original input, only to save time.
    is_smaller: bool = False

    @property
    def description(self) -> str:
        """The description for messages."""
        return f"{self.example.what}, with smaller tensors" if self.is_smaller else self.example.what

    @property
    def compares_errors_only(self) -> bool:
        """Whether only errors are compared, because merging branches promotes booleans differently from numbers."""
        return self.different_kind == BOOL_TENSORS_KIND or self.has_flag

    @property
    def has_ordinary_values(self) -> bool:
        """Whether functions should support this kind of input, because its values are ordinary."""
        return self.different_kind in {NOT_CONTIGUOUS_KIND, TRANSPOSED_KIND, LONGER_LAST_ITEM_SUFFIX} or self.has_flag

    @property
    def has_different_size(self) -> bool:
        """Whether two arguments that had a size in common may no longer do so."""
        return self.different_kind.endswith(DIFFERENT_SIZE_SUFFIX)

    @property
    def has_different_rank(self) -> bool:
        """Whether a tensor has more or fewer dimensions than in the user's call."""
        return self.different_kind.startswith(ZERO_DIMENSIONAL_SUFFIX) or self.different_kind.endswith(
            (EXTRA_DIMENSION_SUFFIX, COLUMN_SUFFIX)
        )

    @property
    def has_nan_number(self) -> bool:
        """Whether a Python number is NaN."""
        return self.example.what.endswith("= nan")

    @property
    def has_flag(self) -> bool:
        """Whether an argument that the function tests, or whose number it reads, is replaced with a boolean."""
        return self.different_kind.endswith(FLAG_SUFFIX)


def example_of(description: str, arguments: Arguments, fn: Callable[..., Any]) -> Example:
    """Return the report's description of arguments."""
    return Example(
        description, ", ".join(f"{name} = {short_repr(value)}" for name, value in arguments.by_name(fn).items())
    )


@dataclass(frozen=True)
class OriginalCall:
    """The original call, from which inputs are derived."""

    arguments: Arguments
    fn: Callable[..., Any]

    @functools.cached_property
    def by_name(self) -> dict[str, Any]:
        """The arguments by parameter name."""
        return self.arguments.by_name(self.fn)

    @functools.cached_property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors among the arguments and in their parts."""
        return tensors_in(self.arguments.values())

    @functools.cached_property
    def tensors_by_name(self) -> list[tuple[str, list[torch.Tensor]]]:
        """The arguments that contain tensors, each with its name."""
        return [(name, tensors) for name, value in self.by_name.items() if (tensors := tensors_in(value))]

    @functools.cached_property
    def may_be_indices(self) -> Callable[[torch.Tensor], bool]:
        """A function that tells whether code may use a tensor as indices or counts."""
        return index_predicate(self.arguments, self.fn)

    @functools.cached_property
    def has_variable_exponents(self) -> bool:
        """Whether code computes a power whose exponent is not a constant."""
        return uses_variable_exponents(self.arguments, self.fn)

    def differs_from(self, arguments: Arguments) -> bool:
        """Return whether other arguments differ from the original ones."""
        original = self.arguments.args, self.arguments.kwargs
        return describe_difference(original, (arguments.args, arguments.kwargs)) is not None

    def map(self, change: Change) -> Arguments:
        """Return the arguments with a change to each tensor."""
        return map_tensors(self.arguments, change)

    def map_numbers(self, change: Change) -> Arguments:
        """Return the arguments with a change to each tensor that is not used as indices."""
        return self.map(unless(self.may_be_indices, change))

    def with_argument(self, name: str, value: Any) -> Arguments:
        """Return the arguments with a different value for one of them."""
        return self.arguments.with_argument(self.fn, name, value)

    def make_input(
        self, description: str, arguments: Arguments, state: Mapping[str, Any] | None = None, kind: str = ""
    ) -> Input:
        """Return an input that is special; see :class:`Input`."""
        example = example_of(description, arguments, self.fn)
        return Input(arguments, example, is_special=True, state=state or {}, different_kind=kind)


def derived_inputs(original_arguments: Arguments, fn: Callable[..., Any]) -> Iterator[Input]:
    """Yield inputs for a function that are derived from an accepted one, most revealing first.

    Changed tensor values come first, then changed Python numbers, flags and strings, then changed sizes. Dtypes and
    modules stay the same. Constants in the function's code hint at the conditions of its branches. Indices, such as
    those for an embedding, stay within the range of the original ones.
    """
    call = OriginalCall(original_arguments, fn)
    for description, change in _value_changes(call):
        arguments = call.map(change)
        if call.differs_from(arguments):
            yield Input(arguments, example_of(description, arguments, fn))
    change = unless(call.may_be_indices, randomize, randomize_within_range)
    special_changes = itertools.chain(_python_changes(call), _size_changes(call))
    for description, arguments in itertools.islice(special_changes, _MAX_SPECIAL_INPUTS):
        yield call.make_input(description, arguments)
        # Two branches may agree for the original values: 1 + 1 equals 1 * 2.
        changed_arguments = map_tensors(arguments, change)
        if tensors_in(changed_arguments.values()):
            yield call.make_input(f"{description}, random", changed_arguments)


def _value_changes(call: OriginalCall) -> Iterator[tuple[str, Any]]:
    named_values = [(name, value) for name, value in call.by_name.items() if tensors_in(value)]
    if not named_values:
        return
    is_single_tensor = len(named_values) == 1 and is_instance(named_values[0][1], torch.Tensor)
    target = named_values[0][0] if is_single_tensor else "all tensors"
    may_be_indices = call.may_be_indices
    yield f"{target} negated", unless(may_be_indices, negate, roll)
    yield f"{target} zero", unless(may_be_indices, torch.zeros_like, fill_with_minimum)
    if target == "all tensors":
        for name, value in named_values[:3]:
            yield f"{name} negated", only_for(tensors_in(value), unless(may_be_indices, negate, roll))
    yield f"{target} ten times as large", unless(may_be_indices, multiply_by_ten)
    yield f"{target} reversed", lambda tensor: tensor.flip(0) if tensor.dim() else tensor
    yield f"{target} random", unless(may_be_indices, randomize, randomize_within_range)
    if any(map(looks_like_indices, call.tensors)):
        yield "integers in a different order", unless(looks_like_indices, identity, roll)
    for constant in numbers_in_code(call.fn):
        fill = functools.partial(fill_with, number=constant + 1)
        yield f"{target} filled with {constant + 1:g}", unless(may_be_indices, fill)
    # Two branches may agree for round numbers.
    yield f"{target} random, negated", unless(may_be_indices, lambda tensor: negate(randomize(tensor)))
    yield f"{target} with a nan", lambda tensor: replace_first(tensor, float("nan"))
    yield f"{target} with an inf", lambda tensor: replace_first(tensor, float("inf"))


def _python_changes(call: OriginalCall) -> Iterator[tuple[str, Arguments]]:
    for name, value in call.by_name.items():
        new_values: list[Any] = []
        if is_instance(value, bool):
            new_values = [not value]
        elif is_instance(value, int):
            new_values = [value + 1, -value]
        elif is_instance(value, float):
            new_values = [-value, value * 2 + 1]
        elif is_instance(value, str | enum.Enum):
            new_values = alternative_choices(call.fn, value)
        for new_value in new_values:
            yield f"{name} = {short_repr(new_value)}", call.with_argument(name, new_value)


def _size_changes(call: OriginalCall) -> Iterator[tuple[str, Arguments]]:
    tensors = call.tensors
    sizes = list(dict.fromkeys(size for tensor in tensors for size in tensor.shape if size))
    hinted_lengths = [
        int(number) + offset for number in numbers_in_code(call.fn) if float(number).is_integer() for offset in (1, 0)
    ]
    for size in sizes[:2]:
        for new_size in dict.fromkeys([size + 1, *(length for length in hinted_lengths if 0 < length <= _MAX_SIZE), 1]):
            if new_size != size:
                change = functools.partial(resize, size=size, new_size=new_size)
                yield f"size {new_size} instead of {size}", call.map(change)

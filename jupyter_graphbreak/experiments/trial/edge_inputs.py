"""Derive inputs at the edge of what a function accepts: empty, huge, with zeros, or of different kinds."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import itertools
import math
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.trial.code_hints import (
    MAX_CONSTANTS,
    alternative_choices,
    alternative_strings,
    constants_in_code,
    default_values,
    lookup_table_lengths,
    names_in_code,
    numbers_in_user_code,
    reads_gradients,
    tested_variables,
)
from jupyter_graphbreak.experiments.trial.inputs import (
    COLUMN_SUFFIX,
    DIFFERENT_SIZE_SUFFIX,
    EXTRA_DIMENSION_SUFFIX,
    FLAG_SUFFIX,
    LONGER_LAST_ITEM_SUFFIX,
    NOT_CONTIGUOUS_KIND,
    TRANSPOSED_KIND,
    ZERO_DIMENSIONAL_SUFFIX,
    Input,
    OriginalCall,
)
from jupyter_graphbreak.experiments.trial.tensor_changes import (
    apply_change,
    as_scalar,
    contains_numbers,
    convert_numbers,
    fill_with,
    first_rows,
    identity,
    map_tensors,
    multiply_by_ten,
    negate,
    only_for,
    randomize,
    randomize_within_range,
    replace_first,
    resize,
    tensors_in,
    transpose,
    triple,
    unless,
    with_alternating_signs,
    with_extreme_integers,
    with_gaps,
    with_one_positive,
)
from jupyter_graphbreak.experiments.trial.values import short_repr
from jupyter_graphbreak.records.attributes import is_dataclass, is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.tensor_changes import Change

    #: The name of a kind of tensor, and a function that applies a change to a tensor and returns a result of this kind.
    _KindChange = tuple[str, Callable[[Change, torch.Tensor], torch.Tensor]]

_MAX_SIZES = 2
#: The maximum number of edge inputs with random tensors.
_MAX_RANDOM_INPUTS = 4
#: The dtypes that floating-point (``True``) and integer (``False``) tensors get in edge inputs.
_EDGE_DTYPES = {True: (torch.int64, torch.float64, torch.float16, torch.bool), False: (torch.float32, torch.int32)}
#: Numbers that fill all tensors of edge inputs.
_EXTREME_NUMBERS = {"ones": 1.0, "infinite": math.inf, "nan": math.nan, "-inf": -math.inf, "-0.0": -0.0}
#: The huge number in edge inputs, and the smaller one that takes its place if code may use it as an exponent.
_HUGE, _HUGE_EXPONENT = 1e30, 1e4
#: The suffixes of the descriptions of tensors with numbers that are not finite.
_NOT_FINITE = ("nan", "inf", "infinite")
#: The maximum number of edge numbers to combine with tensors that require gradients.
_MAX_NUMBERS_WITH_GRADIENTS = 16
#: The maximum number of arguments whose tensors become zero, get a different dtype or require gradients, one at a time.
_MAX_SINGLE_ARGUMENTS = 3
#: The maximum number of keys to leave out of a dict, one at a time.
_MAX_MISSING_KEYS = 3
#: The maximum number of edge values for one item of a list or tuple.
_MAX_ITEM_VALUES = 2
_TENSORS_WITH_GRAD_KIND = "tensors that have a .grad"
#: The maximum number of parameters whose tensors get one more dimension.
_MAX_RAISED_RANKS = 3
#: Values that a caller may pass in place of a tensor that the function tests.
_TENSOR_SUBSTITUTES: tuple[Any, ...] = (None, [])
#: Numbers that a caller may pass for a parameter that is ``None``.
_OPTIONAL_NUMBERS = (2.0, 0.0)
#: The maximum number of parameters that are ``None`` and get a number.
_MAX_OPTIONAL_PARAMETERS = 3
#: The maximum number of tensors among which every pair shares memory in one input.
_MAX_SHARING_TENSORS = 3
#: The maximum number of constants in the code to use as elements or lengths.
_MAX_CODE_NUMBERS = 8
#: The maximum number of tables whose lengths are used.
_MAX_LOOKUP_TABLES = 4
# The next three limits prevent runs that take much longer than the original one.
#: The largest length to take from the code.
_MAX_LENGTH = 4096
#: The maximum ratio of a length from the code to the original length.
_MAX_GROWTH = 64
#: The maximum number of elements of a tensor with a length from the code.
_MAX_ELEMENTS = 1 << 16
#: Names that code uses to read the number in a tensor.
_NUMBER_READERS = frozenset({"item", "tolist", "int", "float"})


def edge_inputs(original_arguments: Arguments, fn: Callable[..., Any], state: Mapping[str, Any]) -> Iterator[Input]:
    """Yield edge inputs for a function, most revealing first.

    The inputs contain, among other things, empty tensors; tensors of zeros, and of huge, infinite and NaN values;
    tensors of different lengths and dtypes, and with gradients; zero, negative and large Python numbers; and empty,
    shorter and longer lists. A function may reject them. ``state`` contains the numbers, flags, strings and tensors
    that the function reads from globals, closures and attributes, by name.
    """
    call = OriginalCall(original_arguments, fn)
    # A number may matter in one branch only, and the tensors decide which branch is taken.
    nonzero_variants: dict[str, Change] = {
        "": identity,
        ", all tensors negated": unless(call.may_be_indices, negate),
        ", all tensors random": unless(call.may_be_indices, randomize, randomize_within_range),
    }
    variants = {**nonzero_variants, ", all tensors zero": unless(call.may_be_indices, torch.zeros_like)}
    if not call.tensors:
        variants = {"": identity}
    for description, arguments in _changes_of_arguments(call, variants):
        if call.differs_from(arguments):
            yield call.make_input(description, arguments)
    settings = list(_changes_of_state(call, state))
    for values in settings:
        description = ", ".join(f"{name} = {short_repr(value)}" for name, value in values.items())
        for suffix, change in variants.items():
            yield call.make_input(f"{description}{suffix}", call.map(change), values)
    divisors = [values for values in settings if any(map(_is_zero_or_infinite, values.values()))]
    yield from _gradients_with_state(call, divisors[:_MAX_NUMBERS_WITH_GRADIENTS], nonzero_variants)
    for description, kind, arguments in itertools.chain(
        _edge_numbers_with_gradients(call, variants), _kind_changes(call)
    ):
        yield call.make_input(description, arguments, kind=kind)
    if reads_gradients(original_arguments, fn):
        yield _input_with_grads(call, state)
    for description, arguments in _length_changes_from_code(call, state):
        yield call.make_input(description, arguments)


def _changes_of_arguments(call: OriginalCall, variants: Mapping[str, Change]) -> Iterator[tuple[str, Arguments]]:
    """Yield descriptions and changed arguments of the same kinds, with each variant of the tensors."""
    yield from _row_count_changes(call)
    for description, changed_arguments in itertools.chain(_edge_python_values(call), _unknown_string_changes(call)):
        for suffix, change in variants.items():
            yield f"{description}{suffix}", map_tensors(changed_arguments, change)
    yield from _extreme_value_changes(call)
    yield from _zero_arguments(call)
    yield from _length_changes(call)
    yield from _fill_with_code_numbers(call)


def _changes_of_state(call: OriginalCall, state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield new values, by name, for the state that a function reads."""
    for name, value in state.items():
        for new_value in alternative_strings(call.fn, value) if type(value) is str else _edge_values(call, value):
            yield {name: new_value}
    zeros = {name: 0 for name, value in state.items() if type(value) is int}
    if len(zeros) > 1:
        yield zeros


def _input_with_grads(call: OriginalCall, state: Mapping[str, Any]) -> Input:
    """Return the original input with a ``.grad`` on its floating-point tensors and on those in the state."""
    values = {name: _with_grad(value) for name, value in state.items() if is_instance(value, torch.Tensor)}
    return call.make_input(_TENSORS_WITH_GRAD_KIND, call.map(_with_grad), values, _TENSORS_WITH_GRAD_KIND)


def _kind_changes(call: OriginalCall) -> Iterator[tuple[str, str, Arguments]]:
    """Yield a description, a kind and arguments of that kind, with different dtypes, layouts, shapes, memory or types.

    Each kind comes with several values of the tensors, so that most conditions are true for some and false for others.
    """
    values: dict[str, Change] = {
        "": triple,
        ", negated": lambda tensor: negate(triple(tensor)),
        ", zero": torch.zeros_like,
    }
    for kind, change in itertools.chain(_gradient_changes(call), _dtype_changes(call), _layout_changes(call)):
        for suffix, make_values in values.items():
            yield f"{kind}{suffix}", kind, call.map_numbers(functools.partial(change, make_values))
    yield "all tensors empty", "empty tensors", call.map(functools.partial(first_rows, count=0))
    for name, tensors in call.tensors_by_name[:_MAX_RAISED_RANKS]:
        # Python can test only a tensor with one element.
        if len(call.tensors_by_name) > 1 or any(tensor.numel() == 1 for tensor in tensors):
            kind = f"{name} {EXTRA_DIMENSION_SUFFIX}"
            yield kind, kind, call.map(only_for(tensors, lambda tensor: torch.stack([tensor, tensor])))
        if any(tensor.dim() == 1 for tensor in tensors):
            kind = f"{name} {COLUMN_SUFFIX}"
            yield kind, kind, call.map(only_for(tensors, lambda tensor: tensor.unsqueeze(-1)))
    for name, description, arguments in _shrunk_arguments(call):
        if _shares_size(call, name):
            kind = f"{description}, {DIFFERENT_SIZE_SUFFIX}"
            yield description, kind, arguments
            # If all numbers are equal, one row that is broadcast gives the same result as all rows; different numbers
            # may reveal that the argument lacks rows.
            number_changes: dict[str, Change] = {"negated": negate, "ones": torch.ones_like}
            for suffix, make_values in number_changes.items():
                changed_arguments = map_tensors(arguments, unless(call.may_be_indices, make_values))
                yield f"{description}, all tensors {suffix}", kind, changed_arguments
    yield from _longer_last_items(call)
    yield from _shared_memory_changes(call)
    yield from _argument_kind_changes(call)
    yield from _optional_argument_changes(call)
    yield from _gradients_of_one_argument(call, values)
    yield from _dtypes_of_one_argument(call)
    # An operation for integers, such as `//`, may have no gradient.
    if torch.is_grad_enabled() and any(contains_numbers(tensor, is_floating=False) for tensor in call.tensors):
        kind = "float32 tensors that require gradients"
        for suffix, make_values in values.items():
            change = functools.partial(_as_floats_with_requires_grad, make_values)
            yield f"{kind}{suffix}", kind, call.map_numbers(change)


def _dtypes_of_one_argument(call: OriginalCall) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments in which one argument has a different dtype, because each branch may use a different argument."""
    values: dict[str, Change] = {"": identity, ", negated": negate}
    for is_floating in (True, False):
        dtypes_by_name = [
            (name, dtypes)
            for name, tensors in call.tensors_by_name
            if (dtypes := {tensor.dtype for tensor in tensors if contains_numbers(tensor, is_floating=is_floating)})
        ]
        for name, dtypes in dtypes_by_name[:_MAX_SINGLE_ARGUMENTS] if len(dtypes_by_name) > 1 else []:
            dtype = torch.float64 if is_floating and dtypes != {torch.float64} else torch.float32
            kind = f"{name} as {str(dtype).removeprefix('torch.')}"
            for suffix, make_values in values.items():
                changed_arguments = call.map_numbers(make_values)
                convert = functools.partial(convert_numbers, identity, dtype=dtype, is_floating=is_floating)
                tensors = tensors_in(changed_arguments.by_name(call.fn)[name])
                yield f"{kind}{suffix}", kind, map_tensors(changed_arguments, only_for(tensors, convert))


def _gradients_of_one_argument(
    call: OriginalCall, values: Mapping[str, Change]
) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments in which one argument requires gradients, because one branch may ignore or detach it."""
    names = [name for name, _ in call.tensors_by_name]
    changes = list(_gradient_changes(call)) if len(names) > 1 else []
    for name, (_, change) in itertools.product(names[:_MAX_SINGLE_ARGUMENTS], changes):
        kind = f"{name} requiring gradients"
        for suffix, make_values in values.items():
            changed_arguments = call.map_numbers(make_values)
            require_gradients = only_for(
                tensors_in(changed_arguments.by_name(call.fn)[name]), functools.partial(change, identity)
            )
            yield f"{kind}{suffix}", kind, map_tensors(changed_arguments, require_gradients)
        # Perhaps the result depends on the argument only if that is not empty.
        tensors, empty = tensors_in(call.by_name[name]), functools.partial(first_rows, count=0)
        kind = f"{kind}, empty, {DIFFERENT_SIZE_SUFFIX}"
        yield (
            f"{name} empty and requiring gradients",
            kind,
            call.map(only_for(tensors, functools.partial(change, empty))),
        )


def _longer_last_items(call: OriginalCall) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments with a list or tuple whose last tensor is longer, because a loop may not reach that tensor."""
    for name, value in call.by_name.items():
        is_long_list = type(value) in {list, tuple} and len(value) > 1
        if not is_long_list or not all(is_instance(item, torch.Tensor) and item.dim() for item in value):
            continue
        longer_tensor = apply_change(value[-1], lambda tensor: torch.cat([tensor, tensor[:1]]))
        arguments = call.with_argument(name, type(value)([*value[:-1], longer_tensor]))
        values: dict[str, Change] = {"": identity, ", negated": negate, ", ten times as large": multiply_by_ten}
        for suffix, change in values.items():
            changed_arguments = map_tensors(arguments, unless(call.may_be_indices, change))
            yield f"{name} with {LONGER_LAST_ITEM_SUFFIX}{suffix}", LONGER_LAST_ITEM_SUFFIX, changed_arguments


def _argument_kind_changes(call: OriginalCall) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments with a different kind of value for one parameter.

    A tensor is replaced with the parameter's default or its negation, ``None``, an empty list or a flag. A flag is
    replaced with ``None``, and a dict loses a key.
    """
    defaults, tested_names = default_values(call.fn), tested_variables(call.fn)
    reads_numbers = not _NUMBER_READERS.isdisjoint(names_in_code(call.fn))
    flags = [name for name, value in call.by_name.items() if type(value) is bool]
    tested_flags = [name for name in flags if name in tested_names and name not in defaults]
    for name in tested_flags:  # a caller may pass None for False
        changed_arguments = call.with_argument(name, None)
        yield f"{name} = None", f"{name} = None", changed_arguments
        yield f"{name} = None, all tensors negated", f"{name} = None", map_tensors(changed_arguments, negate)
    for name, value in call.by_name.items():
        for omitted_key in itertools.islice(value, _MAX_MISSING_KEYS) if type(value) is dict else ():
            kind = f"{name} without {short_repr(omitted_key)}"
            changed_arguments = call.with_argument(
                name, {key: part for key, part in value.items() if key != omitted_key}
            )
            yield kind, kind, changed_arguments
            yield f"{kind}, all tensors negated", kind, map_tensors(changed_arguments, negate)
    tensors = {name: value for name, value in call.by_name.items() if is_instance(value, torch.Tensor)}
    for name, default in defaults.items():  # `_edge_python_values` covers a default of None
        if name in tensors and is_instance(default, bool | int | float):
            for new_value in dict.fromkeys([default, *([not default] if type(default) is bool else [])]):
                kind = f"{name} = {short_repr(new_value)}"
                yield kind, kind, call.with_argument(name, new_value)
    for name, value in tensors.items():
        if name in tested_names and name not in defaults:  # a caller may pass no tensor
            for substitute in _TENSOR_SUBSTITUTES:
                kind = f"{name} = {short_repr(substitute)}"
                yield kind, kind, call.with_argument(name, substitute)
        if (name in tested_names or reads_numbers) and value.numel() == 1 and value.dtype != torch.bool:
            for flag in (True, False):
                as_flag = only_for([value], functools.partial(torch.full_like, fill_value=flag, dtype=torch.bool))
                yield f"{name} = {flag}", f"{name} {FLAG_SUFFIX}", call.map(as_flag)


def _optional_argument_changes(call: OriginalCall) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments with a number, a tensor or a mask for a parameter that is ``None``."""
    optional_names = [name for name, value in (default_values(call.fn) | call.by_name).items() if value is None]
    tensors = [tensor.detach() for tensor in call.tensors[:1]]
    for name in optional_names[:_MAX_OPTIONAL_PARAMETERS]:
        for value in (*_OPTIONAL_NUMBERS, *(part for tensor in tensors for part in (tensor.clone(), tensor > 0))):
            kind = f"{name} = {short_repr(value)}"
            yield kind, kind, call.with_argument(name, value)


def _shared_memory_changes(call: OriginalCall) -> Iterator[tuple[str, str, Arguments]]:
    """Yield arguments in which one tensor is a view of another, so an in-place change to one changes both."""
    tensors = [(name, value) for name, value in call.by_name.items() if is_instance(value, torch.Tensor)]
    pairs = itertools.permutations(tensors[:_MAX_SHARING_TENSORS], 2)
    for (name, value), (other_name, other_tensor) in pairs:
        are_plain = type(value) is type(other_tensor) is torch.Tensor and not (
            value.requires_grad or other_tensor.requires_grad
        )
        if not are_plain or call.may_be_indices(value):  # the other tensor's numbers might not be valid indices
            continue
        is_part = (
            value.dtype == other_tensor.dtype
            and value.device == other_tensor.device
            and value.numel() <= other_tensor.numel()
        )
        if is_part and value.numel() and other_tensor.layout == torch.strided and other_tensor.is_contiguous():
            kind = f"{name} in the memory of {other_name}"
            memory = other_tensor.clone()  # runs replace the original tensor with a copy
            arguments = call.with_argument(other_name, memory)
            part = memory.view(-1)[: value.numel()].view(value.shape)
            yield kind, kind, arguments.with_argument(call.fn, name, part)


def _row_count_changes(call: OriginalCall) -> Iterator[tuple[str, Arguments]]:
    sizes = dict.fromkeys(tensor.shape[0] for tensor in call.tensors if tensor.dim())
    for size in list(sizes)[:_MAX_SIZES]:
        yield f"size 0 instead of {size}", call.map(functools.partial(resize, size=size, new_size=0))
    for name, description, arguments in _shrunk_arguments(call):
        if not _shares_size(call, name):
            yield description, arguments


def _shrunk_arguments(call: OriginalCall) -> Iterator[tuple[str, str, Arguments]]:
    """Yield each argument's name, a description, and arguments in which that argument alone is empty or has one row."""
    for name, value in call.by_name.items():
        if (tensors := tensors_in(value)) and len(call.by_name) > 1:
            for description, count in (("empty", 0), ("with one row", 1)):  # a size of one is broadcast
                change = only_for(tensors, functools.partial(first_rows, count=count))
                yield name, f"{name} {description}", call.map(change)


def _shares_size(call: OriginalCall, name: str) -> bool:
    """Return whether an argument's tensors share a size with those of other arguments; code may require equal sizes."""

    def sizes(value: Any) -> set[int]:
        return {size for tensor in tensors_in(value) for size in tensor.shape if size > 1}

    arguments_by_name = call.by_name
    return not sizes(arguments_by_name[name]).isdisjoint(
        size for other, value in arguments_by_name.items() if other != name for size in sizes(value)
    )


def _edge_python_values(call: OriginalCall) -> Iterator[tuple[str, Arguments]]:
    whole_numbers = [number for number in constants_in_code(call.fn) if type(number) is int][:MAX_CONSTANTS]
    defaults = default_values(call.fn)
    for name, value in (defaults | call.by_name).items():
        if is_instance(value, torch.Tensor | torch.nn.Module):
            new_values: Iterator[Any] = iter(())
        elif is_instance(value, str | enum.Enum):
            new_values = iter(
                alternative_strings(call.fn, value) if type(value) is str else alternative_choices(call.fn, value)
            )
        elif type(value) is int:  # code may subtract a constant: if the argument equals it, the result is zero
            new_values = itertools.chain(
                _edge_values(call, value), (number for number in dict.fromkeys(whole_numbers) if number != value)
            )
        else:
            new_values = itertools.chain(_edge_values(call, value), _edge_values_of_parts(call, value))
        for new_value in new_values:
            yield f"{name} = {short_repr(new_value)}", call.with_argument(name, new_value)
        if value is not None and name in defaults and defaults[name] is None:
            changed_arguments = call.with_argument(name, None)
            yield f"{name} = None", changed_arguments
            yield f"{name} = None, all tensors negated", map_tensors(changed_arguments, negate)


def _unknown_string_changes(call: OriginalCall) -> Iterator[tuple[str, Arguments]]:
    """Yield arguments with an unknown string, because code may use a string as a name or convert it to a number."""
    for name, value in call.by_name.items():
        if type(value) is str and not alternative_strings(call.fn, value):
            yield f"{name} = {short_repr(f'not {value}')}", call.with_argument(name, f"not {value}")


def _edge_values_of_parts(call: OriginalCall, value: Any) -> Iterator[Any]:
    """Yield copies of a dict, dataclass, list or tuple with an edge value in place of one of its parts."""
    if type(value) is dict:
        for key, part in value.items():
            yield from (
                {**value, key: new_value}
                for new_value in _edge_values(call, part)
                if not is_instance(part, torch.Tensor)
            )
    elif type(value) in {list, tuple}:
        for index in sorted({0, len(value) - 1} & set(range(len(value)))):  # code after a loop reads the last item
            part = value[index]
            new_values = _edge_values(call, part) if is_instance(part, bool | int | float) else iter(())
            for new_value in itertools.islice(new_values, _MAX_ITEM_VALUES):
                yield type(value)([*value[:index], new_value, *value[index + 1 :]])
    elif is_dataclass(value) and not is_instance(value, type | torch.nn.Module):
        for field_ in dataclasses.fields(value):
            part = getattr(value, field_.name, None)
            for new_value in _edge_values(call, part) if not is_instance(part, torch.Tensor) else ():
                result = copy.copy(value)
                object.__setattr__(result, field_.name, new_value)
                yield result


def _edge_values(call: OriginalCall, value: Any) -> Iterator[Any]:
    """Yield edge values of the same type as a value.

    These are zero, negative and large numbers, infinity and NaN; the opposite flag; lists and tuples of different
    lengths; and tensors of zeros, of the opposite sign and of infinite numbers.
    """
    if is_instance(value, bool):
        yield not value
    elif is_instance(value, int):
        yield from (new_value for new_value in dict.fromkeys((0, -1, 1, value + 1, -value, 1000)) if new_value != value)
    elif is_instance(value, float):
        new_values = (0.0, -1.5, -value, value * 2 + 1, _huge_number(call), float("inf"), float("nan"))
        yield from (new_value for new_value in dict.fromkeys(new_values) if new_value != value)
    elif is_instance(value, list | tuple) and type(value) in {list, tuple} and value:
        yield value[:0]
        yield value[:1]
        yield type(value)([*value, value[-1]])
    elif is_instance(value, torch.Tensor) and value.layout == torch.strided and not value.is_meta:
        with torch.no_grad():
            changes = (torch.zeros_like, negate, lambda tensor: fill_with(tensor, float("inf")))
            yield from (change(value.detach()).requires_grad_(value.requires_grad) for change in changes)


def _huge_number(call: OriginalCall) -> float:
    """Return a huge number, or a smaller one if a power with it as the exponent could exhaust the memory."""
    return _HUGE_EXPONENT if call.has_variable_exponents else _HUGE


def _extreme_value_changes(call: OriginalCall) -> Iterator[tuple[str, Arguments]]:
    changes: dict[str, Change] = {
        "with one positive number": unless(call.may_be_indices, with_one_positive),
        **{
            description: unless(call.may_be_indices, functools.partial(fill_with, number=number))
            for description, number in {**_EXTREME_NUMBERS, "huge": _huge_number(call)}.items()
        },
        "extreme": unless(call.may_be_indices, with_extreme_integers),
        "with a nan": lambda tensor: replace_first(tensor, math.nan),
        "with an inf": lambda tensor: replace_first(tensor, math.inf),
        "tiny": lambda tensor: tensor * 1e-30 if tensor.is_floating_point() else tensor,
        "with a zero": lambda tensor: replace_first(tensor, 0.0),
        "with alternating signs": unless(call.may_be_indices, with_alternating_signs),
    }
    for description, change in changes.items():
        yield f"all tensors {description}", call.map(change)
    for seed in range(2, 2 + _MAX_RANDOM_INPUTS):
        change = unless(call.may_be_indices, functools.partial(randomize, seed=seed))
        yield f"all tensors random, {seed}", call.map(change)


def _zero_arguments(call: OriginalCall) -> Iterator[tuple[str, Arguments]]:
    """Yield arguments with only one argument's tensors zero, because a result may not be finite if all are."""
    tensors_by_name = call.tensors_by_name
    for name, tensors in tensors_by_name[:_MAX_SINGLE_ARGUMENTS] if len(tensors_by_name) > 1 else ():
        yield f"{name} zero", call.map_numbers(only_for(tensors, torch.zeros_like))


def _length_changes(call: OriginalCall, only_length: int | None = None) -> Iterator[tuple[str, Arguments]]:
    tensors = call.tensors
    sizes = list(dict.fromkeys(size for tensor in tensors for size in tensor.shape if size))
    for size in sizes[:_MAX_SIZES]:
        for new_size in dict.fromkeys((1, size - 1, size + 1, 2 * size)):
            if new_size not in {size, 0} and only_length in {None, new_size}:
                change = functools.partial(resize, size=size, new_size=new_size)
                yield f"size {new_size} instead of {size}", call.map(change)


def _fill_with_code_numbers(call: OriginalCall) -> Iterator[tuple[str, Arguments]]:
    """Yield arguments whose tensors are filled with a number from the code, because code may subtract that number."""
    for number in numbers_in_user_code(call.arguments, call.fn)[:_MAX_CODE_NUMBERS]:
        change = functools.partial(fill_with, number=number)
        yield f"all tensors filled with {number:g}", call.map_numbers(change)


def _length_changes_from_code(call: OriginalCall, state: Mapping[str, Any]) -> Iterator[tuple[str, Arguments]]:
    """Yield arguments whose tensors are as long as a lookup table or a constant in the code, or longer by one."""
    whole_numbers = [
        int(number) for number in numbers_in_user_code(call.arguments, call.fn) if float(number).is_integer()
    ]
    lengths = [length for length in whole_numbers if length <= _MAX_LENGTH][:_MAX_CODE_NUMBERS]
    lengths += [length for length in lookup_table_lengths(call.arguments, call.fn, state) if length <= _MAX_LENGTH][
        :_MAX_LOOKUP_TABLES
    ]
    tensors = call.tensors
    sizes = list(dict.fromkeys(size for tensor in tensors for size in tensor.shape if size))[:_MAX_SIZES]
    largest_count = max((tensor.numel() for tensor in tensors), default=0)
    for size in sizes:
        possible_sizes = (new_size for length in lengths for new_size in (length + 1, length))
        # Other inputs have sizes of up to twice the original one.
        for new_size in dict.fromkeys(new_size for new_size in possible_sizes if new_size > 2 * size):
            if new_size <= _MAX_GROWTH * size and largest_count // size * new_size <= _MAX_ELEMENTS:
                longer_arguments = call.map(functools.partial(resize, size=size, new_size=new_size))
                yield f"size {new_size} instead of {size}", longer_arguments
                negated_arguments = map_tensors(longer_arguments, unless(call.may_be_indices, negate))
                yield f"size {new_size} instead of {size}, all tensors negated", negated_arguments


def _gradient_changes(call: OriginalCall) -> Iterator[_KindChange]:
    """Yield a change that makes tensors require gradients, because merged branches may differ only in gradients."""
    tensors = [tensor for tensor in call.tensors if tensor.is_floating_point()]
    if torch.is_grad_enabled() and not all(tensor.requires_grad for tensor in tensors):
        yield "tensors that require gradients", _with_requires_grad


def _edge_numbers_with_gradients(
    call: OriginalCall, variants: Mapping[str, Change]
) -> Iterator[tuple[str, str, Arguments]]:
    """Yield edge numbers with tensors that require gradients, because the branch not taken may have a NaN gradient."""
    for kind, change in _gradient_changes(call):
        require_gradients = functools.partial(change, identity)
        numbers = (
            (f"{description}{suffix}", map_tensors(changed_arguments, change))
            for description, changed_arguments in itertools.islice(
                _edge_python_values(call), _MAX_NUMBERS_WITH_GRADIENTS
            )
            for suffix, change in variants.items()
        )
        unchanged_numbers = [("the same values", call.arguments)]
        # Perhaps only a value that is not finite leads to a branch without gradients, such as `return zeros_like(x)`.
        not_finite = (
            (text, changed_arguments)
            for text, changed_arguments in _extreme_value_changes(call)
            if text.endswith(_NOT_FINITE)
        )
        # The standard deviation of a single number is NaN.
        for description, changed_arguments in itertools.chain(
            unchanged_numbers,
            numbers,
            not_finite,
            _zero_arguments(call),
            _length_changes(call, only_length=1),
            _row_count_changes(call),
        ):
            yield f"{description}, {kind}", kind, map_tensors(changed_arguments, require_gradients)


def _gradients_with_state(
    call: OriginalCall, settings: Iterable[dict[str, Any]], variants: Mapping[str, Change]
) -> Iterator[Input]:
    """Yield inputs that combine edge numbers in the state with tensors that require gradients."""
    for kind, require_gradients in _gradient_changes(call):
        for values, (suffix, change) in itertools.product(settings, variants.items()):
            arguments = call.map(functools.partial(require_gradients, change))
            description = ", ".join(f"{name} = {short_repr(value)}" for name, value in values.items())
            yield call.make_input(f"{description}{suffix}, {kind}", arguments, values, kind)


def _is_zero_or_infinite(value: Any) -> bool:
    return type(value) in {int, float} and (value == 0 or math.isinf(value))


def _with_requires_grad(change: Change, value: torch.Tensor) -> torch.Tensor:
    if value.dtype == torch.bool:
        return change(value)
    return change(value).detach().clone().requires_grad_() if value.is_floating_point() else value


def _as_floats_with_requires_grad(change: Change, value: torch.Tensor) -> torch.Tensor:
    result = convert_numbers(change, value, torch.float32, is_floating=False)
    return _with_requires_grad(identity, result) if contains_numbers(value, is_floating=False) else result


def _with_grad(value: torch.Tensor) -> torch.Tensor:
    result = _with_requires_grad(identity, value)
    if result.is_leaf and result.requires_grad:
        result.grad = torch.full_like(result, 2.0)
    return result


def _dtype_changes(call: OriginalCall) -> Iterator[_KindChange]:
    """Yield changes of all floating-point or all integer dtypes, because dtypes affect type promotion."""
    tensors = call.tensors
    for is_floating, dtypes in _EDGE_DTYPES.items():
        present_dtypes = {tensor.dtype for tensor in tensors if contains_numbers(tensor, is_floating=is_floating)}
        for dtype in dtypes if present_dtypes else ():
            if present_dtypes != {dtype}:
                conversion = functools.partial(convert_numbers, dtype=dtype, is_floating=is_floating)
                yield f"{str(dtype).removeprefix('torch.')} tensors", conversion
        # A 0-d tensor of a larger dtype promotes these 0-d tensors; a Python number does not.
        small_dtypes = (torch.float16, torch.int32) if is_floating else (torch.int32,)
        for dtype in small_dtypes if present_dtypes else ():
            description = f"{ZERO_DIMENSIONAL_SUFFIX} {str(dtype).removeprefix('torch.')} tensors"
            yield description, functools.partial(as_scalar, dtype=dtype, is_floating=is_floating)


def _layout_changes(call: OriginalCall) -> Iterator[_KindChange]:
    """Yield changes that give tensors strides with gaps, as in a slice, and transposed strides with gaps."""
    max_dim = max((tensor.dim() for tensor in call.tensors), default=0)
    if max_dim > 0:
        yield NOT_CONTIGUOUS_KIND, with_gaps
    if max_dim > 1:
        yield (
            TRANSPOSED_KIND,
            lambda change, value: transpose(with_gaps(lambda value: transpose(change(value)), value)),
        )

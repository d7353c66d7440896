"""Describe guards that failed: what varied between the calls, and how to avoid it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

from jupyter_graphbreak.report.guards import (
    BREAK_RESULT_PREFIX,
    METHOD_OWNER,
    changed_settings,
    is_about_number_from_break,
    name_of_function_variable,
    names_of_keeping_function,
    plain_guard,
    steps_left_in_loop,
    tensor_index_advice,
)
from jupyter_graphbreak.report.schema import GuardFailure
from jupyter_graphbreak.views.words.locations import line_text, text_of_function
from jupyter_graphbreak.views.words.plain_text import join_with_and
from jupyter_graphbreak.views.words.varied_numbers import VariedNumber, advice_on_number, is_number, owner_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from jupyter_graphbreak.report.cost import BlockDifference
    from jupyter_graphbreak.report.location import HeadKind, Location, Source
    from jupyter_graphbreak.report.schema import Report, RunError

    #: A guard that failed.
    _Failure = GuardFailure | BlockDifference

_VALUE_GUARD = re.compile(r"(?P<name>[\w.\[\]'\"]+|len\([^()]+\)) == (?P<value>.+)")
#: PyTorch's message if a dict has a different number of keys: "len(batch) != 2".
_KEY_COUNT_GUARD = re.compile(r"(?P<name>len\([^()]+\)) != (?P<value>\d+)")
#: A guard on the value of a tensor with one element, which the code uses as a number.
_TENSOR_VALUE_GUARD = re.compile(r"(?P<name>[\w.\[\]'\"]+)\.item\(\) == (?P<value>.+)")
#: A guard on a tensor: "tensor 'x' size mismatch at index 0. expected 2, actual 3".
#: Its parts are matched one after the other, because a single pattern for all of it could be slow on hostile text.
_TENSOR_GUARD = re.compile(
    r"' (?P<property>\w+) mismatch(?: at index (?P<index>\d+))?\. expected (?P<old>[^,]+)(?=,|$)"
)
_TENSOR_GUARD_START = "tensor '"
#: A size of a tensor in an expression, such as "((1 + x.size()[0]) // 2) == 2".
_SIZE_EXPRESSION = ".size()["
_SIZE_IN_EXPRESSION = re.compile(r"(?<![\w.\[\]'\"])(?P<name>[\w.\[\]'\"]+)\.size\(\)\[(?P<index>\d+)\]")
_ACTUAL_START = ", actual "
#: The end of the name of a buffer or parameter in a guard on its size.
_REGISTERED_TENSOR = re.compile(r"\._(?P<kind>buffer|parameter)s\['[^']+'\]' size mismatch")
#: A guard on a size that a graph for all sizes but 0 and 1 has: "2 <= x.size()[0]".
_SIZE_BOUND = re.compile(r"2 <= (?P<name>.+)\.size\(\)\[(?P<index>\d+)\]")
#: A guard on a range that a condition on a size leaves: "2 <= x.size()[0] <= 4".
_SIZE_RANGE = re.compile(r"(?P<low>\d+) <= (?P<name>[\w.\[\]'\"]+)\.size\(\)\[(?P<index>\d+)\] <= (?P<high>\d+)")
#: A guard on the dispatch keys of a tensor, which its device and modes such as inference mode decide.
_DISPATCH_KEYS = re.compile(
    r"tensor '(?P<name>.+)' dispatch key set mismatch\. expected DispatchKeySet\((?P<old>[^)]*)\), "
    r"actual DispatchKeySet\((?P<new>[^)]*)\)"
)
#: A guard on the offset of a tensor in its storage: "2 <= x.storage_offset()".
_OFFSET_GUARD = re.compile(r"(?:\d+ <= )?(?P<name>[\w.\[\]'\"]+)\.storage_offset\(\)(?: (?:==|!=|<=) \d+)?")
#: A guard on whether a value is None: "mask is None", "mask is not None".
_NONE_GUARD = re.compile(r"(?P<name>[\w.\[\]'\"]+) is (?:not )?None")
#: A guard on the identity or type of an object: "___check_obj_id(fn, 140), type=<class 'function'>".
_IDENTITY_GUARD = re.compile(r"___check_(?P<kind>obj|type)_id\((?P<name>.+), \d+\)(?:, type=(?P<type>.+))?", re.DOTALL)
#: A guard on a key of a dict: "not ___dict_contains('z', optimizer.state[p])".
_KEY_GUARD = re.compile(r"(?:not )?___dict_contains\((?P<key>[^,]+), (?P<dict>.+)\)")
#: PyTorch's message if an object that compiled code refers to was freed.
_FREED_OBJECT = re.compile(r"Cache line invalidated because (?P<name>.+) got deallocated")
#: Dynamo's name for a value that the code at a break returned, or for a part of it: "___stack2[6].next_state".
_BREAK_RESULT = re.compile(rf"{BREAK_RESULT_PREFIX}\d+(?P<part>.*)", re.DOTALL)
#: A line with a break may have read an object before the break, such as the bound method in `xs.append(y.item())`.
#: Without the break, the code is recompiled as well, because the length of such a list varies.
_FREED_OBJECT_ADVICE = "call the method after the compiled function, with a value that the function returns"
#: The beginning of PyTorch's message if `torch.compile` was called for the same code with a different backend.
_BACKEND_GUARD_START = "BACKEND_MATCH failure: "
#: The advice that PyTorch adds to a guard on a parameter; it is not part of the value.
_PARAMETER_HINT_START = ". Guard failed on a parameter, consider using "
#: A guard on the type of a tensor: "expected type of 'x' to be a tensor type, ' but found <class 'float'>".
_TENSOR_TYPE_GUARD = re.compile(
    r"expected type of '(?P<name>.+)' to be a tensor type, ' but found <class '(?P<type>.+)'>"
)
#: Python's message if a guard on a size, whose variable PyTorch does not name, finds a value that is not a tensor.
_NOT_A_TENSOR = re.compile(r"'(?P<type>\w+)' object has no attribute '(?:size|stride|storage_offset)'")
#: Readable names of tensor properties in guards.
_TENSOR_PROPERTIES = {"size": "dimension {index}", "stride": "stride {index}", "rank": "number of dimensions"}
_ADVICE_ON_FLAG = "nothing: each of the two values has its own graph, which is expected"
_OPPOSITE_FLAG = {"True": "False", "False": "True"}
#: The maximum number of lines of one guard to list.
_MAX_LINES = 3
#: The sizes for which PyTorch always compiles a separate graph.
_SPECIAL_SIZES = frozenset({"0", "1"})
_ADVICE_ON_SPECIAL_SIZES = "sizes 0 and 1 get their own graphs, even with `dynamic=True`: this is expected"
#: The advice for the size of a buffer, such as a cache that grows, or of a parameter.
_ADVICE_ON_REGISTERED_TENSOR = (
    "the sizes of a {kind} are constants, even with `dynamic=True`: keep the tensor in a plain attribute, without "
    "`register_{kind}`, or set `torch._dynamo.config.force_parameter_static_shapes = False`"
)
#: The advice for a size from which the code computes a number that each graph contains as a constant.
_ADVICE_ON_COMPUTED_NUMBER = (
    "the code turns a number computed from the size into a constant, even with `dynamic=True`: pad to a few sizes"
)
#: The values of a size that is at least 2 in one graph but not in another.
_ORDINARY_SIZES_TEXT, _OTHER_SIZES_TEXT = "2 or more", "0 or 1"
#: The beginning of the name of a range that sizes left.
RANGE_PREFIX = "the range of "
#: The beginning of advice on recompiles that are expected.
NOTHING_TO_DO_PREFIX = "nothing"
#: The advice for functions that are called with and without gradients.
_ADVICE_ON_GRAD_MODE = "nothing: calls with and without gradients have their own graphs, which is expected"
#: The advice for functions that are called with different settings of autocast.
_ADVICE_ON_AUTOCAST = "nothing: each setting of autocast has its own graph, which is expected"
#: The advice for functions that are called with different values of any other setting of PyTorch.
_ADVICE_ON_SETTING = "set it once, before the first call"
#: The advice for functions that are called in inference mode as well.
_ADVICE_ON_INFERENCE = "nothing: calls in inference mode have their own graph, which is expected"
#: The advice for a container that was empty in the first call, such as a cache.
_ADVICE_ON_EMPTY_CONTAINER = (
    "if the code fills `{name}`, as for a cache, ignore this one recompile, or fill it before the first compiled call; "
    "otherwise always pass the same length"
)
#: The advice for guards that a condition creates.
_ADVICE_ON_BRANCH = "each branch of the condition has its own graph, which is expected"
#: The advice for a container that grows with each call.
_ADVICE_ON_GROWING_CONTAINER = "`{name}` grows with each call: return the value, and add it after the call"
#: The methods that make a container grow.
_FILLING_METHODS = ("append", "extend", "insert")
#: The advice for a value without a name that code on a break's line computes.
_ADVICE_ON_BREAK_RESULT = "remove the break: this also prevents recompiles of this function"
#: The advice for code after a break that ends a loop early.
_ADVICE_ON_STEPS_LEFT = (
    "the code after the break is compiled for each step of the loop: remove the break, or call a compiled step from an "
    "uncompiled loop"
)
#: The advice for functions of optimizers, which are compiled for each optimizer.
_ADVICE_ON_OPTIMIZERS = "nothing: each optimizer has its own compiled code, as expected"
#: The advice for code that the first step of an optimizer changes.
_ADVICE_ON_FIRST_STEP = "nothing: the first step creates the optimizer's state, so this happens once"
#: A guard on the state of an optimizer, which is empty before the first step.
_OPTIMIZER_STATE = re.compile(r"len\(.*\bself\.state\b.*\) [!=]= 0|(?:not )?___dict_contains\([^,]+, self\.state\b.*\)")
#: A guard on a Python number in the state of an optimizer, such as its count of steps.
_FIRST_STEPS = re.compile(r".*\bself\.state\[.+\]\['\w+'\] == [01]")
_ADVICE_ON_FIRST_STEPS = "nothing: 0 and 1 get their own graphs, and all later values share one, as expected"
#: A number of an optimizer: ``self.param_groups[0]['lr']``.
_GROUP_NUMBER = re.compile(r"\.param_groups\[\d+\]\['(?P<key>\w+)'\]")
_OPTIMIZER_TYPE = re.compile(r"<class 'torch\.optim\.(?:\w+\.)*(?P<name>\w+)'>")
#: PyTorch's message about the stance that forbids recompiles.
_STANCE_ERROR_MESSAGE = "Detected recompile when torch.compile stance is 'fail_on_recompile'"
#: A guard in the message about the stance that forbids recompiles: "- 0/0: n == 1   # def f(x, n): ...".
_GUARD_IN_ERROR = re.compile(r"^ *- \d+/\d+: (?P<guard>\S[^\n]*?)(?: {2,}#[^\n]*)?$", re.MULTILINE)
#: A long series of values is cut to this many values at its beginning, and the last one.
_MAX_VALUES = 2


@dataclass(frozen=True, slots=True)
class FailedGuard:
    """A guard that failed because something varied between the calls.

    Parameters
    ----------
    variation : str
        The thing that varied and its values: "k: 2 -> 3 -> ... -> 9".
    recompile_count : int
        The number of recompiles in which this guard failed.
    locations : list of Location
        The lines that created the guard, if PyTorch reports them.
    advice : str
        Advice on avoiding the recompiles; empty if there is none.
    is_size : bool
        Whether the guard checks a size of a tensor.
    is_about_number_from_break : bool
        Whether the guard checks a number that the code at a break returned.
    is_about_gradients : bool
        Whether the guard checks whether a tensor requires gradients.
    """

    variation: str
    recompile_count: int
    locations: list[Location]
    advice: str
    is_size: bool = False
    is_about_number_from_break: bool = False
    is_about_gradients: bool = False


@dataclass(frozen=True, slots=True)
class _Variation:
    """The value that a guard expected, and the value that it found instead."""

    name: str
    old_value: str
    new_value: str | None
    advice: str
    #: The key that identifies the variable; ``name`` may be a description that several variables share.
    subject: str = ""
    #: Whether the value is a number that comes from the program.
    is_number: bool = False
    is_size: bool = False
    is_about_gradients: bool = False


def guard_lines_text(report: Report, guard: FailedGuard) -> str:
    """Return the first lines that created a guard as text: "line 7", "model.py:3 and model.py:9"; empty if unknown."""
    places = [line_text(report, location) for location in guard.locations[:_MAX_LINES]]
    more_count = len(guard.locations) - _MAX_LINES
    return join_with_and([*places, *([f"{more_count} more"] if more_count > 0 else [])])


def failed_guards(
    failures: Iterable[tuple[int, _Failure]],
    sources: Mapping[str, Source] = MappingProxyType({}),
    *,
    is_inner: bool = False,
    is_library: bool = False,
    is_module_method: bool = False,
) -> list[FailedGuard]:
    """Group guards that failed by the variable or the property that they check, most frequent group first.

    Parameters
    ----------
    failures : iterable of tuple
        The guards in the order in which they failed, each preceded by the index of the recompile.
    sources : mapping of str to Source
        The sources of the lines that created the guards, by id.
    is_inner : bool
        Whether the function is called between breaks: the program itself then passes no arguments to it.
    is_library : bool
        Whether the function belongs to a library: the reader cannot change its variables.
    is_module_method : bool
        Whether the function is a method of a module.
    """
    failures_by_subject: dict[str, list[tuple[int, _Failure, _Variation | None]]] = {}
    heads_by_size: dict[str, set[HeadKind | None]] = {}
    for index, reason in failures:
        if size := _size_with_constant_result(reason):
            heads_by_size.setdefault(size, set()).add(reason.head)
        source = sources.get(reason.location.source) if reason.location is not None else None
        is_read_by_library = source is not None and source.kind == "library"
        variation = _find_variation(
            reason.guard, is_inner=is_inner, is_library=is_library, is_read_by_library=is_read_by_library
        )
        subject = variation.subject or variation.name if variation is not None else readable_guard(reason.guard)
        failures_by_subject.setdefault(subject, []).append((index, reason, variation))
    guards = [
        _make_failed_guard(
            group, sources, heads_by_size.get(subject, set()), is_inner=is_inner, is_module_method=is_module_method
        )
        for subject, group in failures_by_subject.items()
    ]
    guards.sort(key=lambda guard: -guard.recompile_count)
    all_advice = [guard.advice for guard in guards]
    return [
        replace(guard, advice="") if guard.advice in all_advice[:index] else guard for index, guard in enumerate(guards)
    ]


def error_text(error: RunError) -> str:
    """Return the error that ended a run: its type and message, or the guards that required a forbidden recompile."""
    guards = [match["guard"] for match in _GUARD_IN_ERROR.finditer(error.message)]
    if not error.message.startswith(_STANCE_ERROR_MESSAGE) or not guards:
        return f"{error.type}: {error.message}" if error.message else error.type
    variations = [guard.variation for guard in failed_guards((0, GuardFailure(guard)) for guard in guards)]
    return f"{error.type}: the stance 'fail_on_recompile' forbids a recompile, but {join_with_and(variations)}"


def _size_with_constant_result(failure: _Failure) -> str:
    """Return the size from which the code computes a constant, such as "dimension 0 of x"; empty if there is none.

    The two graphs of a condition, and a remainder that each graph requires, leave ``dynamic=True`` useful.
    """
    guard = readable_guard(failure.guard)
    if " == " not in guard or " % " in guard or failure.head == "condition":
        return ""
    sizes = {_name_of_size(size["name"], size["index"]) for size in _SIZE_IN_EXPRESSION.finditer(guard)}
    return sizes.pop() if len(sizes) == 1 else ""


def _name_of_size(tensor: str, index: str) -> str:
    return f"dimension {index} of {tensor}"


def _make_failed_guard(
    group: list[tuple[int, _Failure, _Variation | None]],
    sources: Mapping[str, Source],
    heads_of_other_guards: set[HeadKind | None],
    *,
    is_inner: bool,
    is_module_method: bool,
) -> FailedGuard:
    """Return a failed guard.

    ``heads_of_other_guards`` are the kinds of the lines on which the code computes constants from the size that this
    guard checks, as other guards show.
    """
    variations = [(index, variation) for index, _, variation in group if variation is not None]
    places = dict.fromkeys(reason.location for _, reason, _ in group if reason.location is not None)
    is_size = bool(variations) and all(variation.is_size for _, variation in variations)
    last_advice = variations[-1][1].advice if variations else ""
    heads = {reason.head for _, reason, _ in group if reason.location is not None}
    # The guard on the number of pieces in `for piece in x.split(2):` contains an expression of the size.
    is_number_of_steps = not variations and "loop" in heads and _SIZE_EXPRESSION in group[0][1].guard
    advice = last_advice
    if (is_size and places) or is_number_of_steps:
        advice = _advice_on_constant_size(heads)
    elif is_size and heads_of_other_guards:
        is_loop = "loop" in heads_of_other_guards
        advice = _advice_on_constant_size(heads_of_other_guards) if is_loop else _ADVICE_ON_COMPUTED_NUMBER
    if (
        last_advice != _ADVICE_ON_FIRST_STEP
        and variations
        and {variation.old_value for _, variation in variations} == {"0"}
        and variations[0][1].name.startswith("len(")
    ):
        advice = _ADVICE_ON_EMPTY_CONTAINER.format(name=variations[0][1].name[4:-1])
    container = _growing_container(variations, places)
    if container:
        advice = _ADVICE_ON_GROWING_CONTAINER.format(name=container)
    is_range = any(_SIZE_RANGE.fullmatch(readable_guard(failure.guard)) for _, failure, _ in group)
    if heads == {"condition"} and (is_range or not variations):
        advice = _ADVICE_ON_BRANCH
    number = _varied_number(group, places, sources, is_inner=is_inner, is_module_method=is_module_method)
    if number is not None:
        advice = advice_on_number(number)
    if is_size and _has_one_ordinary_size(variation for _, variation in variations):
        advice = _ADVICE_ON_SPECIAL_SIZES
    elif is_size and advice == last_advice and _has_special_size(variation for _, variation in variations):
        advice = f"{_ordinary_advice(variations)}; sizes 0 and 1 get their own graphs even then"
    return FailedGuard(
        variation=_variation_text(variations) if variations else _failure_text(readable_guard(group[0][1].guard)),
        recompile_count=_count_recompiles(group),
        locations=list(places),
        advice=advice,
        is_size=is_size,
        is_about_number_from_break=is_about_number_from_break(group[0][1].guard),
        is_about_gradients=bool(variations) and all(variation.is_about_gradients for _, variation in variations),
    )


def _growing_container(variations: list[tuple[int, _Variation]], places: Iterable[Location]) -> str:
    """Return the name of a container to which each call adds something; empty if there is none."""
    names = {variation.name for _, variation in variations}
    name = names.pop() if len(names) == 1 else ""
    lengths = {variation.old_value for _, variation in variations}
    if not name.startswith("len(") or len(lengths) == 1:  # a single length may be that of an empty cache
        return ""
    container = name[4:-1]
    is_filled = any(f"{container}.{method}(" in (place.code or "") for place in places for method in _FILLING_METHODS)
    return container if is_filled else ""


def _count_recompiles(group: list[tuple[int, _Failure, _Variation | None]]) -> int:
    """Count the recompiles that a guard caused: those in which it failed for a version of the code for the first time.

    A version for tensors without gradients, for example, suits no later call with gradients, whatever else varies.
    """
    first_failures: dict[object, int] = {}
    for index, failure, _ in group:
        version = getattr(failure, "version", None)
        first_failures.setdefault((version, failure.guard) if version is not None else (index, ""), index)
    return len(set(first_failures.values()))


def _varied_number(
    group: list[tuple[int, _Failure, _Variation | None]],
    places: Collection[Location],
    sources: Mapping[str, Source],
    *,
    is_inner: bool,
    is_module_method: bool,
) -> VariedNumber | None:
    """Return the number on whose values guards failed, if it comes from the program; ``None`` for anything else."""
    numbers = [(failure, variation) for _, failure, variation in group if variation is not None and variation.is_number]
    if not numbers:
        return None
    failure, variation = numbers[-1]
    name = variation.subject
    return VariedNumber(
        name,
        list(dict.fromkeys(variation.old_value for _, variation in numbers)),
        owner_of(failure.guard, name, is_module_method=is_module_method),
        [place.code for place in places if place.code is not None],
        {failure.head for failure, _ in numbers},
        [text for place in places if (text := text_of_function(sources.get(place.source), place.line))],
        is_inner=is_inner,
    )


def _has_one_ordinary_size(variations: Iterable[_Variation]) -> bool:
    """Return whether a size varied only between one value and 0 or 1, which are constants in every graph."""
    sizes = {
        size for variation in variations for size in (variation.old_value, variation.new_value) if size is not None
    }
    if {_ORDINARY_SIZES_TEXT, _OTHER_SIZES_TEXT} & sizes:
        return sizes <= {_ORDINARY_SIZES_TEXT, _OTHER_SIZES_TEXT}
    return bool(sizes & _SPECIAL_SIZES) and len(sizes - _SPECIAL_SIZES) <= 1


def _has_special_size(variations: Iterable[_Variation]) -> bool:
    return any(
        not {variation.old_value, variation.new_value}.isdisjoint({*_SPECIAL_SIZES, _OTHER_SIZES_TEXT})
        for variation in variations
    )


def _ordinary_advice(variations: Sequence[tuple[int, _Variation]]) -> str:
    """Return the advice about a size that also has values other than 0 and 1."""
    return next(variation.advice for _, variation in variations if variation.old_value != _ORDINARY_SIZES_TEXT)


def _advice_on_constant_size(heads: set[HeadKind | None]) -> str:
    """Return advice about lines that turn a size into a constant, which ``dynamic=True`` does not prevent.

    Recompiles because of a condition are expected, so other kinds of lines take precedence.
    """
    if "loop" in heads:
        return (
            "the loop is unrolled, so each number of steps has its own graph, even with `dynamic=True`: pad to a few "
            "lengths, use an operation on the whole tensor, or call a compiled step from an uncompiled loop"
        )
    if heads == {"condition"}:
        return _ADVICE_ON_BRANCH
    return (
        "the line turns the size into a constant, even with `dynamic=True`: pad to a few sizes, or compute with the "
        "size itself (`x.shape[0]`)"
    )


def _variation_text(variations: list[tuple[int, _Variation]]) -> str:
    """Return the values of one variable, as far as its guards show them, in the order of first occurrence.

    A guard on a value shows the value that it expected. The last value is unknown, because no version expects it.
    Arrows separate values that followed each other; commas are used if a value may have recurred.
    """
    name = variations[-1][1].name
    if not variations[-1][1].old_value:
        return name
    with_values = [pair for pair in variations if pair[1].old_value != _ORDINARY_SIZES_TEXT]
    variations = with_values or variations
    values: dict[str, None] = {}
    last = ""
    has_recurred = False
    old_values: list[str] = []
    actual: str | None = None
    for _, group in groupby(variations, key=lambda variation: variation[0]):
        variations_of_call = [variation for _, variation in group]
        old_values = [variation.old_value for variation in variations_of_call]
        for old in old_values:
            if old not in values:
                values[old], last = None, old
        actual = variations_of_call[-1].new_value
        if actual is None:
            has_recurred |= len(set(old_values)) < len(old_values)  # two versions expect the same value
            continue
        if actual not in values:
            values[actual], last = None, actual
        has_recurred |= actual != last
    series = list(values)
    if len(series) > _MAX_VALUES + 1:
        series = [*series[:_MAX_VALUES], "...", series[-1]]
    if len(series) == 1 or (actual is None and not has_recurred and series[-1] in old_values):
        is_empty = name.startswith("len(") and series == ["0"]
        next_value = "1 or more" if is_empty else _OPPOSITE_FLAG.get(series[-1], "different value")
        series += [next_value] if next_value not in series else []
    return f"{name}: {(', ' if has_recurred else ' -> ').join(series)}"


def readable_guard(guard: str) -> str:
    """Return a guard with the names that the program uses, and without PyTorch's advice."""
    return METHOD_OWNER.sub("self", plain_guard(guard.partition(_PARAMETER_HINT_START)[0]))


def _find_variation(guard: str, *, is_inner: bool, is_library: bool, is_read_by_library: bool) -> _Variation | None:
    registration = _REGISTERED_TENSOR.search(guard)
    guard = readable_guard(guard)
    if guard.startswith(_TENSOR_GUARD_START) and (tensor := _TENSOR_GUARD.search(guard)):
        rest = guard[tensor.end() :]
        if not rest or rest.startswith(_ACTUAL_START):
            name = guard[len(_TENSOR_GUARD_START) : tensor.start()]
            new = rest.removeprefix(_ACTUAL_START) or None
            kind = registration["kind"] if registration is not None else ""
            return _tensor_variation(name, tensor, new, kind, is_inner=is_inner, is_library=is_library)
    if match := _TENSOR_VALUE_GUARD.fullmatch(guard):
        name = match["name"]
        advice = "" if is_library else tensor_index_advice(name)
        return _Variation(f"the value of {name}", match["value"], None, advice)
    if bound := _SIZE_BOUND.fullmatch(guard):
        varied_size = _name_of_size(bound["name"], bound["index"])
        return _Variation(varied_size, _ORDINARY_SIZES_TEXT, _OTHER_SIZES_TEXT, _ADVICE_ON_SPECIAL_SIZES, is_size=True)
    if match := _OFFSET_GUARD.fullmatch(guard):
        name = match["name"]
        advice = (
            f"a slice such as `y[:, -1:]` begins inside of a larger tensor: copy it before the call, `{name}.clone()`"
        )
        is_passed = not is_library and not is_inner and not name.startswith(BREAK_RESULT_PREFIX)
        return _Variation(f"the offset of {name} in its storage", "", None, advice if is_passed else "")
    if match := _KEY_COUNT_GUARD.fullmatch(guard):
        advice = "" if is_library else "each set of keys has its own graph: pass the same keys each time"
        return _Variation(match["name"], match["value"], None, advice)
    if size_range := _SIZE_RANGE.fullmatch(guard):
        varied_size = f"{RANGE_PREFIX}{_name_of_size(size_range['name'], size_range['index'])}"
        return _Variation(varied_size, f"{size_range['low']} to {size_range['high']}", "a size outside of it", "")
    if match := _VALUE_GUARD.fullmatch(guard):
        name, value = match["name"], match["value"]
        advice = _advice_on_value(name, value, is_library=is_library, is_read_by_library=is_read_by_library)
        is_from_program = not name.startswith(("len(", BREAK_RESULT_PREFIX)) and not is_library
        is_varied_number = is_number(value) and is_from_program and not advice
        return _Variation(_shown_name(name), value, None, advice, name, is_number=is_varied_number)
    return _optimizer_variation(guard) or _other_variation(guard, is_library=is_library)


def _optimizer_variation(guard: str) -> _Variation | None:
    if optimizer := _OPTIMIZER_TYPE.search(guard):
        return _Variation(f"a different optimizer (`{optimizer['name']}`)", "", None, _ADVICE_ON_OPTIMIZERS)
    if _OPTIMIZER_STATE.fullmatch(guard):
        return _Variation("the optimizer has no state before its first step", "", None, _ADVICE_ON_FIRST_STEP)
    if _FIRST_STEPS.fullmatch(guard):
        return _Variation("a count in the optimizer's state is 0 or 1 at first", "", None, _ADVICE_ON_FIRST_STEPS)
    return None


def _other_variation(guard: str, *, is_library: bool) -> _Variation | None:
    """Describe a guard on an object, on a setting, on the backend, or on the steps that are left in a loop."""
    if (steps_left := steps_left_in_loop(guard)) is not None:
        return _Variation("steps left in the loop", steps_left, None, _ADVICE_ON_STEPS_LEFT)
    if text := _object_variation(guard):
        is_freed_on_break = _FREED_OBJECT.fullmatch(guard) is not None and BREAK_RESULT_PREFIX in guard
        is_setting = bool(changed_settings(guard))
        advice = _advice_on_object(guard) if is_setting or not is_library else ""
        advice = _FREED_OBJECT_ADVICE if is_freed_on_break else advice
        return _Variation(text, "", None, advice)
    if guard.startswith(_BACKEND_GUARD_START):
        advice = "pass the same backend, mode and options each time; make a backend function once"
        return _Variation("`torch.compile` was called with a different backend, mode or options", "", None, advice)
    return None


def _advice_on_object(guard: str) -> str:
    """Return advice on a guard on an object that the program passes or keeps; empty for any other guard."""
    if _NONE_GUARD.fullmatch(guard):
        return "nothing: calls with and without it have their own graphs, which is expected"
    if name_of_function_variable(guard):
        return "nothing, if there are few functions: each has its own graph; otherwise call it outside"
    if settings := changed_settings(guard):
        return _advice_on_settings(settings)
    if keys := _DISPATCH_KEYS.fullmatch(guard):
        return _ADVICE_ON_INFERENCE if "inference" in _dispatch_key_text(keys) else ""
    if (wrong_type := _TENSOR_TYPE_GUARD.fullmatch(guard)) and wrong_type["type"] in {"int", "float", "bool"}:
        return f"pass a tensor each time: `{wrong_type['name']} = torch.as_tensor({wrong_type['name']})`"
    identity = _IDENTITY_GUARD.fullmatch(guard)
    if identity is not None and identity["kind"] == "obj" and not identity["name"].startswith(BREAK_RESULT_PREFIX):
        return (
            "nothing, if there are few objects, such as the members of an enum: each has its own graph; otherwise "
            "create it once, before the calls"
        )
    return ""


def _advice_on_settings(settings: str) -> str:
    """Return advice on settings of PyTorch that vary between calls, such as "the grad mode" or "autocast on cpu"."""
    if settings == "the grad mode":
        return _ADVICE_ON_GRAD_MODE
    is_selecting = all(
        name == "the grad mode" or name.startswith("autocast") for name in re.split(", | and ", settings)
    )
    return _ADVICE_ON_AUTOCAST if is_selecting else _ADVICE_ON_SETTING


def _dispatch_key_text(keys: re.Match[str]) -> str:
    """Return how the dispatch keys of a tensor varied: "`x` is an inference tensor in some calls only"."""
    name, old, new = f"`{keys['name']}`", set(keys["old"].split(", ")), set(keys["new"].split(", "))
    changed = old ^ new
    if "ADInplaceOrView" in changed:
        return f"{name} is an inference tensor in some calls only"
    if changed and all(key.startswith("Autograd") for key in changed):
        return "inference mode is on in some calls only"
    return f"{name} has different dispatch keys ({', '.join(sorted(changed))})"


def _object_variation(guard: str) -> str:
    """Return how an object or a setting varied: "`fn` is a different function"; empty for any other guard."""
    text = ""
    if wrong_type := _TENSOR_TYPE_GUARD.fullmatch(guard):
        text = f"{_subject(wrong_type['name'])} has a different type ({wrong_type['type']})"
    elif freed_object := _FREED_OBJECT.fullmatch(guard):
        name = freed_object["name"]
        subject = (
            "an object or a method on the line of the break" if name.startswith(BREAK_RESULT_PREFIX) else f"`{name}`"
        )
        text = f"{subject} no longer exists"
    elif none_guard := _NONE_GUARD.fullmatch(guard):
        text = f"{_subject(none_guard['name'])} is None in some calls only"
    elif other_value := _NOT_A_TENSOR.fullmatch(guard):
        type_name = other_value["type"]
        is_none = type_name == "NoneType"
        text = "a tensor is None in some calls only" if is_none else f"a tensor has a different type ({type_name})"
    elif function := name_of_function_variable(guard):
        text = f"`{function}` is a different function"
    elif identity := _IDENTITY_GUARD.fullmatch(guard):
        change = "is a different object" if identity["kind"] == "obj" else "has a different type"
        text = f"{_subject(identity['name'])} {change}"
    elif key := _KEY_GUARD.fullmatch(guard):
        text = f"{_subject(key['dict'])} has the key {key['key']} in some calls only"
    elif settings := changed_settings(guard):
        text = f"{settings} changed"
    elif keys := _DISPATCH_KEYS.fullmatch(guard):
        text = _dispatch_key_text(keys)
    return text


def _failure_text(guard: str) -> str:
    """Say that a guard failed, without Dynamo's name for a value that the code at a break returned."""
    text = re.sub(rf"{BREAK_RESULT_PREFIX}\d+", "value", guard)
    return f"`{text}` failed" if text == guard else f"`{text}` failed for a value on the line of the break"


def _subject(name: str) -> str:
    """Return a variable in backticks; for a value that the code at a break returned, a description of the value."""
    break_result = _BREAK_RESULT.fullmatch(name)
    if break_result is None:
        return f"`{name}`"
    part = break_result["part"].removeprefix(".")
    return f"`{part}` of a value that the break returned" if part else "a value that the break returned"


def _tensor_variation(
    name: str, guard: re.Match[str], new: str | None, registered_kind: str, *, is_inner: bool, is_library: bool
) -> _Variation:
    """Describe a guard on a tensor, which may be registered as a "buffer" or "parameter" of a module."""
    index, tensor_property, old = guard["index"], guard["property"], guard["old"]
    is_from_break = name.startswith(BREAK_RESULT_PREFIX)
    advice = ""
    if tensor_property == "size" and is_from_break:
        advice = "use `torch.compile(..., dynamic=True)`, or remove the break before it"
    elif tensor_property == "size" and registered_kind:
        advice = _ADVICE_ON_REGISTERED_TENSOR.format(kind=registered_kind)
    elif tensor_property == "size" and is_inner:
        mark = "`torch._dynamo.mark_dynamic` for the argument that sets the size"
        advice = f"use `torch.compile(..., dynamic=True)`, or {mark}"
    elif tensor_property == "size":
        # PyTorch names only the first size that differs, and raises if a marked size must equal one that is not marked.
        mark = f"`torch._dynamo.mark_dynamic({name}, {index})`"
        advice = f"use `torch.compile(..., dynamic=True)`, or mark each size that varies before the call: {mark}"
    elif tensor_property == "dtype" and not is_from_break and not (is_inner and is_library):
        advice = f"give `{name}` one dtype before the call: `{name} = {name}.to(...)`"
    elif tensor_property == "stride" and not is_from_break and not (is_inner and is_library):
        advice = f"give `{name}` one memory layout before the call: `{name} = {name}.contiguous()`"
    elif tensor_property == "rank" and not is_from_break and not (is_inner and is_library):
        advice = (
            "nothing, if there are few: each number of dimensions has its own graph"
            if is_inner
            else f"each number of dimensions has its own graph: reshape `{name}` before the call"
        )
    elif tensor_property == "requires_grad":
        old = "True" if old.endswith("1") else "False"
        new = _OPPOSITE_FLAG[old]
        advice = _ADVICE_ON_FLAG
    feature = _TENSOR_PROPERTIES.get(tensor_property, tensor_property).format(index=index)
    return _Variation(
        name=f"{feature} of {'a tensor that the break returned' if is_from_break else name}",
        old_value=old,
        new_value=new,
        advice=advice,
        subject=f"{feature} of {name}",
        is_size=tensor_property == "size",
        is_about_gradients=tensor_property == "requires_grad",
    )


def _shown_name(name: str) -> str:
    """Return the name of a value in words, if Dynamo's name for it does not occur in the code."""
    if name.startswith(BREAK_RESULT_PREFIX):
        return "a value on the line of the break"
    function, _ = names_of_keeping_function(name)
    return f"a value that `{function}` keeps" if function else name


def _advice_on_value(name: str, value: str, *, is_library: bool, is_read_by_library: bool) -> str:
    """Return advice on a value that varies; empty if it depends on all values of a number."""
    if not is_library and ".param_groups[" in name:
        return "leave `step()` of this optimizer out of the compiled function"
    if not is_number(value):
        return "" if is_library else _advice_on_text_or_flag(name, value)
    can_be_dynamic = value not in {"0", "1"}  # 0 and 1 stay constants even with `dynamic=True`
    if is_library:
        if (group := _GROUP_NUMBER.search(name)) is not None:
            tensor = f"`{group['key']}=torch.tensor({value})`"
            in_place = "change it in place, as PyTorch's schedulers do"
            return f"pass a tensor to the optimizer ({tensor}) and {in_place}; or leave its `step()` uncompiled"
        return "use `torch.compile(..., dynamic=True)`" if can_be_dynamic and not name.startswith("len(") else ""
    if name.startswith("len("):
        return (
            f"each length of `{name[4:-1]}` is compiled separately: pass one stacked tensor, or always the same length"
        )
    if name.startswith(BREAK_RESULT_PREFIX):
        setting = "; or use `torch.compile(..., dynamic=True)`" if can_be_dynamic else ""
        return f"{_ADVICE_ON_BREAK_RESULT}{setting}"
    if "." in name and is_read_by_library:  # such as the p of Dropout and the kernel_size of AvgPool1d
        return f"each value of `{name}` is compiled separately: use few values, or a tensor if the library takes one"
    return ""


def _advice_on_text_or_flag(name: str, value: str) -> str:
    if value in _OPPOSITE_FLAG:
        return _ADVICE_ON_FLAG
    if name.startswith(BREAK_RESULT_PREFIX):
        return _ADVICE_ON_BREAK_RESULT
    return f"each value of `{name}` has its own graph: if there are many, branch on it outside the compiled function"

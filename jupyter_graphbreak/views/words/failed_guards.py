"""Describe guards that failed: what varied between the calls, and how to avoid it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

from jupyter_graphbreak.report.guards import (
    BREAK_RESULT_PREFIX,
    is_about_number_from_break,
)
from jupyter_graphbreak.report.schema import GuardFailure
from jupyter_graphbreak.views.words.guard_variations import (
    ADVICE_ON_FIRST_STEP,
    ADVICE_ON_SPECIAL_SIZES,
    OPPOSITE_FLAG,
    ORDINARY_SIZES_TEXT,
    OTHER_SIZES_TEXT,
    SIZE_RANGE,
    Variation,
    find_variation,
    name_of_size,
    readable_guard,
)
from jupyter_graphbreak.views.words.locations import line_text, text_of_function
from jupyter_graphbreak.views.words.plain_text import join_with_and
from jupyter_graphbreak.views.words.varied_numbers import VariedNumber, advice_on_number, owner_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from jupyter_graphbreak.report.cost import BlockDifference
    from jupyter_graphbreak.report.location import HeadKind, Location, Source
    from jupyter_graphbreak.report.schema import Report, RunError

    #: A guard that failed.
    _Failure = GuardFailure | BlockDifference

#: A size of a tensor in an expression, such as "((1 + x.size()[0]) // 2) == 2".
_SIZE_EXPRESSION = ".size()["
_SIZE_IN_EXPRESSION = re.compile(r"(?<![\w.\[\]'\"])(?P<name>[\w.\[\]'\"]+)\.size\(\)\[(?P<index>\d+)\]")
#: The maximum number of lines of one guard to list.
_MAX_LINES = 3
#: The sizes for which PyTorch always compiles a separate graph.
_SPECIAL_SIZES = frozenset({"0", "1"})
#: The advice for a size from which the code computes a number that each graph contains as a constant.
_ADVICE_ON_COMPUTED_NUMBER = (
    "the code turns a number computed from the size into a constant, even with `dynamic=True`: pad to a few sizes"
)
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
#: PyTorch's message about the stance that forbids recompiles.
_STANCE_ERROR_MESSAGE = "Detected recompile when torch.compile stance is 'fail_on_recompile'"
#: A guard in the message about the stance that forbids recompiles: "- 0/0: n == 1   # def f(x, n): ...".
_GUARD_IN_ERROR = re.compile(r"^ *- \d+/\d+: (?P<guard>\S[^\n]*?)(?: {2,}#[^\n]*)?$", re.MULTILINE)
#: A long series of values is cut to this many values at its beginning, and the last one.
_MAX_VALUES = 2


@dataclass(frozen=True, slots=True)
class FailedGuard:
    """A guard that failed because something varied between the calls."""

    #: The thing that varied and its values: "k: 2 -> 3 -> ... -> 9".
    variation: str
    #: The number of recompiles in which this guard failed.
    recompile_count: int
    #: The lines that created the guard, if PyTorch reports them.
    locations: list[Location]
    #: Advice on avoiding the recompiles; empty if there is none.
    advice: str
    #: Whether the guard checks a size of a tensor.
    is_size: bool = False
    #: Whether the guard checks a number that the code at a break returned.
    is_about_number_from_break: bool = False
    #: Whether the guard checks whether a tensor requires gradients.
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

    The failures are in the order in which they happened, each preceded by the index of the recompile. The sources are
    those of the lines that created the guards, by id. The program passes no arguments to a function that is called
    between breaks (``is_inner``), and the reader cannot change the variables of a library function.
    """
    failures_by_subject: dict[str, list[tuple[int, _Failure, Variation | None]]] = {}
    heads_by_size: dict[str, set[HeadKind | None]] = {}
    for index, reason in failures:
        if size := _size_with_constant_result(reason):
            heads_by_size.setdefault(size, set()).add(reason.head)
        source = sources.get(reason.location.source) if reason.location is not None else None
        is_read_by_library = source is not None and source.kind == "library"
        variation = find_variation(
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
    sizes = {name_of_size(size["name"], size["index"]) for size in _SIZE_IN_EXPRESSION.finditer(guard)}
    return sizes.pop() if len(sizes) == 1 else ""


def _make_failed_guard(
    group: list[tuple[int, _Failure, Variation | None]],
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
        last_advice != ADVICE_ON_FIRST_STEP
        and variations
        and {variation.old_value for _, variation in variations} == {"0"}
        and variations[0][1].name.startswith("len(")
    ):
        advice = _ADVICE_ON_EMPTY_CONTAINER.format(name=variations[0][1].name[4:-1])
    container = _growing_container(variations, places)
    if container:
        advice = _ADVICE_ON_GROWING_CONTAINER.format(name=container)
    is_range = any(SIZE_RANGE.fullmatch(readable_guard(failure.guard)) for _, failure, _ in group)
    if heads == {"condition"} and (is_range or not variations):
        advice = _ADVICE_ON_BRANCH
    number = _varied_number(group, places, sources, is_inner=is_inner, is_module_method=is_module_method)
    if number is not None:
        advice = advice_on_number(number)
    if is_size and _has_one_ordinary_size(variation for _, variation in variations):
        advice = ADVICE_ON_SPECIAL_SIZES
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


def _growing_container(variations: list[tuple[int, Variation]], places: Iterable[Location]) -> str:
    """Return the name of a container to which each call adds something; empty if there is none."""
    names = {variation.name for _, variation in variations}
    name = names.pop() if len(names) == 1 else ""
    lengths = {variation.old_value for _, variation in variations}
    if not name.startswith("len(") or len(lengths) == 1:  # a single length may be that of an empty cache
        return ""
    container = name[4:-1]
    is_filled = any(f"{container}.{method}(" in (place.code or "") for place in places for method in _FILLING_METHODS)
    return container if is_filled else ""


def _count_recompiles(group: list[tuple[int, _Failure, Variation | None]]) -> int:
    """Count the recompiles that a guard caused: those in which it failed for a version of the code for the first time.

    A version for tensors without gradients, for example, suits no later call with gradients, whatever else varies.
    """
    first_failures: dict[object, int] = {}
    for index, failure, _ in group:
        version = getattr(failure, "version", None)
        first_failures.setdefault((version, failure.guard) if version is not None else (index, ""), index)
    return len(set(first_failures.values()))


def _varied_number(
    group: list[tuple[int, _Failure, Variation | None]],
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


def _has_one_ordinary_size(variations: Iterable[Variation]) -> bool:
    """Return whether a size varied only between one value and 0 or 1, which are constants in every graph."""
    sizes = {
        size for variation in variations for size in (variation.old_value, variation.new_value) if size is not None
    }
    if {ORDINARY_SIZES_TEXT, OTHER_SIZES_TEXT} & sizes:
        return sizes <= {ORDINARY_SIZES_TEXT, OTHER_SIZES_TEXT}
    return bool(sizes & _SPECIAL_SIZES) and len(sizes - _SPECIAL_SIZES) <= 1


def _has_special_size(variations: Iterable[Variation]) -> bool:
    return any(
        not {variation.old_value, variation.new_value}.isdisjoint({*_SPECIAL_SIZES, OTHER_SIZES_TEXT})
        for variation in variations
    )


def _ordinary_advice(variations: Sequence[tuple[int, Variation]]) -> str:
    """Return the advice about a size that also has values other than 0 and 1."""
    return next(variation.advice for _, variation in variations if variation.old_value != ORDINARY_SIZES_TEXT)


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


def _variation_text(variations: list[tuple[int, Variation]]) -> str:
    """Return the values of one variable, as far as its guards show them, in the order of first occurrence.

    A guard on a value shows the value that it expected. The last value is unknown, because no version expects it.
    Arrows separate values that followed each other; commas are used if a value may have recurred.
    """
    name = variations[-1][1].name
    if not variations[-1][1].old_value:
        return name
    with_values = [pair for pair in variations if pair[1].old_value != ORDINARY_SIZES_TEXT]
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
        next_value = "1 or more" if is_empty else OPPOSITE_FLAG.get(series[-1], "different value")
        series += [next_value] if next_value not in series else []
    return f"{name}: {(', ' if has_recurred else ' -> ').join(series)}"


def _failure_text(guard: str) -> str:
    """Say that a guard failed, without Dynamo's name for a value that the code at a break returned."""
    text = re.sub(rf"{BREAK_RESULT_PREFIX}\d+", "value", guard)
    return f"`{text}` failed" if text == guard else f"`{text}` failed for a value on the line of the break"

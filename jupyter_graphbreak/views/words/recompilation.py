"""Describe functions that were recompiled: what varied between the calls, and how to avoid the recompiles."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace as replace_fields

from jupyter_graphbreak.report.guards import (
    BREAK_RESULT_PREFIX,
    METHOD_OWNER,
    changed_settings,
    is_about_number_from_break,
    name_of_function_variable,
    plain_guard,
    tensor_index_advice,
)
from jupyter_graphbreak.report.remedies import NO_TIME_AT_ALL
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.locations import function_of, is_of_library, is_wrapper_of_torch, line_text
from jupyter_graphbreak.views.words.lookup import per_report
from jupyter_graphbreak.views.words.plain_text import join_with_and, one_line, times_text
from jupyter_graphbreak.views.words.remedies import BreakRemedies, remedies_for_recompiles

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from jupyter_graphbreak.report.cost import BlockDifference
    from jupyter_graphbreak.report.location import HeadKind, Location
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import GuardFailure, Recompile, Report

    #: A guard that failed.
    _Failure = GuardFailure | BlockDifference

_VALUE_GUARD = re.compile(r"(?P<name>[\w.\[\]'\"]+|len\([^()]+\)) == (?P<value>.+)")
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
_ACTUAL_START = ", actual "
#: A guard on a size that a graph for all sizes but 0 and 1 has: "2 <= x.size()[0]".
_SIZE_BOUND = re.compile(r"2 <= (?P<name>.+)\.size\(\)\[(?P<index>\d+)\]")
#: A guard on whether a value is None: "mask is None", "mask is not None".
_NONE_GUARD = re.compile(r"(?P<name>[\w.\[\]'\"]+) is (?:not )?None")
#: A value of a partial, for the wrapper of torch that is compiled instead of it.
_PARTIAL_KEYWORD = re.compile(r"\bself\.keywords\['(\w+)'\]")
#: A tensor that is an argument, and not a part of the module.
_ARGUMENT_GRADIENTS = re.compile(r"tensor '(?!self\b)\w+' requires_grad mismatch")
#: A guard on the identity or type of an object: "___check_obj_id(fn, 140), type=<class 'function'>".
_IDENTITY_GUARD = re.compile(r"___check_(?P<kind>obj|type)_id\((?P<name>.+), \d+\)(?:, type=(?P<type>.+))?", re.DOTALL)
#: A guard on a key of a dict: "not ___dict_contains('z', optimizer.state[p])".
_KEY_GUARD = re.compile(r"(?:not )?___dict_contains\((?P<key>[^,]+), (?P<dict>.+)\)")
#: PyTorch's message if an object that compiled code refers to was freed.
_FREED_OBJECT = re.compile(r"Cache line invalidated because (?P<name>.+) got deallocated")
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
#: Readable names of tensor properties in guards.
_TENSOR_PROPERTIES = {"size": "dimension {index}", "stride": "stride {index}", "rank": "number of dimensions"}
_OPPOSITE_FLAG = {"True": "False", "False": "True"}
#: The names that a torch wrapper gives the arguments of the function that it wraps.
_WRAPPED_ARGUMENT = re.compile(r"\bargs\[(\d{1,3})\]")
_WRAPPED_KEYWORD = re.compile(r"\bkwargs\['(\w+)'\]")
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
#: If there are more functions than this, they are counted instead of named.
_MAX_NAMES = 2
#: If at least this many functions are recompiled only because results between breaks vary, or only because a tensor
#: requires gradients in some calls, they are listed as one.
_MIN_MERGED_FUNCTIONS = 4
#: At most this many lines of one guard are listed.
_MAX_LINES = 3
#: The advice for functions that are compiled for tensors with and without gradients.
_ADVICE_ON_GRADIENTS = "Each kind has its own graph, as expected."
#: The sizes for which PyTorch always compiles a graph of their own.
_SPECIAL_SIZES = frozenset({"0", "1"})
_ADVICE_ON_SPECIAL_SIZES = "sizes 0 and 1 get their own graphs, even with `dynamic=True`: this is expected"
#: The values of a size that is at least 2 in one graph, and then is not.
_ORDINARY_SIZES, _OTHER_SIZES = "2 or more", "0 or 1"
#: The advice for numbers that are constants because they are indices next to slices: ``cache[:, position]``.
_ADVICE_ON_INDEX = (
    "an index next to slices is a constant, even with `dynamic=True`: use `select()`, such as `x.select(1, {name})` "
    "for `x[:, {name}]` and `x.select(1, {name})[...] = y` for `x[:, {name}] = y`"
)
#: The advice for functions that are called with and without gradients.
_ADVICE_ON_GRAD_MODE = "nothing: calls with and without gradients have their own graphs, which is expected"
#: The advice for functions that are compiled for several modules.
_ADVICE_ON_INSTANCES = (
    "nothing, if the instances differ on purpose: each has its own graph, and all share one recompile limit"
)
#: The advice if the compilations for several modules reached the limit that they share.
_ADVICE_ON_INSTANCES_AT_LIMIT = (
    "raise `torch._dynamo.config.recompile_limit` above the number of instances or, with a recent release, give each "
    "its own limit: `torch.compile(..., isolate_recompiles=True)`"
)
#: A long series of values is cut to this many values at its beginning, and the last one.
_MAX_VALUES = 2
#: A function gets a warning if its compilations reach this share of the recompile limit.
_WARNING_SHARE = 0.6


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
        Whether the guard checks the size of a tensor.
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
class Recompilation:
    """A function that was compiled more than once, or several that are listed as one.

    Parameters
    ----------
    function : str
        The name of the function; for several functions, a description.
    location : Location or None
        The location of the function; ``None`` for several functions.
    frames : list of str
        The frame ids of the compilations after the first one, including one that the recompile limit prevented.
    guards : list of FailedGuard
        All guards that failed, most frequent first.
    compilation_count : int
        The number of compilations; 0 if the first one happened before the run.
    ids : list of str
        The ids of the recompiles.
    limit : int
        The number of compilations after which the function runs eagerly; 0 if unknown.
    is_caused_by_results : bool
        Whether the compiled code is called between breaks, and only sizes of tensors and numbers that breaks returned
        varied. The program itself passes none of these to a compiled function.
    is_caused_by_gradients : bool
        Whether tensors require gradients in some calls only, and nothing else varied: such recompiles are expected.
    is_caused_by_instances : bool
        Whether each compilation is the first one for a different module: such recompiles are expected.
    instance_count : int
        The number of modules for which the function was compiled; 1 if unknown.
    is_merged : bool
        Whether this stands for several functions.
    """

    function: str
    location: Location | None
    frames: list[str]
    guards: list[FailedGuard]
    limit_hit: bool
    compilation_count: int
    ids: list[str]
    limit: int
    is_caused_by_results: bool = False
    is_caused_by_gradients: bool = False
    is_caused_by_instances: bool = False
    instance_count: int = 1
    is_merged: bool = False

    @property
    def warning(self) -> str:
        """A warning if the function comes near the recompile limit; empty otherwise.

        "5 of 8 compilations used: after 3 more it runs eagerly".
        """
        compilations_left = self.limit - self.compilation_count
        if (
            self.limit_hit
            or not self.limit
            or compilations_left < 0
            or self.compilation_count < _WARNING_SHARE * self.limit
        ):
            return ""
        consequence = f"after {compilations_left} more it runs eagerly"
        if not compilations_left:
            consequence = "the next one makes it run eagerly"
        return f"{self.compilation_count} of {self.limit} compilations used: {consequence}"

    @property
    def compilations_text(self) -> str:
        """The number of compilations in words: "3 times", "4 times for 2 instances"."""
        instances = f" for {self.instance_count} instances" if self.instance_count > 1 else ""
        return f"{times_text(self.compilation_count)}{instances}"

    @property
    def times_text(self) -> str:
        """The number of recompiles in words, and whether the limit was reached: "recompiled 3 times"."""
        count = len(self.frames) - self.limit_hit
        if not count:
            return "not recompiled: limit reached, runs eagerly"
        times = f"recompiled ({self.frames[0]})" if count == 1 else f"recompiled {times_text(count)}"
        if self.is_caused_by_instances:
            return f"{times}{',' if count > 1 else ''} {'each time ' if count > 1 else ''}for a different instance"
        return f"{times}, then limit reached: runs eagerly" if self.limit_hit else times

    def share_text(self, guard: FailedGuard) -> str:
        """Say how often a guard failed: "3 of 4 times"; empty for a single recompile."""
        total = len(self.frames)
        if total == 1:
            return ""
        every_time = "both times" if total == 2 else f"all {total} times"  # noqa: PLR2004
        return every_time if guard.recompile_count == total else f"{guard.recompile_count} of {total} times"


@dataclass(frozen=True, slots=True)
class _Variation:
    """The value that a guard expected, and the value that it found instead."""

    name: str
    old: str
    new: str | None
    advice: str
    #: The key that identifies the variable; ``name`` may be a description that several variables share.
    subject: str = ""
    is_size: bool = False
    is_about_gradients: bool = False


@per_report
def recompilations(report: Report) -> list[Recompilation]:
    """Return the functions that were recompiled, in the order of their first recompile."""
    by_function: dict[tuple[str | None, str, int], list[Recompile]] = {}
    for recompile in report.recompiles:
        line = recompile.location.line if recompile.location is not None else 0
        by_function.setdefault((recompile.of, recompile.function, line), []).append(recompile)
    limit = report.config.get("recompile_limit")
    limit_or_zero = limit if isinstance(limit, int) else 0
    inner_frames = {frame.id for frame in report.frames if frame.role != "entry"}
    library_sources = {source.id for source in report.sources if source.kind == "library"}
    instances = {frame.id: frame.instance for frame in report.frames}
    functions = []
    for recompiles in by_function.values():
        function = _make_recompilation(
            _reasons_of_same_instance(recompiles, instances),
            limit_or_zero,
            library_sources,
            is_inner=not inner_frames.isdisjoint({recompiles[0].frame, recompiles[0].of}),
            is_library=is_of_library(report, recompiles[0].location),
        )
        if function.location is not None and is_wrapper_of_torch(report, function.location):
            function = replace(function, guards=list(map(_name_arguments, function.guards)))
        functions.append(_with_instances(function, _first_compilations(recompiles, instances)))
    return functions


def _name_arguments(guard: FailedGuard) -> FailedGuard:
    """Replace the names that a torch wrapper gives the arguments: ``args[0]`` becomes "the first argument"."""
    variation = _PARTIAL_KEYWORD.sub(r"\1 of the partial", guard.variation)
    variation = _WRAPPED_ARGUMENT.sub(_argument_text, _WRAPPED_KEYWORD.sub(r"\1", variation))
    advice = _WRAPPED_KEYWORD.sub(r"\1", guard.advice)
    argument = _WRAPPED_ARGUMENT.search(advice)
    if argument is not None:
        advice = f"{_WRAPPED_ARGUMENT.sub('x', advice)}; `x` stands for {_argument_text(argument)}"
    return replace(guard, variation=variation, advice=advice)


def _argument_text(argument: re.Match[str]) -> str:
    number = int(argument[1])
    return f"the {_ORDINALS[number]} argument" if number < len(_ORDINALS) else f"argument {number + 1}"


def _first_compilations(recompiles: Sequence[Recompile], instances: Mapping[str, int | None]) -> set[str]:
    """Return the ids of the recompiled frames that are the first compilation for their module.

    Parameters
    ----------
    instances : mapping
        The number of the module that each frame is compiled for, as far as it is known.
    """
    known = {instances.get(recompiles[0].of or "")}
    first_frames: set[str] = set()
    for recompile in recompiles if known != {None} else ():
        instance = instances.get(recompile.frame)
        is_about_gradients = bool(recompile.reasons) and all(
            _ARGUMENT_GRADIENTS.match(_readable_guard(reason.guard)) for reason in recompile.reasons
        )
        if is_about_gradients:  # all modules would share the graphs
            continue
        if instance not in {None, *known}:
            first_frames.add(recompile.frame)
        known.add(instance)
    return first_frames


def _reasons_of_same_instance(recompiles: list[Recompile], instances: Mapping[str, int | None]) -> list[Recompile]:
    """Drop the reasons why the code compiled for one module does not suit a different one.

    They stay if each module was compiled only once, because there are no other reasons then.
    """
    first_frames = _first_compilations(recompiles, instances)
    if not first_frames or first_frames.issuperset(
        recompile.frame for recompile in recompiles if not recompile.limit_hit
    ):
        return recompiles
    result = []
    for recompile in recompiles:
        instance = instances.get(recompile.frame)
        same = [reason for reason in recompile.reasons if instances.get(reason.version or "") == instance]
        is_first = recompile.frame in first_frames
        result.append(replace_fields(recompile, reasons=[] if is_first else same or recompile.reasons))
    return result


def _with_instances(recompilation: Recompilation, first_frames: set[str]) -> Recompilation:
    """Return the description of a recompiled function with the modules that it was compiled for.

    Parameters
    ----------
    first_frames : set of str
        The ids of the recompiled frames that are the first compilation for their module.
    """
    if not first_frames:
        return recompilation
    recompilation = replace(recompilation, instance_count=len(first_frames) + 1)
    if len(first_frames) < len(recompilation.frames):
        advice = _ADVICE_ON_INSTANCES_AT_LIMIT if recompilation.limit_hit else ""
        instances = FailedGuard("a different instance", len(first_frames), [], advice)
        return replace(recompilation, guards=[instances, *recompilation.guards])
    advice_once = itertools.chain([_ADVICE_ON_INSTANCES], itertools.repeat(""))
    return replace(
        recompilation,
        guards=[replace(guard, advice=text) for guard, text in zip(recompilation.guards, advice_once, strict=False)],
        is_caused_by_results=False,
        is_caused_by_gradients=False,
        is_caused_by_instances=True,
    )


def listed_recompilations(report: Report) -> list[Recompilation]:
    """Return the recompiled functions as views list them: many with the same common reason are one entry."""
    functions = recompilations(report)
    merged: list[Recompilation] = []
    between_breaks = [one for one in functions if one.is_caused_by_results and needs_general_advice(report, one)]
    with_gradients = [
        one for one in functions if one.is_caused_by_gradients and best_recompile_remedy(report, one) is None
    ]
    for similar, merge in ((between_breaks, _merge_by_results), (with_gradients, _merge_by_gradients)):
        if len(similar) >= _MIN_MERGED_FUNCTIONS:
            functions = [function for function in functions if function not in similar]
            merged.append(merge(similar))
    return [*functions, *merged]


def needs_general_advice(report: Report, recompilation: Recompilation) -> bool:
    """Return whether to show the general advice about guards, because no trial has found anything better."""
    trials = recompile_remedies(report, recompilation)
    return trials is None or not (trials.working_remedies or trials.decisions)


def _merge_by_results(functions: Sequence[Recompilation]) -> Recompilation:
    """Merge functions that are called between breaks and were recompiled because results varied."""
    guards = [guard for function in functions for guard in function.guards]
    varied_things = [
        *(["the sizes of results"] if any(guard.is_size for guard in guards) else []),
        *(["numbers that breaks returned"] if any(guard.is_about_number_from_break for guard in guards) else []),
    ]
    advice = "remove the breaks, or use `torch.compile(..., dynamic=True)`"
    return _merge_functions(
        functions, f"{len(functions)} functions between breaks", f"{join_with_and(varied_things)} varied", advice
    )


def _merge_by_gradients(functions: Sequence[Recompilation]) -> Recompilation:
    """Merge functions that are compiled both for tensors that require gradients and for others."""
    variation = "a tensor requires a gradient in some calls only"
    return replace(
        _merge_functions(functions, f"{len(functions)} functions", variation, ""), is_caused_by_gradients=True
    )


def _merge_functions(functions: Sequence[Recompilation], name: str, variation: str, advice: str) -> Recompilation:
    frames = [frame for function in functions for frame in function.frames]
    places = [function.location for function in functions if function.location is not None]
    unique = {(location.source, location.line): location for location in places}
    return Recompilation(
        function=name,
        location=None,
        frames=frames,
        guards=[FailedGuard(variation, len(frames), list(unique.values()), advice)],
        limit_hit=False,
        compilation_count=0,
        ids=[ident for function in functions for ident in function.ids],
        limit=0,
        is_merged=True,
    )


def limited_functions_text(report: Report) -> str:
    """Name the functions that run eagerly because of the recompile limit; empty if there are none.

    "f was compiled 8 times and now runs eagerly (recompile limit)".
    """
    limited = [recompilation for recompilation in recompilations(report) if recompilation.limit_hit]
    wrapped_functions = [skipped.function for skipped in report.skipped if skipped.kind == "shared wrapper"]
    names = dict.fromkeys(wrapped_functions or [function_name(report, recompilation) for recompilation in limited])
    if not names:
        return ""
    verb = "now runs eagerly (recompile limit)" if len(names) == 1 else "now run eagerly (recompile limit)"
    if len(names) > _MAX_NAMES:
        return f"{len(names)} functions {verb}"
    if not wrapped_functions and len(names) == 1 and limited[0].compilation_count:
        verb = f"was compiled {limited[0].compilations_text} and {verb}"
    return f"{' and '.join(names)} {verb}"


def recompile_remedies(report: Report, recompilation: Recompilation) -> BreakRemedies | None:
    """Return the remedies for the recompiles of a function; ``None`` if none were searched for.

    A remedy for several functions is returned for the first of them only.
    """
    if report.remedies is None:
        return None
    if recompilation.is_merged and recompilation.is_caused_by_gradients:
        return BreakRemedies([], [], [_ADVICE_ON_GRADIENTS])
    return _remedies_by_frame(report)[recompilation.frames[0]]


@per_report
def _remedies_by_frame(report: Report) -> dict[str, BreakRemedies]:
    """Return the remedies to show for each recompiled function, by the id of its first recompiled frame."""
    shown_before: set[str] = set()
    by_frame = {}
    for recompilation in recompilations(report):
        all_remedies = remedies_for_recompiles(report, recompilation.ids) or BreakRemedies([], [], [])
        # If there was no time for any trial, the general advice is better than leaving the decision to a person.
        decisions = all_remedies.decisions if all_remedies.why_untried != NO_TIME_AT_ALL else []
        remaining = BreakRemedies(
            [remedy for remedy in all_remedies.working_remedies if remedy.id not in shown_before],
            [remedy for remedy in all_remedies.failed_remedies if remedy.id not in shown_before],
            [decision for decision in decisions if decision not in shown_before],
            all_remedies.why_untried,
        )
        shown_before.update(remedy.id for remedy in (*remaining.working_remedies, *remaining.failed_remedies))
        shown_before.update(remaining.decisions)
        by_frame[recompilation.frames[0]] = remaining
    return by_frame


def best_recompile_remedy(report: Report, recompilation: Recompilation) -> Remedy | None:
    """Return the best remedy that works for the recompiles of a function; ``None`` if none is shown for it."""
    trials = recompile_remedies(report, recompilation)
    return trials.working_remedies[0] if trials is not None and trials.working_remedies else None


def guard_lines_text(report: Report, guard: FailedGuard) -> str:
    """Return the first lines that created a guard as text: "line 7", "model.py:3 and model.py:9"; empty if unknown."""
    places = [line_text(report, location) for location in guard.locations[:_MAX_LINES]]
    more = len(guard.locations) - _MAX_LINES
    return join_with_and([*places, *([f"{more} more"] if more > 0 else [])])


def function_name(report: Report, recompilation: Recompilation) -> str:
    """Return the name of a recompiled function, with its class if known.

    If a partial is compiled, or a module whose ``forward`` is PyTorch's own, PyTorch compiles a wrapper instead, whose
    name means nothing to the reader.
    """
    if recompilation.location is None:
        return recompilation.function
    if is_wrapper_of_torch(report, recompilation.location):
        frame = lookup.frames(report).get(recompilation.frames[0])
        return one_line(frame.module) if frame is not None and frame.module is not None else "the wrapped function"
    return function_of(report, recompilation.location)


def _make_recompilation(
    recompiles: list[Recompile], limit: int, library_sources: Container[str], *, is_inner: bool, is_library: bool
) -> Recompilation:
    """Return the description of a recompiled function, with its failed guards grouped by what they check."""
    guards = failed_guards(
        (
            (index, reason)
            for index, recompile in enumerate(recompiles)
            for reason in reversed(recompile.reasons)  # PyTorch lists the latest version first
        ),
        library_sources,
        is_inner=is_inner,
        is_library=is_library,
    )
    last = recompiles[-1]
    return Recompilation(
        function=last.function,
        location=last.location,
        frames=[recompile.frame for recompile in recompiles],
        guards=guards,
        limit_hit=last.limit_hit,
        compilation_count=len(recompiles) - last.limit_hit + 1 if last.of is not None else 0,
        ids=[recompile.id for recompile in recompiles if recompile.id],
        limit=limit,
        is_caused_by_results=is_inner
        and not last.limit_hit
        and bool(guards)
        and all(guard.is_size or guard.is_about_number_from_break for guard in guards),
        is_caused_by_gradients=not last.limit_hit
        and bool(guards)
        and all(guard.is_about_gradients for guard in guards),
    )


def failed_guards(
    failures: Iterable[tuple[int, _Failure]],
    library_sources: Container[str] = (),
    *,
    is_inner: bool = False,
    is_library: bool = False,
) -> list[FailedGuard]:
    """Group guards that failed by the variable or the property that they check, most frequent group first.

    Parameters
    ----------
    failures : iterable of tuple
        The guards in the order in which they failed, each preceded by the index of the recompile.
    library_sources : container of str
        The ids of the sources of libraries.
    is_inner : bool
        Whether the function is called between breaks: the program itself then passes no arguments to it.
    is_library : bool
        Whether the function belongs to a library: the reader cannot change its variables.
    """
    failures_by_subject: dict[str, list[tuple[int, _Failure, _Variation | None]]] = {}
    for index, reason in failures:
        is_read_by_library = reason.location is not None and reason.location.source in library_sources
        variation = _find_variation(
            reason.guard, is_inner=is_inner, is_library=is_library, is_read_by_library=is_read_by_library
        )
        subject = variation.subject or variation.name if variation is not None else _readable_guard(reason.guard)
        failures_by_subject.setdefault(subject, []).append((index, reason, variation))
    guards = sorted(map(_make_failed_guard, failures_by_subject.values()), key=lambda guard: -guard.recompile_count)
    all_advice = [guard.advice for guard in guards]
    return [
        replace(guard, advice="") if guard.advice in all_advice[:index] else guard for index, guard in enumerate(guards)
    ]


def _make_failed_guard(group: list[tuple[int, _Failure, _Variation | None]]) -> FailedGuard:
    variations = [(index, variation) for index, _, variation in group if variation is not None]
    places = dict.fromkeys(reason.location for _, reason, _ in group if reason.location is not None)
    is_size = bool(variations) and all(variation.is_size for _, variation in variations)
    last_advice = variations[-1][1].advice if variations else ""
    heads = {reason.head for _, reason, _ in group if reason.location is not None}
    # The guard on the number of pieces in `for piece in x.split(2):` contains an expression of the size.
    is_number_of_steps = not variations and "loop" in heads and _SIZE_EXPRESSION in group[0][1].guard
    advice = _advice_on_constant_size(heads) if (is_size and places) or is_number_of_steps else last_advice
    index_name = _name_of_constant_index(group)
    if index_name:
        advice = _ADVICE_ON_INDEX.format(name=index_name)
    if is_size and _has_one_ordinary_size(variation for _, variation in variations):
        advice = _ADVICE_ON_SPECIAL_SIZES
    elif is_size and not places and _has_special_size(variation for _, variation in variations):
        advice = f"{_ordinary_advice(variations)}; sizes 0 and 1 get their own graphs even then"
    return FailedGuard(
        variation=_variation_text(variations) if variations else f"`{_readable_guard(group[0][1].guard)}` failed",
        recompile_count=len({index for index, _, _ in group}),
        locations=list(places),
        advice=advice,
        is_size=is_size,
        is_about_number_from_break=is_about_number_from_break(group[0][1].guard),
        is_about_gradients=bool(variations) and all(variation.is_about_gradients for _, variation in variations),
    )


def _name_of_constant_index(group: list[tuple[int, _Failure, _Variation | None]]) -> str:
    """Return the name of a number that is a constant in several graphs because it is an index; empty for others."""
    if len({index for index, _, _ in group}) == 1:  # a graph for all numbers may have been the second one
        return ""
    for _, reason, _ in group:
        value = _VALUE_GUARD.fullmatch(_readable_guard(reason.guard))
        code = reason.location.code if reason.location is not None else None
        if value is not None and _is_index_next_to_slices(value["name"], code or ""):
            return value["name"]
    return ""


def _is_index_next_to_slices(name: str, code: str) -> bool:
    """Return whether a line uses a number as an index next to slices: ``position`` in ``cache[:, position] = value``.

    Parameters
    ----------
    code : str
        The line, which need not be a complete statement.
    """
    for part in code.split("[")[1:]:
        indices = [index.strip() for index in part.partition("]")[0].split(",")]
        if name in indices and any(":" in index or index == "..." for index in indices):
            return True
    return False


def _has_one_ordinary_size(variations: Iterable[_Variation]) -> bool:
    """Return whether a size varied only between one value and 0 or 1, which are constants in every graph."""
    sizes = {size for variation in variations for size in (variation.old, variation.new) if size is not None}
    if {_ORDINARY_SIZES, _OTHER_SIZES} & sizes:
        return sizes <= {_ORDINARY_SIZES, _OTHER_SIZES}
    return bool(sizes & _SPECIAL_SIZES) and len(sizes - _SPECIAL_SIZES) <= 1


def _has_special_size(variations: Iterable[_Variation]) -> bool:
    return any(
        not {variation.old, variation.new}.isdisjoint({*_SPECIAL_SIZES, _OTHER_SIZES}) for variation in variations
    )


def _ordinary_advice(variations: Sequence[tuple[int, _Variation]]) -> str:
    """Return the advice about a size that also has values other than 0 and 1."""
    return next(variation.advice for _, variation in variations if variation.old != _ORDINARY_SIZES)


def _advice_on_constant_size(heads: set[HeadKind | None]) -> str:
    """Return advice about lines that turn a size into a constant, which ``dynamic=True`` does not prevent.

    Parameters
    ----------
    heads : set
        The kinds of the lines. Recompiles because of a condition are expected, so the other kinds take precedence.
    """
    if "loop" in heads:
        return (
            "the loop is unrolled, so each number of steps has its own graph, even with `dynamic=True`: pad to a few "
            "lengths, use an operation on the whole tensor, or call a compiled step from an uncompiled loop"
        )
    if heads == {"condition"}:
        return "each branch of the condition has its own graph, which is expected"
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
    if not variations[-1][1].old:
        return name
    with_values = [pair for pair in variations if pair[1].old != _ORDINARY_SIZES]
    variations = with_values or variations
    values: dict[str, None] = {}
    last = ""
    has_recurred = False
    old_values: list[str] = []
    actual: str | None = None
    for _, group in groupby(variations, key=lambda variation: variation[0]):
        variations_of_call = [variation for _, variation in group]
        old_values = [variation.old for variation in variations_of_call]
        for old in old_values:
            if old not in values:
                values[old], last = None, old
        actual = variations_of_call[-1].new
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


def _readable_guard(guard: str) -> str:
    """Return a guard with the names that the program uses, and without PyTorch's advice."""
    return METHOD_OWNER.sub("self", plain_guard(guard.partition(_PARAMETER_HINT_START)[0]))


def _find_variation(guard: str, *, is_inner: bool, is_library: bool, is_read_by_library: bool) -> _Variation | None:
    guard = _readable_guard(guard)
    if guard.startswith(_TENSOR_GUARD_START) and (tensor := _TENSOR_GUARD.search(guard)):
        rest = guard[tensor.end() :]
        if not rest or rest.startswith(_ACTUAL_START):
            name = guard[len(_TENSOR_GUARD_START) : tensor.start()]
            new = rest.removeprefix(_ACTUAL_START) or None
            return _tensor_variation(name, tensor, new, is_inner=is_inner, is_library=is_library)
    if match := _TENSOR_VALUE_GUARD.fullmatch(guard):
        name = match["name"]
        advice = "" if is_library else tensor_index_advice(name)
        return _Variation(f"the value of {name}", match["value"], None, advice)
    if bound := _SIZE_BOUND.fullmatch(guard):
        name, index = bound["name"], bound["index"]
        varied_size = f"dimension {index} of {name}"
        return _Variation(varied_size, _ORDINARY_SIZES, _OTHER_SIZES, _ADVICE_ON_SPECIAL_SIZES, is_size=True)
    if match := _VALUE_GUARD.fullmatch(guard):
        name, value = match["name"], match["value"]
        shown_name = "a value on the line of the break" if name.startswith(BREAK_RESULT_PREFIX) else name
        return _Variation(
            shown_name,
            value,
            None,
            _advice_on_value(name, value, is_library=is_library, is_read_by_library=is_read_by_library),
        )
    if text := _object_variation(guard):
        is_freed_on_break = _FREED_OBJECT.fullmatch(guard) is not None and BREAK_RESULT_PREFIX in guard
        advice = _FREED_OBJECT_ADVICE if is_freed_on_break else ""
        return _Variation(text, "", None, _ADVICE_ON_GRAD_MODE if text == "the grad mode changed" else advice)
    if guard.startswith(_BACKEND_GUARD_START):
        advice = "pass the same backend, mode and options each time; make a backend function once"
        return _Variation("`torch.compile` was called with a different backend, mode or options", "", None, advice)
    return None


def _object_variation(guard: str) -> str:
    """Return how an object or a setting varied: "`fn` is a different function"; empty for any other guard."""
    text = ""
    if wrong_type := _TENSOR_TYPE_GUARD.fullmatch(guard):
        text = f"`{wrong_type['name']}` has a different type ({wrong_type['type']})"
    elif freed_object := _FREED_OBJECT.fullmatch(guard):
        name = freed_object["name"]
        subject = (
            "an object or a method on the line of the break" if name.startswith(BREAK_RESULT_PREFIX) else f"`{name}`"
        )
        text = f"{subject} no longer exists"
    elif none_guard := _NONE_GUARD.fullmatch(guard):
        text = f"`{none_guard['name']}` is None in some calls only"
    elif function := name_of_function_variable(guard):
        text = f"`{function}` is a different function"
    elif identity := _IDENTITY_GUARD.fullmatch(guard):
        change = "is a different object" if identity["kind"] == "obj" else "has a different type"
        text = f"`{identity['name']}` {change}"
    elif key := _KEY_GUARD.fullmatch(guard):
        text = f"`{key['dict']}` has the key {key['key']} in some calls only"
    elif settings := changed_settings(guard):
        text = f"{settings} changed"
    return text


def _tensor_variation(
    name: str, guard: re.Match[str], new: str | None, *, is_inner: bool, is_library: bool
) -> _Variation:
    index, tensor_property, old = guard["index"], guard["property"], guard["old"]
    is_from_break = name.startswith(BREAK_RESULT_PREFIX)
    advice = ""
    if tensor_property == "size" and is_from_break:
        advice = "use `torch.compile(..., dynamic=True)`, or remove the break before it"
    elif tensor_property == "size" and is_inner:
        mark = "`torch._dynamo.mark_dynamic` for the argument that sets the size"
        advice = f"use `torch.compile(..., dynamic=True)`, or {mark}"
    elif tensor_property == "size":
        mark = f"`torch._dynamo.mark_dynamic({name}, {index})`"
        advice = f"use {mark} before the call, or `torch.compile(..., dynamic=True)`"
    elif tensor_property == "dtype" and not is_from_break and not (is_inner and is_library):
        advice = f"give `{name}` one dtype before the call: `{name} = {name}.to(...)`"
    elif tensor_property == "stride" and not is_from_break and not (is_inner and is_library):
        advice = f"give `{name}` one memory layout before the call: `{name} = {name}.contiguous()`"
    elif tensor_property == "requires_grad":
        old = "True" if old.endswith("1") else "False"
        new = _OPPOSITE_FLAG[old]
    feature = _TENSOR_PROPERTIES.get(tensor_property, tensor_property).format(index=index)
    return _Variation(
        name=f"{feature} of {'a tensor that the break returned' if is_from_break else name}",
        old=old,
        new=new,
        advice=advice,
        subject=f"{feature} of {name}",
        is_size=tensor_property == "size",
        is_about_gradients=tensor_property == "requires_grad",
    )


def _advice_on_value(name: str, value: str, *, is_library: bool, is_read_by_library: bool) -> str:
    is_number = re.fullmatch(r"-?\d+(?:\.\d+)?", value) is not None
    is_constant = value in {"0", "1"}  # also with `dynamic=True`
    if is_library:
        is_settable = is_number and not is_constant and not name.startswith("len(")
        return "use `torch.compile(..., dynamic=True)`" if is_settable else ""
    if ".param_groups[" in name:
        return "leave `step()` of this optimizer out of the compiled function"
    if not is_number:
        return f"each value of `{name}` is compiled separately: branch on it outside the compiled function"
    if name.startswith("len("):
        return (
            f"each length of `{name[4:-1]}` is compiled separately: pass one stacked tensor, or always the same length"
        )
    if name.startswith(BREAK_RESULT_PREFIX):
        setting = "" if is_constant else "; or use `torch.compile(..., dynamic=True)`"
        return f"remove the break: this also prevents the recompiles{setting}"
    is_attribute = "." in name
    if is_attribute and is_read_by_library:  # such as the p of Dropout and the kernel_size of AvgPool1d
        return f"each value of `{name}` is compiled separately: use few values, or a tensor if the library takes one"
    tensor = f"a tensor instead of a number: `{name} = torch.tensor({value})`"
    if is_attribute and "." not in value:  # the setting affects only integers
        return f"use {tensor}; for a module, `torch._dynamo.config.allow_unspec_int_on_nn_module = True` works as well"
    return f"use {tensor}" if is_attribute or is_constant else f"use `torch.compile(..., dynamic=True)`, or {tensor}"

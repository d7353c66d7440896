"""Describe functions that were recompiled: what varied between the calls, and how to avoid the recompiles."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as replace_fields

from jupyter_graphbreak.report.guards import changed_settings
from jupyter_graphbreak.report.remedies import ENDING_FAMILY, INNER_FAMILY, NOTHING_TRIED_REASON
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.failed_guards import FailedGuard, failed_guards
from jupyter_graphbreak.views.words.guard_variations import readable_guard
from jupyter_graphbreak.views.words.locations import (
    called_object_name,
    function_of,
    is_in_library,
    is_in_torch_optimizer,
    is_wrapper_of_step,
    is_wrapper_of_torch,
)
from jupyter_graphbreak.views.words.lookup import per_report
from jupyter_graphbreak.views.words.plain_text import join_with_and, times_text
from jupyter_graphbreak.views.words.remedies import (
    BreakRemedies,
    compatible_remedies,
    remedies_for_recompiles,
    target_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Recompile, Report

#: A keyword argument of a partial, in a guard of the torch wrapper that is compiled instead of the partial.
_PARTIAL_KEYWORD = re.compile(r"\bself\.keywords\['(\w+)'\]")
#: A tensor that is an argument, and not a part of the module.
_ARGUMENT_GRADIENTS = re.compile(r"tensor '(?!self\b)\w+' requires_grad mismatch")
#: The names that a torch wrapper gives the arguments of the function that it wraps.
_WRAPPED_ARGUMENT = re.compile(r"\bargs\[(\d{1,3})\]")
_WRAPPED_KEYWORD = re.compile(r"\bkwargs\['(\w+)'\]")
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
#: If there are more functions than this, the text gives their number instead of their names.
_MAX_NAMES = 2
#: If at least this many functions are recompiled only because results between breaks vary, or only because a tensor
#: requires gradients in some calls, they are listed as one.
_MIN_MERGED_FUNCTIONS = 4
#: The advice for functions that are compiled for tensors with and without gradients.
_ADVICE_ON_GRADIENTS = "Each kind has its own graph, as expected."
#: The advice for functions that are compiled for several modules.
_ADVICE_ON_INSTANCES = (
    "nothing, if the instances differ on purpose: each has its own graph, and all share one recompile limit"
)
#: The advice if the compilations for several modules reached the limit that they share.
_ADVICE_ON_INSTANCES_AT_LIMIT = (
    "raise `torch._dynamo.config.recompile_limit` above the number of instances or, with a recent release, give each "
    "its own limit: `torch.compile(..., isolate_recompiles=True)`"
)
#: A function gets a warning if its compilations reach this share of the recompile limit.
_WARNING_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Recompilation:
    """A function that was compiled more than once, or several that are listed as one."""

    #: The name of the function; for several functions, a description.
    function: str
    #: The location of the function; ``None`` for several functions.
    location: Location | None
    #: The frame ids of the compilations after the first one, including one that the recompile limit prevented.
    frames: list[str]
    #: All guards that failed, most frequent first.
    guards: list[FailedGuard]
    limit_hit: bool
    #: The number of compilations; 0 if the first one happened before the run.
    compilation_count: int
    ids: list[str]
    #: The number of compilations after which the function runs eagerly; 0 if unknown.
    limit: int
    #: Whether the compiled code is called between breaks with sizes of tensors and numbers that breaks returned, and
    #: nothing else varies. The program itself passes none of these to a compiled function.
    is_caused_by_results: bool = False
    #: Whether calls differ only in which tensors require gradients: such recompiles are expected.
    is_caused_by_gradients: bool = False
    #: Whether each compilation is the first one for a different module: such recompiles are expected.
    is_caused_by_instances: bool = False
    #: The number of modules for which the function was compiled; 1 if unknown.
    instance_count: int = 1
    #: Whether this stands for several functions.
    is_merged: bool = False

    @property
    def warning(self) -> str:
        """A warning if the function comes near the recompile limit; empty otherwise.

        For example: "5 of 8 compilations used: after 3 more it runs eagerly".
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
            return "not recompiled, but runs eagerly, because the limit is reached"
        times = f"recompiled ({self.frames[0]})" if count == 1 else f"recompiled {times_text(count)}"
        if self.is_caused_by_instances:
            return f"{times}{',' if count > 1 else ''} {'each time ' if count > 1 else ''}for a different instance"
        return f"{times}, then reached the limit and runs eagerly" if self.limit_hit else times

    def share_text(self, guard: FailedGuard) -> str:
        """Return how often a guard failed: "3 of 4 times"; empty for a single recompile."""
        total = len(self.frames)
        if total == 1:
            return ""
        every_time = "both times" if total == 2 else f"all {total} times"  # noqa: PLR2004
        return every_time if guard.recompile_count == total else f"{guard.recompile_count} of {total} times"


@per_report
def recompilations(report: Report) -> list[Recompilation]:
    """Return the functions that were recompiled, in the order of their first recompile."""
    by_function: dict[tuple[str | None, str, int], list[Recompile]] = {}
    keys_by_frame: dict[str | None, tuple[str | None, str, int]] = {}
    for recompile in report.recompiles:
        line = recompile.location.line if recompile.location is not None else 0
        # If the first compilation happened before the run, the first recompile stands for it in later recompiles.
        key = keys_by_frame.get(recompile.of, (recompile.of, recompile.function, line))
        keys_by_frame[recompile.frame] = key
        by_function.setdefault(key, []).append(recompile)
    limit = report.config.get("recompile_limit")
    limit_or_zero = limit if isinstance(limit, int) else 0
    inner_frame_ids = {frame.id for frame in report.frames if frame.role != "entry"}
    instances = {frame.id: frame.instance for frame in report.frames}
    functions = []
    for recompiles in by_function.values():
        location = recompiles[0].location
        function = _make_recompilation(
            list(map(_drop_reasons_of_other_settings, _drop_reasons_of_other_instances(recompiles, instances))),
            limit_or_zero,
            lookup.sources(report),
            is_inner=not inner_frame_ids.isdisjoint({recompiles[0].frame, recompiles[0].of}),
            is_library=is_in_library(report, location) and not is_wrapper_of_torch(report, location),
            is_module_method=instances.get(recompiles[0].frame) is not None,
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
    """Return the ids of the recompiled frames that are the first compilation for their module, if it is known."""
    known_instances = {instances.get(recompiles[0].of or "")}
    first_frame_ids: set[str] = set()
    for recompile in recompiles if known_instances != {None} else ():
        instance = instances.get(recompile.frame)
        is_about_gradients = bool(recompile.reasons) and all(
            _ARGUMENT_GRADIENTS.match(readable_guard(reason.guard)) for reason in recompile.reasons
        )
        if is_about_gradients:  # all modules share these graphs
            continue
        if instance not in {None, *known_instances}:
            first_frame_ids.add(recompile.frame)
        known_instances.add(instance)
    return first_frame_ids


def _drop_reasons_of_other_instances(
    recompiles: list[Recompile], instances: Mapping[str, int | None]
) -> list[Recompile]:
    """Drop the reasons why the code compiled for one module does not suit another one.

    They stay if each module was compiled only once, because there are no other reasons then.
    """
    first_frame_ids = _first_compilations(recompiles, instances)
    if not first_frame_ids or first_frame_ids.issuperset(
        recompile.frame for recompile in recompiles if not recompile.limit_hit
    ):
        return recompiles
    result = []
    for recompile in recompiles:
        instance = instances.get(recompile.frame)
        own_reasons = [reason for reason in recompile.reasons if instances.get(reason.version or "") == instance]
        is_first = recompile.frame in first_frame_ids
        result.append(replace_fields(recompile, reasons=[] if is_first else own_reasons or recompile.reasons))
    return result


def _drop_reasons_of_other_settings(recompile: Recompile) -> Recompile:
    """Drop the reasons why code compiled with different global settings, such as the grad mode, does not suit.

    PyTorch checks the settings before all other guards. If a different guard failed as well, there is code for the
    current settings, and a call with these settings needed the recompile nevertheless.
    """
    other_reasons = [reason for reason in recompile.reasons if not changed_settings(reason.guard)]
    return replace_fields(recompile, reasons=other_reasons) if other_reasons else recompile


def _with_instances(recompilation: Recompilation, first_frame_ids: set[str]) -> Recompilation:
    """Return the description of a recompiled function with the modules that it was compiled for."""
    if not first_frame_ids:
        return recompilation
    recompilation = replace(recompilation, instance_count=len(first_frame_ids) + 1)
    if len(first_frame_ids) < len(recompilation.frames):
        advice = _ADVICE_ON_INSTANCES_AT_LIMIT if recompilation.limit_hit else ""
        instances = FailedGuard("a different instance", len(first_frame_ids), [], advice)
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
    merged_functions: list[Recompilation] = []
    no_longer_compiled = [
        function for function in functions if not function.limit_hit and _fix_that_stops_compiling(report, function)
    ]
    caused_by_results = [
        function for function in functions if function.is_caused_by_results and not _shows_result(report, function)
    ]
    caused_by_gradients = [
        function
        for function in functions
        if function.is_caused_by_gradients
        and function not in no_longer_compiled
        and best_recompile_remedy(report, function) is None
    ]
    for similar_functions, merge in (
        (no_longer_compiled, _merge_by_fix), (caused_by_results, _merge_by_results),
        (caused_by_gradients, _merge_by_gradients),
    ):  # fmt: skip
        if len(similar_functions) >= _MIN_MERGED_FUNCTIONS:
            functions = [function for function in functions if function not in similar_functions]
            merged_functions.append(merge(similar_functions))
    return [*functions, *merged_functions]


def needs_general_advice(report: Report, recompilation: Recompilation) -> bool:
    """Return whether to show the general advice about guards, because no trial has found anything better.

    A remedy that is shown for an earlier function may prevent the recompiles of this one as well.
    """
    all_remedies = remedies_for_recompiles(report, recompilation.ids)
    has_remedy = all_remedies is not None and bool(all_remedies.working_remedies)
    return not has_remedy and not _shows_result(report, recompilation)


def _shows_result(report: Report, recompilation: Recompilation) -> bool:
    """Return whether a remedy that works, or a decision for the reader, is shown for a function."""
    trials = recompile_remedies(report, recompilation)
    return trials is not None and bool(trials.working_remedies or trials.decisions)


def _merge_by_fix(functions: Sequence[Recompilation]) -> Recompilation:
    """Merge functions that are no longer compiled after one fix."""
    return _merge_functions(functions, f"{len(functions)} functions", "the reasons differ", "")


def _merge_by_results(functions: Sequence[Recompilation]) -> Recompilation:
    """Merge functions that are called between breaks and were recompiled because results varied."""
    guards = [guard for function in functions for guard in function.guards]
    varied_values = [
        *(["the sizes of results"] if any(guard.is_size for guard in guards) else []),
        *(["numbers that breaks returned"] if any(guard.is_about_number_from_break for guard in guards) else []),
    ]
    advice = "remove the breaks, or use `torch.compile(..., dynamic=True)`"
    return _merge_functions(
        functions, f"{len(functions)} functions between breaks", f"{join_with_and(varied_values)} varied", advice
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

    For example: "f was compiled 8 times and now runs eagerly (recompile limit)".
    """
    limited_functions = [recompilation for recompilation in recompilations(report) if recompilation.limit_hit]
    wrapped_functions = [skipped.function for skipped in report.skipped if skipped.kind == "shared wrapper"]
    names = dict.fromkeys(
        wrapped_functions or [function_name(report, recompilation) for recompilation in limited_functions]
    )
    if not names:
        return ""
    verb = "now runs eagerly (recompile limit)" if len(names) == 1 else "now run eagerly (recompile limit)"
    if len(names) > _MAX_NAMES:
        return f"{len(names)} functions {verb}"
    if not wrapped_functions and len(names) == 1 and limited_functions[0].compilation_count:
        verb = f"was compiled {limited_functions[0].compilations_text} and {verb}"
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
    shown_items: set[str] = set()
    by_frame = {}
    for recompilation in recompilations(report):
        all_remedies = remedies_for_recompiles(report, recompilation.ids) or BreakRemedies([], [], [])
        if fix := _fix_that_stops_compiling(report, recompilation):
            sentence = (
                f"With the fix for {target_text(report, fix)}, this code runs uncompiled after the call."
                if fix.family == ENDING_FAMILY
                else f"With the fix for {target_text(report, fix)}, this code is no longer compiled, but the part that "
                "the fix compiles may recompile for the same reason."
            )
            by_frame[recompilation.frames[0]] = BreakRemedies([], [], [sentence])
            continue
        # If there was no time for any trial, the general advice is better than leaving the decision to a person.
        decisions = all_remedies.decisions if all_remedies.untried_reason != NOTHING_TRIED_REASON else []
        remaining_remedies = BreakRemedies(
            [remedy for remedy in all_remedies.working_remedies if remedy.id not in shown_items],
            [remedy for remedy in all_remedies.failed_remedies if remedy.id not in shown_items],
            [decision for decision in decisions if decision not in shown_items],
            all_remedies.untried_reason,
        )
        shown_items.update(
            remedy.id for remedy in (*remaining_remedies.working_remedies, *remaining_remedies.failed_remedies)
        )
        shown_items.update(remaining_remedies.decisions)
        by_frame[recompilation.frames[0]] = remaining_remedies
    return by_frame


def _fix_that_stops_compiling(report: Report, recompilation: Recompilation) -> Remedy | None:
    """Return the fix for breaks after which a function is no longer compiled; ``None`` if there is none.

    Such a fix compiles a part of the entry instead of the entry, and functions inside the part are still compiled; or
    it runs the code after a break after the call.
    """
    frames = lookup.frames(report)
    recompiled_frames = [frame for ident in recompilation.frames if (frame := frames.get(ident)) is not None]
    if recompilation.is_merged or not recompiled_frames:
        return None
    for remedy in compatible_remedies(report):
        if remedy.evidence is None or remedy.evidence.breaks_after:
            continue
        if remedy.family == ENDING_FAMILY and all(
            frame.resume is not None and lookup.resumes(report)[frame.resume].break_ in remedy.breaks
            for frame in recompiled_frames
        ):
            return remedy
        if remedy.family != INNER_FAMILY:
            continue
        breaks = [break_ for break_ in report.breaks if break_.id in remedy.breaks]
        entries = {_entry_of(report, occurrence.frame) for break_ in breaks for occurrence in break_.occurrences}
        if all(
            _entry_of(report, frame.id) in entries
            and (frame.role != "call" or frame.breaks or is_in_torch_optimizer(report, frame.location))
            for frame in recompiled_frames
        ):
            return remedy
    return None


def _entry_of(report: Report, frame_id: str | None) -> str | None:
    """Return the id of an entry's first compilation, given a frame that it called; ``None`` for an unknown frame."""
    frames = lookup.frames(report)
    visited_ids: set[str] = set()
    frame = frames.get(frame_id or "")
    while frame is not None and frame.caller in frames and frame.id not in visited_ids:
        visited_ids.add(frame.id)
        frame = frames[frame.caller]
    return (frame.recompile_of or frame.id) if frame is not None else None


def best_recompile_remedy(report: Report, recompilation: Recompilation) -> Remedy | None:
    """Return the best remedy that works for the recompiles of a function; ``None`` if none is shown for it."""
    trials = recompile_remedies(report, recompilation)
    return trials.working_remedies[0] if trials is not None and trials.working_remedies else None


def function_name(report: Report, recompilation: Recompilation) -> str:
    """Return the name of a recompiled function, with its class if known.

    If a partial is compiled, or a module whose ``forward`` is PyTorch's own, PyTorch compiles a wrapper instead, whose
    name means nothing to the reader.
    """
    if recompilation.location is None:
        return recompilation.function
    frame = lookup.frames(report).get(recompilation.frames[0])
    name = called_object_name(report, frame) if frame is not None else ""
    if is_wrapper_of_torch(report, recompilation.location):
        return name or "the wrapped function"
    if name and is_wrapper_of_step(report, recompilation.location):
        return name
    return function_of(report, recompilation.location)


def _make_recompilation(
    recompiles: list[Recompile],
    limit: int,
    sources: Mapping[str, Source],
    *,
    is_inner: bool,
    is_library: bool,
    is_module_method: bool,
) -> Recompilation:
    """Return the description of a recompiled function, with its failed guards grouped by what they check."""
    guards = failed_guards(
        (
            (index, reason)
            for index, recompile in enumerate(recompiles)
            for reason in reversed(recompile.reasons)  # PyTorch lists the latest version first
        ),
        sources,
        is_inner=is_inner,
        is_library=is_library,
        is_module_method=is_module_method,
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

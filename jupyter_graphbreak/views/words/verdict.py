"""Put the verdict on a run into a few sentences, and the figures of the run into one line."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from jupyter_graphbreak.knowledge.causes import belongs_outside
from jupyter_graphbreak.knowledge.known_bugs import bug_with_message
from jupyter_graphbreak.knowledge.switches import switch_with_title
from jupyter_graphbreak.report.relevance import functions_worth_counting
from jupyter_graphbreak.report.remedies import INNER_FAMILY, INTERRUPTED_REASON, NO_TIME_REASON, NOTHING_TRIED_REASON
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.advice import advice_for_break
from jupyter_graphbreak.views.words.cost import measured_cost_text, slowdown_text
from jupyter_graphbreak.views.words.effects import not_run_again_sentence
from jupyter_graphbreak.views.words.groups import break_groups, break_numbers_text, costs_text, text_of_several_causes
from jupyter_graphbreak.views.words.guard_variations import NOTHING_TO_DO_PREFIX, RANGE_PREFIX
from jupyter_graphbreak.views.words.lines import break_numbers, ordered_breaks
from jupyter_graphbreak.views.words.locations import called_object_name, function_of, is_wrapper_of_torch, location_text
from jupyter_graphbreak.views.words.plain_text import count_text, duration_text, join_with_and, one_line, times_text
from jupyter_graphbreak.views.words.reason import title_of
from jupyter_graphbreak.views.words.recompilation import (
    Recompilation,
    best_recompile_remedy,
    function_name,
    limited_functions_text,
    recompilations,
)
from jupyter_graphbreak.views.words.remedies import compatible_remedies, target_text, untried_targets_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Frame, Report, RunError, Skipped
    from jupyter_graphbreak.views.words.remedies import BreakRemedies

RunOutcome = Literal["good", "bad", "error", "plain"]
#: The separators in a piece of advice, before its reason and before its alternatives.
_ADVICE_DETAIL_SEPARATOR = re.compile(r": |; or ")
#: Common names of wrappers, which mean nothing to a reader.
_WRAPPER_NAMES = frozenset({"wrapper", "wrapped", "inner", "_wrapped_call_impl", "_call_impl"})
#: The maximum number of nested wrappers to look through.
_MAX_WRAPPERS = 5
#: The name to show for the code at the top level of a cell.
_CELL_NAME = "the cell"
#: The maximum number of functions or variations to name in one sentence.
_MAX_NAMES = 2
#: An operation that a graph contains at least this often is assumed to come from an unrolled loop. The verdict mentions
#: such a loop if compiling took at least this many seconds.
_MIN_UNROLLED_STEPS = 100
_LONG_COMPILE_S = 5.0
#: A variation between calls, with its values: "scale: 2 -> 3", "the grad mode changed", "`kind` is a different object".
_VARIATION = re.compile(
    r"`?(.+?)`?(?:: .*| changed| is a different (?:object|function)| is None in some calls only)", re.DOTALL
)


class RunVerdict(NamedTuple):
    """The verdict on a run: the outcome, and sentences that say what happened and what to do first."""

    outcome: RunOutcome
    text: str


def verdict(report: Report) -> RunVerdict:
    """Return the verdict on a run.

    For example: "2 breaks. Fix break 1 first: it makes 3 functions run eagerly.", "No breaks, but attend was compiled
    8 times and now runs eagerly (recompile limit)."
    """
    outcome, text = _verdict_on_run(report)
    if early_return := _early_return_text(report):
        outcome, text = "plain" if outcome == "good" else outcome, f"{text}{early_return}"
    if untried_targets := untried_targets_text(report):
        text += f" The trials were interrupted; nothing was tried for {untried_targets}."
    wrong_checks = [check for check in report.check or [] if check.is_result_wrong]
    findings = [
        (["returns a wrong result", "return wrong results"], [check for check in wrong_checks if not check.is_error]),
        # An error that ended the run is in the text already.
        (["raises an error", "raise errors"], [check for check in wrong_checks if check.is_error and not report.error]),
    ]
    for verbs, checks in reversed(findings):
        if checks:
            names = _names_or_count([one_line(check.function) for check in checks])
            outcome, text = "error", f"When compiled, {names} {verbs[len(checks) > 1]}. {text}"
    return RunVerdict(outcome, text)


def why_untried(report: Report, remedies: BreakRemedies) -> str:
    """Return why no change was tried; empty if the report already states the reason elsewhere."""
    reason = one_line(remedies.untried_reason)
    notes = " ".join(diagnostic.message for diagnostic in report.diagnostics)
    shown_text = f"{verdict(report).text} {not_run_again_sentence(report)} {one_line(notes)}"
    is_effect = any(one_line(effect.what) in reason for effect in report.effects or [])
    return (
        ""
        if is_effect or reason in {INTERRUPTED_REASON, NO_TIME_REASON} or _as_sentence(reason) in shown_text
        else reason
    )


def _verdict_on_run(report: Report) -> tuple[RunOutcome, str]:
    breaks = count_text(len(report.breaks), "break")
    if report.status == "interrupted":
        suffix = _location_suffix(report, report.error.location) if report.error is not None else ""
        return "bad" if report.breaks else "plain", f"Interrupted{suffix}; {breaks} until then."
    if report.error is not None or report.status == "error":
        return "error", _how_run_ended(report)
    if report.breaks:
        return "bad", f"{breaks}{_first_step(report)}"
    limited_text = limited_functions_text(report)
    if limited_text:
        limited_functions = [function for function in recompilations(report) if function.limit_hit]
        reason = _varied_text(limited_functions[0]) if len(limited_functions) == 1 else ""
        return "bad", f"No breaks, but {limited_text}{reason}.{_recompile_fix_text(report)}"
    if not report.graphs:
        return "plain", f"Nothing was compiled{_why_nothing_compiled(report) or ' in this run'}."
    eager_text = _eager_names(report)
    if eager_text:
        return "plain", f"No breaks, but {eager_text} ran eagerly."
    if report.recompiles:
        return _verdict_on_recompiles(report)
    graphs = "one graph" if len(report.graphs) == 1 else count_text(len(report.graphs), "graph")
    return "good", f"No breaks: {graphs}.{_unrolled_loop_advice(report)}"


def _unrolled_loop_advice(report: Report) -> str:
    """Return advice on a loop that was unrolled into a graph so long that compiling it took seconds; empty if none."""
    compile_s = report.timing.compile_s or 0.0
    if compile_s < _LONG_COMPILE_S:
        return ""
    places = Counter(
        (graph.id, op.target, op.location) for graph in report.graphs for op in graph.ops if op.location is not None
    )
    (graph, _, location), times = max(places.items(), key=lambda item: item[1], default=(("", "", None), 0))
    if times < _MIN_UNROLLED_STEPS:
        return ""
    place = "the graph" if len(report.graphs) == 1 else f"graph {graph}"
    return (
        f" A loop was unrolled: {place} contains {location_text(report, location)} {times} times, and compiling took "
        f"{duration_text(compile_s)}. To compile faster, compile only the body of the loop."
    )


def _verdict_on_recompiles(report: Report) -> tuple[RunOutcome, str]:
    expected_recompiles = {ident for remedy in report.remedies or [] if remedy.is_right for ident in remedy.recompiles}
    functions = [
        function
        for function in recompilations(report)
        if not (function.ids and expected_recompiles.issuperset(function.ids))
    ]
    if all(
        function.is_caused_by_instances and not function.warning and best_recompile_remedy(report, function) is None
        for function in functions
    ):
        return "good", f"No breaks. {_recompiled_text(report, '' if functions else 'as expected')}."
    return "plain", f"No breaks, but {_recompiled_text(report)}.{_recompile_fix_text(report)}"


def _how_run_ended(report: Report) -> str:
    """Say how the run ended: "Break 2 ended the run: `print`, line 5."."""
    error = report.error
    number = break_numbers(report).get(error.break_ or "") if error is not None else None
    if error is not None and number is not None:
        break_ = ordered_breaks(report)[number - 1]
        other_count = len(report.breaks) - 1
        verb = "is" if other_count == 1 else "are"
        other_breaks = f" There {verb} {count_text(other_count, 'other break')}." if other_count else ""
        cause = f"{title_of(break_)}{_location_suffix(report, break_.location)}"
        return f"Break {number} ended the run: {cause}.{other_breaks}"
    error_type = one_line(error.type) if error is not None else "an error"
    breaks_until_then = f"; {count_text(len(report.breaks), 'break')} until then" if report.breaks else ""
    suffix = _location_suffix(report, error.location if error is not None else None)
    ending_text = f"The run ended in {error_type}{suffix}{breaks_until_then}."
    return f"{ending_text}{_known_bug_advice(error)}" if error is not None else ending_text


def _known_bug_advice(error: RunError) -> str:
    """Return advice on an error that a known PyTorch bug may have raised; empty if no such bug is known.

    The advice is conditional, because the user's own code may raise the same error.
    """
    code = error.location.code if error.location is not None else None
    bug = bug_with_message(f"{error.message}\n{code or ''}")
    return f" If this error does not occur without torch.compile: {bug.advice_in_report}." if bug is not None else ""


def _as_sentence(reason: str) -> str:
    """Return a reason as a sentence with a full stop; a first word that may be a function's name stays unchanged."""
    begins_in_lowercase = reason.startswith(("the ", "there "))
    return f"{'T' + reason[1:] if begins_in_lowercase else reason}{'' if reason.endswith('.') else '.'}"


def _first_step(report: Report) -> str:
    """Say what to do first about the breaks, as the end of a sentence: ". Fix break 1 first: it adds 2 graphs."."""
    is_compiled = any(frame.graphs and frame.outcome == "compiled" for frame in report.frames) or not report.frames
    further_sentences = (
        "" if report.graphs and is_compiled else f" Nothing was compiled{_why_nothing_compiled(report)}."
    )
    working_remedies = [remedy for remedy in compatible_remedies(report) if remedy.breaks]
    part_advice = _part_advice(report)
    if working_remedies:
        return f". {_working_changes_text(report, working_remedies)}{part_advice}{further_sentences}"
    reasons = {remedy.reason for remedy in report.remedies or [] if remedy.reason != INTERRUPTED_REASON}
    if any(remedy.kind != "person" for remedy in report.remedies or []):
        further_sentences = f"{_no_working_change_text(report)}{part_advice}{further_sentences}"
    elif len(reasons) == 1 and (reason := reasons.pop()):
        further_sentences = f" {_as_sentence(one_line(reason))}{further_sentences}"
    if breaks_to_keep_outside := _breaks_to_keep_outside(report):
        advice = _ADVICE_DETAIL_SEPARATOR.split(advice_for_break(report, breaks_to_keep_outside[0])[0].text)[0]
        subject_and_verb = _subject_and_verb(report, breaks_to_keep_outside)
        return f".{further_sentences} {subject_and_verb} outside of the compiled function: {advice}."
    states_eager = " ran eagerly" in further_sentences
    total, largest_group = len(report.breaks), _largest_group(report)
    if largest_group:
        share = "all" if len(largest_group) == total else f"{len(largest_group)} of them"
        cost = costs_text(largest_group)
        is_stated_already = states_eager and not cost.startswith("add")
        cost = f" {'They ' if cost.startswith('add') else ''}{cost}." if cost and not is_stated_already else ""
        advice = _shared_advice(report, largest_group)
        reason = f"with the same fix: {advice}" if advice else f"for one reason: {title_of(largest_group[0])}"
        return f", {share} {reason}.{further_sentences}{cost}"
    first = ordered_breaks(report)[0]
    effect = _worst_effect(report, first)
    if not effect and total > 1:
        worst_break = max(ordered_breaks(report), key=_break_weight)
        worst_step = (
            f" Fix break {break_numbers(report)[worst_break.id]} first: it {_worst_effect(report, worst_break)}."
        )
        return f".{further_sentences}{worst_step if _worst_effect(report, worst_break) else ' Fix break 1 first.'}"
    if total == 1:
        is_stated_already = states_eager and effect.endswith("run eagerly")
        effect_text = f": it {effect}" if effect and not is_stated_already else ""
        return f"{_location_suffix(report, first.location)}{effect_text}.{further_sentences}"
    return f".{further_sentences} Fix break 1 first{f': it {effect}' if effect else ''}."


def _breaks_to_keep_outside(report: Report) -> list[Break]:
    """Return the breaks at code that does not belong in a compiled function, such as a backward pass.

    The list is empty if the run has a single break: the verdict then names its line instead.
    """
    if len(report.breaks) == 1:
        return []
    breaks_outside = []
    for break_ in ordered_breaks(report):
        code = break_.location.code if break_.location is not None else None
        if (
            break_.owner == "own"
            and belongs_outside(break_.gb_id, break_.gb_type, code)
            and advice_for_break(report, break_)
        ):
            breaks_outside.append(break_)
    return breaks_outside


def _subject_and_verb(report: Report, breaks: Sequence[Break]) -> str:
    """Return the subject and the verb for a sentence that says where breaks belong: "Breaks 1 and 3 belong"."""
    if len(breaks) == len(report.breaks):
        return "They belong"
    numbers = break_numbers_text(report, breaks)
    return f"Break {numbers} belongs" if len(breaks) == 1 else f"Breaks {numbers} belong"


def _largest_group(report: Report) -> list[Break]:
    """Return the breaks with the same reason or fix, if at least half of all breaks have it; empty otherwise."""
    breaks = max(break_groups(report), key=lambda group: len(group.breaks)).breaks
    return breaks if len(breaks) > 1 and 2 * len(breaks) >= len(report.breaks) else []


def _shared_advice(report: Report, breaks: Sequence[Break]) -> str:
    """Return the advice about breaks that have several causes but the same fix; empty for one cause."""
    if not text_of_several_causes(breaks):
        return ""
    return next((advice.text for advice in advice_for_break(report, breaks[0])), "")


def advice_beside_verdict(report: Report) -> str:
    """Return advice about the subject of the verdict; empty if the verdict has it, or if changes were tried."""
    if report.remedies:
        return ""
    if not report.breaks:
        guards = [guard for function in recompilations(report) for guard in function.guards]
        advice_on_guards = [guard.advice for guard in guards if not guard.advice.startswith(NOTHING_TO_DO_PREFIX)]
        ways_out = (skipped.way_out for skipped in report.skipped)
        return next(filter(None, [*advice_on_guards, *ways_out]), "")
    if _breaks_to_keep_outside(report):
        return ""  # it is in the verdict
    first = ordered_breaks(report)[0]
    if largest_group := _largest_group(report):
        if _shared_advice(report, largest_group):
            return ""  # it is in the verdict
        first = largest_group[0]
    elif not _worst_effect(report, first):
        first = max(ordered_breaks(report), key=_break_weight)
    return next((advice.text for advice in advice_for_break(report, first)), "")


def _no_working_change_text(report: Report) -> str:
    """Say why no change works; if a library's switch would work but changes results, name it."""
    for remedy in report.remedies or []:
        switch = switch_with_title(remedy.title)
        if remedy.verdict == "another result" and switch is not None and switch.result_difference is not None:
            target = "it" if len(report.breaks) == 1 else target_text(report, remedy)
            return f' Only "{remedy.title}" removes {target}, but {switch.result_difference}.'
    changes = [remedy for remedy in report.remedies or [] if remedy.kind != "person"]
    untried_part = next(
        (remedy for remedy in changes if remedy.family == INNER_FAMILY and remedy.reason == NO_TIME_REASON), None
    )
    untried_text = f'"{untried_part.title}"' if untried_part is not None else "a change"
    if all(remedy.reason == NO_TIME_REASON for remedy in changes):
        return f" There was no time to try {untried_text}."
    time_note = f"; there was no time to try {untried_text}" if untried_part is not None else ""
    return f" No change that was tried removes {'it' if len(report.breaks) == 1 else 'one'}{time_note}."


def _part_advice(report: Report) -> str:
    """Return which break to remove so that a large part can be compiled alone; empty if there is no such advice."""
    steps = (remedy for remedy in report.remedies or [] if remedy.family == INNER_FAMILY and remedy.kind == "person")
    step = next(steps, None)
    if step is None:
        return ""
    return f" If you can remove {target_text(report, step)}, {step.title[:1].lower()}{step.title[1:]}."


def _working_changes_text(report: Report, chosen_remedies: Sequence[Remedy]) -> str:
    total, removed_count = len(report.breaks), len({ident for remedy in chosen_remedies for ident in remedy.breaks})
    target = "it" if total == 1 else "both" if total == 2 else "all of them"  # noqa: PLR2004
    if len(chosen_remedies) > 1:
        removed_breaks = target if removed_count == total else f"{removed_count} of them"
        return f"{len(chosen_remedies)} changes, each tried alone, remove {removed_breaks}."
    (remedy,) = chosen_remedies
    title = _changes_in_order(remedy.title)
    target = target if removed_count == total else target_text(report, remedy)
    doubt = {"works but differs": ", with a difference", "works on what ran": ", as far as tested"}
    slower = slowdown_text(report, remedy)
    slower_text = f", but {slower}" if slower else ""
    return f"{title}: that removes {target}{doubt.get(remedy.verdict, '')}{slower_text}."


def _changes_in_order(title: str) -> str:
    """Return the changes in the title of a remedy as one clause: "Set a = True and print after the call"."""
    first, *further_titles = title.split("; ")
    changes = [f"{first[:1].upper()}{first[1:]}", *(f"{other[:1].lower()}{other[1:]}" for other in further_titles)]
    if further_titles and any(", " in change for change in changes):
        return f"{'; '.join(changes[:-1])}; and {changes[-1]}"
    return join_with_and(changes)


def _worst_effect(report: Report, break_: Break) -> str:
    """Return the worst effect of a break as the end of a sentence: "makes 3 functions run eagerly"."""
    saving_text, cost = measured_cost_text(report, break_), break_.cost
    if saving_text or cost is None:
        return saving_text
    if cost.eager:
        return f"makes {count_text(cost.eager, 'function')} run eagerly"
    return f"adds {count_text(cost.graphs, 'graph')}" if cost.graphs else ""


def _break_weight(break_: Break) -> tuple[int, int]:
    cost = break_.cost
    return (cost.eager, cost.graphs) if cost is not None else (0, 0)


def _why_nothing_compiled(report: Report) -> str:
    """Say why nothing was compiled: ": norm ran eagerly", ": the first call of f had no tensor operation, ..."."""
    # The name of a torch wrapper means nothing to the reader, unlike the name of the function that it wraps.
    called_names = (
        _names_or_count(f"`{one_line(call.name)}`" for call in report.compiled or ()) if report.skipped else ""
    )
    eager_text = _eager_names(report) or called_names
    if eager_text:
        return f": {eager_text} ran eagerly"
    empty_names = [_qualified_name(report, frame) for frame in report.frames if frame.outcome == "empty"]
    if _names_or_count(empty_names) == _CELL_NAME:
        return ": the cell has no tensor operation"
    empty_text = _empty_calls_text(empty_names)
    return f": the {empty_text}" if empty_text else ""


def _early_return_text(report: Report) -> str:
    """Return a sentence on compiled functions whose first call returned early, if later calls run more; else empty."""
    callers = {frame.caller for frame in report.frames}
    empty_names = [
        _qualified_name(report, frame)
        for frame in report.frames
        if frame.role == "entry" and frame.outcome == "empty" and frame.id in callers
    ]
    text = _empty_calls_text(empty_names)
    return f" The {text}: move the early return in front of the call." if text else ""


def _empty_calls_text(functions: Sequence[str]) -> str:
    """Return the consequence of first calls without tensor operations; empty without functions.

    For example: "first call of f had no tensor operation, so PyTorch runs it eagerly from now on". Dynamo marks code
    of such a call, and does not trace later calls.
    """
    names = _names_or_count(functions)
    calls, pronoun = ("call", "it") if len({*filter(None, functions)}) == 1 else ("calls", "them")
    consequence = f"so PyTorch runs {pronoun} eagerly from now on"
    return f"first {calls} of {names} had no tensor operation, {consequence}" if names else ""


def _recompiled_text(report: Report, judgment: str = "") -> str:
    """Say which function was recompiled and why: "attend was compiled 3 times: scale varied"."""
    functions = recompilations(report)
    judgment = f", {judgment}" if judgment else ""
    if len(functions) > 1:
        return f"{count_text(len(functions), 'function')} were compiled more than once{judgment}"
    (function,) = functions
    name = _called_name(report, function)
    times = f"compiled {function.compilations_text}" if function.compilation_count else "compiled again"
    reason = _varied_text(function)
    if function.is_caused_by_instances:
        times, reason = f"compiled {times_text(function.compilation_count)}", ", once for each instance"
    return f"{one_line(name)} was {times}{judgment}{reason}"


def _varied_text(function: Recompilation) -> str:
    """Return what varied between calls to a function, as a sentence ending: ": scale varied"; empty if unknown."""
    matches = [_VARIATION.fullmatch(guard.variation) for guard in function.guards]
    names = list(dict.fromkeys(one_line(variation[1]) for variation in matches if variation is not None))
    # Several settings may change together in one call, and one of them alone in another.
    names = [name for name in names if not any(f" and {name}" in other for other in names)]
    names = [name for name in names if name.removeprefix(RANGE_PREFIX) not in {*names} - {name}]
    return f": {join_with_and(names[:_MAX_NAMES])} varied" if names else ""


def _called_name(report: Report, function: Recompilation) -> str:
    """Return the name of a recompiled function; if the program compiles nothing else, the name that the program uses.

    A reader does not know the name of a library's wrapper, such as "can_return_tuple.wrapper".
    """
    outermost = {
        frame.id
        for frame in report.frames
        if frame.caller is None and frame.role != "resume" and frame.recompile_of is None
    }
    if len(report.compiled or ()) == 1 and {recompile.of for recompile in report.recompiles} == outermost:
        return compiled_name(report)
    return function_name(report, function)


def _recompile_fix_text(report: Report) -> str:
    """Say which tested change prevents recompiles: " Mark dimension 0 of `x` as dynamic: 1 compilation remains.".

    If none does, return the most frequent decision that is left to the reader, if there is one.
    """
    functions = recompilations(report)
    fixes = [fix for function in functions if (fix := best_recompile_remedy(report, function)) is not None]
    if len(fixes) > 1:
        return f" {len(fixes)} changes, each tried alone, prevent recompiles."
    if not fixes:
        decisions: Counter[str] = Counter()
        for remedy in report.remedies or []:
            if remedy.person and remedy.recompiles and remedy.reason != NOTHING_TRIED_REASON:
                decisions[remedy.person] += len(remedy.recompiles)
        (decision, times), (_, next_times) = [*decisions.most_common(2), ("", 0), ("", 0)][:2]
        return f" {one_line(decision)}" if times > next_times else ""
    (remedy,) = fixes
    compilations_after = remedy.evidence.compilations_after if remedy.evidence is not None else None
    remaining_text = (
        f"{count_text(compilations_after, 'compilation')} {'remains' if compilations_after == 1 else 'remain'}"
        if compilations_after
        else "fewer compilations"
    )
    slower = slowdown_text(report, remedy)
    return f" {one_line(remedy.title)}: {remaining_text}{f', but {slower}' if slower else ''}."


def _qualified_name(report: Report, subject: Frame | Skipped) -> str:
    """Return the qualified name of a function; empty for a torch wrapper."""
    location = subject.location
    if location is not None and is_wrapper_of_torch(report, location):
        return ""
    name = one_line(function_of(report, location) if location is not None else subject.function)
    return _CELL_NAME if name == "<module>" else name


def _eager_names(report: Report) -> str:
    return _names_or_count(
        _qualified_name(report, skipped) for skipped in functions_worth_counting(report, report.skipped)
    )


def _names_or_count(functions: Iterable[str]) -> str:
    names = list(dict.fromkeys(filter(None, functions)))
    return count_text(len(names), "function") if len(names) > _MAX_NAMES else " and ".join(names)


def _location_suffix(report: Report, location: Location | None) -> str:
    return f", {location_text(report, location)}" if location is not None else ""


# Figures.


def figures(report: Report) -> list[str]:
    """Return the figures of a run: "Cell In[3], step: 5 graphs, 55 ops", "cpu", "5.10 s", "torch 2.13.0"."""
    head, counts = ", ".join(filter(None, [run_name(report), compiled_name(report)])), _counts_text(report)
    return [
        f"{head}: {counts}" if counts else head,
        *_device_and_times(report),
        *([f"torch {report.torch.partition('+')[0]}"] if report.torch else []),
    ]


def summary(report: Report) -> str:
    """Return a report in one line: "Cell In[3]: 2 breaks, 4 graphs, 11 ops | cpu | 0.84 s, compiling 0.79 s"."""
    result = count_text(len(report.breaks), "break") if report.breaks else verdict(report).text.rstrip(".")
    name_and_counts = ", ".join(filter(None, [f"{run_name(report)}: {result}", _counts_text(report)]))
    return " | ".join([name_and_counts, *_device_and_times(report)])


def _counts_text(report: Report) -> str:
    figures = report.summary
    counts = {"graph": figures.graphs, "op": figures.ops, "recompile": figures.recompiles}
    return ", ".join(count_text(number, noun) for noun, number in counts.items() if number)


def _device_and_times(report: Report) -> list[str]:
    parts = [" ".join(filter(None, [report.device.used, report.device.name]))]
    timing = report.timing
    if timing.wall_s is not None:
        compiling_text = f", compiling {duration_text(timing.compile_s)}" if timing.compile_s else ""
        parts.append(f"{duration_text(timing.wall_s)}{compiling_text}")
    return parts


def run_name(report: Report) -> str:
    """Return the name of the cell that ran, or of the first source that is not PyTorch's: "Cell In[3]", "train.py"."""
    source_of_run = lookup.main_cell(report) or next(
        (source for source in report.sources if not (source.path or "").startswith("torch/")), None
    )
    return one_line(source_of_run.name) if source_of_run is not None and source_of_run.name else "this run"


def compiled_name(report: Report) -> str:
    """Return the names of the outermost compiled functions or modules: "step", "BartForCausalLM and 2 more"."""
    if report.compiled:
        return _first_names([one_line(call.type or call.name) for call in report.compiled])
    first_callees: dict[str | None, Frame] = {}
    for frame in reversed(report.frames):
        first_callees[frame.caller] = frame
    names: dict[str, None] = {}
    for frame in report.frames:
        if frame.caller is not None or frame.recompile_of is not None or frame.role == "resume":
            continue
        if frame.module is not None:
            names[called_object_name(report, frame)] = None
            continue
        # The name of a wrapper says nothing about the function that it wraps.
        for _ in range(_MAX_WRAPPERS):
            if frame.function not in _WRAPPER_NAMES or frame.id not in first_callees:
                break
            frame = first_callees[frame.id]  # noqa: PLW2901
        names[_qualified_name(report, frame).removesuffix(".forward")] = None
    for nameless in ("", _CELL_NAME, "<lambda>"):
        names.pop(nameless, None)
    return _first_names(list(names))


def _first_names(names: Sequence[str]) -> str:
    """Join the first names, without duplicates: "step and norm", "step, norm and 2 more"."""
    unique_names = list(dict.fromkeys(names))
    more = len(unique_names) - _MAX_NAMES
    return f"{', '.join(unique_names[:_MAX_NAMES])} and {more} more" if more > 0 else " and ".join(unique_names)

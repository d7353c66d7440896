"""Render reports as text, 100 columns wide, for terminals, IPython, logs and screen readers."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.rows.sections import about_rows, measurement_sections
from jupyter_graphbreak.views.words.advice import added_graphs_text, advice_for_break
from jupyter_graphbreak.views.words.aftermath import aftermath
from jupyter_graphbreak.views.words.bounds import limit_part, shown_part
from jupyter_graphbreak.views.words.changes import describe_change, headline
from jupyter_graphbreak.views.words.changes import figures as changed_figures
from jupyter_graphbreak.views.words.cost import break_time_text, time_change_text
from jupyter_graphbreak.views.words.failed_guards import error_text, guard_lines_text
from jupyter_graphbreak.views.words.frontends import OUTCOME_TEXTS, call_text, input_notes, verdict_sentences
from jupyter_graphbreak.views.words.groups import (
    Group,
    best_remedy,
    break_groups,
    break_numbers_text,
    costs_text,
    text_of_several_causes,
)
from jupyter_graphbreak.views.words.jobs import (
    compiling_lines,
    job_headline,
    job_location_text,
    job_notes,
    process_name,
    processes_text,
)
from jupyter_graphbreak.views.words.lines import annotated_lines, break_numbers
from jupyter_graphbreak.views.words.locations import brief_code, is_wrapper_of_step, is_wrapper_of_torch, location_text
from jupyter_graphbreak.views.words.paths import is_path_in_library, ordered_paths, path_sentence
from jupyter_graphbreak.views.words.permission import PERMISSIONS_WITHOUT_SETTING, describe_permission
from jupyter_graphbreak.views.words.plain_text import (
    count_text,
    escape_controls,
    join_words,
    one_line,
    whole_clauses,
    without_backticks,
)
from jupyter_graphbreak.views.words.reason import reason_of
from jupyter_graphbreak.views.words.recompilation import (
    function_name,
    listed_recompilations,
    needs_general_advice,
    recompile_remedies,
)
from jupyter_graphbreak.views.words.remedies import (
    DiffLine,
    change_lines,
    code_of,
    compatible_remedies,
    evidence_or_reason,
    has_separate_code,
    number_of_other_break_with_remedy,
    outcome_text,
    remedies_for_break,
    remedies_for_frame,
    target_text,
    trials_sentence,
    verdict_label,
)
from jupyter_graphbreak.views.words.verdict import figures, summary, verdict, why_untried

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.diff import Changes
    from jupyter_graphbreak.report.frontends import Frontends
    from jupyter_graphbreak.report.job import Job
    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Diagnostic, Report, Skipped
    from jupyter_graphbreak.views.words.failed_guards import FailedGuard
    from jupyter_graphbreak.views.words.lines import Line
    from jupyter_graphbreak.views.words.recompilation import Recompilation
    from jupyter_graphbreak.views.words.remedies import BreakRemedies

WIDTH = 100
INDENT = "    "
_MAX_SENTENCE_LENGTH = 20_000


def wrap(head: str, text: str, indent: str = INDENT) -> list[str]:
    """Wrap a sentence at 100 columns; indent the following lines to the column of its first word."""
    words = one_line(text if len(text) <= _MAX_SENTENCE_LENGTH else f"{text[:_MAX_SENTENCE_LENGTH]}...").split(" ")
    lines, line = [], indent + head
    for word in words:
        if len(line) + len(word) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(indent + head)
        line += word + " "
    return [*lines, line.rstrip()]


def cut_line(line: str) -> str:
    """Truncate a line to 100 columns."""
    line = escape_controls(line[: WIDTH + 1])
    return line if len(line) <= WIDTH else line[: WIDTH - 3].rstrip() + "..."


def render_frontends(frontends: Frontends) -> str:
    """Return the verdicts on front ends as text for a terminal 100 columns wide, without a final line break."""
    lines = [*wrap("", f"front ends on {call_text(frontends)} | torch {frontends.torch}", indent="")]
    name_width = max((len(frontend_verdict.frontend) for frontend_verdict in frontends.verdicts), default=0)
    outcome_width = max(len(text) for text in OUTCOME_TEXTS.values())
    for frontend_verdict in frontends.verdicts:
        counts = ""
        if frontend_verdict.graphs is not None:
            breaks_text = count_text(frontend_verdict.breaks or 0, "break")
            counts = f"{count_text(frontend_verdict.graphs, 'graph')}, {breaks_text}"
        outcome = OUTCOME_TEXTS[frontend_verdict.outcome]
        lines.append(f" {frontend_verdict.frontend:<{name_width}}  {outcome:<{outcome_width}}  {counts}".rstrip())
        for sentence in verdict_sentences(frontends, frontend_verdict):
            lines += wrap("", sentence)
    for sentence in input_notes(frontends):
        lines += wrap("", sentence, indent="")
    return "\n".join(map(escape_controls, lines))


#: The maximum number of breaks, notes or other items of one list to show; the rest are counted.
_MAX_ITEMS = 50


def changes_as_lines(changes: Changes) -> list[str]:
    """Return the changes as lines for a terminal 100 columns wide: summary, figures, breaks."""
    changes = limit_part(changes)
    width = max((len(change.change) + 1 for change in changes.breaks), default=0)
    name = escape_controls(changes.before.name or "the previous run")
    lines = wrap("", f"since {name}: {headline(changes)}", "")
    lines += wrap("", ", ".join(changed_figures(changes)))
    lines += [
        cut_line(f"    {change.change:<{width}}{'   '.join(filter(None, describe_change(change)))}")
        for change in changes.breaks[:_MAX_ITEMS]
    ]
    return lines + _rest_lines(len(changes.breaks), _MAX_ITEMS)


def _rest_lines(total: int, limit: int, description: str = "more", indent: str = INDENT) -> list[str]:
    """Return a line that counts the items beyond a limit, in a list; the list is empty if there are none."""
    return [f"{indent}and {total - limit} {description}"] if total > limit else []


#: The maximum number of remedies that work to list and, if none works, of failed ones.
_MAX_REMEDIES, _MAX_FAILED_REMEDIES = 4, 3
#: The outcome of a failed trial is cut to about this many characters.
_MAX_TRIAL_LENGTH = 160
#: A change is cut to this many lines.
_MAX_REMEDY_LINES = 12
#: If a change is too long, each block of removed lines is cut to this many lines.
_MAX_REMOVED_LINES = 2
#: A cause is cut to about this many characters; a list of break numbers longer than this is left out.
_MAX_CAUSE_LENGTH, _MAX_NUMBERS_LENGTH = 280, 40
_DEEPER_INDENT = INDENT + "     "


def _advice_or_reference(advice: str, number: int, number_by_advice: dict[str, int]) -> str:
    """Return advice about a break; if it already appeared with an earlier break, return a reference to that break."""
    first = number_by_advice.setdefault(advice, number)
    return advice if first == number else f"as for break {first}"


def remedy_lines_of_break(report: Report, number: int, break_: Break, number_by_advice: dict[str, int]) -> list[str]:
    """Return lines on the remedies for a break: the best with its change, further titles, the outcome of the others."""
    remedies = remedies_for_break(report, break_)
    if remedies is None:
        return []
    # If nothing was tried, it is too early to leave a decision to the reader: the advice is shown instead.
    decisions = [] if remedies.untried_reason and advice_for_break(report, break_) else remedies.decisions
    decision_texts = [_advice_or_reference(decision, number, number_by_advice) for decision in decisions]
    untried_reason = why_untried(report, remedies)
    untried_lines = (
        wrap(
            "not tried: ",
            _advice_or_reference(
                whole_clauses(without_backticks(untried_reason), _MAX_TRIAL_LENGTH), number, number_by_advice
            ),
        )
        if untried_reason
        else []
    )
    trials = _trial_lines(report, dataclasses.replace(remedies, decisions=decision_texts), number)
    no_trials = [] if remedies.untried_reason else [f"{INDENT}tried: nothing, no known remedy applies"]
    return [*untried_lines, *trials] or no_trials


def remedy_lines_of_function(report: Report, eager_function: Skipped) -> list[str]:
    """Return lines on the remedies for a function that runs eagerly without a break."""
    remedies = remedies_for_frame(report, eager_function)
    return _trial_lines(report, remedies, None) if remedies is not None else []


def compatible_remedy_lines(report: Report) -> list[str]:
    """Return lines on remedies that can be applied together; none for one remedy, because the verdict mentions it."""
    chosen_remedies = compatible_remedies(report)
    if len(chosen_remedies) < 2:  # noqa: PLR2004
        return []
    remedies_text = join_words(
        [f"{without_backticks(remedy.title)} ({target_text(report, remedy)})" for remedy in chosen_remedies], "; "
    )
    return wrap("", f"compatible remedies (each was tested alone): {remedies_text}", indent="")


def _trial_lines(report: Report, remedies: BreakRemedies, number: int | None) -> list[str]:
    lines: list[str] = []
    is_shown = False
    by_title = {remedy.title: remedy for remedy in reversed(remedies.working_remedies)}  # the best one with each title
    working_remedies = list(reversed(by_title.values()))
    for remedy in working_remedies[:_MAX_REMEDIES]:
        other_break = number_of_other_break_with_remedy(report, remedy, number) if number is not None else None
        if other_break is not None:
            result = f"{verdict_label(remedy)}, see break {other_break}"
            lines += wrap("fix: ", f"{without_backticks(remedy.title)}: {result}")
        elif is_shown:
            lines += wrap("or: ", f"{without_backticks(remedy.title)}: {verdict_label(remedy)}")
        else:
            lines += _working_remedy_lines(report, remedy)
            is_shown = True
    lines += _rest_lines(len(working_remedies), _MAX_REMEDIES, "more that work")
    if remedies.working_remedies:
        outcome_of_others = trials_sentence(remedies)
        lines += wrap("", without_backticks(outcome_of_others)) if outcome_of_others else []
    else:
        for remedy in remedies.failed_remedies[:_MAX_FAILED_REMEDIES]:
            other_break = number_of_other_break_with_remedy(report, remedy, number) if number is not None else None
            is_tried = remedy.verdict != "not tried"
            result = whole_clauses(
                without_backticks(outcome_text(remedy) if is_tried else evidence_or_reason(remedy)), _MAX_TRIAL_LENGTH
            )
            if other_break is not None and not is_tried and remedies.decisions:
                continue  # the entry of the other break names the reason
            if other_break is not None:
                result = f"{verdict_label(remedy)}, see break {other_break}" if is_tried else f"see break {other_break}"
            lines += wrap("tried: " if is_tried else "not tried: ", f"{without_backticks(remedy.title)}: {result}")
        if (omitted_count := len(remedies.failed_remedies) - _MAX_FAILED_REMEDIES) > 0:
            lines.append(f"{INDENT}and {count_text(omitted_count, 'more trial')} that failed")
        lines += [line for decision in remedies.decisions[:_MAX_REMEDIES] for line in wrap("", decision)]
    return lines


def _working_remedy_lines(report: Report, remedy: Remedy) -> list[str]:
    lines = wrap("fix: ", without_backticks(remedy.title))
    lines += wrap("", without_backticks(outcome_text(remedy)), _DEEPER_INDENT)
    if remedy.differences:
        more = len(remedy.differences) - 1
        lines += wrap(
            "differs: ",
            without_backticks(remedy.differences[0]) + (f" (and {more} more)" if more else ""),
            _DEEPER_INDENT,
        )
    changes = _shorten_removals(change_lines(report, remedy))
    shown_lines = [line.text if line.sign == "@" else f"{line.sign}{line.text}" for line in changes]
    if has_separate_code(remedy):
        shown_lines += code_of(remedy).split("\n")
    return lines + [cut_line(f"{_DEEPER_INDENT}  {line.expandtabs(4)}") for line in _first_lines(shown_lines)]


def _shorten_removals(lines: list[DiffLine]) -> list[DiffLine]:
    """If a change is too long to show, shorten its blocks of removed lines, so that the new lines are visible."""
    if len(lines) <= _MAX_REMEDY_LINES:
        return lines
    shown_lines: list[DiffLine] = []
    for sign, run in groupby(lines, key=lambda line: line.sign):
        removed_lines = list(run)
        is_long = sign == "-" and len(removed_lines) > _MAX_REMOVED_LINES + 1
        shown_lines += removed_lines[:_MAX_REMOVED_LINES] if is_long else removed_lines
        shown_lines += (
            [DiffLine("@", f"... {len(removed_lines) - _MAX_REMOVED_LINES} more lines removed")] if is_long else []
        )
    return shown_lines


def _first_lines(lines: Sequence[str]) -> list[str]:
    if len(lines) <= _MAX_REMEDY_LINES + 1:  # the last line takes no more space than a count
        return list(lines)
    return [*lines[:_MAX_REMEDY_LINES], f"... and {len(lines) - _MAX_REMEDY_LINES} more lines"]


#: The maximum number of source lines in total.
_MAX_LINES = 48
#: In a long source, the number of lines before and after each marked line.
_CONTEXT_LINES = 2
#: The maximum number of calls of one stack to name.
_MAX_CALLS = 40
#: The minimum number of calls of one stack to name.
_MIN_CALLS = 2
_MAX_LINE_CHARS = 2_000
#: The maximum number of breaks to list for one cause or to underline on one line.
_MAX_LISTED_BREAKS = 5
#: The maximum number of differences between compiled and eager paths to list.
_MAX_PATHS = 5


def render_text(report: Report) -> str:
    """Return the report as text, without a final line break.

    The verdict and the figures come first, then the breaks in the order in which to fix them, then all other findings,
    and at the end the source lines with the letters of their graphs. Control characters are escaped, so that text from
    the user's code cannot control the terminal.
    """
    report = shown_part(report)
    lines = [
        *wrap("", escape_controls(without_backticks(verdict(report).text)), ""),
        *_figures_line(report),
        *_measurement_lines(report),
    ]
    if report.changes is not None:
        lines += changes_as_lines(report.changes)
    groups = break_groups(report)
    shown_break_count = 0
    number_by_advice: dict[str, int] = {}
    for group in groups[:_MAX_ITEMS]:
        shown_break_count += len(group.breaks)
        lines += (
            _break_lines(report, group.breaks[0], number_by_advice)
            if group.is_single
            else _group_lines(report, group, number_by_advice)
        )
    if len(groups) > _MAX_ITEMS:
        lines.append(f"{INDENT}and {len(report.breaks) - shown_break_count} more breaks")
    lines += _eager_function_lines(report)
    lines += _path_lines(report)
    lines += compatible_remedy_lines(report)
    lines += _recompile_lines(report)
    lines += _error_lines(report)
    return "\n".join([*lines, *_note_lines(report.diagnostics), *_listing_lines(report)])


def _note_lines(notes: Sequence[Diagnostic]) -> list[str]:
    lines = [line for note in notes[:_MAX_ITEMS] for line in wrap(f"{note.level}: ", note.message, indent="")]
    return lines + _rest_lines(len(notes), _MAX_ITEMS, "more notes", indent="")


def summary_line(report: Report) -> str:
    """Return a report in one line, for logs and lists: "Cell In[3]: 2 breaks, 4 graphs, 11 ops | cpu | 0.84 s"."""
    return escape_controls(summary(shown_part(report)))


def _figures_line(report: Report) -> list[str]:
    """Return a list with the line of figures; an empty list if there is nothing to count."""
    return wrap("", " | ".join(figures(report)), "") if report.frames or report.breaks or report.skipped else []


def _measurement_lines(report: Report) -> list[str]:
    """Return the sentences about the run as a whole and the results of measurements, as lines."""
    sentences = [row.label for row in about_rows(report)]
    sentences += [row.label for section in measurement_sections(report) for row in section.rows]
    return [line for sentence in sentences[:_MAX_ITEMS] for line in wrap("", sentence, indent="")]


def _break_lines(report: Report, break_: Break, number_by_advice: dict[str, int]) -> list[str]:
    number = break_numbers(report)[break_.id]
    cause = whole_clauses(_cause_text(break_), _MAX_CAUSE_LENGTH)
    lines = [_location_line(report, f"{number:>2}", break_), *wrap("", cause)]
    path = _call_path(report, break_)
    if path:
        lines.append(cut_line(f"{INDENT}called from {path}"))
    lines += [line for words in _aftermath_lines(report, break_) for line in wrap("", words)]
    permission_text = describe_permission(report, break_)
    effects = [] if permission_text in PERMISSIONS_WITHOUT_SETTING else [permission_text]
    effects += filter(None, [added_graphs_text(break_), break_time_text(report, break_)])
    lines += wrap("", "; ".join(effects)) if effects else []
    remedies = remedy_lines_of_break(report, number, break_, number_by_advice)
    if _needs_advice(report, break_):
        lines += _advice_lines(report, break_, number_by_advice)
    return [*lines, *remedies]


def _group_lines(report: Report, group: Group, number_by_advice: dict[str, int]) -> list[str]:
    """Return lines on several breaks with one cause: the cause, the first locations, and the advice, each once."""
    first, total = group.breaks[0], len(group.breaks)
    cause = without_backticks(text_of_several_causes(group.breaks)) or whole_clauses(
        _cause_text(first), _MAX_CAUSE_LENGTH
    )
    numbers_text = break_numbers_text(report, group.breaks)
    head = f"{numbers_text}  " if len(numbers_text) <= _MAX_NUMBERS_LENGTH else ""
    lines = wrap(head, f"{cause}: {count_text(total, 'break')}", "")
    numbers = break_numbers(report)
    lines += [
        _location_line(report, f"{INDENT}{numbers[break_.id]:>2}", break_)
        for break_ in group.breaks[:_MAX_LISTED_BREAKS]
    ]
    lines += _rest_lines(total, _MAX_LISTED_BREAKS)
    cost = costs_text(group.breaks)
    lines += wrap("", cost) if cost else []
    if _needs_advice(report, first):
        lines += _advice_lines(report, first, number_by_advice)
    remedy = best_remedy(report, first)
    if remedy is None or len(remedy.breaks) > 1:
        return [*lines, *remedy_lines_of_break(report, numbers[first.id], first, number_by_advice)]
    return [*lines, *wrap("fix: ", f"{without_backticks(remedy.title)}, at each of them: {verdict_label(remedy)}")]


def _location_line(report: Report, head: str, break_: Break) -> str:
    code = one_line(brief_code(break_.location.code)) if break_.location is not None else ""
    line = f"{head}  {location_text(report, break_.location)}"
    return cut_line(f"{line}   {code}" if code else line)


def _cause_text(break_: Break) -> str:
    cause = without_backticks(reason_of(break_))
    if break_.gb_id is None and break_.explanation:
        cause += f": {break_.explanation.splitlines()[0]}"
    if break_.consequence is not None:
        cause += f"; then {without_backticks(reason_of(break_.consequence))}"
    return cause


def _needs_advice(report: Report, break_: Break) -> bool:
    """Return whether a break needs advice because nothing was tried or no trial leads to a change or a decision."""
    trials = remedies_for_break(report, break_)
    return trials is None or bool(trials.untried_reason) or not (trials.decisions or best_remedy(report, break_))


def _advice_lines(report: Report, break_: Break, number_by_advice: dict[str, int]) -> list[str]:
    number = break_numbers(report)[break_.id]
    first_advice = advice_for_break(report, break_)[:1]
    return [
        line
        for advice in first_advice
        for line in wrap("do: ", _advice_or_reference(advice.text, number, number_by_advice))
    ]


def _aftermath_lines(report: Report, break_: Break) -> list[str]:
    """Describe the run after a break, without the error, which :func:`describe_permission` mentions."""
    lines = aftermath(report, break_)
    if break_.outcome == "error" and lines[-1].endswith("an error"):
        last_line = lines[-1].removesuffix("an error").rstrip(", ").removesuffix("then").rstrip(", ")
        return [*lines[:-1], *([last_line] if last_line else [])]
    return lines


def _call_path(report: Report, break_: Break) -> str:
    """Return the calls that lead to a break; if they do not fit in a line, the least informative ones are left out."""
    stack = break_.stack[:-1]
    if not stack:
        return ""
    kinds = {source.id: source.kind for source in report.sources}
    # The most informative calls are the first, the reader's innermost one, the last, and the reader's other ones.
    own_calls = [index for index, call in enumerate(stack) if kinds.get(call.source) != "library"][::-1]
    order = dict.fromkeys([0, *own_calls[:1], len(stack) - 1, *own_calls, *reversed(range(len(stack)))])
    ranked_indexes = list(order)[:_MAX_CALLS]
    calls = {index: location_text(report, stack[index]) for index in ranked_indexes}
    # A notebook's copy of a report leaves out stacks with the same lines as the stack of the break.
    different_stacks = {tuple((occurrence.stack or break_.stack)[:-1]) for occurrence in break_.occurrences}
    other_way_count = len(different_stacks) - 1 if not _are_on_one_path(different_stacks) else 0
    more_text = f" (and {count_text(other_way_count, 'other way')})" if other_way_count else ""
    room = WIDTH - len(INDENT) - len("called from ") - len(more_text)
    text = _join_calls(calls, len(stack))
    while len(text) > room and len(calls) > _MIN_CALLS:
        calls.popitem()  # the least informative one
        text = _join_calls(calls, len(stack))
    return text + more_text


def _join_calls(calls: dict[int, str], total: int) -> str:
    """Join the calls that were chosen from a stack, by index, with dots for the others."""
    words: list[str] = []
    previous = -1
    for index in sorted(calls):
        words += ["..."] if index > previous + 1 else []
        words.append(calls[index])
        previous = index
    return " > ".join([*words, *(["..."] if previous < total - 1 else [])])


def _are_on_one_path(stacks: Iterable[tuple[Location, ...]]) -> bool:
    """Return whether the longest stack contains the lines of all others."""
    ordered_stacks = sorted(stacks, key=len)
    lines = [[(location.source, location.line) for location in stack] for stack in ordered_stacks]
    longest = set(lines[-1]) if lines else set()
    return all(longest.issuperset(shorter) for shorter in lines)


def _path_lines(report: Report) -> list[str]:
    """Return lines on the tests in the reader's own code that decide differently when compiled.

    Other views also list the tests in libraries, and those on which no line is known to depend.
    """
    changing_paths = [
        path for path in ordered_paths(report) if path.changes_lines and not is_path_in_library(report, path)
    ]
    lines = [
        line
        for path in changing_paths[:_MAX_PATHS]
        for line in wrap(" -  ", without_backticks(path_sentence(report, path)), "")
    ]
    more_count = len(changing_paths) - _MAX_PATHS
    more_lines = [f"{INDENT}and {count_text(more_count, 'more difference')} when compiled"] if more_count > 0 else []
    return [*lines, *more_lines]


def _eager_function_lines(report: Report) -> list[str]:
    """Return lines on the functions that run eagerly for a reason other than a break."""
    functions = [skipped for skipped in report.skipped if skipped.break_ is None]
    lines = []
    for skipped in functions[:_MAX_ITEMS]:
        lines += wrap(" -  ", f"{location_text(report, skipped.location)} runs eagerly: {skipped.reason}", "")
        lines += wrap("do: ", skipped.way_out) if skipped.way_out else []
        lines += remedy_lines_of_function(report, skipped)
    return lines + _rest_lines(len(functions), _MAX_ITEMS)


def _recompile_lines(report: Report) -> list[str]:
    """Return lines on each recompiled function: what varied, on which lines, and advice that the verdict lacks."""
    lines, verdict_text = [], verdict(report).text
    for recompilation in listed_recompilations(report)[:_MAX_ITEMS]:
        subject = recompilation.function if recompilation.is_merged else location_text(report, recompilation.location)
        if is_wrapper_of_torch(report, recompilation.location) or is_wrapper_of_step(report, recompilation.location):
            subject = f"{function_name(report, recompilation)} (torch's wrapper, {subject})"
        only_guard = recompilation.guards[0] if len(recompilation.guards) == 1 else None
        cause = ": a guard failed" if not recompilation.guards else ", because these varied:"
        cause = f": {_failed_guard_text(report, recompilation, only_guard)}" if only_guard is not None else cause
        lines += wrap(" -  ", f"{subject} {recompilation.times_text}{cause}", "")
        trials = recompile_remedies(report, recompilation)
        if trials is not None:
            trials = dataclasses.replace(
                trials, decisions=[step for step in trials.decisions if one_line(step) not in verdict_text]
            )
        is_advised = needs_general_advice(report, recompilation)
        for guard in recompilation.guards[:_MAX_ITEMS]:
            if only_guard is None:
                lines += wrap("-  ", _failed_guard_text(report, recompilation, guard))
            if guard.advice and is_advised:
                lines += wrap("do: ", guard.advice, INDENT if only_guard is not None else f"{INDENT}   ")
        lines += _rest_lines(len(recompilation.guards), _MAX_ITEMS, "more guards")
        lines += wrap("", recompilation.warning) if recompilation.warning else []
        if trials is not None and (untried_reason := why_untried(report, trials)):
            lines += wrap("not tried: ", whole_clauses(without_backticks(untried_reason), _MAX_TRIAL_LENGTH))
        if trials:
            lines += _trial_lines(report, trials, None)
            time = time_change_text(report, trials.working_remedies[0]) if trials.working_remedies else ""
            lines += wrap("", time) if time else []
    return lines


def _failed_guard_text(report: Report, recompilation: Recompilation, guard: FailedGuard) -> str:
    """Return what varied, in how many recompiles, and on which line: "k: 2 -> 3, 5 of 6 times, line 4"."""
    share = recompilation.share_text(guard) if len(recompilation.guards) > 1 else ""
    facts = [guard.variation, share, guard_lines_text(report, guard)]
    return ", ".join(filter(None, facts))


def _error_lines(report: Report) -> list[str]:
    error = report.error
    place_text = (
        f" at {location_text(report, error.location)}" if error is not None and error.location is not None else ""
    )
    if report.status == "interrupted":
        return [cut_line(f" -  interrupted{place_text}: the report covers what happened until then")]
    if error is None:
        return []
    number = break_numbers(report).get(error.break_ or "")
    if number is not None:
        return [f" -  break {number} raised {escape_controls(error.type)}"]
    return wrap(" -  ", whole_clauses(error_text(error), _MAX_CAUSE_LENGTH), "") if error.message else []


def _listing_lines(report: Report) -> list[str]:
    """Return the marked source lines, each with a few lines around it, up to a maximum in total.

    Of several breaks with one cause, only those that are listed above have their lines shown.
    """
    lines: list[str] = []
    numbers = break_numbers(report)
    listed_numbers = {
        numbers[break_.id] for group in break_groups(report) for break_ in group.breaks[:_MAX_LISTED_BREAKS]
    }
    sources = [source for source in report.sources if source.segments]
    own_sources = [source for source in sources if source.kind != "library"]
    for source in own_sources or sources:
        room = _MAX_LINES - len(lines)
        if room < _CONTEXT_LINES:
            break
        shown_lines = _source_lines(report, source, room, listed_numbers)
        lines += ["", *shown_lines] if shown_lines else []
    return lines


def _source_lines(report: Report, source: Source, max_lines: int, listed_numbers: set[int]) -> list[str]:
    """Return the name of a source and at most ``max_lines`` of its lines, preferably those of breaks."""
    lines = annotated_lines(report, source)
    if not any(line.is_annotated for line in lines):
        return []
    if len(lines) > max_lines or any(mark.number not in listed_numbers for line in lines for mark in line.breaks):
        lines = _select_lines(lines, max_lines, listed_numbers, _lines_of_failed_guards(report, source))
    if not lines:
        return []
    signs = ["A graph"] if any(line.graphs for line in lines) else []
    signs += ["/1 break"] if any(line.breaks for line in lines) else []
    signs += [">1 leads to it"] if any(line.leads_to and not line.breaks for line in lines) else []
    signs += ["~ runs eagerly"] if any(line.eager for line in lines) else []
    output_lines = [escape_controls(f"{source.name}   " + "   ".join(signs)).rstrip()]
    digits = len(str(max((line.number for line in lines), default=0)))
    previous = None
    for line in lines:
        if previous is not None and line.number != previous + 1:
            output_lines.append(f"{'...':>{digits}}")
        previous = line.number
        mark = "".join(f"/{mark_of_break.number}" for mark_of_break in line.breaks) + (
            f"/+{line.further_break_count}" if line.further_break_count else ""
        )
        mark = mark or "".join(f">{number}" for number in line.leads_to[:2])
        letters = escape_controls(",".join(line.graphs[:3])) + ("+" if len(line.graphs) > 3 else "")  # noqa: PLR2004
        gutter = f"{letters}{mark}" or ("~" if line.eager else "")
        text = escape_controls(line.text[:_MAX_LINE_CHARS].expandtabs(4)) + (
            "..." if len(line.text) > _MAX_LINE_CHARS else ""
        )
        output_lines.append(f"{line.number:>{digits}} {gutter:<6} {text}".rstrip())
        for break_mark in line.breaks[:_MAX_LISTED_BREAKS]:
            if break_mark.start > _MAX_LINE_CHARS:
                continue
            start = len(escape_controls(line.text[: break_mark.start].expandtabs(4)))
            width = max(
                len(escape_controls(line.text[: min(break_mark.end, _MAX_LINE_CHARS)].expandtabs(4))) - start, 1
            )
            output_lines.append(f"{'':>{digits}} {'':<6} {' ' * start}{'~' * width}")
    return output_lines


def _lines_of_failed_guards(report: Report, source: Source) -> list[int]:
    """Return the numbers of the lines of a source that created the guards that failed."""
    guards = [guard for recompilation in listed_recompilations(report) for guard in recompilation.guards]
    return [location.line for guard in guards for location in guard.locations if location.source == source.id]


def _select_lines(lines: list[Line], max_lines: int, listed_breaks: set[int], guard_lines: Sequence[int]) -> list[Line]:
    """Return as many lines as fit: lines around breaks, lines that lead to breaks, and lines around failed guards."""
    chosen_numbers: set[int] = set()
    numbers_with_breaks = [line.number for line in lines if any(mark.number in listed_breaks for mark in line.breaks)]
    numbers_of_callers = [line.number for line in lines if line.leads_to and not line.breaks]
    if not numbers_with_breaks and not numbers_of_callers and not guard_lines:
        first = next((index for index, line in enumerate(lines) if line.is_annotated), 0)
        start = max(first - _CONTEXT_LINES, 0)
        return lines[start : start + max_lines]
    for numbers, distance in (
        (numbers_with_breaks, _CONTEXT_LINES),
        (numbers_of_callers, 0),
        (guard_lines, _CONTEXT_LINES),
    ):
        for number in numbers:
            new_numbers = set(range(number - distance, number + distance + 1)) - chosen_numbers
            if len(chosen_numbers) + len(new_numbers) <= max_lines:
                chosen_numbers |= new_numbers
    return [line for line in lines if line.number in chosen_numbers]


def render_job(job: Job) -> str:
    """Return a job as text, without a final line break."""
    lines = [escape_controls(f"compile_explain: {job_headline(job)}")]
    for number, break_ in enumerate(map(limit_part, job.breaks[:_MAX_ITEMS]), start=1):
        code = one_line(break_.place.code) if break_.place is not None and break_.place.code else ""
        head = f"{number:>2}  {job_location_text(break_.place)}"
        lines.append(cut_line(f"{head}   {code}" if code else head))
        lines.append(cut_line(INDENT + reason_of(break_)))
        lines.append(cut_line(INDENT + processes_text(job, break_)))
    lines += _rest_lines(len(job.breaks), _MAX_ITEMS, "more breaks")
    for process in job.processes[:_MAX_ITEMS]:
        lines.append(cut_line(f" -  {process_name(process)}: {summary_line(process.report)}"))
    lines += _rest_lines(len(job.processes), _MAX_ITEMS, "more processes")
    for line in compiling_lines(job):
        lines += wrap(INDENT, line)
    return "\n".join([*lines, *_note_lines(job_notes(job))])

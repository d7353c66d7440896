"""Render reports as text for a terminal 100 columns wide, for IPython, logs and screen readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.views.rows.sections import about, measurements
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.aftermath import aftermath
from jupyter_graphbreak.views.words.bounds import bounded, shown_part
from jupyter_graphbreak.views.words.changes import describe_change, figures, headline
from jupyter_graphbreak.views.words.cost import break_time
from jupyter_graphbreak.views.words.frontends import OUTCOMES, call_of, details, legend
from jupyter_graphbreak.views.words.guidance import cost_of, guidance
from jupyter_graphbreak.views.words.jobs import job_headline, job_notes, job_place, process_name, processes_with_break
from jupyter_graphbreak.views.words.lines import break_numbers, listing, ordered_breaks
from jupyter_graphbreak.views.words.permission import permission
from jupyter_graphbreak.views.words.plain_text import counted, joined, one_line, plain, whole_clauses
from jupyter_graphbreak.views.words.reason import reason_of
from jupyter_graphbreak.views.words.recompilation import guard_lines, limit_headline, recompilations
from jupyter_graphbreak.views.words.remedies import (
    breaks_of,
    change_lines,
    code_of,
    compatible_remedies,
    outcome,
    remedies_for_break,
    remedies_for_frame,
    shown_elsewhere,
)
from jupyter_graphbreak.views.words.where import brief_code, is_wrapper_of_torch, place

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.diff import Changes
    from jupyter_graphbreak.report.frontends import Frontends
    from jupyter_graphbreak.report.job import Job
    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Frame, Report, Skipped
    from jupyter_graphbreak.views.words.recompilation import FailedGuard, Recompilation
    from jupyter_graphbreak.views.words.remedies import BreakRemedies

WIDTH = 100
INDENT = "    "
#: Maximum characters of one sentence.
_LONGEST = 20_000


def wrapped(head: str, text: str, indent: str = INDENT) -> list[str]:
    """Wrap a sentence at 100 columns; further lines are indented to the first word."""
    words = one_line(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...").split(" ")
    lines, line = [], indent + head
    for word in words:
        if len(line) + len(word) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(indent + head)
        line += word + " "
    return [*lines, line.rstrip()]


def cut(line: str) -> str:
    """Truncate a line to 100 columns."""
    line = plain(line[: WIDTH + 1])
    return line if len(line) <= WIDTH else line[: WIDTH - 3].rstrip() + "..."


def render_frontends(frontends: Frontends) -> str:
    """Return the verdicts as text for a terminal 100 columns wide, without a line break at the end."""
    lines = [*wrapped("", f"front ends on {call_of(frontends)} | torch {frontends.torch}", indent="")]
    names = max((len(verdict.frontend) for verdict in frontends.verdicts), default=0)
    words = max(len(word) for word in OUTCOMES.values())
    for verdict in frontends.verdicts:
        counts = ""
        if verdict.graphs is not None:
            counts = f"{counted(verdict.graphs, 'graph')}, {counted(verdict.breaks or 0, 'break')}"
        lines.append(f" {verdict.frontend:<{names}}  {OUTCOMES[verdict.outcome]:<{words}}  {counts}".rstrip())
        for sentence in details(frontends, verdict):
            lines += wrapped("", sentence)
    for sentence in legend(frontends):
        lines += wrapped("", sentence, indent="")
    return "\n".join(map(plain, lines))


#: If there are more breaks, notes or sources than this, the rest are counted.
_MOST = 50


def render_changes(changes: Changes) -> list[str]:
    """Return the changes as lines for a terminal 100 columns wide: summary, figures, breaks."""
    changes = bounded(changes)
    width = max((len(change.change) + 1 for change in changes.breaks), default=0)
    name = plain(changes.before.name or "the run before")
    lines = wrapped("", f"since {name}: {headline(changes)}", "")
    lines += wrapped("", ", ".join(figures(changes)))
    lines += [
        cut(f"    {change.change:<{width}}{'   '.join(filter(None, describe_change(change)))}")
        for change in changes.breaks[:_MOST]
    ]
    if len(changes.breaks) > _MOST:
        lines.append(f"    and {len(changes.breaks) - _MOST} more")
    return lines


#: How many working remedies are shown in full, and how many failed ones are listed; the rest are shortened or counted.
_MOST_WORKING, _MOST_FAILED = 2, 5
_MOST_NAMED = 20
#: How many lines of a change are shown.
_MOST_REMEDY_LINES = 16
#: About how many characters of a failed trial are shown.
_LONGEST_TRIAL = 180
_DEEPER = INDENT + "     "


def remedies_of_break(report: Report, number: int, break_: Break) -> list[str]:
    """Return the remedies for a break: working ones with their changes, failed ones on a line each."""
    remedies = remedies_for_break(report, break_)
    if remedies is None:
        return []
    return _trials(report, remedies, number) or [f"{INDENT}tried: nothing, no known remedy applies"]


def remedies_of_frame(report: Report, skipped: Skipped) -> list[str]:
    """Return the remedies for a function that runs eagerly without a break."""
    remedies = remedies_for_frame(report, skipped)
    return _trials(report, remedies, None) if remedies is not None else []


def combined_remedies(report: Report) -> list[str]:
    """Return the remedies that can be applied together, if that removes several breaks."""
    chosen = compatible_remedies(report)
    if len({ident for remedy in chosen for ident in remedy.breaks}) < 2:  # noqa: PLR2004
        return []
    named = joined([f"{_plain(remedy.title)} ({breaks_of(report, remedy)})" for remedy in chosen], "; ")
    alone = " (each was tested alone)" if len(chosen) > 1 else ""
    return wrapped("", f"compatible remedies{alone}: {named}", indent="")


def _trials(report: Report, remedies: BreakRemedies, number: int | None) -> list[str]:
    lines: list[str] = []
    shown = 0
    for remedy in remedies.working[:_MOST_NAMED]:
        elsewhere = shown_elsewhere(report, remedy, number) if number is not None else None
        if elsewhere is not None:
            if shown:  # a remedy for this break alone is already shown
                continue
            lines += wrapped("remedy: ", f"{_plain(remedy.title)}: {remedy.verdict}, see break {elsewhere}")
        elif shown < _MOST_WORKING:
            shown += 1
            lines += _working_remedy(report, remedy)
        else:
            lines += wrapped("remedy: ", f"{_plain(remedy.title)}: {_plain(outcome(remedy))}")
    if len(remedies.working) > _MOST_NAMED:
        lines.append(f"{INDENT}and {len(remedies.working) - _MOST_NAMED} more that work")
    for remedy in remedies.failed[:_MOST_FAILED]:
        lines += wrapped("tried: ", whole_clauses(f"{_plain(remedy.title)}: {_plain(outcome(remedy))}", _LONGEST_TRIAL))
    if len(remedies.failed) > _MOST_FAILED:
        lines.append(f"{INDENT}and {counted(len(remedies.failed) - _MOST_FAILED, 'more trial')} that failed")
    for decision in remedies.person[:_MOST_NAMED]:
        lines += wrapped("decide: ", decision)
    return lines


def _working_remedy(report: Report, remedy: Remedy) -> list[str]:
    lines = wrapped("remedy: ", _plain(remedy.title))
    lines += wrapped("", _plain(outcome(remedy)), _DEEPER)
    lines += [
        line
        for difference in remedy.differences[:_MOST_REMEDY_LINES]
        for line in wrapped("differs: ", _plain(difference), _DEEPER)
    ]
    changes = change_lines(report, remedy)
    shown = [line.text if line.sign == "@" else f"{line.sign}{line.text}" for line in changes]
    if not remedy.edits or remedy.settings:
        shown += code_of(remedy).split("\n")
    return lines + [cut(f"{_DEEPER}  {line.expandtabs(4)}") for line in _first_lines(shown)]


def _first_lines(lines: Sequence[str]) -> list[str]:
    if len(lines) <= _MOST_REMEDY_LINES:
        return list(lines)
    return [*lines[:_MOST_REMEDY_LINES], f"... and {len(lines) - _MOST_REMEDY_LINES} more lines"]


def _plain(text: str) -> str:
    return text.replace("`", "")


#: How many lines of a source are shown; the rest are counted.
_MOST_LINES = 400
#: How many calls of one stack are named, and maximum columns of a source line.
_MOST_CALLS, _FEWEST_CALLS, _LONGEST_LINE = 40, 2, 2_000


def render_text(report: Report) -> str:
    """Return the report as text, without a line break at the end.

    The order is: the summary, the breaks with the first to fix first, other functions that run eagerly, and the source
    lines with the letters of their graphs. Control characters are escaped, so that text from the user's code cannot
    control the terminal.
    """
    report = shown_part(report)
    lines = [summary_line(report), *_measured(report)]
    if report.changes is not None:
        lines += render_changes(report.changes)
    for number, break_ in enumerate(ordered_breaks(report)[:_MOST], start=1):
        lines += _break(report, number, break_)
    if len(report.breaks) > _MOST:
        lines.append(f"{INDENT}and {len(report.breaks) - _MOST} more breaks")
    lines += _eager_without_break(report)
    lines += combined_remedies(report)
    lines += _recompiles(report)
    lines += _error(report)
    for note in report.diagnostics[:_MOST]:
        lines += wrapped(f"{note.level}: ", note.message, indent="")
    if len(report.diagnostics) > _MOST:
        lines.append(f"and {len(report.diagnostics) - _MOST} more notes")
    shown = [source for source in report.sources if source.kind != "library" and source.segments]
    for source in shown[:_MOST]:
        lines += ["", *_listing(report, source)]
    if len(shown) > _MOST:
        lines += ["", f"and {len(shown) - _MOST} more sources"]
    return "\n".join(lines)


def summary_line(report: Report) -> str:
    """Return the summary line: breaks, graphs, eager frames, device, time."""
    report = shown_part(report)
    summary, own = report.summary, lookup.main_cell(report)
    head = f"compile_explain  {plain(own.name)}: " if own is not None and own.name else "compile_explain: "
    limited = limit_headline(report)
    counts = [f"{limited}; " if limited else f"{counted(summary.breaks, 'break')}, "]
    counts[0] += f"{counted(summary.graphs, 'graph')} ({counted(summary.ops, 'op')})"
    if summary.skipped:
        counts.append(f"{counted(summary.skipped, 'frame')} eager")
    if summary.recompiles:
        counts.append(counted(summary.recompiles, "recompile"))
    if summary.errors:
        counts.append(counted(summary.errors, "error"))
    parts = [", ".join(counts), " ".join(filter(None, [report.device.used, report.device.name]))]
    timing = report.timing
    if timing.wall_s is not None:
        parts.append(f"{timing.wall_s:.2f} s" + (f", compiling {timing.compile_s:.2f} s" if timing.compile_s else ""))
    if report.status == "interrupted":
        parts.append("interrupted")
    return plain(head + " | ".join(parts))


def _measured(report: Report) -> list[str]:
    """Return lines about how much of the run was compiled, whether that pays, and whether the result is right."""
    sentences = [row.label for row in about(report)]
    sentences += [row.label for section in measurements(report) for row in section.rows]
    return [line for sentence in sentences[:_MOST] for line in wrapped("", sentence, indent="")]


def _break(report: Report, number: int, break_: Break) -> list[str]:
    code = one_line(brief_code(break_.location.code)) if break_.location is not None else ""
    head = f"{number:>2}  {place(report, break_.location)}"
    lines = [cut(f"{head}   {code}" if code else head)]
    cause = reason_of(break_)
    if break_.gb_id is None and break_.explanation:
        cause += f": {break_.explanation.splitlines()[0]}"
    if break_.consequence is not None:
        cause += f"; then {reason_of(break_.consequence)}"
    lines.append(cut(INDENT + cause))
    path = _path(report, break_)
    if path:
        lines.append(cut(f"{INDENT}reached from {path}"))
    lines.append(cut(INDENT + _occurrences(report, break_)))
    lines += [cut(INDENT + words) for words in [*_aftermath(report, break_), break_time(report, break_)] if words]
    for advice in guidance(report, break_)[:1]:
        lines += wrapped("do: ", advice.text)
    return [*lines, *remedies_of_break(report, number, break_)]


def _aftermath(report: Report, break_: Break) -> list[str]:
    """Return what happens after a break, whether it was allowed, and its cost; for an error, join the first two."""
    allowed, cost = permission(report, break_), cost_of(break_)
    lines = aftermath(report, break_)
    if break_.outcome == "error" and lines[-1].endswith("an error") and allowed.startswith("an error"):
        return [*lines[:-1], lines[-1].removesuffix("an error") + allowed]
    return [*lines, f"{allowed} | {cost}" if cost else allowed]


def _path(report: Report, break_: Break) -> str:
    """Return the calls that lead to a break; of a long path, the calls of libraries in the middle are left out."""
    stack = break_.stack[:-1]
    if not stack:
        return ""
    kinds = {source.id: source.kind for source in report.sources}
    # The most informative calls are the first, the reader's innermost one, the last, and the reader's other ones.
    own = [index for index, call in enumerate(stack) if kinds.get(call.source) != "library"][::-1]
    order = dict.fromkeys([0, *own[:1], len(stack) - 1, *own, *reversed(range(len(stack)))])
    ranked = list(order)[:_MOST_CALLS]
    calls = {index: place(report, replace(stack[index], function=_function_name(stack[index]))) for index in ranked}
    different = {tuple(occurrence.stack[:-1]) for occurrence in break_.occurrences}
    ways = len(different) - 1 if not _prefixes(different) else 0
    more = f" (and {counted(ways, 'other way')})" if ways else ""
    room = WIDTH - len(INDENT) - len("reached from ") - len(more)
    text = _joined_calls(calls, len(stack))
    while len(text) > room and len(calls) > _FEWEST_CALLS:
        calls.popitem()  # the least informative one
        text = _joined_calls(calls, len(stack))
    return text + more


def _joined_calls(calls: dict[int, str], total: int) -> str:
    """Join some of the calls of a stack, with dots in the place of the others."""
    words: list[str] = []
    previous = -1
    for index in sorted(calls):
        words += ["..."] if index > previous + 1 else []
        words.append(calls[index])
        previous = index
    return " > ".join([*words, *(["..."] if previous < total - 1 else [])])


def _function_name(location: Location) -> str | None:
    return None if location.function == "<module>" else location.function


def _prefixes(stacks: Iterable[tuple[Location, ...]]) -> bool:
    """Whether all stacks are parts of one path."""
    ordered = sorted(stacks, key=len)
    lines = [[(place.source, place.line) for place in stack] for stack in ordered]
    longest = set(lines[-1]) if lines else set()
    return all(longest.issuperset(short) for short in lines)


def _occurrences(report: Report, break_: Break) -> str:
    frames = lookup.frames(report)
    reporting = list(dict.fromkeys(event.frame for event in break_.occurrences if event.frame is not None))
    times = {1: "once", 2: "twice"}.get(len(break_.occurrences), f"{len(break_.occurrences)} times")
    if not reporting:
        return f"reported {times}, before tracing of the frame began"
    known = [ident for ident in reporting if ident in frames]
    names = joined([f"{_name(report, frames[ident])} {ident}" for ident in known], ", ")
    return f"reported {times}, in {counted(len(reporting), 'frame')}: {names}"


def _name(report: Report, frame: Frame) -> str:
    name = f"resumed {frame.function}" if frame.role == "resume" else frame.function
    return f"{name} (torch's wrapper)" if is_wrapper_of_torch(report, frame.location) else name


def _eager_without_break(report: Report) -> list[str]:
    """Return the functions that run eagerly for a reason other than a break."""
    others = [skipped for skipped in report.skipped if skipped.break_ is None]
    lines = []
    for skipped in others[:_MOST]:
        lines += wrapped(" -  ", f"{place(report, skipped.location)} runs eagerly: {skipped.reason}", "")
        lines += wrapped("do: ", skipped.way_out) if skipped.way_out else []
        lines += remedies_of_frame(report, skipped)
    return [*lines, f"{INDENT}and {len(others) - _MOST} more"] if len(others) > _MOST else lines


def _recompiles(report: Report) -> list[str]:
    """Return for each recompiled function what varied, its lines, and advice."""
    lines = []
    for recompilation in recompilations(report)[:_MOST]:
        where = place(report, recompilation.location)
        if is_wrapper_of_torch(report, recompilation.location):
            where = f"torch's wrapper ({where})"
        alone = recompilation.guards[0] if len(recompilation.guards) == 1 else None
        why = ": a guard failed" if not recompilation.guards else ", because these varied:"
        why = f": {_failed_guard(report, recompilation, alone)}" if alone is not None else why
        lines += wrapped(" -  ", f"{where} {recompilation.times}{why}", "")
        for guard in recompilation.guards[:_MOST]:
            if alone is None:
                lines += wrapped("-  ", _failed_guard(report, recompilation, guard))
            if guard.advice:
                lines += wrapped("do: ", guard.advice, INDENT if alone is not None else f"{INDENT}   ")
        if len(recompilation.guards) > _MOST:
            lines.append(f"{INDENT}and {len(recompilation.guards) - _MOST} more guards")
    return lines


def _failed_guard(report: Report, recompilation: Recompilation, guard: FailedGuard) -> str:
    """Return what varied, in how many recompiles, and the line: "k: 2 -> 3, 5 of 6 times, line 4"."""
    share = recompilation.share(guard) if len(recompilation.guards) > 1 else ""
    known = [guard.story, share, guard_lines(report, guard)]
    return ", ".join(filter(None, known))


def _error(report: Report) -> list[str]:
    error = report.error
    where = f" at {place(report, error.location)}" if error is not None and error.location is not None else ""
    if report.status == "interrupted":
        return [cut(f" -  interrupted{where}: the report covers what happened until then")]
    if error is None:
        return []
    number = break_numbers(report).get(error.break_ or "")
    if number is not None:
        return [f" -  the run ended in {plain(error.type)}, raised by break {number}"]
    first = one_line(error.message)
    return [cut(f" -  the run ended in {error.type}{where}: {first}")]


def _listing(report: Report, source: Source) -> list[str]:
    lines = listing(report, source)
    signs = ["A graph"] if any(line.graphs for line in lines) else []
    signs += ["/1 break"] if any(line.breaks for line in lines) else []
    signs += [">1 leads to it"] if any(line.leads_to and not line.breaks for line in lines) else []
    signs += ["~ runs eagerly"] if any(line.eager for line in lines) else []
    shown = [plain(f"{source.name}   " + "   ".join(signs)).rstrip()]
    digits = len(str(max((line.number for line in lines), default=0)))
    previous = None
    for line in lines[:_MOST_LINES]:
        if previous is not None and line.number != previous + 1:
            shown.append(f"{'...':>{digits}}")
        previous = line.number
        mark = "".join(f"/{of.number}" for of in line.breaks) + (f"/+{line.more_breaks}" if line.more_breaks else "")
        mark = mark or "".join(f">{number}" for number in line.leads_to[:2])
        letters = plain(",".join(line.graphs[:3])) + ("+" if len(line.graphs) > 3 else "")  # noqa: PLR2004
        gutter = f"{letters}{mark}" or ("~" if line.eager else "")
        text = plain(line.text[:_LONGEST_LINE].expandtabs(4)) + ("..." if len(line.text) > _LONGEST_LINE else "")
        shown.append(f"{line.number:>{digits}} {gutter:<6} {text}".rstrip())
        for marked in line.breaks:
            if marked.start > _LONGEST_LINE:
                continue
            start = len(plain(line.text[: marked.start].expandtabs(4)))
            width = max(len(plain(line.text[: min(marked.end, _LONGEST_LINE)].expandtabs(4))) - start, 1)
            shown.append(f"{'':>{digits}} {'':<6} {' ' * start}{'~' * width}")
    if len(lines) > _MOST_LINES:
        shown.append(f"and {len(lines) - _MOST_LINES} more lines")
    return shown


def render_job(job: Job) -> str:
    """Return a job as text, without a line break at the end."""
    lines = [plain(f"compile_explain: {job_headline(job)}")]
    for number, break_ in enumerate(map(bounded, job.breaks[:_MOST]), start=1):
        code = one_line(break_.place.code) if break_.place is not None and break_.place.code else ""
        head = f"{number:>2}  {job_place(break_.place)}"
        lines.append(cut(f"{head}   {code}" if code else head))
        lines.append(cut(INDENT + reason_of(break_)))
        lines.append(cut(INDENT + processes_with_break(job, break_)))
    if len(job.breaks) > _MOST:
        lines.append(f"{INDENT}and {len(job.breaks) - _MOST} more breaks")
    for process in job.processes[:_MOST]:
        summary = summary_line(process.report).removeprefix("compile_explain").lstrip(": ")
        lines.append(cut(f" -  {process_name(process)}: {summary}"))
    if len(job.processes) > _MOST:
        lines.append(f"{INDENT}and {len(job.processes) - _MOST} more processes")
    notes = job_notes(job)
    for note in notes[:_MOST]:
        lines += wrapped(f"{note.level}: ", note.message, indent="")
    if len(notes) > _MOST:
        lines.append(f"and {len(notes) - _MOST} more notes")
    return "\n".join(lines)

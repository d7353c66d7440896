"""The report as text, for a terminal 100 columns wide: what one reads in IPython, in logs and with a screen reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.views.rows.sections import about, measurements
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.aftermath import aftermath
from jupyter_graphbreak.views.words.bounds import bounded, shown_part
from jupyter_graphbreak.views.words.changes import described, figures, headline
from jupyter_graphbreak.views.words.cost import time_of
from jupyter_graphbreak.views.words.frontends import OUTCOMES, call_of, details, legend
from jupyter_graphbreak.views.words.guidance import cost_of, guidance
from jupyter_graphbreak.views.words.jobs import job_headline, job_notes, process_name, where_in_job, who_has
from jupyter_graphbreak.views.words.lines import break_numbers, listing, ordered_breaks
from jupyter_graphbreak.views.words.permission import permission
from jupyter_graphbreak.views.words.plain_text import counted, joined, one_line, plain
from jupyter_graphbreak.views.words.reason import reason_of
from jupyter_graphbreak.views.words.recompilation import guard_lines, no_breaks_but, recompilations
from jupyter_graphbreak.views.words.remedies import (
    breaks_of,
    change_lines,
    code_of,
    outcome,
    shown_elsewhere,
    together,
    tried_for,
    tried_for_frame,
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
    from jupyter_graphbreak.views.words.remedies import Tried

WIDTH = 100
INDENT = "    "
#: Characters of one sentence.
_LONGEST = 20_000


def wrapped(head: str, text: str, indent: str = INDENT) -> list[str]:
    """Return a sentence in lines of at most 100 columns, the further ones under the first word."""
    words = one_line(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...").split(" ")
    lines, line = [], indent + head
    for word in words:
        if len(line) + len(word) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(indent + head)
        line += word + " "
    return [*lines, line.rstrip()]


def cut(line: str) -> str:
    """Return a line of at most 100 columns, its end cut off where it is longer."""
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


#: More changed breaks than so many are counted instead of listed.
_MOST = 50


def render_changes(changes: Changes) -> list[str]:
    """Return the changes as lines for a terminal 100 columns wide: what it comes to, the figures, each break."""
    changes = bounded(changes)
    width = max((len(change.change) + 1 for change in changes.breaks), default=0)
    name = plain(changes.before.name or "the run before")
    lines = wrapped("", f"since {name}: {headline(changes)}", "")
    lines += wrapped("", ", ".join(figures(changes)))
    lines += [
        cut(f"    {change.change:<{width}}{'   '.join(filter(None, described(change)))}")
        for change in changes.breaks[:_MOST]
    ]
    if len(changes.breaks) > _MOST:
        lines.append(f"    and {len(changes.breaks) - _MOST} more")
    return lines


#: Of more remedies than so many that work only the titles are shown; of more that fail, how many they are.
_MOST_WORKING, _MOST_FAILED = 2, 5
_MOST_NAMED = 20
#: Lines of a change that are shown.
_MOST_REMEDY_LINES = 16
_DEEPER = INDENT + "     "


def remedies_of_break(report: Report, number: int, listed: Break) -> list[str]:
    """Return what was tried for a break: what works with its change, what does not in a line each."""
    tried = tried_for(report, listed)
    if tried is None:
        return []
    return _tried(report, tried, number) or [f"{INDENT}tried: nothing, there is no remedy of a known kind"]


def remedies_of_frame(report: Report, skipped: Skipped) -> list[str]:
    """Return what was tried for a function that runs eagerly without a break."""
    tried = tried_for_frame(report, skipped)
    return _tried(report, tried, None) if tried is not None else []


def all_that_work(report: Report) -> list[str]:
    """Return the remedies that can be applied together, where that removes several breaks."""
    chosen = together(report)
    if len({ident for remedy in chosen for ident in remedy.breaks}) < 2:  # noqa: PLR2004
        return []
    named = joined([f"{_plain(remedy.title)} ({breaks_of(report, remedy)})" for remedy in chosen], "; ")
    alone = " (each was tried alone)" if len(chosen) > 1 else ""
    return wrapped("", f"all that work together{alone}: {named}", indent="")


def _tried(report: Report, tried: Tried, number: int | None) -> list[str]:
    lines: list[str] = []
    shown = 0
    for remedy in tried.working[:_MOST_NAMED]:
        elsewhere = shown_elsewhere(report, remedy, number) if number is not None else None
        if elsewhere is not None:
            if shown:  # the one for this break alone is there
                continue
            lines += wrapped("remedy: ", f"{_plain(remedy.title)}: {remedy.verdict}, see break {elsewhere}")
        elif shown < _MOST_WORKING:
            shown += 1
            lines += _working(report, remedy)
        else:
            lines += wrapped("remedy: ", f"{_plain(remedy.title)}: {_plain(outcome(remedy))}")
    if len(tried.working) > _MOST_NAMED:
        lines.append(f"{INDENT}and {len(tried.working) - _MOST_NAMED} more that work")
    for remedy in tried.failed[:_MOST_FAILED]:
        lines += wrapped("tried: ", f"{_plain(remedy.title)}: {_plain(outcome(remedy))}")[:2]
    if len(tried.failed) > _MOST_FAILED:
        lines.append(f"{INDENT}and {counted(len(tried.failed) - _MOST_FAILED, 'more attempt')} that did not work")
    for person in tried.person[:_MOST_NAMED]:
        lines += wrapped("decide: ", person)
    return lines


def _working(report: Report, remedy: Remedy) -> list[str]:
    lines = wrapped("remedy: ", _plain(remedy.title))
    lines += wrapped("", _plain(outcome(remedy)), _DEEPER)
    lines += [
        line for each in remedy.differences[:_MOST_REMEDY_LINES] for line in wrapped("differs: ", _plain(each), _DEEPER)
    ]
    changes = change_lines(report, remedy)
    shown = [line.text if line.sign == "@" else f"{line.sign}{line.text}" for line in changes]
    if not remedy.edits or remedy.settings:
        shown += code_of(remedy).split("\n")
    return lines + [cut(f"{_DEEPER}  {line.expandtabs(4)}") for line in _some(shown)]


def _some(lines: Sequence[str]) -> list[str]:
    if len(lines) <= _MOST_REMEDY_LINES:
        return list(lines)
    return [*lines[:_MOST_REMEDY_LINES], f"... and {len(lines) - _MOST_REMEDY_LINES} more lines"]


def _plain(text: str) -> str:
    return text.replace("`", "")


#: More than so many breaks or eager functions are counted, not listed; so are lines of a source.
_MOST_LINES = 400
#: Calls of one stack that are named, and columns of a source line.
_MOST_CALLS, _LONGEST_LINE = 40, 2_000


def render_text(report: Report) -> str:
    """Return the report as text, without a line break at the end.

    The summary comes first; then each break in a few lines, what to fix first; then what else runs eagerly, then the
    source lines with the letters of their graphs. Text from the code under study cannot steer the terminal: control
    characters are shown as escapes.
    """
    report = shown_part(report)
    lines = [summary_line(report), *_measured(report)]
    if report.changes is not None:
        lines += render_changes(report.changes)
    for number, listed in enumerate(ordered_breaks(report)[:_MOST], start=1):
        lines += _break(report, number, listed)
    if len(report.breaks) > _MOST:
        lines.append(f"{INDENT}and {len(report.breaks) - _MOST} more breaks")
    lines += _alone(report)
    lines += all_that_work(report)
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
    """Return the one line that says how bad it is: breaks, graphs, eager frames, device, time."""
    report = shown_part(report)
    summary, own = report.summary, lookup.main_cell(report)
    head = f"compile_explain  {plain(own.name)}: " if own is not None and own.name else "compile_explain: "
    limited = no_breaks_but(report)
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
    """Return how much of the run was compiled, whether that pays, and whether its result is right."""
    said = [row.label for row in about(report)]
    said += [row.label for section in measurements(report) for row in section.rows]
    return [line for sentence in said[:_MOST] for line in wrapped("", sentence, indent="")]


def _break(report: Report, number: int, listed: Break) -> list[str]:
    code = one_line(brief_code(listed.location.code)) if listed.location is not None else ""
    head = f"{number:>2}  {place(report, listed.location)}"
    lines = [cut(f"{head}   {code}" if code else head)]
    cause = reason_of(listed)
    if listed.gb_id is None and listed.explanation:
        cause += f": {listed.explanation.splitlines()[0]}"
    if listed.consequence is not None:
        cause += f"; then {reason_of(listed.consequence)}"
    lines.append(cut(INDENT + cause))
    path = _path(report, listed)
    if path:
        lines.append(cut(f"{INDENT}reached from {path}"))
    lines.append(cut(INDENT + _occurrences(report, listed)))
    lines += [cut(INDENT + words) for words in [*_ends(report, listed), time_of(report, listed)] if words]
    for advice in guidance(report, listed)[:1]:
        lines += wrapped("do: ", advice.text)
    return [*lines, *remedies_of_break(report, number, listed)]


def _ends(report: Report, listed: Break) -> list[str]:
    """Return how a break ends, whether it was allowed, what it costs; of an error the first two are one sentence."""
    allowed, cost = permission(report, listed), cost_of(listed)
    lines = aftermath(report, listed)
    if listed.outcome == "error" and lines[-1].endswith("an error") and allowed.startswith("an error"):
        return [*lines[:-1], lines[-1].removesuffix("an error") + allowed]
    return [*lines, f"{allowed} | {cost}" if cost else allowed]


def _path(report: Report, listed: Break) -> str:
    """Return the calls that lead to a break, those in the middle of a long path left out."""
    stack = listed.stack[:-1]
    named = stack if len(stack) <= _MOST_CALLS else [stack[0], *stack[1 - _MOST_CALLS :]]
    calls = [place(report, replace(call, function=_called(call))) for call in named]
    different = {tuple(occurrence.stack[:-1]) for occurrence in listed.occurrences}
    ways = len(different) - 1 if not _prefixes(different) else 0
    more = f" (and {counted(ways, 'other way')})" if ways else ""
    text = " > ".join(calls if named is stack else [calls[0], "...", *calls[1:]])
    room = WIDTH - len(INDENT) - len("reached from ") - len(more)
    # The first call and the last ones say most; the libraries in between are only counted.
    keep = len(calls) - 2
    while len(text) > room and keep > 0:
        text = " > ".join([calls[0], "...", *calls[len(calls) - keep :]])
        keep -= 1
    return text + more if calls else ""


def _called(location: Location) -> str | None:
    return None if location.function == "<module>" else location.function


def _prefixes(stacks: Iterable[tuple[Location, ...]]) -> bool:
    """Whether some stacks are one path seen from several depths."""
    ordered = sorted(stacks, key=len)
    lines = [[(place.source, place.line) for place in stack] for stack in ordered]
    longest = set(lines[-1]) if lines else set()
    return all(longest.issuperset(short) for short in lines)


def _occurrences(report: Report, listed: Break) -> str:
    frames = lookup.frames(report)
    reporting = list(dict.fromkeys(event.frame for event in listed.occurrences if event.frame is not None))
    times = {1: "once", 2: "twice"}.get(len(listed.occurrences), f"{len(listed.occurrences)} times")
    if not reporting:
        return f"reported {times}, before the frame was begun"
    known = [ident for ident in reporting if ident in frames]
    names = joined([f"{_name(report, frames[ident])} {ident}" for ident in known], ", ")
    return f"reported {times}, in {counted(len(reporting), 'frame')}: {names}"


def _name(report: Report, frame: Frame) -> str:
    name = f"resumed {frame.function}" if frame.role == "resume" else frame.function
    return f"{name} (torch's wrapper)" if is_wrapper_of_torch(report, frame.location) else name


def _alone(report: Report) -> list[str]:
    """Functions that run eagerly for a reason that is no break of the list."""
    others = [skipped for skipped in report.skipped if skipped.break_ is None]
    lines = []
    for skipped in others[:_MOST]:
        lines += wrapped(" -  ", f"{place(report, skipped.location)} runs eagerly: {skipped.reason}", "")
        lines += wrapped("do: ", skipped.way_out) if skipped.way_out else []
        lines += remedies_of_frame(report, skipped)
    return [*lines, f"{INDENT}and {len(others) - _MOST} more"] if len(others) > _MOST else lines


def _recompiles(report: Report) -> list[str]:
    """Name for each function that was compiled again everything that varied, its line, and what ends it."""
    lines = []
    for again in recompilations(report)[:_MOST]:
        where = place(report, again.location)
        if is_wrapper_of_torch(report, again.location):
            where = f"torch's wrapper ({where})"
        alone = again.guards[0] if len(again.guards) == 1 else None
        why = ": a guard did not hold" if not again.guards else ", because these varied:"
        why = f": {_failed_guard(report, again, alone)}" if alone is not None else why
        lines += wrapped(" -  ", f"{where} {again.times}{why}", "")
        for guard in again.guards[:_MOST]:
            if alone is None:
                lines += wrapped("-  ", _failed_guard(report, again, guard))
            if guard.advice:
                lines += wrapped("do: ", guard.advice, INDENT if alone is not None else f"{INDENT}   ")
        if len(again.guards) > _MOST:
            lines.append(f"{INDENT}and {len(again.guards) - _MOST} more guards")
    return lines


def _failed_guard(report: Report, again: Recompilation, guard: FailedGuard) -> str:
    """Return what varied, in how many recompiles, and the line: "k: 2 -> 3, 5 of 6 times, line 4"."""
    known = [guard.story, again.share(guard) if len(again.guards) > 1 else "", guard_lines(report, guard)]
    return ", ".join(filter(None, known))


def _error(report: Report) -> list[str]:
    error = report.error
    where = f" at {place(report, error.location)}" if error is not None and error.location is not None else ""
    if report.status == "interrupted":
        return [cut(f" -  interrupted{where}: the report holds what happened until then")]
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
    for number, listed in enumerate(map(bounded, job.breaks[:_MOST]), start=1):
        code = one_line(listed.place.code) if listed.place is not None and listed.place.code else ""
        head = f"{number:>2}  {where_in_job(listed.place)}"
        lines.append(cut(f"{head}   {code}" if code else head))
        lines.append(cut(INDENT + reason_of(listed)))
        lines.append(cut(INDENT + who_has(job, listed)))
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

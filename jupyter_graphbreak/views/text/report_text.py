"""The report as text, for a terminal 100 columns wide: what one reads in IPython, in logs and with a screen reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.views.text.changes_text import render_changes
from jupyter_graphbreak.views.text.terminal import INDENT, WIDTH, cut, wrapped
from jupyter_graphbreak.views.words.aftermath import aftermath
from jupyter_graphbreak.views.words.lines import break_numbers, listing
from jupyter_graphbreak.views.words.permission import allowed
from jupyter_graphbreak.views.words.plain_text import counted, one_line, plain
from jupyter_graphbreak.views.words.where import is_wrapper_of_torch, place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.schema import Break, Frame, Recompile, Report

#: More than so many breaks or eager functions are counted, not told one by one; so are lines of a source.
_MOST = 50
_MOST_LINES = 400


def render_text(report: Report) -> str:
    """Return the report as text, without a line break at the end.

    The summary comes first; then each break in a few lines, then what else runs eagerly, then the source lines with
    the letters of their graphs. Text from the code under study cannot steer the terminal: control characters are shown
    as escapes.
    """
    lines = [summary_line(report)]
    if report.changes is not None:
        lines += render_changes(report.changes)
    for number, each in enumerate(report.breaks[:_MOST], start=1):
        lines += _break(report, number, each)
    if len(report.breaks) > _MOST:
        lines.append(f"{INDENT}and {len(report.breaks) - _MOST} more breaks")
    lines += _alone(report)
    lines += _recompiles(report)
    lines += _error(report)
    lines += [line for each in report.diagnostics for line in wrapped(f"{each.level}: ", each.message, indent="")]
    shown = [source for source in report.sources if source.kind != "library" and source.segments]
    for source in shown:
        lines += ["", *_listing(report, source)]
    return "\n".join(lines)


def summary_line(report: Report) -> str:
    """Return the one line that says how bad it is: breaks, graphs, eager frames, device, time."""
    summary = report.summary
    own = next((source.name for source in report.sources if source.kind == "cell"), None)
    head = f"compile_explain  {plain(own)}: " if own else "compile_explain: "
    counts = [counted(summary.breaks, "break"), f"{counted(summary.graphs, 'graph')} ({counted(summary.ops, 'op')})"]
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


def _break(report: Report, number: int, found: Break) -> list[str]:
    code = one_line(found.location.code) if found.location and found.location.code else ""
    cause = found.gb_type + (f" ({found.gb_id})" if found.gb_id else "")
    head = f"{number:>2}  {place(report, found.location)}"
    lines = [cut(f"{head}   {code}" if code else head)]
    told = cause
    if found.consequence is not None:
        then = found.consequence
        told += f"; then {then.gb_type}" + (f" ({then.gb_id})" if then.gb_id else "")
    lines.append(cut(INDENT + told))
    path = _path(report, found)
    if path:
        lines.append(cut(f"{INDENT}reached from {path}"))
    lines.append(cut(INDENT + _met(report, found)))
    who = allowed(report, found.setting)
    went_on = aftermath(report, found)
    if who and found.outcome == "error" and went_on[-1].endswith("an error"):
        went_on[-1] = went_on[-1].removesuffix("an error") + who
        who = ""
    lines += [cut(INDENT + each) for each in [*went_on, *([who] if who else [])]]
    if found.advice:
        lines += wrapped("do: ", found.advice[0].text)[:2]
    return lines


def _path(report: Report, found: Break) -> str:
    """Return the calls that lead to a break, those in the middle of a long path left out."""
    own = {each.id for each in report.sources if each.kind != "library"}
    above = list(found.stack[:-1])
    calls = [(place(report, replace(each, function=_called(each))), each.source in own) for each in above]
    different = {tuple(each.stack[:-1]) for each in found.occurrences}
    ways = len(different) - 1 if not _prefixes(different) else 0
    more = f" (and {counted(ways, 'other way')})" if ways else ""
    text = " > ".join(name for name, _ in calls)
    room = WIDTH - len(INDENT) - len("reached from ") - len(more)
    # The first call and the last ones say most; the libraries in between are only counted.
    keep = len(calls) - 2
    while len(text) > room and keep > 0:
        names = [calls[0][0], "...", *(name for name, _ in calls[len(calls) - keep :])]
        text = " > ".join(names)
        keep -= 1
    return text + more if calls else ""


def _called(location: Location) -> str | None:
    return None if location.function == "<module>" else location.function


def _prefixes(stacks: Iterable[tuple[Location, ...]]) -> bool:
    """Whether some stacks are one path seen from several depths."""
    ordered = sorted(stacks, key=len)
    lines = [[(each.source, each.line) for each in stack] for stack in ordered]
    return all(set(short) <= set(lines[-1]) for short in lines)


def _met(report: Report, found: Break) -> str:
    frames = {frame.id: frame for frame in report.frames}
    met = list(dict.fromkeys(each.frame for each in found.occurrences if each.frame is not None))
    times = {1: "once", 2: "twice"}.get(len(found.occurrences), f"{len(found.occurrences)} times")
    if not met:
        return f"met {times}, before the frame was begun"
    names = ", ".join(f"{_name(report, frames[ident])} {ident}" for ident in met if ident in frames)
    return f"met {times}, in {counted(len(met), 'frame')}: {names}"


def _name(report: Report, frame: Frame) -> str:
    name = f"resumed {frame.function}" if frame.role == "resume" else frame.function
    return f"{name} (torch's wrapper)" if is_wrapper_of_torch(report, frame.location) else name


def _alone(report: Report) -> list[str]:
    """Functions that run eagerly for a reason that is no break of the list."""
    others = [each for each in report.skipped if each.break_ is None]
    lines = []
    for each in others[:_MOST]:
        lines += wrapped(" -  ", f"{place(report, each.location)} runs eagerly: {each.reason}", "")
        lines += wrapped("do: ", each.way_out) if each.way_out else []
    return [*lines, f"{INDENT}and {len(others) - _MOST} more"] if len(others) > _MOST else lines


def _recompiles(report: Report) -> list[str]:
    """One line for each function that was compiled again; a refusal is told as a function that runs eagerly."""
    by_place: dict[Location | None, list[Recompile]] = {}
    for each in report.recompiles:
        if not each.limit_hit:
            by_place.setdefault(each.location, []).append(each)
    lines = []
    for location, again in list(by_place.items())[:_MOST]:
        where = (
            f"torch's wrapper ({place(report, location)})"
            if is_wrapper_of_torch(report, location)
            else place(report, location)
        )
        times = f"again ({again[0].frame})" if len(again) == 1 else f"{len(again)} times again"
        why = f": {one_line(again[-1].reasons[0].guard)}" if again[-1].reasons else ""
        lines.append(cut(f" -  {where} compiled {times}{why}"))
    return lines


def _error(report: Report) -> list[str]:
    error = report.error
    if error is None:
        return []
    if error.break_ is not None:
        return [f" -  the run ended in {plain(error.type)}, raised by break {break_numbers(report)[error.break_]}"]
    first = one_line(error.message)
    where = f" at {place(report, error.location)}" if error.location is not None else ""
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
        mark = "".join(f"/{each.number}" for each in line.breaks) or "".join(f">{each}" for each in line.leads_to[:2])
        letters = ",".join(line.graphs[:3]) + ("+" if len(line.graphs) > 3 else "")  # noqa: PLR2004
        gutter = f"{letters}{mark}" or ("~" if line.eager else "")
        text = plain(line.text.expandtabs(4))
        shown.append(f"{line.number:>{digits}} {gutter:<6} {text}".rstrip())
        for each in line.breaks:
            start = len(plain(line.text[: each.start].expandtabs(4)))
            width = max(len(plain(line.text[: each.end].expandtabs(4))) - start, 1)
            shown.append(f"{'':>{digits}} {'':<6} {' ' * start}{'~' * width}")
    if len(lines) > _MOST_LINES:
        shown.append(f"and {len(lines) - _MOST_LINES} more lines")
    return shown

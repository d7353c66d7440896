"""Sentences about calls whose result differs while compiling, and about the lines that the result selects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.locations import is_in_library, location_text
from jupyter_graphbreak.views.words.lookup import per_report
from jupyter_graphbreak.views.words.plain_text import join_numbers, one_line

if TYPE_CHECKING:
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import PathDifference, Report


@per_report
def ordered_paths(report: Report) -> list[PathDifference]:
    """Return the path differences; those that decide which lines run come first.

    In both groups, the reader's own code comes before libraries. A difference in a library on which no line depends is
    left out, because the reader can do nothing about it.
    """
    shown_paths = [path for path in report.paths if path.changes_lines or not is_path_in_library(report, path)]
    return sorted(shown_paths, key=lambda path: (not path.changes_lines, is_path_in_library(report, path)))


def is_path_in_library(report: Report, path: PathDifference) -> bool:
    """Return whether the location that :func:`decision_location` returns is in a library or unknown."""
    decision = decision_location(path)
    return decision is None or is_in_library(report, decision)


def decision_location(path: PathDifference) -> Location | None:
    """Return the location of the test that depends on the result of the call; without a test, that of the call."""
    return path.branch if path.branch is not None else path.location


def path_effect_text(path: PathDifference) -> str:
    """Return the effect of the call's result: "lines 8 and 9 run only because the code is compiled"."""
    if not path.changes_lines:
        return "no line is known to depend on the result"
    lines_that_run, skipped = _line_numbers_text(path, path.lines), _line_numbers_text(path, path.skipped)
    if not path.lines:
        return f"{skipped} {'is' if len(path.skipped) == 1 else 'are'} skipped because the code is compiled"
    verb = "runs" if len(path.lines) == 1 else "run"
    reason = f"instead of {skipped} because" if path.skipped else "only because"
    return f"{lines_that_run} {verb} {reason} the code is compiled"


def _line_numbers_text(path: PathDifference, lines: list[Location]) -> str:
    """Return "line 8", "lines 8 to 12", or "part of line 8 and line 9" if 8 is the line of the test."""
    decision = decision_location(path)
    test = (decision.source, decision.line) if decision is not None else None
    numbers = [line.line for line in lines if (line.source, line.line) != test]
    parts = [f"part of line {decision.line}"] if decision is not None and len(numbers) < len(lines) else []
    parts += [f"{'line' if len(numbers) == 1 else 'lines'} {join_numbers(numbers)}"] if numbers else []
    return " and ".join(parts)


def path_results_text(path: PathDifference) -> str:
    """Return both results of the call: "True when compiled, else False"."""
    return f"{one_line(path.compiled)} when compiled, else {one_line(path.eager)}"


def path_note(path: PathDifference) -> str:
    """Return the note to show beside the test: "takes this branch only because it is compiled"."""
    if path.lines:
        return "takes this branch only because it is compiled"
    return "skips this branch because it is compiled" if path.skipped else path_results_text(path)


def helper_location_text(report: Report, path: PathDifference) -> str:
    """Return the location of the call as text if the test is on a different line; otherwise an empty string."""
    decision, call = decision_location(path), path.location
    is_elsewhere = (
        decision is not None and call is not None and (decision.source, decision.line) != (call.source, call.line)
    )
    return location_text(report, call) if is_elsewhere else ""


def path_sentence(report: Report, path: PathDifference) -> str:
    """Return a sentence about a path difference.

    For example: "line 7 in f calls `torch.compiler.is_compiling()`: True when compiled, else False; lines 8 and 9 run
    only because the code is compiled".
    """
    helper = helper_location_text(report, path)
    helper_text = f" through {helper}" if helper else ""
    call_text = f"{location_text(report, decision_location(path))} calls `{one_line(path.function)}()`{helper_text}"
    return f"{call_text}: {path_results_text(path)}; {path_effect_text(path)}"

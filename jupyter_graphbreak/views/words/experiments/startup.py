"""What the first call waits for: which functions take long to compile, and how much of it is compiling again."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.plain_text import counted
from jupyter_graphbreak.views.words.where import function_of

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Frame, Report

#: Functions that are named; compiling that takes less than a second is not worth a sentence.
_MOST = 3
_WORTH_SAYING_S = 1.0


def startup(report: Report) -> str:
    """Return where the time of compiling went, the longest first; the empty string where it was short.

    "start-up: 17.0 s of compiling: step resumed at line 12 7.1 s, step 4.0 s, 2 more functions 5.9 s; 2.1 s of it was
    spent on recompiles".
    """
    times: defaultdict[str, float] = defaultdict(float)
    for frame in report.frames:
        times[_name(report, frame)] += frame.compile_s or 0.0
    whole = sum(times.values())
    if whole < _WORTH_SAYING_S:
        return ""
    longest = sorted(times.items(), key=lambda item: -item[1])
    parts = [f"{name} {seconds:.1f} s" for name, seconds in longest[:_MOST]]
    rest = longest[_MOST:]
    if rest:
        parts.append(f"{counted(len(rest), 'more function')} {sum(seconds for _, seconds in rest):.1f} s")
    again = sum(frame.compile_s or 0.0 for frame in report.frames if frame.recompile_of is not None)
    more = f"; {again:.1f} s of it was spent on recompiles" if again else ""
    return f"start-up: {whole:.1f} s of compiling: {', '.join(parts)}{more}"


def _name(report: Report, frame: Frame) -> str:
    place = frame.location
    name = function_of(report, place) if place is not None else frame.function
    return f"{name} resumed at line {place.line}" if frame.role == "resume" and place is not None else name

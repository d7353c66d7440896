"""Select the eager functions that matter to a reader, and compute the time that breaks cost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from jupyter_graphbreak.report.cost import EntryCost, RemediedCost
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Report, Skipped

#: The names of the code objects that Python creates for comprehensions.
_COMPREHENSIONS = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})


def functions_worth_counting(report: Report, functions: Collection[Skipped]) -> list[Skipped]:
    """Return the eager functions that matter to a reader.

    Functions of Python's standard library, which compute nothing with tensors, are left out, and so are comprehensions
    inside a function that is itself in the result.
    """
    standard_library = {
        source.id
        for source in report.sources
        if source.kind == "library" and _top_module(source.path or "") in sys.stdlib_module_names
    }
    relevant = [
        function
        for function in functions
        if function.location is None or function.location.source not in standard_library
    ]
    enclosing_locations = [function.location for function in relevant if function.function not in _COMPREHENSIONS]
    return [
        function
        for function in relevant
        if function.function not in _COMPREHENSIONS
        or not any(_contains(lines, function.location) for lines in enclosing_locations)
    ]


def _top_module(path: str) -> str:
    return path.partition("/")[0].removesuffix(".py")


def _contains(outer: Location | None, inner: Location | None) -> bool:
    if outer is None or inner is None or outer.source != inner.source:
        return False
    return outer.line <= inner.line and inner.end_line <= outer.end_line


class BreakTime(NamedTuple):
    """The measured time of a break in one entry.

    Parameters
    ----------
    entry : EntryCost
        The entry in which the break occurs.
    remedied : RemediedCost or None
        The cost of the entry with remedies for this break alone, if it was measured.
    outside_us : float
        The time that each call spends outside graphs at the break, in microseconds.
    """

    entry: EntryCost
    remedied: RemediedCost | None
    outside_us: float = 0.0

    @property
    def saved_us(self) -> float:
        """The time per call that the remedies save, in microseconds: negative if they cost time, 0 without remedies."""
        return self.entry.compiled.median_us - self.remedied.time.median_us if self.remedied is not None else 0.0

    @property
    def cost_us(self) -> float:
        """The time per call that the break costs, in microseconds: the saving of its remedies, if measured.

        Otherwise it is the time outside graphs. Remedies save more than that, because resuming takes time as well.
        """
        return max(0.0, self.saved_us) if self.remedied is not None else self.outside_us


def break_times(report: Report) -> dict[str, BreakTime]:
    """Return the measured time of each break, by the id of the break.

    A measurement with remedies has precedence over one without. If there are still several, because several entries
    reach the break or several remedies remove it, the highest cost is used.
    """
    break_of_remedy = {remedy.id: remedy.breaks[0] for remedy in report.remedies or [] if len(remedy.breaks) == 1}
    times: dict[str, BreakTime] = {}
    for entry in report.cost.entries if report.cost is not None else []:
        for ident, time in _times_in_entry(entry, break_of_remedy) if entry.settled else ():
            if ident not in times or _precedence(time) > _precedence(times[ident]):
                times[ident] = time
    return times


def _times_in_entry(entry: EntryCost, break_of_remedy: Mapping[str, str]) -> Iterator[tuple[str, BreakTime]]:
    for part in entry.parts:
        if part.kind == "outside" and part.break_ is not None:
            yield part.break_, BreakTime(entry, None, part.time.median_us)
    for remedied in entry.remedied:
        breaks = {break_of_remedy.get(ident) for ident in remedied.remedies}
        if len(breaks) == 1 and (ident := breaks.pop()) is not None:
            yield ident, BreakTime(entry, remedied)


def _precedence(time: BreakTime) -> tuple[bool, float]:
    return time.remedied is not None, time.saved_us if time.remedied is not None else time.outside_us

"""Further questions to a run whose entries were kept: they run again on copies, and nothing of it is shown."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.version import require_torch
from jupyter_graphbreak.analysis.finished.priority import with_priorities
from jupyter_graphbreak.report.cost import Cost
from jupyter_graphbreak.report.schema import Diagnostic
from jupyter_graphbreak.results import Report
from jupyter_graphbreak.trial.time_limit import TimeUpError, time_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyter_graphbreak.cost.warm_calls import WarmCalls
    from jupyter_graphbreak.recording.source_texts import FindCell
    from jupyter_graphbreak.remedies.finding import Found
    from jupyter_graphbreak.report import schema
    from jupyter_graphbreak.trial.entry import Entry, KeptEntries

#: Seconds that measuring or checking takes at most.
_PATIENCE_S = 120.0
#: The share of them after which no further entry is measured or checked, and few calls are timed.
_SHARE_OF_ENTRIES = 0.5


class Kept(NamedTuple):
    """What is kept of a run for further questions: copies of its entries, and the times of the calls that it made."""

    entries: KeptEntries
    warm: WarmCalls


@contextlib.contextmanager
def kept_for_questions() -> Iterator[Kept]:
    """Keep what further questions need, while the context is open."""
    require_torch()
    from jupyter_graphbreak.cost.warm_calls import timed_calls
    from jupyter_graphbreak.trial.entry import kept_entries

    with timed_calls() as warm, kept_entries() as entries:
        yield Kept(entries, warm)


class Rerun:
    """The entries of a run, and its report, to which each question adds its answer.

    Parameters
    ----------
    report : Report
    files : mapping
        The file name of each of its sources, by the source's id.
    kept : Kept
        What was kept of its run.
    find_cell : callable
        Given the file name of a code object, the cell it comes from.
    tell : callable
        Told what is done.

    Attributes
    ----------
    report : Report
        With all answers so far.
    """

    def __init__(
        self,
        report: Report,
        files: Mapping[str, str],
        kept: Kept,
        find_cell: FindCell = lambda _: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.report = report
        self._files = files
        self._kept = kept.entries
        self._warm = kept.warm
        self._find_cell = find_cell
        self._tell = tell
        self._found: Found | None = None
        self._notes: list[str] = []

    def try_remedies(self, **options: Any) -> Report:
        """Try to remove the breaks.

        Parameters
        ----------
        **options
            As :func:`jupyter_graphbreak.remedies.finding.find_remedies` takes them.
        """
        from jupyter_graphbreak.remedies.finding import find_remedies

        self._found = find_remedies(
            self.report,
            self._files,
            self._kept,
            find_cell=self._find_cell,
            tell=self._tell,
            **options,
        )
        return self._answered(self._found.report)

    def measure(self, seconds: float | None = None) -> Report:
        """Measure what the entries cost, and with remedies that were found before, what they save.

        Parameters
        ----------
        seconds : float or None
            When to stop; by default after 120 seconds.
        """
        from jupyter_graphbreak.cost.entry_cost import backend_name, device_of, measure_entry
        from jupyter_graphbreak.trial.side_effects import TrialStoppedError

        end, late = _limits(seconds)
        costs = []
        for entry in self._entries(late, "measured"):
            self._tell(f"{entry.function}: runs again and again on copies")
            with entry.set_up(), self._faults_noted(f"measuring {entry.function}"), time_limited(end):
                remedied = self._found.remedied(entry) if self._found is not None else {}
                try:
                    measured = measure_entry(entry, remedied, self.report, end=late, find_cell=self._find_cell).cost
                except TrialStoppedError as stopped:
                    self._kept.leave_out(entry, stopped.effect)
                    continue
                costs.append(replace(measured, in_run=self._warm.spread_of(entry.wrapped)))
        if costs:
            first = self._kept.entries[0]
            cost = Cost(device_of(first), backend_name(first.backend), costs)
            return self._answered(with_priorities(replace(self.report, cost=cost)))
        return self._answered(self.report)

    def check(self, seconds: float | None = None) -> Report:
        """Compare what the entries compute compiled with what they compute eagerly.

        Parameters
        ----------
        seconds : float or None
            When to stop; by default after 120 seconds.
        """
        from jupyter_graphbreak.cost.correctness.checking import check_entry
        from jupyter_graphbreak.trial.side_effects import TrialStoppedError

        end, late = _limits(seconds)
        checks = []
        for entry in self._entries(late, "checked"):
            self._tell(f"{entry.function}: compiled is compared with eager")
            with entry.set_up(), self._faults_noted(f"checking {entry.function}"), time_limited(end):
                try:
                    checks.append(check_entry(entry, self.report, find_cell=self._find_cell).check)
                except TrialStoppedError as stopped:
                    self._kept.leave_out(entry, stopped.effect)
        return self._answered(replace(self.report, check=checks))

    def _entries(self, late: float, done: str) -> Iterator[Entry]:
        """Yield the entries until it gets late, and note what was left out then."""
        for number, entry in enumerate(self._kept.entries):
            if time.monotonic() > late:
                left = len(self._kept.entries) - number
                self._notes.append(f"{left} of the {number + left} calls were not {done}: there was no time left.")
                return
            yield entry

    @contextlib.contextmanager
    def _faults_noted(self, what: str) -> Iterator[None]:
        """Note what fails for one entry, which leaves the others as they are."""
        try:
            yield
        except TimeUpError:
            self._notes.append(f"{what.capitalize()} took too long and was ended.")
        except Exception as fault:  # noqa: BLE001 - the function itself, or what it needs and a copy has not
            self._notes.append(f"{what.capitalize()} failed ({type(fault).__name__}: {fault}).")

    def _answered(self, report: schema.Report) -> Report:
        """Keep a report with an answer, and return it; what was not kept of the run is said in it, once."""
        from jupyter_graphbreak.trial.effect_places import with_effects

        report = with_effects(report, self._files, self._kept.effects, self._find_cell)
        sentences = dict.fromkeys([*self._kept.left_out, *self._notes])
        notes = [Diagnostic("warning", sentence) for sentence in sentences]
        new = [note for note in notes if note not in report.diagnostics]
        self.report = Report.of(replace(report, diagnostics=[*report.diagnostics, *new]))
        return self.report


def _limits(seconds: float | None) -> tuple[float, float]:
    """Return when a question ends, and from when on it is late; both in seconds of :func:`time.monotonic`."""
    limit = _PATIENCE_S if seconds is None else seconds
    return time.monotonic() + limit, time.monotonic() + _SHARE_OF_ENTRIES * limit

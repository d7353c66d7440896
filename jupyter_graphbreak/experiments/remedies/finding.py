"""Find the remedies for the entries of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from jupyter_graphbreak._torch_compat.compiled import compiled_callable, compiled_with
from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak.analysis.matching import same_breaks
from jupyter_graphbreak.experiments.remedies.application import compile_file
from jupyter_graphbreak.experiments.remedies.own_edits import Patch
from jupyter_graphbreak.experiments.remedies.rehearsal import Rehearsal
from jupyter_graphbreak.experiments.remedies.remedy_list import with_remedies
from jupyter_graphbreak.experiments.remedies.search import RANK, Search
from jupyter_graphbreak.experiments.trial.entry import Entry, callable_name
from jupyter_graphbreak.experiments.trial.inputs import Arguments
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time
from jupyter_graphbreak.report.schema import Device, Diagnostic, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import CodeType

    from jupyter_graphbreak.experiments.remedies.own_edits import EditedCells
    from jupyter_graphbreak.experiments.remedies.search import Tell, Tried
    from jupyter_graphbreak.experiments.trial.entry import KeptEntries
    from jupyter_graphbreak.records.source_texts import FindCell

    #: Applies a remedy while its context is open, and hands out the entry with it.
    Changed = Callable[[], AbstractContextManager[Entry]]

#: Seconds after which no further change is tried.
PATIENCE_S = 100.0
#: Seconds that the first run on copies may take although there is no time left.
_LEAST_S = 10.0
#: The share of the time that is left which the next entry may take, if more come after it.
_SHARE_OF_NEXT = 0.7
_INTERRUPTED = "the search was interrupted"
#: Remedies of one entry that are worth measuring, at the most: each is compiled once more.
_MOST_MEASURED = 6


@dataclass(frozen=True)
class Found:
    """What a search for remedies came to.

    Parameters
    ----------
    report : Report
        With :attr:`~jupyter_graphbreak.report.schema.Report.remedies`.
    searches : list of tuple
        Each search, and what it tried by the ids of the remedies.
    """

    report: Report
    searches: list[tuple[Search, dict[str, Tried]]]

    def remedied(self, entry: Entry) -> dict[tuple[str, ...], Changed]:
        """Return what applies the remedies of an entry that are worth measuring, by their ids."""
        return {
            (ident,): search.rehearsal.changed(tried[ident].attempt.change)
            for search, tried in self.searches
            if search.rehearsal.entry is entry
            for ident in worth_measuring(tried)
        }


def remedies_of_call(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    also: Sequence[Callable[..., Any] | Patch] = (),
    seconds: float | None = None,
) -> Found:
    """Return the report of a function that is compiled on copies, with what was tried for its breaks.

    Parameters
    ----------
    fn : callable
    args, kwargs
        What to call it with.
    also : sequence of callable or Patch
        What somebody wrote in its place.
    seconds : float or None
        When to stop; by default after 100 seconds.

    Raises
    ------
    ValueError
        If a patch changes nothing that the call compiles.
    TrialStoppedError
        If the function does something outside of its copies; nothing of that has happened.
    Exception
        Whatever the function itself raises.
    """
    call = _uncompiled(fn)
    backend, dynamic = compiled_with(fn) or ("eager", None)
    entry = Entry(callable_name(call), None, call, Arguments(*args, **kwargs).bound(call), backend, dynamic)
    end = time.monotonic() + (PATIENCE_S if seconds is None else seconds)
    refused = entry.why_not_run()
    if refused is not None:
        return _nothing(refused)
    with entry.set_up():
        try:
            with limit_time(max(end, time.monotonic() + _LEAST_S)):
                rehearsal = Rehearsal(entry)
        except TimeUpError:
            return _nothing(_late(entry))
        search = Search(rehearsal, end)
        reasons: list[str] = []
        try:
            for rewrite in also:
                if not isinstance(rewrite, Patch):
                    search.judge(_uncompiled(rewrite))
                elif not search.judge_edit(rewrite):
                    raise ValueError(_in_vain(rewrite))
            search.run()
        except KeyboardInterrupt:
            reasons.append(_INTERRUPTED)
    return _found(rehearsal.original.report, rehearsal.original.files, [search], reasons)


def _nothing(because: str) -> Found:
    """Return the report of a function that could not be run."""
    device = Device("auto", default_device_name())
    return Found(Report("ok", device, diagnostics=[Diagnostic("warning", because)], remedies=[]), [])


def _late(entry: Entry) -> str:
    return f"Nothing was tried for {entry.function}: running it on copies took all the time."


def _uncompiled(fn: Any) -> Any:
    inner = compiled_callable(fn)
    return fn if inner is None else inner


def find_remedies(
    report: Report,
    files: Mapping[str, str],
    kept: KeptEntries,
    *,
    seconds: float | None = None,
    compile_text: Callable[[str, str], list[CodeType]] = compile_file,
    find_cell: FindCell = lambda _: None,
    tell: Tell = lambda _: None,
    also: Sequence[EditedCells | Patch] = (),
) -> Found:
    """Return a report with what was tried for its breaks; an interrupt ends the search with what it has found.

    Parameters
    ----------
    report : Report
        Of the run.
    files : mapping
        The file name of each of its sources, by the source's id.
    kept : KeptEntries
        The entries of the run.
    seconds : float or None
        When to stop; by default after 100 seconds.
    compile_text, find_cell : callable
        As for :class:`~jupyter_graphbreak.experiments.remedies.application.Program`.
    tell : callable
        Told what is tried.
    also : sequence of EditedCells or Patch
        What somebody wrote: each is tried before everything else.
    """
    end = time.monotonic() + (PATIENCE_S if seconds is None else seconds)
    searches: list[Search] = []
    reasons = [*kept.left_out, *(f"the function was not run again: it {effect.what}" for effect in kept.effects)]
    mended: set[str] = set()
    judged: list[EditedCells | Patch] = []
    entries = _by_breaks(report, kept.entries) if report.breaks else []
    try:
        for place, entry in enumerate(entries):
            # What one entry leaves of its share is the others'; the first has most of the breaks.
            left = end - time.monotonic()
            own_end = end if place == len(entries) - 1 else time.monotonic() + left * _SHARE_OF_NEXT
            if left <= 0 and not also:
                reasons.append(_late(entry))
                continue
            tell(f"{entry.function}: runs again on copies")
            with entry.set_up():
                try:
                    with limit_time(max(own_end, time.monotonic() + _LEAST_S)):
                        rehearsal = Rehearsal(entry, compile_text, find_cell)
                except TimeUpError:
                    reasons.append(_late(entry))
                    continue
                except TrialStoppedError as stopped:
                    kept.leave_out(entry, stopped.effect)
                    reasons.append(f"{entry.function} was not run again: it {stopped.effect.what}")
                    continue
                except Exception as error:  # noqa: BLE001 - the function itself, or what it needs and a copy has not
                    reasons.append(f"{entry.function} could not run again on copies ({type(error).__name__}: {error})")
                    continue
                known = same_breaks(report, rehearsal.original.report)
                wanted = frozenset(theirs for ours, theirs in known.items() if ours not in mended)
                if wanted:
                    searches.append(Search(rehearsal, own_end, wanted, tell))
                    judged += [own for own in also if searches[-1].judge_edit(own)]
                    tried = searches[-1].run()
                    gone = {ident for change in tried if change.works for ident in change.breaks}
                    mended |= {ours for ours, theirs in known.items() if theirs in gone}
    except KeyboardInterrupt:
        reasons.append(_INTERRUPTED)
    unjudged = [Diagnostic("warning", _why_unjudged(own, kept)) for own in also if own not in judged]
    report = replace(report, diagnostics=[*report.diagnostics, *unjudged])
    return _found(report, files, searches, reasons)


def _by_breaks(report: Report, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries to try, those with most events of breaks first; what reuses code has the breaks of another."""
    frames = [frame.id for frame in report.frames]
    starts = {entry.frame: frames.index(entry.frame) for entry in entries if entry.frame in frames}

    def events(entry: Entry) -> int:
        start = starts.get(entry.frame or "", 0)
        end = min((other for other in starts.values() if other > start), default=len(frames))
        own = set(frames[start:end])
        return sum(occurrence.frame in own for listed in report.breaks for occurrence in listed.occurrences)

    return sorted((entry for entry in entries if not entry.reuses), key=lambda entry: -events(entry))


def _why_unjudged(own: EditedCells | Patch, kept: KeptEntries) -> str:
    """Return why something that somebody wrote was not tried, as a sentence."""
    effect = next((effect for effect in kept.effects if not kept.entries), None)
    if effect is not None:
        return f"{own.title} was not tried: running the function again {effect.what}, which would be a side effect."
    return _in_vain(own)


def _in_vain(own: EditedCells | Patch) -> str:
    what = f" It changes {', '.join(own.files)}." if isinstance(own, Patch) else ""
    return f"{own.title} was not tried: it changes no function that has a graph break here, or calls one.{what}"


def _found(report: Report, files: Mapping[str, str], searches: list[Search], reasons: Sequence[str]) -> Found:
    made, tried = with_remedies(report, files, searches, reasons)
    return Found(made, list(zip(searches, tried, strict=True)))


def worth_measuring(remedies: Mapping[str, Tried]) -> list[str]:
    """Return the ids of the remedies to measure: for each break the best, and what removes most of them."""
    working = {ident: tried for ident, tried in remedies.items() if tried.works and tried.attempt.change}
    if not working:
        return []
    most = max(working, key=lambda ident: len(working[ident].breaks))
    best: dict[str, str] = {}
    for ident, tried in working.items():
        for broken in tried.breaks:
            before = best.get(broken)
            if before is None or _preference(tried) < _preference(working[before]):
                best[broken] = ident
    return list(dict.fromkeys([most, *best.values()]))[:_MOST_MEASURED]


def _preference(tried: Tried) -> tuple[int, int]:
    """Return what to sort by: what removes fewest others with a break, so that its own effect shows, and works best."""
    return len(tried.breaks), RANK[tried.attempt.verdict]

"""Find the remedies for the entries of a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import backend_of, compiled_callable
from jupyter_graphbreak.analysis.matching import same_breaks
from jupyter_graphbreak.remedies.program.application import compile_file
from jupyter_graphbreak.remedies.rehearsal import Rehearsal
from jupyter_graphbreak.remedies.remedy_list import with_remedies
from jupyter_graphbreak.remedies.search import Search
from jupyter_graphbreak.trial.entry import Entry, name_of
from jupyter_graphbreak.trial.inputs import Arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import CodeType

    from jupyter_graphbreak.recording.source_texts import FindCell
    from jupyter_graphbreak.remedies.search import Tell
    from jupyter_graphbreak.report.schema import Report

#: Seconds after which no further change is tried.
PATIENCE_S = 120.0


def remedies_of_call(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    also: Sequence[Callable[..., Any]] = (),
    seconds: float = PATIENCE_S,
) -> Report:
    """Return the report of a function that is compiled on copies, with what was tried for its breaks.

    Parameters
    ----------
    fn : callable
    args, kwargs
        What to call it with.
    also : sequence of callable
        What somebody wrote in its place.
    seconds : float
        When to stop.

    Raises
    ------
    Exception
        Whatever the function itself raises.
    """
    call = _uncompiled(fn)
    backend = "eager" if call is fn else backend_of(fn)
    entry = Entry(name_of(call), None, call, Arguments(*args, **kwargs).bound(call), backend)
    rehearsal = Rehearsal(entry)
    search = Search(rehearsal, time.monotonic() + seconds)
    try:
        for rewrite in also:
            search.judge(_uncompiled(rewrite))
        search.run()
    except KeyboardInterrupt:
        search.left += [listed.id for listed in rehearsal.original.report.breaks]
    return with_remedies(rehearsal.original.report, rehearsal.original.files, [search])


def _uncompiled(fn: Any) -> Any:
    inner = compiled_callable(fn)
    return fn if inner is None else inner


def find_remedies(
    report: Report,
    files: Mapping[str, str],
    entries: Sequence[Entry],
    *,
    seconds: float = PATIENCE_S,
    compile_text: Callable[[str, str], list[CodeType]] = compile_file,
    find_cell: FindCell = lambda _: None,
    tell: Tell = lambda _: None,
    left_out: Sequence[str] = (),
) -> Report:
    """Return a report with what was tried for its breaks; an interrupt ends the search with what it has found.

    Parameters
    ----------
    report : Report
        Of the run.
    files : mapping
        The file name of each of its sources, by the source's id.
    entries : sequence of Entry
        The entries of the run.
    seconds : float
        When to stop.
    compile_text, find_cell : callable
        As for :class:`~jupyter_graphbreak.remedies.program.application.Program`.
    tell : callable
        Told what is tried.
    left_out : sequence of str
        Why entries of the run are not among these, in sentences.
    """
    deadline = time.monotonic() + seconds
    searches: list[Search] = []
    reasons = list(left_out)
    mended: set[str] = set()
    try:
        for entry in entries if report.breaks else ():
            tell(f"{entry.function}: runs again on copies")
            try:
                rehearsal = Rehearsal(entry, compile_text, find_cell)
            except Exception as error:  # noqa: BLE001 - the function itself, or what it needs and a copy has not
                reasons.append(f"{entry.function} could not run again on copies ({type(error).__name__}: {error})")
                continue
            known = same_breaks(report, rehearsal.original.report)
            wanted = frozenset(theirs for ours, theirs in known.items() if ours not in mended)
            if wanted:
                searches.append(Search(rehearsal, deadline, wanted, tell))
                tried = searches[-1].run()
                gone = {ident for change in tried if change.works for ident in change.breaks}
                mended |= {ours for ours, theirs in known.items() if theirs in gone}
    except KeyboardInterrupt:
        reasons.append("the search was interrupted")
    return with_remedies(report, files, searches, reasons)

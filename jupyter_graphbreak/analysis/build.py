"""Make the report: pure functions from records to a :class:`~jupyter_graphbreak.report.schema.Report`.

The records are read once, in order, into one ledger per compiled frame (``ledger``). Of the ledgers the lists of the
report are made, each in the module that has its name: ``breaks``, ``graphs``, ``resumes``, ``skips``, ``scopes``,
``frames``, ``recompiles``. Here they are put together. Nothing imports torch or reads a file, so that a report can be
made of a recording from another machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.breaks import BreakTable
from jupyter_graphbreak.analysis.finished.priority import with_priorities
from jupyter_graphbreak.analysis.frames import list_frames
from jupyter_graphbreak.analysis.graphs import GraphTable
from jupyter_graphbreak.analysis.ledger import Ledger, read_records
from jupyter_graphbreak.analysis.recompiles import list_recompiles
from jupyter_graphbreak.analysis.resumes import ResumeTable
from jupyter_graphbreak.analysis.scopes import ScopeTable
from jupyter_graphbreak.analysis.settings import settings_of_run
from jupyter_graphbreak.analysis.skips import SkipTable
from jupyter_graphbreak.analysis.source.locations import Sources, SourceText, shown_stack
from jupyter_graphbreak.analysis.torch_text import messages
from jupyter_graphbreak.report.figures import Summary, Timing
from jupyter_graphbreak.report.location import Segment
from jupyter_graphbreak.report.schema import Device, Report, RunError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.recording.additions import DeviceUsed, SourceRecorded
    from jupyter_graphbreak.recording.records import Record
    from jupyter_graphbreak.report.schema import Break, Frame, Scope, Skipped

#: Exceptions that say a break by another name.
_RAISED_AS = {"FailOnRecompileLimitHit": "Dynamo recompile limit exceeded"}


def build_report(records: Iterable[Record]) -> Report:
    """Make the report of a run.

    Parameters
    ----------
    records : iterable of Record
        A recording of :func:`jupyter_graphbreak.recording.recorder.record`, or entries of a ``TORCH_TRACE`` file.

    Returns
    -------
    Report
        What cannot be read is left out and said in ``diagnostics``; nothing is raised for it.
    """
    ledger = read_records(records)
    run = ledger.run
    kinds = Sources([], run.library_roots)
    texts = [_source_text(recorded, kinds) for recorded in ledger.texts]
    sources = Sources(texts, run.library_roots, run.folder, run.home)
    for frame in ledger.started:
        if frame.start is not None and frame.start.qualname is not None:
            _, filename, line = frame.code
            sources.name_function(filename, line, frame.start.qualname)
    return with_priorities(_report(ledger, sources))


def _report(ledger: Ledger, sources: Sources) -> Report:
    """Fill the tables in the order in which they refer to each other, and write them out."""
    scopes = ScopeTable(sources)
    breaks = BreakTable(sources, scopes, ledger.notes)
    graphs = GraphTable(sources, ledger.notes)
    skips = SkipTable(sources, breaks, ledger.resumed_lines())
    for scope in ledger.scopes:
        scopes.open(scope)
    for frame in ledger.started:
        if frame.start is not None:
            scopes.open_fullgraph(frame.start.fullgraph_site)
        breaks.fold(frame)
    _read_refusals(ledger, breaks, skips)
    resumes = ResumeTable(ledger, sources, breaks)
    for frame in ledger.started:
        graphs.add(frame, breaks.ending(frame))
    for frame in ledger.started:
        skips.add_frame(frame)
    for skip in ledger.skips:
        skips.add_unbegun(skip)
    listed_resumes = resumes.resumes(graphs)
    frames = list_frames(ledger, sources, breaks, graphs, resumes)
    skipped = skips.skipped(frames)
    listed_breaks = breaks.breaks(listed_resumes, skipped)
    listed_graphs = graphs.graphs()
    listed_scopes = scopes.scopes()
    recompiles = list_recompiles(ledger, sources)
    error = _error(ledger, sources, listed_breaks)
    others: list[Frame | Skipped | Scope] = [*frames, *skipped, *listed_scopes]
    run = ledger.run
    config, notes = settings_of_run(ledger)
    return Report(
        status=ledger.error.status if ledger.error is not None else "ok",
        device=_device(ledger.device),
        torch=run.torch,
        python=run.python,
        config=config,
        error=error,
        timing=_timing(ledger),
        summary=Summary(
            frames=len(frames),
            graphs=len(listed_graphs),
            ops=sum(len(graph.ops) for graph in listed_graphs),
            breaks=len(listed_breaks),
            events=sum(len(listed.occurrences) for listed in listed_breaks),
            resumes=len(listed_resumes),
            skipped=len(skipped),
            recompiles=len(recompiles),
            errors=sum(frame.outcome == "error" for frame in frames),
        ),
        sources=sources.sources(
            (listed.location for listed in listed_breaks),
            (other.location for other in others),
        ),
        frames=frames,
        graphs=listed_graphs,
        breaks=listed_breaks,
        resumes=listed_resumes,
        skipped=skipped,
        scopes=listed_scopes,
        recompiles=recompiles,
        what_if=breaks.what_if(),
        diagnostics=[*ledger.notes, *notes],
    )


def _read_refusals(ledger: Ledger, breaks: BreakTable, skips: SkipTable) -> None:
    """Add what Dynamo refused: functions it cannot begin, and functions that it compiled too often."""
    for refusal, order in ledger.refusals:
        cause = breaks.cause_of(refusal, order)
        if cause is not None:
            skips.add_consequence(refusal, cause)
            continue
        folded, setting = breaks.fold_refusal(refusal, order)
        if not refusal.raised:
            skips.add_refused(refusal, folded, setting)
    for frame in ledger.frames:
        if frame.refusal is None:
            continue
        if not frame.refusal.raised:
            skips.add_limited(frame.refusal, ledger.limited_code(frame))
        elif frame.refusal.code is not None:
            breaks.fold_refusal(frame.refusal, frame.refusal_order)


def _device(device: DeviceUsed) -> Device:
    return Device(device.requested, device.used, device.name, device.note)


def _timing(ledger: Ledger) -> Timing:
    spent = [frame.metrics.get("entire_frame_compile_time_s") for frame in ledger.frames]
    return Timing(
        wall_s=ledger.run.wall_s,
        compile_s=_sum(spent) + sum(frame.backward_s for frame in ledger.frames),
        capture_s=ledger.run.capture_s,
    )


def _error(ledger: Ledger, sources: Sources, breaks: list[Break]) -> RunError | None:
    error = ledger.error
    if error is None:
        return None
    stack = shown_stack(sources, error.stack)
    message = error.message.partition("\n\nfrom user code:")[0]
    parsed = messages.parse_reason(message, error.type)
    names = {parsed.cause.gb_type, error.type, _RAISED_AS.get(error.type)}
    same = [listed for listed in breaks if listed.outcome == "error" and listed.gb_type in names]
    cause = same[-1] if same else None
    location = cause.location if cause is not None else (stack[-1] if stack else None)
    return RunError(error.type, message, location, cause.id if cause is not None else None)


def _source_text(recorded: SourceRecorded, kinds: Sources) -> SourceText:
    kind = recorded.kind_of_source or kinds.kind(recorded.filename)
    return SourceText(
        filename=recorded.filename,
        name=recorded.name,
        kind="library" if kind == "machinery" else kind,
        segments=[Segment(segment.first_line, segment.text) for segment in recorded.segments],
        lines=recorded.lines,
        line_offset=recorded.line_offset,
        indent=recorded.indent,
    )


def _sum(values: Iterable[float | None]) -> float:
    return sum(value for value in values if value is not None)

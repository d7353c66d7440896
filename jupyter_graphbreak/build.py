"""Make the report: pure functions from records to a :class:`~jupyter_graphbreak.report.Report`.

The records are read once, in order, into one ledger per compiled frame (:mod:`jupyter_graphbreak.ledger`). Of the
ledgers the lists of the report are made, each in the module that has its name: ``breaks``, ``graphs``, ``resumes``,
``skips``, ``scopes``, ``frames``, ``recompiles``. Here they are put together. Nothing imports torch or reads a file,
so a report can be made of a recording from another machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_graphbreak import break_message
from jupyter_graphbreak.breaks import BreakTable
from jupyter_graphbreak.frames import list_frames
from jupyter_graphbreak.graphs import GraphTable
from jupyter_graphbreak.ledger import Ledger, read_records
from jupyter_graphbreak.recompiles import list_recompiles
from jupyter_graphbreak.report import Break, Device, Diagnostic, Report, RunError, Segment, Summary, Timing
from jupyter_graphbreak.resumes import ResumeTable
from jupyter_graphbreak.scopes import ScopeTable
from jupyter_graphbreak.skips import SkipTable
from jupyter_graphbreak.source import Sources, SourceText, shown_stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyter_graphbreak.records import Record

#: Exceptions that say a break by another name.
_RAISED_AS = {"FailOnRecompileLimitHit": "Dynamo recompile limit exceeded"}


def build_report(records: Iterable[Record]) -> Report:
    """Make the report of a run.

    Parameters
    ----------
    records : iterable of Record
        A recording of :func:`jupyter_graphbreak.recorder.record`, or entries of a ``TORCH_TRACE`` file.

    Returns
    -------
    Report
        What cannot be read is left out and said in ``diagnostics``; nothing is raised for it.
    """
    ledger = read_records(records)
    run = ledger.run
    roots = run.get("library_roots", ())
    kinds = Sources([], roots)
    sources = Sources(_source_texts(ledger, kinds), roots, run.get("folder"), run.get("home"))
    return _report(ledger, sources)


def _report(ledger: Ledger, sources: Sources) -> Report:
    """Fill the tables in the order in which they refer to each other, and write them out."""
    scopes = ScopeTable(sources)
    breaks = BreakTable(sources, scopes, ledger.notes)
    graphs = GraphTable(sources, ledger.notes)
    skips = SkipTable(sources, breaks)
    for scope in ledger.scopes:
        scopes.open(scope)
    for frame in ledger.started:
        if frame.start is not None:
            scopes.open_fullgraph(frame.start.get("fullgraph_site"))
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
    places = [each.location for each in listed_breaks] + [each.location for each in frames]
    places += [each.location for each in skipped] + [each.location for each in listed_scopes]
    run = ledger.run
    return Report(
        status=ledger.error["status"] if ledger.error else "ok",
        device=_device(ledger.device),
        torch=run.get("torch"),
        python=run.get("python"),
        config=run.get("config", {}),
        error=error,
        timing=_timing(ledger),
        summary=Summary(
            frames=len(frames),
            graphs=len(listed_graphs),
            ops=sum(len(graph.ops) for graph in listed_graphs),
            breaks=len(listed_breaks),
            events=sum(len(each.occurrences) for each in listed_breaks),
            resumes=len(listed_resumes),
            skipped=len(skipped),
            recompiles=len(recompiles),
            errors=sum(frame.outcome == "error" for frame in frames),
        ),
        sources=sources.sources(places),
        frames=frames,
        graphs=listed_graphs,
        breaks=listed_breaks,
        resumes=listed_resumes,
        skipped=skipped,
        scopes=listed_scopes,
        recompiles=recompiles,
        what_if=breaks.what_if(),
        diagnostics=ledger.notes,
    )


def _read_refusals(ledger: Ledger, breaks: BreakTable, skips: SkipTable) -> None:
    """Add what Dynamo refused: functions it cannot begin, and functions that it compiled too often."""
    for refusal in ledger.refusals:
        folded, setting = breaks.fold_refusal(refusal)
        if not refusal.get("raised"):
            skips.add_refused(refusal, folded, setting)
    for frame in ledger.frames:
        if frame.refusal is None:
            continue
        if not frame.refusal.get("raised"):
            skips.add_limited(frame.refusal, ledger.limited_code(frame))
        elif "filename" in frame.refusal:
            breaks.fold_refusal(frame.refusal)


def _device(device: dict[str, Any]) -> Device:
    return Device(
        device.get("requested", "auto"), device.get("used", "unknown"), device.get("name"), device.get("note")
    )


def _timing(ledger: Ledger) -> Timing:
    spent = [frame.metrics.get("entire_frame_compile_time_s") for frame in ledger.frames]
    return Timing(
        wall_s=ledger.run.get("wall_s"),
        compile_s=_sum(spent) + sum(frame.backward_s for frame in ledger.frames),
        capture_s=ledger.run.get("capture_s"),
    )


def _error(ledger: Ledger, sources: Sources, breaks: list[Break]) -> RunError | None:
    error = ledger.error
    if error is None:
        return None
    stack = shown_stack(sources, error.get("stack", []))
    message = error["message"].partition("\n\nfrom user code:")[0]
    parsed = break_message.parse_reason(message, error["type"])
    failed = [each for each in breaks if each.outcome == "error"]
    same = [
        each for each in failed if each.gb_type in {parsed.cause.gb_type, error["type"], _RAISED_AS.get(error["type"])}
    ]
    cause = same[-1] if same else None
    location = cause.location if cause is not None else (stack[-1] if stack else None)
    return RunError(error["type"], message, location, cause.id if cause is not None else None)


def _source_texts(ledger: Ledger, kinds: Sources) -> Iterator[SourceText]:
    for data in ledger.texts:
        try:
            yield _source_text(data, kinds)
        except (KeyError, TypeError, ValueError) as error:
            ledger.notes.append(Diagnostic("warning", f"A source could not be read ({type(error).__name__}: {error})."))


def _source_text(data: dict[str, Any], kinds: Sources) -> SourceText:
    kind = data.get("kind") or kinds.kind(data["filename"])
    return SourceText(
        filename=data["filename"],
        name=data["name"],
        kind="library" if kind == "machinery" else kind,
        segments=[Segment(each["first_line"], each["text"]) for each in data["segments"]],
        lines={int(number): text for number, text in data.get("lines", {}).items()},
        line_offset=data.get("line_offset", 0),
        indent=data.get("indent", 0),
    )


def _sum(values: Iterable[float | None]) -> float:
    return sum(value for value in values if value is not None)

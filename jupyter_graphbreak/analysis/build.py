"""Build a :class:`~jupyter_graphbreak.report.schema.Report` from records, with pure functions.

The records are read once, in order, into one ledger per compiled frame (``ledger``). Other modules build the lists of
the report from the ledgers: ``breaks``, ``graphs``, ``aftermath``, ``scopes``, ``frames``, ``notes``. This module
combines the lists. Nothing imports torch or reads a file, so a recording can come from a different machine.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from jupyter_graphbreak.analysis import messages
from jupyter_graphbreak.analysis.aftermath import ResumeTable, SkipTable
from jupyter_graphbreak.analysis.breaks import BreakTable
from jupyter_graphbreak.analysis.frames import list_frames, list_paths, list_recompiles
from jupyter_graphbreak.analysis.graphs import GraphTable
from jupyter_graphbreak.analysis.ledger import Ledger, read_records
from jupyter_graphbreak.analysis.locations import Sources, SourceText, shown_stack
from jupyter_graphbreak.analysis.notes import repeated_compiling_notes, saved_prefix_notes, settings_of_run
from jupyter_graphbreak.analysis.priority import prioritize_breaks
from jupyter_graphbreak.analysis.scopes import ScopeTable
from jupyter_graphbreak.faults import internal_error_sentence
from jupyter_graphbreak.knowledge.skipped_functions import CALLED_EAGERLY, GENERATOR
from jupyter_graphbreak.records.package_paths import is_standard_library
from jupyter_graphbreak.records.records import display_name
from jupyter_graphbreak.report.location import Segment
from jupyter_graphbreak.report.remedies import Edit
from jupyter_graphbreak.report.schema import (
    Advice,
    CachedFunction,
    CompiledCall,
    Device,
    Diagnostic,
    Report,
    RunError,
    WhatIf,
)
from jupyter_graphbreak.report.summary import Summary, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jupyter_graphbreak.records.additions import CompiledForReport, SourceRecorded
    from jupyter_graphbreak.records.records import Record
    from jupyter_graphbreak.report.location import Source
    from jupyter_graphbreak.report.schema import Break, Frame, Graph, PathDifference, Recompile, Resume, Scope, Skipped

_T = TypeVar("_T")
#: The class that Dynamo raises for its own errors; its message begins with the name of the error.
_INTERNAL_ERROR = "InternalTorchDynamoError"
_OBSERVED_EXCEPTION_TYPE = "Observed exception"
#: The type of the break by the class name of the exception that reports it, if the two differ.
_TYPE_BY_EXCEPTION = {"FailOnRecompileLimitHit": "Dynamo recompile limit exceeded"}
#: The comment at the end of an inserted statement that compiles something.
_UNDO_COMMENT = "# delete this line to run it eagerly"
#: Trace records that show whether Inductor generated code. A hit in AOTAutograd's cache means that it did not.
_CACHE_HITS = ("artifact:fx_graph_cache_hit", "artifact:aotautograd_cache_hit")
_CACHE_MISS = "artifact:fx_graph_cache_miss"
_CACHE_BYPASSES = ("artifact:fx_graph_cache_bypass", "artifact:aotautograd_cache_bypass")


def build_report(records: Iterable[Record]) -> Report:
    """Build the report of a run from the records of a recording, or from those of a ``TORCH_TRACE`` file.

    Records that cannot be read are left out and listed in ``diagnostics``; they raise no error.
    """
    return build_with_files(records)[0]


def build_with_files(records: Iterable[Record]) -> tuple[Report, dict[str, str]]:
    """Build the report of a run; also return the file name in the code objects of each source, by source id."""
    ledger = read_records(records)
    run = ledger.run
    sources_without_text = Sources([], run.library_roots, package_folders=run.package_folders)
    texts = [_source_text(record, sources_without_text) for record in ledger.texts]
    sources = Sources(texts, run.library_roots, run.folder, run.home, run.package_folders)
    for frame in ledger.started_frames:
        if frame.start is not None and frame.start.qualname is not None:
            _, filename, line = frame.code
            sources.set_function_name(filename, line, frame.start.qualname)
    report = _report(ledger, sources)
    notes: list[Diagnostic] = []
    prioritized_report = _PartBuilder(notes).build("the order of the breaks", lambda: prioritize_breaks(report), report)
    return msgspec.structs.replace(
        prioritized_report, diagnostics=[*prioritized_report.diagnostics, *notes]
    ), sources.files()


def _report(ledger: Ledger, sources: Sources) -> Report:
    """Build the report, each part after the parts that it refers to."""
    parts = _PartBuilder(ledger.notes)
    tables = _fill_tables(ledger, sources, parts)
    lists = _list_parts(ledger, sources, tables, parts)
    error = parts.build("error", lambda: _error(ledger, sources, lists.breaks), None)
    run = ledger.run
    no_settings: tuple[dict[str, Any], list[Diagnostic]] = ({}, [])
    config, setting_notes = parts.build("settings", lambda: settings_of_run(ledger), no_settings)
    compiling_notes = parts.build_list("notes", lambda: repeated_compiling_notes(ledger, sources))
    saving_notes = parts.build_list("notes", lambda: saved_prefix_notes(ledger, sources))
    return Report(
        status=ledger.error.status if ledger.error is not None else "ok",
        device=Device(ledger.device.requested, ledger.device.used, ledger.device.name, ledger.device.note),
        torch=run.torch,
        python=run.python,
        config=config,
        error=error,
        timing=parts.build("times", lambda: _timing(ledger), Timing()),
        summary=_summary(lists),
        sources=parts.build_list("sources", lambda: _sources_of(lists, sources)),
        frames=lists.frames,
        graphs=lists.graphs,
        breaks=parts.build("advice", lambda: _with_advice_on_program_error(lists.breaks, error), lists.breaks),
        resumes=lists.resumes,
        skipped=lists.skipped,
        scopes=lists.scopes,
        recompiles=lists.recompiles,
        cudagraph_skips=parts.build_list("graphs without a CUDA graph", lambda: tables.graphs.cudagraph_skips(ledger)),
        paths=lists.paths,
        what_if=parts.build("consequences of stricter settings", lambda: tables.breaks.what_if(run.torch), WhatIf()),
        compiled=parts.build(
            "the list of calls compiled for the report", lambda: _callables_compiled_for_report(ledger, sources), None
        ),
        held=parts.build(
            "the list of functions compiled before the run", lambda: _cached_functions(ledger, sources), None
        ),
        diagnostics=[*ledger.notes, *setting_notes, *compiling_notes, *saving_notes],
    )


class _Tables(NamedTuple):
    """The tables of a run, from which the report's lists are built; ``resumes`` is ``None`` if filling it failed."""

    scopes: ScopeTable
    breaks: BreakTable
    graphs: GraphTable
    skips: SkipTable
    resumes: ResumeTable | None


def _fill_tables(ledger: Ledger, sources: Sources, parts: _PartBuilder) -> _Tables:
    """Fill the tables, each after the tables that it refers to."""
    scopes = ScopeTable(sources)
    breaks = BreakTable(sources, scopes, ledger.notes)
    graphs = GraphTable(sources, ledger.notes)
    skips = SkipTable(sources, breaks, ledger.resume_lines())
    parts.add_each("scopes", ledger.scopes, scopes.add_opened_scope)
    for frame in ledger.started_frames:
        if frame.start is not None:
            parts.add_each("scopes", [frame.start.fullgraph_site], scopes.add_fullgraph)
    parts.add_each("breaks", ledger.started_frames, breaks.fold)
    parts.build("refused functions", lambda: _add_refusals(ledger, sources, breaks, skips), None)
    resumes = parts.build("resume functions", lambda: ResumeTable(ledger, sources, breaks), None)
    parts.add_each("graphs", ledger.started_frames, lambda frame: graphs.add(frame, breaks.ending_break(frame)))
    parts.add_each("eager functions", ledger.started_frames, skips.add_frame)
    parts.add_each("eager functions", ledger.skips, skips.add_unstarted_frame)
    return _Tables(scopes, breaks, graphs, skips, resumes)


class _Lists(NamedTuple):
    """The lists of the report that refer to each other."""

    frames: list[Frame]
    breaks: list[Break]
    graphs: list[Graph]
    resumes: list[Resume]
    skipped: list[Skipped]
    scopes: list[Scope]
    recompiles: list[Recompile]
    paths: list[PathDifference]


def _list_parts(ledger: Ledger, sources: Sources, tables: _Tables, parts: _PartBuilder) -> _Lists:
    """Make the lists of the report, each after those to which it refers."""
    scopes, breaks, graphs, skips, resumes = tables
    listed_resumes: list[Resume] = []
    frames: list[Frame] = []
    if resumes is not None:
        listed_resumes = parts.build_list("resume functions", lambda: resumes.resumes(graphs))
        frames = parts.build_list("frames", lambda: list_frames(ledger, sources, breaks, graphs, resumes))
    skipped = parts.build_list("eager functions", lambda: skips.skipped_functions(frames))
    return _Lists(  # the sources are numbered in this order
        frames=frames,
        breaks=parts.build_list("breaks", lambda: breaks.breaks(listed_resumes, skipped)),
        graphs=graphs.graphs(),
        resumes=listed_resumes,
        skipped=skipped,
        scopes=parts.build_list("scopes", scopes.scopes),
        recompiles=parts.build_list("recompiles", lambda: list_recompiles(ledger, sources)),
        paths=parts.build_list("paths", lambda: list_paths(ledger, sources)),
    )


def _summary(lists: _Lists) -> Summary:
    return Summary(
        frames=len(lists.frames),
        graphs=len(lists.graphs),
        ops=sum(len(graph.ops) for graph in lists.graphs),
        breaks=len(lists.breaks),
        events=sum(len(break_.occurrences) for break_ in lists.breaks),
        resumes=len(lists.resumes),
        skipped=len(lists.skipped),
        recompiles=len(lists.recompiles),
        errors=sum(frame.outcome == "error" for frame in lists.frames),
    )


def _sources_of(lists: _Lists, sources: Sources) -> list[Source]:
    """Return the sources that the lists mention."""
    other_parts: list[Frame | Skipped | Scope] = [*lists.frames, *lists.skipped, *lists.scopes]
    return sources.sources((break_.location for break_ in lists.breaks), (part.location for part in other_parts))


class _PartBuilder:
    """Builds the parts of a report one by one; an internal error is noted and affects only one part."""

    def __init__(self, notes: list[Diagnostic]) -> None:
        self._notes = notes

    def build(self, part: str, build: Callable[[], _T], default: _T) -> _T:
        """Return the part that ``build`` returns, or the default if that fails; ``part`` is the name for the note."""
        try:
            return build()
        except Exception as fault:  # noqa: BLE001 - an internal error costs this part only
            note = internal_error_sentence(f"working out {part}", fault)
            if all(earlier_note.message != note for earlier_note in self._notes):
                self._notes.append(Diagnostic("error", note))
            return default

    def build_list(self, part: str, build: Callable[[], list[_T]]) -> list[_T]:
        """Return the list that ``build`` returns, or an empty list if ``build`` fails."""
        empty: list[_T] = []
        return self.build(part, build, empty)

    def add_each(self, part: str, items: Iterable[_T], add: Callable[[_T], object]) -> None:
        """Call a function with each item; if a call fails, continue with the next item."""
        for item in items:
            self.build(part, functools.partial(add, item), None)


def _add_refusals(ledger: Ledger, sources: Sources, breaks: BreakTable, skips: SkipTable) -> None:
    """Add the functions that Dynamo refused to compile or to recompile, except our own.

    Generators of the standard library that code after a break calls are left out: they only show how Python works.
    """
    for refusal, order in ledger.refusals:
        module_path = sources.module_path(refusal.filename or "") or ""
        if module_path.startswith("jupyter_graphbreak/"):
            continue
        cause = breaks.find_causing_break(refusal, order)
        if cause is not None:
            if not is_standard_library(module_path):
                skips.add_generator(refusal, CALLED_EAGERLY, cause)
            continue
        folded_break, setting = breaks.fold_refusal(refusal, order)
        if not refusal.raised:
            skips.add_generator(refusal, GENERATOR, folded_break, setting)
    for frame in ledger.frames:
        if frame.refusal is None:
            continue
        if not frame.refusal.raised:
            skips.add_limit_refusal(frame.refusal, ledger.refused_code(frame))
        elif frame.refusal.code_key is not None:
            breaks.fold_refusal(frame.refusal, frame.refusal_order)


def _callables_compiled_for_report(ledger: Ledger, sources: Sources) -> list[CompiledCall] | None:
    """Return the callables that were compiled only for the report; ``None`` if the program compiles its own code."""
    if not ledger.run.compiled_calls:
        return None
    return [
        CompiledCall(compiled.name, compiled.type, compiled.code, _insertion(compiled, sources))
        for compiled in ledger.compiled_for_report
    ]


def _insertion(compiled: CompiledForReport, sources: Sources) -> Edit | None:
    """Return the edit that inserts a statement to compile a callable into a cell, and how to undo it, if possible."""
    if compiled.code is None or compiled.filename is None or compiled.line is None:
        return None
    source = sources.source(compiled.filename)
    if source.kind != "cell":
        return None
    line = compiled.line + sources.line_offset(compiled.filename)
    return Edit(source.id, line, line - 1, "", f"{compiled.code}  {_UNDO_COMMENT}")


def _timing(ledger: Ledger) -> Timing:
    forward_s = sum(frame.metrics.get("entire_frame_compile_time_s") or 0.0 for frame in ledger.frames)
    hits = max(ledger.counts_by_kind[kind] for kind in _CACHE_HITS)
    misses = ledger.counts_by_kind[_CACHE_MISS]
    bypasses = max(ledger.counts_by_kind[kind] for kind in _CACHE_BYPASSES)
    used_cache = hits + misses + bypasses > 0
    return Timing(
        wall_s=ledger.run.wall_s,
        compile_s=forward_s + sum(frame.backward_s for frame in ledger.frames),
        capture_s=ledger.run.capture_s,
        cache_hits=hits if used_cache else None,
        cache_misses=misses if used_cache else None,
        cache_bypasses=bypasses if used_cache else None,
    )


def _error(ledger: Ledger, sources: Sources, breaks: list[Break]) -> RunError | None:
    error = ledger.error
    if error is None:
        return None
    own_frames = [
        stack_frame
        for stack_frame in error.stack
        if sources.kind(stack_frame.filename, stack_frame.function) in {"cell", "file"}
    ]
    stack = shown_stack(sources, own_frames or error.stack)
    message = error.message.partition("\n\nfrom user code:")[0]
    parsed_reason = messages.parse_reason(message, error.type)
    type_names = {parsed_reason.cause.gb_type, error.type, _TYPE_BY_EXCEPTION.get(error.type)}
    if error.type == _INTERNAL_ERROR:
        type_names.add(message.partition(":")[0])
    matching_breaks = [break_ for break_ in breaks if break_.outcome == "error" and break_.gb_type in type_names]
    cause = matching_breaks[-1] if matching_breaks else None
    location = cause.location if cause is not None else (stack[-1] if stack else None)
    return RunError(error.type, message, location, cause.id if cause is not None else None)


def _with_advice_on_program_error(breaks: list[Break], error: RunError | None) -> list[Break]:
    """Return the breaks, with new advice on those at the program's own exception that ended the run."""
    if error is None or error.location is None:
        return breaks
    line = error.location.source, error.location.line
    advice = Advice(f"correct the {error.type}: the program also raises it without torch.compile", "graphbreak")
    return [
        msgspec.structs.replace(break_, advice=[advice])
        if break_.gb_type == _OBSERVED_EXCEPTION_TYPE
        and break_.location is not None
        and (break_.location.source, break_.location.line) == line
        else break_
        for break_ in breaks
    ]


def _source_text(record: SourceRecorded, sources: Sources) -> SourceText:
    kind = record.kind_of_source or sources.kind(record.filename)
    return SourceText(
        filename=record.filename,
        name=record.name,
        kind="library" if kind == "machinery" else kind,
        segments=[Segment(segment.first_line, segment.text) for segment in record.segments],
        lines=record.lines,
        line_offset=record.line_offset,
        indent=record.indent,
    )


def _cached_functions(ledger: Ledger, sources: Sources) -> list[CachedFunction] | None:
    """Return the functions that Dynamo began to compile before the run and still knows; ``None`` if unknown.

    The list of a log is empty, because a log begins with its process.
    """
    if ledger.run.held is None:
        return None if ledger.run.watched else []
    functions = (
        CachedFunction(display_name(code.name), code.cell or sources.path(code.filename), code.firstlineno)
        for code in ledger.run.held
        if sources.kind(code.filename, code.name) != "machinery"
    )
    return list(dict.fromkeys(functions))

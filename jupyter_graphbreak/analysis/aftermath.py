"""List what follows the breaks: the functions that resume, and those that run eagerly."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak.analysis.functions import last_line_in_tree
from jupyter_graphbreak.analysis.python_text import trees_of
from jupyter_graphbreak.knowledge.causes import known_cause
from jupyter_graphbreak.knowledge.skipped_functions import (
    COMPILE_ERROR,
    DISPATCH_MODE,
    LAYER_OF_TORCH,
    LOOP,
    MARKED,
    OTHER_BREAK,
    RECOMPILE_LIMIT,
    REMEMBERED,
    REMEMBERED_MODE,
    SHARED_WRAPPER,
    SKIP_FRAME,
    TRY,
    WITH,
)
from jupyter_graphbreak.records import additions
from jupyter_graphbreak.records.records import display_name, is_resume_name, original_name
from jupyter_graphbreak.report.schema import NoFrame, Resume, SkipKind, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.analysis.breaks import BreakTable, FoldedBreak
    from jupyter_graphbreak.analysis.graphs import GraphTable
    from jupyter_graphbreak.analysis.ledger import BreakEvent, FrameLedger, Ledger
    from jupyter_graphbreak.analysis.locations import Sources
    from jupyter_graphbreak.analysis.messages import Cause
    from jupyter_graphbreak.knowledge.entries import SkipReason
    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.schema import Frame, Setting


_REASON_BY_BLOCK: dict[SkipKind | None, SkipReason] = {reason.kind: reason for reason in (TRY, WITH, LOOP)}


class ResumeTable:
    """Matches the resume functions that Dynamo created with the frames that compiled them."""

    def __init__(self, ledger: Ledger, sources: Sources, breaks: BreakTable) -> None:
        self._skipped_code = {(skip.id, skip.name) for skip in ledger.skips}
        self._has_all_skip_reasons = ledger.has_all_skip_reasons
        self._sources = sources
        self._breaks = breaks
        self._resumes: list[Resume] = []
        self._id_by_frame: dict[str, str] = {}
        self._containing_frames: dict[str, list[str]] = {}
        index_by_code = self._add_created_resumes(ledger.started_frames)
        self._match_compiled_frames(ledger.started_frames, index_by_code)
        self._find_containing_frames(ledger.started_frames, index_by_code)

    def resumes(self, graphs: GraphTable) -> list[Resume]:
        """Return the resume functions, with the graphs of their frames or of the frames that inline them."""
        return [
            msgspec.structs.replace(
                resume,
                graphs=[
                    graph
                    for frame in (resume.frames or self._containing_frames.get(resume.id, []))
                    for graph in graphs.ids_of_frame(frame)
                ],
            )
            for resume in self._resumes
        ]

    def id_of_frame(self, frame: str) -> str | None:
        """Return the id of the resume function that a frame compiles; ``None`` for any other frame."""
        return self._id_by_frame.get(frame)

    def _add_created_resumes(self, frames: list[FrameLedger]) -> dict[Any, int]:
        """Add the resume functions that breaks created; return the index of each by the id of its code object."""
        index_by_code: dict[Any, int] = {}
        for frame in frames:
            ending_break = self._breaks.ending_break(frame)
            for creation in frame.resumes:
                if creation.id not in index_by_code:
                    index_by_code[creation.id] = self._add_resume(creation, ending_break)
        return index_by_code

    def _match_compiled_frames(self, frames: list[FrameLedger], index_by_code: dict[Any, int]) -> None:
        #: The breaks that end frames, by function, file and line.
        ending_breaks: dict[tuple[str, str, int | None], FoldedBreak] = {}
        #: The indices by autograd id and frame id, which all compilations of a code object share.
        index_by_frame: dict[tuple[int | None, int], int] = {}
        for frame in frames:
            name, filename, line = frame.code
            index = None
            if is_resume_name(name):
                index = index_by_code.get(frame.start.id) if frame.start is not None else None
                if index is None and frame.key.compile > 0:
                    index = index_by_frame.get((frame.key.autograd, frame.key.frame))
                if index is None:  # there is no record of its creation: match it by name
                    index = next((i for i, r in enumerate(self._resumes) if r.name == name and not r.frames), None)
                if index is None:  # the name of a resume function contains the line of the break
                    ending_break = ending_breaks.get((original_name(name), filename, line))
                    creation = additions.ResumeCreated(
                        name=name, filename=filename, firstlineno=line, line=frame.resume_line
                    )
                    index = self._add_resume(creation, ending_break or self._breaks.first_break_through(filename, line))
                index_by_frame[frame.key.autograd, frame.key.frame] = index
            self._store_ending(frame, ending_breaks)
            if index is None:
                continue
            resume = self._resumes[index]
            self._resumes[index] = msgspec.structs.replace(resume, frames=[*resume.frames, frame.ident], no_frame=None)
            self._id_by_frame[frame.ident] = resume.id

    def _store_ending(self, frame: FrameLedger, ending_breaks: dict[tuple[str, str, int | None], FoldedBreak]) -> None:
        """Store the break at which a frame ends, by the line that the frame's own function had reached."""
        ending_break, event = self._breaks.ending_break(frame), frame.ending_event
        if ending_break is None or event is None:
            return
        for stack_frame in frame.stack_from(event)[:1]:
            ending_breaks[original_name(stack_frame.function), stack_frame.filename, stack_frame.line] = ending_break

    def _find_containing_frames(self, frames: list[FrameLedger], index_by_code: dict[Any, int]) -> None:
        """Find the frames that contain the code of resume functions without a frame of their own.

        If breaks are nested, a caller's resume function begins by calling the resume function of the function it had
        called. A frame that compiles the first function contains the second, and so on inwards.
        """
        compiled_frames = {frame.ident for frame in frames if frame.give_up_event is None}
        pairs = {
            (index_by_code[resume.id], index_by_code.get(resume.enters)) for frame in frames for resume in frame.resumes
        }
        callers: dict[int, list[int]] = {}
        for outer, inner in sorted((outer, inner) for outer, inner in pairs if inner is not None):
            callers.setdefault(inner, []).append(outer)

        def frames_around(index: int, visited_indices: frozenset[int] = frozenset()) -> list[str]:
            own_frames = [frame for frame in self._resumes[index].frames if frame in compiled_frames]
            new_callers = [outer for outer in callers.get(index, []) if outer not in visited_indices]
            return own_frames or [
                frame for outer in new_callers for frame in frames_around(outer, visited_indices | {index})
            ]

        for index, resume in enumerate(self._resumes):
            containing_frames = frames_around(index) if not resume.frames and resume.no_frame != "eager" else []
            if containing_frames:
                self._containing_frames[resume.id] = containing_frames
                self._resumes[index] = msgspec.structs.replace(resume, no_frame="inlined")

    def _add_resume(self, creation: additions.ResumeCreated, folded_break: FoldedBreak | None) -> int:
        line = creation.line or creation.firstlineno
        self._resumes.append(
            Resume(
                id=f"r{len(self._resumes) + 1}",
                name=creation.name,
                function=display_name(creation.name),
                location=self._sources.location(creation.filename, line, creation.name),
                break_=folded_break.ident if folded_break is not None else None,
                no_frame=self._why_no_frame(creation),
            )
        )
        return len(self._resumes) - 1

    def _why_no_frame(self, creation: additions.ResumeCreated) -> NoFrame | None:
        """Return why a resume function has no frame; ``None`` if the reason is not known.

        Dynamo compiles a new resume function when it is first called, or gives a reason for skipping it. It does
        neither if it compiled or skipped the function before.
        """
        if (creation.id, creation.name) in self._skipped_code:
            return "eager"
        if creation.compiled:
            return "compiled before"
        return "not reached" if creation.new and self._has_all_skip_reasons else None


def skip_reason_of_break(cause: Cause, consequence: Cause | None, block: SkipKind | None) -> SkipReason:
    """Return why Dynamo gave up on a frame at a break, given the enclosing block in the frame's own function."""
    stated_cause = consequence or cause
    if "graph break in loop" in stated_cause.gb_type or "for/while loop" in (stated_cause.explanation or ""):
        return LOOP
    if "ContextWrapping" in stated_cause.gb_type:
        return WITH
    if "skip_frame" in cause.gb_type or "skip_frame" in (cause.context or ""):
        return SKIP_FRAME
    knowledge = known_cause(cause.gb_id, cause.gb_type)
    if knowledge.skip is not None:
        return knowledge.skip
    if block in _REASON_BY_BLOCK:
        return _REASON_BY_BLOCK[block]
    if cause.gb_id is None and cause.gb_type.endswith(("Error", "Failed")):
        return _fill_in_values(COMPILE_ERROR, cause=cause.gb_type)
    return _fill_in_values(OTHER_BREAK, cause=stated_cause.gb_type)


def skip_reason_of_limit(limit: str | None, value: object, *, is_shared: bool) -> SkipReason:
    """Return why a function was not recompiled; ``is_shared`` is true for torch's wrapper of decorated functions."""
    name = f"{limit} = {value}" if limit else "the recompile limit"
    return _fill_in_values(SHARED_WRAPPER if is_shared else RECOMPILE_LIMIT, limit=name)


def skip_reason_of_refusal(reason: str) -> SkipReason | None:
    """Return why Dynamo did not begin to compile a frame; ``None`` if another part of the report states the reason."""
    if reason.startswith("remembered"):
        if "skipfiles" in reason:
            return LAYER_OF_TORCH  # torch.compile(layer) and torch.compile(layer.forward) begin with a different frame
        return REMEMBERED_MODE if "torch dispatch mode" in reason else REMEMBERED
    if "torch dispatch mode" in reason:
        return DISPATCH_MODE
    if "skipfiles" in reason:
        return MARKED
    return None


def _fill_in_values(reason: SkipReason, **values: str) -> SkipReason:
    """Return a reason whose sentence contains the values of this run."""
    return replace(reason, sentence=reason.sentence.format(**values))


def enclosing_block(source: Source, line: int) -> SkipKind | None:
    """Return the kind of the block that keeps a frame from resuming after a break on a line; ``None`` without one."""
    return next((_block_in(tree, line) for tree in _trees_at(source, line)), None)


def block_enclosing_variadic_calls(source: Source, line: int, name: str) -> SkipKind | None:
    """Return the kind of block around the calls ``f(*args)`` in a function, if it is the same for all of them.

    This is for a break at such a call whose line is unknown. ``line`` is the first line of the function.
    """
    blocks: set[SkipKind | None] = set()
    for tree in _trees_at(source, line):
        end = last_line_in_tree(tree, line, name) or line
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and line <= node.lineno <= end and _is_variadic(node):
                blocks.add(_block_in(tree, node.lineno))
    return blocks.pop() if len(blocks) == 1 else None


def _is_variadic(call: ast.Call) -> bool:
    return any(isinstance(argument, ast.Starred) for argument in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    )


def _trees_at(source: Source, line: int) -> Iterator[ast.Module]:
    """Yield the syntax trees of those segments of a source that contain a line, with the line numbers of the source."""
    return trees_of(
        segment
        for segment in source.segments
        if segment.first_line <= line <= segment.first_line + segment.text.count("\n")
    )


def _block_in(tree: ast.Module, line: int) -> SkipKind | None:
    blocks: list[tuple[int, SkipKind]] = []
    for node in ast.walk(tree):
        lines = range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1)
        if line not in lines:
            continue
        match node:
            case ast.Try() if _is_in_protected_part(node, line):
                blocks.append((node.lineno, "try"))
            case ast.With():
                blocks.append((node.lineno, "context manager"))
            case ast.For() | ast.While():
                blocks.append((node.lineno, "loop"))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                blocks = [block for block in blocks if block[0] > node.lineno]
            case _:
                pass
    kinds = [kind for _, kind in sorted(blocks)]
    return "try" if "try" in kinds else kinds[-1] if kinds else None


def _is_in_protected_part(node: ast.Try, line: int) -> bool:
    """Return whether a line is in the part of a try statement that Dynamo cannot leave."""
    body = node.body + [statement for handler in node.handlers for statement in handler.body] + node.finalbody
    return any(statement.lineno <= line <= (statement.end_lineno or statement.lineno) for statement in body)


#: The kinds of reasons that the user can avoid by moving lines out of a block or into a function.
_AVOIDABLE_BY_MOVING_LINES: frozenset[SkipKind] = frozenset({"loop", "context manager", "try", "skip_frame"})


class SkipTable:
    """Lists the functions of a run that run eagerly, each with the break that caused it, if any.

    ``resume_lines`` contains the line on which each resume function continues, by the id of its code object.
    """

    def __init__(self, sources: Sources, breaks: BreakTable, resume_lines: dict[int, int]) -> None:
        self._sources = sources
        self._breaks = breaks
        self._resume_lines = resume_lines
        self._skipped_functions: list[Skipped] = []

    def skipped_functions(self, frames: list[Frame]) -> list[Skipped]:
        """Return the functions that run eagerly, with the compiled frames that they call."""
        return [
            msgspec.structs.replace(
                skipped, callees=[f.id for f in frames if f.caller == skipped.frame and f.outcome == "compiled"]
            )
            if skipped.frame is not None
            else skipped
            for skipped in self._skipped_functions
        ]

    def add_frame(self, frame: FrameLedger) -> None:
        """Add a frame if Dynamo gave up on it, at a break or at ``skip_frame()``, and no error reached the user."""
        event = frame.give_up_event
        name, filename, line = frame.code
        line = frame.resume_line or line
        if event is None and frame.skip_frame is not None:
            code_id = frame.start.id if frame.start is not None else None
            self._add_skipped(frame.ident, name, self._eager_lines(filename, line, name, code_id), SKIP_FRAME)
        if event is None or event.reached_user:
            return
        folded_break = self._breaks.break_of_event(event)
        occurrence = next((o for o in folded_break.occurrences if o.frame == frame.ident), None)
        reason = skip_reason_of_break(
            event.message.cause, event.message.consequence, self._block_of_event(frame, event)
        )
        location = self._eager_lines(filename, line, name, frame.start.id if frame.start is not None else None)
        self._add_skipped(frame.ident, name, location, reason, folded_break, occurrence.setting if occurrence else None)

    def add_generator(
        self,
        refusal: additions.FrameRefused,
        reason: SkipReason,
        folded_break: FoldedBreak,
        setting: Setting | None = None,
    ) -> None:
        """Add a generator that Dynamo refused to compile, with the break that represents or caused the refusal."""
        name, filename, line = refusal.code_key or ("?", "?", None)
        location = self._eager_lines(filename, line, name, refusal.id)
        known_functions = {(skipped.location, skipped.break_) for skipped in self._skipped_functions}
        if (location, folded_break.ident) not in known_functions:
            self._add_skipped(None, name, location, reason, folded_break, setting)

    def add_limit_refusal(self, refusal: additions.FrameRefused, code: tuple[str, str, int]) -> None:
        """Add a function that was not recompiled because of a limit; ``code`` is its name, file and first line."""
        # If the wrapper that torch shares reached the limit, the decorated function runs eagerly.
        name, filename, line = refusal.wrapped.code_key if refusal.wrapped is not None else code
        code_id = refusal.wrapped.id if refusal.wrapped is not None else refusal.id
        location = self._eager_lines(filename, line, name, code_id) if line else None
        reason = skip_reason_of_limit(refusal.limit, refusal.limit_value, is_shared=refusal.wrapped is not None)
        known_functions = {(skipped.location, skipped.kind) for skipped in self._skipped_functions}
        if (location, reason.kind) not in known_functions:
            self._add_skipped(None, name, location, reason)

    def add_unstarted_frame(self, skip: additions.FrameSkipped) -> None:
        """Add a frame that Dynamo never began to compile, for a reason other than a break, if readers should know."""
        kind = self._sources.kind(skip.filename, skip.name)
        # The reader's own module may be compiled in place as well, and be skipped for a different reason.
        is_layer_of_torch = skip.is_compiled_in_place and kind == "library"
        reason = LAYER_OF_TORCH if is_layer_of_torch else skip_reason_of_refusal(skip.reason)
        concerns_reader = {"dispatch mode": True, "remembered": kind != "machinery", "marked": reason is LAYER_OF_TORCH}
        if reason is not None and (kind in {"cell", "file"} or concerns_reader.get(reason.kind, False)):
            name = (skip.qualname or skip.name) if reason is LAYER_OF_TORCH else skip.name
            self._add_skipped(None, name, self._eager_lines(skip.filename, skip.firstlineno, name, skip.id), reason)

    def _eager_lines(self, filename: str, line: int | None, name: str, code_id: int | None) -> Location | None:
        """Return the lines that run eagerly: the function, or those after its resume point; ``None`` if unknown."""
        if code_id is not None and is_resume_name(name):
            line = self._resume_lines.get(code_id, line)
        return self._sources.rest_of_function(filename, line, name)

    def _add_skipped(
        self,
        frame: str | None,
        function: str,
        location: Location | None,
        reason: SkipReason,
        folded_break: FoldedBreak | None = None,
        setting: Setting | None = None,
    ) -> None:
        self._skipped_functions.append(
            Skipped(
                id=f"k{len(self._skipped_functions) + 1}",
                frame=frame,
                function=display_name(function),
                location=location,
                reason=reason.sentence,
                break_=folded_break.ident if folded_break is not None else None,
                kind=reason.kind,
                way_out=reason.way_out if self._is_avoidable(reason, location) else None,
                setting=setting,
            )
        )

    def _is_avoidable(self, reason: SkipReason, location: Location | None) -> bool:
        """Return whether the user can avoid a reason in its suggested way. Lines of a library cannot be moved."""
        return (
            reason.kind not in _AVOIDABLE_BY_MOVING_LINES or location is None or not self._sources.is_library(location)
        )

    def _block_of_event(self, frame: FrameLedger, event: BreakEvent) -> SkipKind | None:
        """Return the kind of block in the frame's function around the break or the call leading to it, if any."""
        name, filename, first_line = frame.code
        source, offset = self._sources.source(filename), self._sources.line_offset(filename)
        own_frames = (
            e
            for e in frame.stack_from(event)
            if (e.filename, original_name(e.function)) == (filename, original_name(name))
        )
        line = next((stack_frame.line for stack_frame in own_frames), None)
        if line is not None:
            return enclosing_block(source, line + offset)
        if event.message.operation == "CALL_FUNCTION_EX":
            return block_enclosing_variadic_calls(source, first_line + offset, original_name(name))
        return None

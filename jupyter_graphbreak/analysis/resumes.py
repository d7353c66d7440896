"""List the resume functions, with the break that created each and the frames that compiled it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak.records import additions
from jupyter_graphbreak.records.records import compiled_function, is_resume, plain_function
from jupyter_graphbreak.report.schema import NoFrame, Resume

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.breaks import BreakTable, FoldedBreak
    from jupyter_graphbreak.analysis.graphs import GraphTable
    from jupyter_graphbreak.analysis.ledger import FrameLedger, Ledger
    from jupyter_graphbreak.analysis.locations import Sources


class ResumeTable:
    """Matches the resume functions that Dynamo created with the frames that compiled them.

    Parameters
    ----------
    ledger : Ledger
        The contents of the records.
    sources : Sources
        The source texts, and the locations in them.
    breaks : BreakTable
        The breaks, with the events of all frames folded in.
    """

    def __init__(self, ledger: Ledger, sources: Sources, breaks: BreakTable) -> None:
        self._skipped = {(skip.id, skip.name) for skip in ledger.skips}
        self._sees_skips = ledger.sees_skips
        self._sources = sources
        self._breaks = breaks
        self._resumes: list[Resume] = []
        self._of_frame: dict[str, str] = {}
        self._inlined_in: dict[str, list[str]] = {}
        by_code = self._add_created(ledger.started)
        self._add_compiled(ledger.started, by_code)
        self._add_inlined(ledger.started, by_code)

    def resumes(self, graphs: GraphTable) -> list[Resume]:
        """Return the resume functions, with the graphs of their frames or of the frames they are inlined in."""
        return [
            msgspec.structs.replace(
                resume,
                graphs=[
                    graph
                    for frame in (resume.frames or self._inlined_in.get(resume.id, []))
                    for graph in graphs.of_frame(frame)
                ],
            )
            for resume in self._resumes
        ]

    def of_frame(self, frame: str) -> str | None:
        """Return the id of the resume function that a frame compiles, ``None`` for any other frame."""
        return self._of_frame.get(frame)

    def _add_created(self, frames: list[FrameLedger]) -> dict[Any, int]:
        """Add the resume functions that breaks created; return the index of each by the id of its code object."""
        by_code: dict[Any, int] = {}
        for frame in frames:
            ending = self._breaks.ending(frame)
            for created in frame.resumes:
                if created.id not in by_code:
                    by_code[created.id] = self._add(created, ending)
        return by_code

    def _add_compiled(self, frames: list[FrameLedger], by_code: dict[Any, int]) -> None:
        ended: dict[tuple[str, str, int | None], FoldedBreak] = {}  # by function, file and the line that led to it
        by_frame: dict[tuple[int | None, int], int] = {}  # by frame id, which all compilations of a code object share
        for frame in frames:
            name, filename, line = frame.code
            index = None
            if is_resume(name):
                index = by_code.get(frame.start.id) if frame.start is not None else None
                if index is None and frame.key.compile > 0:
                    index = by_frame.get((frame.key.autograd, frame.key.frame))
                if index is None:  # there is no record of its creation: match it by name
                    index = next((i for i, r in enumerate(self._resumes) if r.name == name and r.frames == []), None)
                if index is None:  # its name contains the line of the break in its own function
                    own = ended.get((plain_function(name), filename, line))
                    created = additions.ResumeCreated(
                        name=name, filename=filename, firstlineno=line, line=frame.resumed_at
                    )
                    index = self._add(created, own or self._breaks.first_through(filename, line))
                by_frame[frame.key.autograd, frame.key.frame] = index
            self._store_ending(frame, ended)
            if index is None:
                continue
            resume = self._resumes[index]
            self._resumes[index] = msgspec.structs.replace(resume, frames=[*resume.frames, frame.ident], no_frame=None)
            self._of_frame[frame.ident] = resume.id

    def _store_ending(self, frame: FrameLedger, ended: dict[tuple[str, str, int | None], FoldedBreak]) -> None:
        """Store the break at which a frame ends under its line in the frame's own function."""
        ending, event = self._breaks.ending(frame), frame.ending
        if ending is None or event is None:
            return
        for entry in frame.stack_from(event)[:1]:
            ended[plain_function(entry.function), entry.filename, entry.line] = ending

    def _add_inlined(self, frames: list[FrameLedger], by_code: dict[Any, int]) -> None:
        """Find the frames that contain the resume functions that have no frame of their own.

        If breaks are nested, a caller's resume function begins by calling the resume function of the function it had
        called. A frame that compiles the first function contains the second, and so on inwards.
        """
        compiled = {frame.ident for frame in frames if frame.given_up is None}
        pairs = {(by_code[resume.id], by_code.get(resume.enters)) for frame in frames for resume in frame.resumes}
        callers: dict[int, list[int]] = {}
        for outer, inner in sorted((outer, inner) for outer, inner in pairs if inner is not None):
            callers.setdefault(inner, []).append(outer)

        def containing_frames(index: int, seen: frozenset[int] = frozenset()) -> list[str]:
            own = [frame for frame in self._resumes[index].frames if frame in compiled]
            outers = [outer for outer in callers.get(index, []) if outer not in seen]
            return own or [frame for outer in outers for frame in containing_frames(outer, seen | {index})]

        for index, resume in enumerate(self._resumes):
            containing = containing_frames(index) if not resume.frames and resume.no_frame != "eager" else []
            if containing:
                self._inlined_in[resume.id] = containing
                self._resumes[index] = msgspec.structs.replace(resume, no_frame="inlined")

    def _add(self, created: additions.ResumeCreated, folded: FoldedBreak | None) -> int:
        line = created.line or created.firstlineno
        self._resumes.append(
            Resume(
                id=f"r{len(self._resumes) + 1}",
                name=created.name,
                function=compiled_function(created.name),
                location=self._sources.location(created.filename, line, created.name),
                break_=folded.ident if folded is not None else None,
                no_frame=self._no_frame(created),
            )
        )
        return len(self._resumes) - 1

    def _no_frame(self, created: additions.ResumeCreated) -> NoFrame | None:
        """Return why a resume function has no frame, ``None`` if that is not known.

        Dynamo compiles a new resume function when it is first called, or gives a reason for skipping it. It does
        neither if it compiled or skipped the function before.
        """
        if (created.id, created.name) in self._skipped:
            return "eager"
        if created.compiled:
            return "compiled before"
        return "not reached" if created.new and self._sees_skips else None

"""List the resume functions: which break made each, and which frames are its compilations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak.recording import additions
from jupyter_graphbreak.recording.records import compiled_function, is_resume, plain_function
from jupyter_graphbreak.report.schema import NoFrame, Resume

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.breaks import BreakTable, FoldedBreak
    from jupyter_graphbreak.analysis.graphs import GraphTable
    from jupyter_graphbreak.analysis.ledger import FrameLedger, Ledger
    from jupyter_graphbreak.analysis.source.locations import Sources


class ResumeTable:
    """Joins the resume functions that were made with those that were compiled.

    Parameters
    ----------
    ledger : Ledger
        What the records say.
    sources : Sources
        Places and texts.
    breaks : BreakTable
        With the events of all frames folded.
    """

    def __init__(self, ledger: Ledger, sources: Sources, breaks: BreakTable) -> None:
        self._skipped = {(skip.id, skip.name) for skip in ledger.skips}
        self._sees_skips = ledger.sees_skips
        self._sources = sources
        self._breaks = breaks
        self._resumes: list[Resume] = []
        self._of_frame: dict[str, str] = {}
        self._inlined_in: dict[str, list[str]] = {}
        by_code = self._add_made(ledger.started)
        self._add_compiled(ledger.started, by_code)
        self._add_inlined(ledger.started, by_code)

    def resumes(self, graphs: GraphTable) -> list[Resume]:
        """Return the resume functions, with the graphs of their frames or of those that they are inlined in."""
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
        """Return the id of the resume function that a frame is a compilation of."""
        return self._of_frame.get(frame)

    def _add_made(self, frames: list[FrameLedger]) -> dict[Any, int]:
        """Add what breaks made; return the index of each by the id of its code object."""
        by_code: dict[Any, int] = {}
        for frame in frames:
            ending = self._breaks.ending(frame)
            for made in frame.resumes:
                if made.id not in by_code:
                    by_code[made.id] = self._add(made, ending)
        return by_code

    def _add_compiled(self, frames: list[FrameLedger], by_code: dict[Any, int]) -> None:
        ended: dict[tuple[str, str, int | None], FoldedBreak] = {}  # by function, file and the line that led to it
        by_frame: dict[tuple[int | None, int], int] = {}  # by the frame id, which the compilations of a code share
        for frame in frames:
            name, filename, line = frame.code
            index = None
            if is_resume(name):
                index = by_code.get(frame.start.id) if frame.start is not None else None
                if index is None and frame.key.compile > 0:
                    index = by_frame.get((frame.key.autograd, frame.key.frame))
                if index is None:  # no record of its making: it is known by its name
                    index = next((i for i, r in enumerate(self._resumes) if r.name == name and r.frames == []), None)
                if index is None:  # its name points at the line of the break in its own function
                    broken = ended.get((plain_function(name), filename, line)) or self._breaks.passing(filename, line)
                    made = additions.ResumeMade(name=name, filename=filename, firstlineno=line, line=frame.resumed_at)
                    index = self._add(made, broken)
                by_frame[frame.key.autograd, frame.key.frame] = index
            self._note_ending(frame, ended)
            if index is None:
                continue
            resume = self._resumes[index]
            self._resumes[index] = msgspec.structs.replace(resume, frames=[*resume.frames, frame.ident], no_frame=None)
            self._of_frame[frame.ident] = resume.id

    def _note_ending(self, frame: FrameLedger, ended: dict[tuple[str, str, int | None], FoldedBreak]) -> None:
        """Note the break at which a frame ends under its line in the frame's own function."""
        ending, event = self._breaks.ending(frame), frame.ending
        if ending is None or event is None:
            return
        for entry in frame.within(event)[:1]:
            ended[plain_function(entry.function), entry.filename, entry.line] = ending

    def _add_inlined(self, frames: list[FrameLedger], by_code: dict[Any, int]) -> None:
        """Find the frames that hold resume functions without one of their own.

        Where breaks are nested, the resume function of a caller begins with a call of that of the function it had
        called. A frame that compiles the first holds the second, and so on inwards.
        """
        compiled = {frame.ident for frame in frames if frame.given_up is None}
        pairs = {(by_code[made.id], by_code.get(made.enters)) for frame in frames for made in frame.resumes}
        callers: dict[int, list[int]] = {}
        for outer, inner in sorted((outer, inner) for outer, inner in pairs if inner is not None):
            callers.setdefault(inner, []).append(outer)

        def holders(index: int, seen: frozenset[int] = frozenset()) -> list[str]:
            own = [frame for frame in self._resumes[index].frames if frame in compiled]
            outers = [outer for outer in callers.get(index, []) if outer not in seen]
            return own or [frame for outer in outers for frame in holders(outer, seen | {index})]

        for index, resume in enumerate(self._resumes):
            held_by = holders(index) if not resume.frames and resume.no_frame != "eager" else []
            if held_by:
                self._inlined_in[resume.id] = held_by
                self._resumes[index] = msgspec.structs.replace(resume, no_frame="inlined")

    def _add(self, made: additions.ResumeMade, folded: FoldedBreak | None) -> int:
        line = made.line or made.firstlineno
        self._resumes.append(
            Resume(
                id=f"r{len(self._resumes) + 1}",
                name=made.name,
                function=compiled_function(made.name),
                location=self._sources.location(made.filename, line, made.name),
                break_=folded.ident if folded is not None else None,
                no_frame=self._no_frame(made),
            )
        )
        return len(self._resumes) - 1

    def _no_frame(self, made: additions.ResumeMade) -> NoFrame | None:
        """Return why a resume function has no frame, if it gets none.

        One that is entered is compiled, or Dynamo says why not; but not where it compiled or skipped it before.
        """
        if (made.id, made.name) in self._skipped:
            return "eager"
        if made.compiled:
            return "compiled before"
        return "not reached" if made.new and self._sees_skips else None

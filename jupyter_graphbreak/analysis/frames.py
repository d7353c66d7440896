"""List what Dynamo traced: the frames that it began, and the lines that it took only because the code is compiled.

A frame records the outcome and the caller of a code object that Dynamo began to compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from jupyter_graphbreak.analysis.recompiles import guard_of
from jupyter_graphbreak.records.records import compiled_function, is_resume, plain_function
from jupyter_graphbreak.report.schema import Frame, PathDifference

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.aftermath import ResumeTable
    from jupyter_graphbreak.analysis.breaks import BreakTable
    from jupyter_graphbreak.analysis.graphs import GraphTable
    from jupyter_graphbreak.analysis.ledger import FrameLedger, Ledger
    from jupyter_graphbreak.analysis.locations import Sources
    from jupyter_graphbreak.records.additions import AnswerDiffers
    from jupyter_graphbreak.records.records import StackEntry
    from jupyter_graphbreak.report.location import Location

#: The recorded branches of a question such as ``is_compiling()``, each with the lines that run or are skipped.
_Branches: TypeAlias = "dict[StackEntry | None, tuple[AnswerDiffers, set[int], set[int]]]"


def list_frames(
    ledger: Ledger, sources: Sources, breaks: BreakTable, graphs: GraphTable, resumes: ResumeTable
) -> list[Frame]:
    """Return the frames that Dynamo began, in order."""
    callers = _callers_by_frame(ledger.started_frames)
    result = []
    for frame in ledger.started_frames:
        name, filename, line = frame.code
        captured = graphs.of_frame(frame.ident)
        result.append(
            Frame(
                id=frame.ident,
                function=compiled_function(name),
                location=sources.location(filename, line, name),
                role="resume" if is_resume(name) else _frame_role(frame, callers.get(frame.ident)),
                outcome=_frame_outcome(frame, captured),
                attempts=frame.attempts,
                resume=resumes.of_frame(frame.ident),
                caller=callers.get(frame.ident),
                graphs=captured,
                breaks=breaks.of_frame(frame.ident),
                compile_s=frame.metrics.get("entire_frame_compile_time_s"),
                recompile_of=ledger.first_compilation_id(frame) if frame.key.compile > 0 else None,
                recompile_reasons=[guard_of(reason) for reason in frame.recompile_reasons],
                module=frame.start.module if frame.start is not None else None,
            )
        )
    return result


def _frame_outcome(frame: FrameLedger, graphs: list[str]) -> Literal["compiled", "empty", "skipped", "error"]:
    given_up = frame.given_up
    if given_up is not None:
        return "error" if given_up.raised else "skipped"
    if frame.is_compiled:
        return "compiled"
    if frame.skip_frame is not None:
        return "skipped"
    if frame.metrics_lost:
        return "empty"
    if graphs or frame.metrics.get("fail_type") or not frame.metrics:
        return "error"  # or the user interrupted it
    return "empty"


def _frame_role(frame: FrameLedger, caller: str | None) -> Literal["entry", "call"]:
    if frame.start is None:  # a log, whose stacks lack the wrapper
        return "entry" if caller is None else "call"
    stack = frame.start.stack
    # torch/_dynamo/eval_frame.py contains the wrapper that torch.compile returns
    return "entry" if not stack or stack[-1].filename.endswith("eval_frame.py") else "call"


def _callers_by_frame(started: list[FrameLedger]) -> dict[str, str]:
    """Return, for each frame's id, the innermost frame on its stack that was compiled before it, if there is one."""
    callers: dict[str, str] = {}
    earlier_frames: dict[tuple[str, str, int | None], str] = {}
    in_log = _LogCallers()
    for frame in started:
        if frame.start is None:
            caller = in_log.caller(frame)
            if caller is not None:
                callers[frame.ident] = caller
            continue
        stack = reversed(frame.start.stack)
        codes = ((entry.function, entry.filename, entry.first_line) for entry in stack)
        caller = next((earlier_frames[code] for code in codes if code in earlier_frames), None)
        if caller is not None:
            callers[frame.ident] = caller
        earlier_frames[frame.code] = frame.ident
    return callers


class _LogCallers:
    """Infers callers from the breaks of earlier frames, because a log's stacks lack compiled functions."""

    def __init__(self) -> None:
        self._frame_of_function: dict[tuple[str, str], str] = {}  # the last frame of a function that had a break
        self._frame_of_call: dict[tuple[str, str], str] = {}  # the last frame with a break inside a call of a function

    def caller(self, frame: FrameLedger) -> str | None:
        """Return the frame that this one resumes or that called it at a break; remember this one for later calls."""
        name, filename, _ = frame.code
        function = (plain_function(name), filename)
        caller = self._frame_of_function.get(function) if is_resume(name) else self._frame_of_call.get((name, filename))
        if frame.events:
            self._frame_of_function[function] = frame.ident
        for event in frame.events:
            for entry in event.message.stack:
                if (plain_function(entry.function), entry.filename) != function:
                    self._frame_of_call[entry.function, entry.filename] = frame.ident
        return caller


def list_paths(ledger: Ledger, sources: Sources) -> list[PathDifference]:
    """Return questions such as ``is_compiling()``, once per branch that the answer decides, or once if it decides none.

    Dynamo traces a function again after a break and for each recompile, so the same branch is recorded repeatedly.
    """
    questions: dict[tuple[str, StackEntry], _Branches] = {}
    for answer in ledger.answers:
        branches = questions.setdefault((answer.question, answer.call), {})
        _, lines, skipped = branches.setdefault(answer.branch, (answer, set(), set()))
        lines.update(answer.lines)
        skipped.update(answer.skipped)
    return [
        PathDifference(
            function=question,
            location=sources.place(call),
            compiled=answer.compiled,
            eager=answer.eager,
            branch=sources.place(branch) if branch is not None else None,
            lines=_locations_of_lines(sources, branch, lines),
            skipped=_locations_of_lines(sources, branch, skipped - lines),
        )
        for (question, call), branches in questions.items()
        for branch, (answer, lines, skipped) in _decided_branches(call, branches).items()
    ]


def _decided_branches(call: StackEntry, branches: _Branches) -> _Branches:
    """Return the branches that the answer to a question decides.

    In ``slow = not is_compiling() and x.dim() > 1``, the jump on the question's own line changes nothing. It is left
    out if the answer also decides something else, and so is the entry of the question itself.
    """
    line = call.filename, call.line
    decided: _Branches = {
        branch: recorded
        for branch, recorded in branches.items()
        if branch is not None and (recorded[1] or recorded[2] or (branch.filename, branch.line) != line)
    }
    return decided or dict([max(branches.items(), key=lambda recorded: recorded[0] is not None)])


def _locations_of_lines(sources: Sources, branch: StackEntry | None, lines: set[int]) -> list[Location]:
    if branch is None:
        return []
    locations = (sources.location(branch.filename, line, branch.function) for line in sorted(lines))
    # Leave out the text of the lines: a branch may contain most of a function.
    return [replace(location, code=None) for location in locations if location is not None]

"""List the frames that Dynamo began to compile, the recompiles, and the calls whose result differs while compiling.

A frame is listed with its outcome and its caller, and a recompile with the guards that failed. Recompiles that a limit
prevented are listed as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from jupyter_graphbreak.records.records import (
    display_name,
    is_resume_name,
    original_name,
    parse_guard_location,
    read_stack,
)
from jupyter_graphbreak.report.guards import plain_guard
from jupyter_graphbreak.report.schema import Frame, GuardFailure, PathDifference, Recompile

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.aftermath import ResumeTable
    from jupyter_graphbreak.analysis.breaks import BreakTable
    from jupyter_graphbreak.analysis.graphs import GraphTable
    from jupyter_graphbreak.analysis.ledger import FrameLedger, Ledger
    from jupyter_graphbreak.analysis.locations import Sources
    from jupyter_graphbreak.records.additions import AnswerDiffers
    from jupyter_graphbreak.records.records import StackFrame
    from jupyter_graphbreak.report.location import Location

#: The recorded branches that depend on a call such as ``is_compiling()``, each with the lines that Dynamo traced and
#: those that only uncompiled code reaches.
_Branches: TypeAlias = "dict[StackFrame | None, tuple[AnswerDiffers, set[int], set[int]]]"


def list_frames(
    ledger: Ledger, sources: Sources, breaks: BreakTable, graphs: GraphTable, resumes: ResumeTable
) -> list[Frame]:
    """Return the frames that Dynamo began to compile, in order."""
    callers = _callers_by_frame(ledger.started_frames)
    listed_frames = []
    for frame in ledger.started_frames:
        name, filename, line = frame.code
        graph_ids = graphs.ids_of_frame(frame.ident)
        first = ledger.first_compilation(frame) if frame.key.compile > 0 else None
        listed_frames.append(
            Frame(
                id=frame.ident,
                function=display_name(name),
                location=sources.location(filename, line, name),
                role="resume" if is_resume_name(name) else _frame_role(frame, callers.get(frame.ident)),
                outcome=_frame_outcome(frame, graph_ids),
                attempts=frame.attempt_count,
                resume=resumes.id_of_frame(frame.ident),
                caller=callers.get(frame.ident),
                graphs=graph_ids,
                breaks=breaks.ids_of_frame(frame.ident),
                compile_s=frame.metrics.get("entire_frame_compile_time_s"),
                recompile_of=first.ident if first is not None else None,
                recompile_reasons=[_guard_of(reason) for reason in frame.recompile_reasons],
                module=frame.start.module if frame.start is not None else None,
                instance=frame.start.instance if frame.start is not None else None,
            )
        )
    return listed_frames


def _frame_outcome(frame: FrameLedger, graphs: list[str]) -> Literal["compiled", "empty", "skipped", "error"]:
    event = frame.give_up_event
    if event is not None:
        return "error" if event.reached_user else "skipped"
    if frame.is_compiled:
        return "compiled"
    if frame.skip_frame is not None:
        return "skipped"
    if frame.are_metrics_lost:
        return "empty"
    if graphs or frame.metrics.get("fail_type") or not frame.metrics:
        return "error"  # or the user interrupted it
    return "empty"


def _frame_role(frame: FrameLedger, caller: str | None) -> Literal["entry", "call"]:
    if frame.start is None:  # a log, whose stacks lack the wrapper
        return "entry" if caller is None else "call"
    filenames = (stack_frame.filename for stack_frame in reversed(frame.start.stack))
    # The call of a compiled module reaches its ``forward`` through functions of ``torch.nn.Module``.
    caller_filename = next((name for name in filenames if not name.endswith("torch/nn/modules/module.py")), None)
    # torch/_dynamo/eval_frame.py contains the wrapper that torch.compile returns.
    return "entry" if caller_filename is None or caller_filename.endswith("eval_frame.py") else "call"


def _callers_by_frame(frames: list[FrameLedger]) -> dict[str, str]:
    """Return, by id, the caller of each frame: the innermost frame on its stack that was compiled before it, if any."""
    callers: dict[str, str] = {}
    earlier_frames: dict[tuple[str, str, int | None], str] = {}
    log_callers = _LogCallers()
    for frame in frames:
        if frame.start is None:
            caller = log_callers.add_and_find_caller(frame)
            if caller is not None:
                callers[frame.ident] = caller
            continue
        stack = reversed(frame.start.stack)
        functions = ((stack_frame.function, stack_frame.filename, stack_frame.first_line) for stack_frame in stack)
        caller = next((earlier_frames[function] for function in functions if function in earlier_frames), None)
        if caller is not None:
            callers[frame.ident] = caller
        earlier_frames[frame.code] = frame.ident
    return callers


class _LogCallers:
    """Infers callers from the breaks of earlier frames, because a log's stacks lack compiled functions."""

    def __init__(self) -> None:
        self._frame_of_function: dict[tuple[str, str], str] = {}  # the last frame of a function that had a break
        self._frame_of_call: dict[tuple[str, str], str] = {}  # the last frame with a break inside a call to a function

    def add_and_find_caller(self, frame: FrameLedger) -> str | None:
        """Add a frame, and return the earlier frame that it resumes or that called it at a break."""
        name, filename, _ = frame.code
        function = (original_name(name), filename)
        caller = (
            self._frame_of_function.get(function) if is_resume_name(name) else self._frame_of_call.get((name, filename))
        )
        if frame.events:
            self._frame_of_function[function] = frame.ident
        for event in frame.events:
            for stack_frame in event.message.stack:
                if (original_name(stack_frame.function), stack_frame.filename) != function:
                    self._frame_of_call[stack_frame.function, stack_frame.filename] = frame.ident
        return caller


#: The file of the function that PyTorch compiles instead of a callable object, or of a module whose ``forward`` is
#: PyTorch's own, such as a ``Sequential``; and the variable in that function that refers to the object.
_WRAPPER_FILE = "torch/_dynamo/external_utils.py"
_WRAPPED_OBJECT = re.compile(r"(?<![\w.\]])fn(?=\.(?!__))")


def list_recompiles(ledger: Ledger, sources: Sources) -> list[Recompile]:
    """Return the recompiles of a run, including those that a limit prevented."""
    recompiles: list[Recompile] = []
    for frame in ledger.frames:
        is_refused = frame.refusal is not None
        if frame.key.compile == 0 and not is_refused:
            continue
        name, filename, line = ledger.refused_code(frame) if is_refused or not frame.is_started else frame.code
        earlier = ledger.earlier_compilations(frame)
        reasons = frame.recompile_reasons
        if filename.endswith(_WRAPPER_FILE):
            reasons = [_WRAPPED_OBJECT.sub("self", reason) for reason in reasons]
        versions = {str(version.key): version for version in earlier}
        recompiles.append(
            Recompile(
                frame=frame.ident,
                of=earlier[0].ident if earlier else None,
                function=display_name(name),
                location=sources.location(filename, line, name) if line else None,
                reasons=[
                    _guard_failure(reason, sources, versions.get(_version_of(reason)), frame) for reason in reasons
                ],
                limit_hit=is_refused,
                id=f"r{len(recompiles) + 1}",
            )
        )
    return recompiles


#: The beginning of a recompile reason that names the version whose guard failed: "0/0: tensor 'x' size mismatch ...".
_VERSION_PREFIX = re.compile(r"\s*(?P<version>!?\d[\d/]*/\d+): ")


def _version_of(reason: str) -> str:
    """Return the id of the version of the code whose guard failed; empty if the reason does not contain it."""
    match = _VERSION_PREFIX.match(reason)
    return match["version"] if match is not None else ""


def _guard_of(reason: str) -> str:
    """Return only the guard in a recompile reason such as ``0/0: tensor 'x' size mismatch ...  # line``."""
    match = _VERSION_PREFIX.match(reason)
    guard = reason[match.end() :] if match is not None else reason
    return guard.partition("User stack trace:")[0].partition("  # ")[0].strip()


#: The guard on a size that compiled code treats as a constant.
_SIZE_GUARD = re.compile(r"tensor '(?P<name>.+)' size mismatch at index (?P<index>\d+)\.")


def _guard_failure(
    reason: str, sources: Sources, failed_version: FrameLedger | None, next_version: FrameLedger
) -> GuardFailure:
    """Return a failed guard with its location.

    The first version of a function has a guard on each size regardless of the code; if a line makes a size constant,
    the version that was then compiled records the line.
    """
    text = _guard_of(reason)
    versions = [failed_version, next_version] if failed_version is not None else [next_version]
    ident = failed_version.ident if failed_version is not None else None
    size = _SIZE_GUARD.match(text)
    if size is not None:
        name = plain_guard(f"{size['name']}.size()[{size['index']}]")
        lines = (
            line for version in versions for key, line in version.specializations.items() if plain_guard(key) == name
        )
        line = next(lines, None)
        if line is not None:
            location = sources.stack_frame_location(line)
            return GuardFailure(text, location, sources.head_kind_at(location), ident)
    stack = read_stack(reason.partition("User stack trace:")[2])
    location = sources.stack_frame_location(stack[-1]) if stack else None
    stack_frame = parse_guard_location(reason) if location is None else None
    if stack_frame is not None:
        filename = sources.filename_ending_with(stack_frame.filename)
        if filename is not None:
            location = sources.location(filename, stack_frame.line, stack_frame.function)
    return GuardFailure(text, location, sources.head_kind_at(location), ident)


def list_paths(ledger: Ledger, sources: Sources) -> list[PathDifference]:
    """Return the calls, such as ``is_compiling()``, whose result differs while compiling.

    A call is listed once per branch that its result decides, or once if its result decides no branch. Dynamo traces a
    function again after a break and for each recompile, so the same branch is recorded repeatedly.
    """
    calls: dict[tuple[str, StackFrame], _Branches] = {}
    for answer in ledger.differing_answers:
        branches = calls.setdefault((answer.question, answer.call), {})
        _, lines, skipped = branches.setdefault(answer.branch, (answer, set(), set()))
        lines.update(answer.lines)
        skipped.update(answer.skipped)
    return [
        PathDifference(
            function=function,
            location=sources.stack_frame_location(call),
            compiled=answer.compiled,
            eager=answer.eager,
            branch=sources.stack_frame_location(branch) if branch is not None else None,
            lines=_locations_of_lines(sources, branch, lines),
            skipped=_locations_of_lines(sources, branch, skipped - lines),
        )
        for (function, call), branches in calls.items()
        for branch, (answer, lines, skipped) in _decided_branches(call, branches).items()
    ]


def _decided_branches(call: StackFrame, branches: _Branches) -> _Branches:
    """Return the branches that the result of a call decides.

    In ``slow = not is_compiling() and x.dim() > 1``, the jump on the line of the call changes nothing. This jump and
    the record of the call itself are left out if the result decides a different branch.
    """
    line = call.filename, call.line
    decided_branches: _Branches = {
        branch: branch_record
        for branch, branch_record in branches.items()
        if branch is not None and (branch_record[1] or branch_record[2] or (branch.filename, branch.line) != line)
    }
    return decided_branches or dict([max(branches.items(), key=lambda branch_record: branch_record[0] is not None)])


def _locations_of_lines(sources: Sources, branch: StackFrame | None, lines: set[int]) -> list[Location]:
    if branch is None:
        return []
    locations = (sources.location(branch.filename, line, branch.function) for line in sorted(lines))
    # Leave out the code of the lines: a branch may contain most of a function.
    return [replace(location, code=None) for location in locations if location is not None]

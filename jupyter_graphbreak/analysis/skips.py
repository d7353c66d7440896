"""Say why a function runs eagerly, in the words of PyTorch's own pages, and what would have it compiled."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.analysis.source.python_text import parse_python
from jupyter_graphbreak.recording.records import plain_function
from jupyter_graphbreak.report.schema import SkipKind, Skipped

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.breaks import BreakTable, FoldedBreak
    from jupyter_graphbreak.analysis.ledger import Event, FrameLedger
    from jupyter_graphbreak.analysis.source.locations import Sources
    from jupyter_graphbreak.analysis.torch_text.messages import Cause
    from jupyter_graphbreak.recording import additions
    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.schema import Frame, Setting


class SkipReason(msgspec.Struct, frozen=True):
    """Why a function runs eagerly: the kind, a sentence, the way out that applies."""

    kind: SkipKind
    sentence: str
    way_out: str | None = None


_LOOP = SkipReason(
    "loop",
    "graph break in a loop",
    "move the break out of the loop, unroll the loop, or give its body a function of its own",
)
_WITH = SkipReason(
    "context manager",
    "graph break in a context manager that cannot be resumed",
    "move the break out of the with block, or the block's body into a function of its own",
)
_TRY = SkipReason(
    "try",
    "graph break in a try block",
    "move the break out of the try block, or into a function that is called there",
)
_SKIP_FRAME = SkipReason(
    "skip_frame",
    "torch._dynamo.skip_frame() was called",
    "move the call into a function of its own: then only that function is skipped",
)
_GENERATOR = SkipReason(
    "generator",
    "a generator cannot be compiled itself",
    "compile the function that consumes it",
)
_MODE = SkipReason(
    "dispatch mode",
    "a TorchDispatchMode was on, under which Dynamo compiles nothing",
    "call it outside the mode",
)
_MARKED = SkipReason(
    "marked",
    "torch marks it to be skipped",
    "compile the function that calls it, or one that it calls",
)


_BY_BLOCK: dict[SkipKind | None, SkipReason] = {"try": _TRY, "context manager": _WITH, "loop": _LOOP}


def of_break(cause: Cause, consequence: Cause | None, block: SkipKind | None) -> SkipReason:
    """Return why a frame that met a break was given up.

    Parameters
    ----------
    cause, consequence : Cause
        As the message has them.
    block : str or None
        The block around the break in the frame's own function, as :func:`block_around` finds it.
    """
    last = consequence or cause
    if "graph break in loop" in last.gb_type or "for/while loop" in (last.explanation or ""):
        return _LOOP
    if "ContextWrapping" in last.gb_type:
        return _WITH
    if "skip_frame" in cause.gb_type or "skip_frame" in (cause.context or ""):
        return _SKIP_FRAME
    if "generator" in cause.gb_type.lower() and consequence is None and block is None:
        return _GENERATOR
    if block in _BY_BLOCK:
        return _BY_BLOCK[block]
    if cause.gb_id is None and cause.gb_type.endswith(("Error", "Failed")):
        return SkipReason("error", f"compilation failed: {cause.gb_type}")
    return SkipReason("other", f"a graph break from which Dynamo cannot resume: {last.gb_type}")


def of_limit(limit: str | None, value: object, *, shared: bool) -> SkipReason:
    """Return why a function was not compiled once more.

    Parameters
    ----------
    limit, value : str, int
        The setting that was reached, and its value.
    shared : bool
        Whether the compilations were those of the wrapper that torch puts around every decorated function.
    """
    name = f"{limit} = {value}" if limit else "the recompile limit"
    if shared:
        return SkipReason(
            "shared wrapper",
            f"the limit ({name}) was spent by the wrapper that torch shares between all functions decorated with "
            "error_on_graph_break; everything under it runs eagerly now",
            "use error_on_graph_break as a with block inside the function instead of as a decorator, or set "
            "torch._dynamo.config.nested_graph_breaks = True",
        )
    return SkipReason(
        "recompile limit",
        f"it was compiled too often ({name}); its compiled versions are still used where they fit",
        "see the recompiles for the guards that failed; mark what varies as dynamic, or raise the limit",
    )


def of_refusal(reason: str) -> SkipReason | None:
    """Return why Dynamo did not begin a frame, ``None`` where that is nothing to tell."""
    if "torch dispatch mode" in reason:
        return _MODE
    if "skipfiles" in reason:
        return _MARKED
    return None


def block_around(source: Source, line: int) -> SkipKind | None:
    """Return the block around a line of a function that keeps a frame from resuming, if there is one.

    Parameters
    ----------
    source : Source
        Where the function is.
    line : int
        The line of the break, or of the call that leads to it, in that function.
    """
    segment = next((s for s in source.segments if s.first_line <= line <= s.first_line + s.text.count("\n")), None)
    if segment is None:
        return None
    tree = parse_python(segment.text)
    if tree is None:
        return None
    at = line - segment.first_line + 1
    blocks: list[tuple[int, SkipKind]] = []
    for node in ast.walk(tree):
        lines = range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1)
        if at not in lines:
            continue
        match node:
            case ast.Try() if _holds(node, at):
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


def _holds(node: ast.Try, line: int) -> bool:
    """Whether a line is in the part of a try statement that Dynamo cannot leave."""
    body = node.body + [statement for handler in node.handlers for statement in handler.body] + node.finalbody
    return any(statement.lineno <= line <= (statement.end_lineno or statement.lineno) for statement in body)


class SkipTable:
    """Lists the functions of a run that run eagerly, each with the break that is to blame, if one is.

    Parameters
    ----------
    sources : Sources
        Places and texts.
    breaks : BreakTable
        Where the events are folded.
    """

    def __init__(self, sources: Sources, breaks: BreakTable) -> None:
        self._sources = sources
        self._breaks = breaks
        self._skipped: list[Skipped] = []

    def skipped(self, frames: list[Frame]) -> list[Skipped]:
        """Return the skipped functions, with those of the frames that they call and that are compiled all the same."""
        return [
            msgspec.structs.replace(
                skipped, callees=[f.id for f in frames if f.caller == skipped.frame and f.outcome == "compiled"]
            )
            if skipped.frame is not None
            else skipped
            for skipped in self._skipped
        ]

    def add_frame(self, frame: FrameLedger) -> None:
        """Add a frame, if it was given up at a break and no error went up to the user."""
        event = frame.given_up
        if event is None or event.raised:
            return
        name, filename, line = frame.code
        folded = self._breaks.of_event(event)
        occurrence = next((o for o in folded.occurrences if o.frame == frame.ident), None)
        reason = of_break(event.message.cause, event.message.consequence, self._block(frame, event))
        location = self._sources.location(filename, line, name)
        self._add(frame.ident, name, location, reason, folded, occurrence.setting if occurrence else None)

    def add_refused(self, refusal: additions.FrameRefused, folded: FoldedBreak, setting: Setting | None) -> None:
        """Add a function that Dynamo refused before it began, and the break that was made of the refusal."""
        name, filename, line = refusal.code or ("?", "?", None)
        location = self._sources.location(filename, line, name)
        known = {(skipped.location, skipped.break_) for skipped in self._skipped}
        if (location, folded.ident) not in known:
            self._add(None, name, location, _GENERATOR, folded, setting)

    def add_limited(self, refusal: additions.FrameRefused, code: tuple[str, str, int]) -> None:
        """Add a function that a limit forbade to compile once more; ``code`` is its name, file and first line."""
        # Where the wrapper that torch shares reached the limit, what is lost is the decorated function.
        name, filename, line = refusal.wrapped.place if refusal.wrapped is not None else code
        location = self._sources.location(filename, line, name) if line else None
        reason = of_limit(refusal.limit, refusal.limit_value, shared=refusal.wrapped is not None)
        known = {(skipped.location, skipped.kind) for skipped in self._skipped}
        if (location, reason.kind) not in known:
            self._add(None, name, location, reason)

    def add_unbegun(self, skip: additions.FrameSkipped) -> None:
        """Add a frame that Dynamo never began for a reason that is no break: the trace has nothing of it."""
        reason = of_refusal(skip.reason)
        own = self._sources.kind(skip.filename, skip.name) in {"cell", "file"}
        if reason is not None and (own or reason.kind == "dispatch mode"):
            location = self._sources.location(skip.filename, skip.firstlineno, skip.name)
            self._add(None, skip.name, location, reason)

    def _add(
        self,
        frame: str | None,
        function: str,
        location: Location | None,
        reason: SkipReason,
        folded: FoldedBreak | None = None,
        setting: Setting | None = None,
    ) -> None:
        self._skipped.append(
            Skipped(
                id=f"k{len(self._skipped) + 1}",
                frame=frame,
                function=plain_function(function),
                location=location,
                reason=reason.sentence,
                break_=folded.ident if folded is not None else None,
                kind=reason.kind,
                way_out=reason.way_out,
                setting=setting,
            )
        )

    def _block(self, frame: FrameLedger, event: Event) -> SkipKind | None:
        """Return the block in the frame's own function that holds the break, or the call that leads to it."""
        name, filename, _ = frame.code
        stack = event.conditions.stack or event.message.stack
        own = (e for e in stack if e.filename == filename and plain_function(e.function) == plain_function(name))
        line = next((entry.line for entry in own), None)
        if line is None:
            return None
        return block_around(self._sources.source(filename), line + self._sources.line_offset(filename))

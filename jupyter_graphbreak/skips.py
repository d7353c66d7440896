"""Say why a function runs eagerly, in the words of PyTorch's own pages, and what would have it compiled."""

from __future__ import annotations

import ast
import textwrap
from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.report import SkipKind, Source

if TYPE_CHECKING:
    from jupyter_graphbreak.break_message import Cause


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


GENERATOR = _GENERATOR


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
    python = "\n".join("" if each.startswith(("%", "!")) else each for each in segment.text.split("\n"))
    try:
        tree = ast.parse(textwrap.dedent(python))
    except (SyntaxError, ValueError):
        return None
    at = line - segment.first_line + 1
    found: list[tuple[int, SkipKind]] = []
    for node in ast.walk(tree):
        lines = range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1)
        if at not in lines:
            continue
        match node:
            case ast.Try() if _holds(node, at):
                found.append((node.lineno, "try"))
            case ast.With():
                found.append((node.lineno, "context manager"))
            case ast.For() | ast.While():
                found.append((node.lineno, "loop"))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                found = [each for each in found if each[0] > node.lineno]
            case _:
                pass
    kinds = [kind for _, kind in sorted(found)]
    return "try" if "try" in kinds else kinds[-1] if kinds else None


def _holds(node: ast.Try, line: int) -> bool:
    """Whether a line is in the part of a try statement that Dynamo cannot leave."""
    body = node.body + [each for handler in node.handlers for each in handler.body] + node.finalbody
    return any(each.lineno <= line <= (each.end_lineno or each.lineno) for each in body)

"""Say why a function runs eagerly, in the words of PyTorch's own pages, and what would have it compiled."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.source.functions import end_in_tree
from jupyter_graphbreak.analysis.source.python_text import parse_python
from jupyter_graphbreak.knowledge.lookup import known_cause
from jupyter_graphbreak.knowledge.skipped_functions import (
    COMPILE_ERROR,
    LOOP,
    MARKED,
    MODE,
    OTHER_BREAK,
    RECOMPILE_LIMIT,
    REMEMBERED,
    REMEMBERED_MODE,
    SHARED_WRAPPER,
    SKIP_FRAME,
    TRY,
    WITH,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.analysis.torch_text.messages import Cause
    from jupyter_graphbreak.knowledge.entries import SkipReason
    from jupyter_graphbreak.report.location import Source
    from jupyter_graphbreak.report.schema import SkipKind


_BY_BLOCK: dict[SkipKind | None, SkipReason] = {reason.kind: reason for reason in (TRY, WITH, LOOP)}


def of_break(cause: Cause, consequence: Cause | None, block: SkipKind | None) -> SkipReason:
    """Return why a frame was given up at a break.

    Parameters
    ----------
    cause, consequence : Cause
        As the message has them.
    block : str or None
        The block around the break in the frame's own function, as :func:`block_around` finds it.
    """
    last = consequence or cause
    if "graph break in loop" in last.gb_type or "for/while loop" in (last.explanation or ""):
        return LOOP
    if "ContextWrapping" in last.gb_type:
        return WITH
    if "skip_frame" in cause.gb_type or "skip_frame" in (cause.context or ""):
        return SKIP_FRAME
    known = known_cause(cause.gb_id, cause.gb_type)
    if known.skip is not None:
        return known.skip
    if block in _BY_BLOCK:
        return _BY_BLOCK[block]
    if cause.gb_id is None and cause.gb_type.endswith(("Error", "Failed")):
        return _filled_in(COMPILE_ERROR, cause=cause.gb_type)
    return _filled_in(OTHER_BREAK, cause=last.gb_type)


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
    return _filled_in(SHARED_WRAPPER if shared else RECOMPILE_LIMIT, limit=name)


def of_refusal(reason: str) -> SkipReason | None:
    """Return why Dynamo did not begin a frame, ``None`` where that is no news."""
    if reason.startswith("remembered"):
        return REMEMBERED_MODE if "torch dispatch mode" in reason else REMEMBERED
    if "torch dispatch mode" in reason:
        return MODE
    if "skipfiles" in reason:
        return MARKED
    return None


def _filled_in(reason: SkipReason, **values: str) -> SkipReason:
    """Return a reason whose sentence contains the values of this run."""
    return replace(reason, sentence=reason.sentence.format(**values))


def block_around(source: Source, line: int) -> SkipKind | None:
    """Return the block around a line of a function that keeps a frame from resuming, if there is one.

    Parameters
    ----------
    source : Source
        Where the function is.
    line : int
        The line of the break, or of the call that leads to it, in that function.
    """
    return next((_block_in(tree, line) for tree in _trees(source, line)), None)


def block_around_variadic_calls(source: Source, line: int, name: str) -> SkipKind | None:
    """Return the block around the calls ``f(*args)`` of a function, if it is the same for all of them.

    For a function that is known to be in such a call, but not in which.

    Parameters
    ----------
    source : Source
        Where the function is.
    line : int
        Its first line.
    name : str
        Its name.
    """
    blocks: set[SkipKind | None] = set()
    for tree in _trees(source, line):
        end = end_in_tree(tree, line, name) or line
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and line <= node.lineno <= end and _is_variadic(node):
                blocks.add(_block_in(tree, node.lineno))
    return blocks.pop() if len(blocks) == 1 else None


def _is_variadic(call: ast.Call) -> bool:
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def _trees(source: Source, line: int) -> Iterator[ast.Module]:
    """Yield the tree of the part of a source that holds a line, with its lines as the source counts them."""
    segment = next((s for s in source.segments if s.first_line <= line <= s.first_line + s.text.count("\n")), None)
    tree = parse_python(segment.text) if segment is not None else None
    if segment is not None and tree is not None:
        yield ast.increment_lineno(tree, segment.first_line - 1)


def _block_in(tree: ast.Module, line: int) -> SkipKind | None:
    blocks: list[tuple[int, SkipKind]] = []
    for node in ast.walk(tree):
        lines = range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1)
        if line not in lines:
            continue
        match node:
            case ast.Try() if _holds(node, line):
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

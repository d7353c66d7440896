"""Say why a function runs eagerly, in the words of PyTorch's own pages, and what would have it compiled."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.analysis.source.functions import end_in_tree
from jupyter_graphbreak.analysis.source.python_text import parse_python
from jupyter_graphbreak.report.schema import SkipKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.analysis.torch_text.messages import Cause
    from jupyter_graphbreak.report.location import Source


class SkipReason(msgspec.Struct, frozen=True):
    """Why a function runs eagerly: the kind, a sentence, the way out that applies."""

    kind: SkipKind
    sentence: str
    way_out: str | None = None


_LOOP = SkipReason(
    "loop",
    "graph break in a loop",
    "move the break out of the loop, unroll the loop, or give its body a function of its own: then that is compiled",
)
_WITH = SkipReason(
    "context manager",
    "graph break in a context manager that cannot be resumed",
    "move the break out of the with block, or give the block's body a function of its own: then that is compiled",
)
_TRY = SkipReason(
    "try",
    "graph break in a try block",
    "move the break out of the try block, or give the block's body a function of its own: then that is compiled",
)
SKIP_FRAME = SkipReason(
    "skip_frame",
    "torch._dynamo.skip_frame() was called",
    "move the call into a function of its own: then only that function is skipped",
)
GENERATOR = SkipReason(
    "generator",
    "a generator cannot be compiled itself",
    "compile the function that consumes it",
)
CALLED_EAGERLY = SkipReason(
    "generator",
    "a generator of a library, called by code that runs eagerly because of the break",
)
_LIVE_GENERATOR = SkipReason(
    "other",
    "a generator that changes objects outside of it is in use across a graph break; Dynamo cannot pass it on half used",
    "use the generator up before the break, as with list(...), or have it change nothing outside of it",
)
_KEPT_GENERATOR = SkipReason(
    "other",
    "a generator is in use beyond the compiled code; Dynamo would put an iterator over what is left of it in its place",
    "use the generator up before, as with list(...)",
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
_FORGET = "make Dynamo forget that: torch._dynamo.reset(), or --fresh in a notebook"
_REMEMBERED = SkipReason(
    "remembered",
    "Dynamo skips it because of an earlier call: it could not compile it, found no tensor operation in it, or a mode "
    "such as a FLOP counter was on",
    _FORGET,
)
_REMEMBERED_MODE = SkipReason(
    "remembered",
    "Dynamo skips it because of an earlier call, in which a TorchDispatchMode such as a FLOP counter was on",
    _FORGET,
)

_BY_CAUSE = {
    "Attempt to trace generator": GENERATOR,
    "Generator reconstruction with mutations": _LIVE_GENERATOR,
    "Generator in use beyond compiled code": _KEPT_GENERATOR,
}
_BY_BLOCK: dict[SkipKind | None, SkipReason] = {"try": _TRY, "context manager": _WITH, "loop": _LOOP}


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
        return _LOOP
    if "ContextWrapping" in last.gb_type:
        return _WITH
    if "skip_frame" in cause.gb_type or "skip_frame" in (cause.context or ""):
        return SKIP_FRAME
    if cause.gb_type in _BY_CAUSE:
        return _BY_CAUSE[cause.gb_type]
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
    """Return why Dynamo did not begin a frame, ``None`` where that is no news."""
    if reason.startswith("remembered"):
        return _REMEMBERED_MODE if "torch dispatch mode" in reason else _REMEMBERED
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

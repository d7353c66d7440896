"""Code objects, stacks and exceptions of Dynamo as plain data."""

from __future__ import annotations

import importlib
import itertools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FrameType

#: A stack entry as our records hold it: file, line, function, the function's first line, and, where Python tells,
#: the column range in UTF-8 bytes and the last line of the expression.
StackEntry = list[Any]

_OWN = __file__.rpartition("/")[0].rpartition("/")[0].replace("\\", "/") + "/"


def code_data(code: CodeType) -> dict[str, Any]:
    """Return what tells one code object from another."""
    return {
        "id": id(code),
        "name": code.co_name,
        "qualname": getattr(code, "co_qualname", code.co_name),
        "filename": code.co_filename,
        "firstlineno": code.co_firstlineno,
    }


def exception(exc: BaseException) -> dict[str, Any]:
    """Return an exception's class, and its name in the registry of graph breaks."""
    return {"type": type(exc).__name__, "gb_type": getattr(exc, "gb_type", None) or None}


def tracer_state(tracer: Any) -> dict[str, Any]:
    """Return the settings under which a tracer traces."""
    return {
        "error_on_graph_break": getattr(tracer, "error_on_graph_break", None),
        "fullgraph": getattr(tracer, "one_graph", None),
    }


def outward(frame: FrameType | None, most: int) -> Iterator[FrameType]:
    """Yield a frame and those around it, as many as given."""
    while frame is not None and most > 0:
        yield frame
        frame, most = frame.f_back, most - 1


def stack_above() -> list[StackEntry]:
    """Return the Python stack at the call that made Dynamo compile, outermost first, without Dynamo's frames inside."""
    frame: FrameType | None = sys._getframe(1)
    inside = True
    entries: list[StackEntry] = []
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        if inside:
            # Dynamo enters Python through CatchErrorsWrapper; what is further out is the program.
            if filename.endswith("convert_frame.py") and code.co_qualname == "CatchErrorsWrapper.__call__":
                inside = False
        else:
            entries.append([filename, frame.f_lineno, code.co_name, code.co_firstlineno])
        frame = frame.f_back
    entries.reverse()
    return entries


def entries(stack: Iterable[Any] | None) -> list[StackEntry]:
    """Return the entries of a ``traceback.StackSummary``; the function's first line is not in it."""
    return [
        [
            entry.filename,
            entry.lineno,
            entry.name,
            None,
            getattr(entry, "colno", None),
            getattr(entry, "end_colno", None),
            getattr(entry, "end_lineno", None),
        ]
        for entry in stack or ()
    ]


def tracing_stack() -> Any:
    """Return the stack of the code that is being traced now."""
    return importlib.import_module("torch._guards").TracingContext.extract_stack()


def with_positions(stack: list[StackEntry], tracer: Any) -> list[StackEntry]:
    """Fill in the columns of the innermost entry from the instruction that the tracer is at, if it is at that line."""
    if not stack or tracer is None:
        return stack
    positions = getattr(getattr(tracer, "current_instruction", None), "positions", None)
    code = getattr(tracer, "f_code", None)
    leaf = stack[-1]
    if positions is None or code is None or (code.co_filename, positions.lineno) != (leaf[0], leaf[1]):
        return stack
    columns = [positions.col_offset, positions.end_col_offset, positions.end_lineno]
    if leaf[4] is not None and leaf[4:6] != columns[:2]:
        return stack
    return [*stack[:-1], [*leaf[:4], *columns]]


def line_at(code: CodeType, offset: int | None) -> int | None:
    """Return the line of the instruction at an offset."""
    if offset is None:
        return None
    return next((line for start, end, line in code.co_lines() if start <= offset < end), None)


def site_of(frame: FrameType | None) -> StackEntry | None:
    """Return the place of the innermost frame outside torch and this module, with its columns."""
    while frame is not None:
        filename = frame.f_code.co_filename.replace("\\", "/")
        torch_own = "/torch/_dynamo/" in filename or filename.endswith(
            ("/torch/__init__.py", "/torch/nn/modules/module.py")
        )
        if not torch_own and not filename.startswith(_OWN) and not filename.endswith("/contextlib.py"):
            code = frame.f_code
            positions = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
            return [
                code.co_filename, positions[0] or frame.f_lineno, code.co_name, code.co_firstlineno,
                positions[2], positions[3], positions[1],
            ]  # fmt: skip
        frame = frame.f_back
    return None

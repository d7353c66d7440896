"""Convert Dynamo's code objects, stacks and exceptions to plain data, and read the registry of graph breaks."""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import math
import re
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.records.additions import CodeObject, RegistryEntry
from jupyter_graphbreak.records.package_paths import package_paths
from jupyter_graphbreak.records.records import StackFrame, strip_inserted_frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FrameType

#: The message of torch before 2.11 for a call to a function that calls ``torch._dynamo.skip_frame()``.
_SKIPPED_INLINING = re.compile(r"SKIPPED INLINING .*?>: .*(?P<call>`torch\._dynamo\.skip_frame\(\)`)", re.DOTALL)
#: A frame of a printed traceback.
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>\S+)$', re.MULTILINE)
#: The live code objects that have a number, by address: a reference and the unique number.
_NUMBERED_CODE: dict[int, tuple[weakref.ref[CodeType], int]] = {}
_code_numbers = itertools.count(1)
#: The files and folders whose code runs between a call in the program and the observed code of torch or this package.
_MACHINERY_PATHS = (
    "torch/_dynamo/",
    "torch/__init__.py",
    "torch/nn/modules/module.py",
    "contextlib.py",
    "jupyter_graphbreak/",
)


def identity(code: CodeType) -> dict[str, Any]:
    """Return the identity of a code object: the fields of :class:`CodeObject`."""
    return {
        "id": code_number(code),
        "name": code.co_name,
        "qualname": code.co_qualname,
        "filename": code.co_filename,
        "firstlineno": code.co_firstlineno,
    }


def code_number(code: CodeType) -> int:
    """Return a unique number for a code object; unlike its address, the number is never reused."""
    address = id(code)
    numbered_code = _NUMBERED_CODE.get(address)
    if numbered_code is None or numbered_code[0]() is not code:
        numbered_code = weakref.ref(code, lambda _: _NUMBERED_CODE.pop(address, None)), next(_code_numbers)
        _NUMBERED_CODE[address] = numbered_code
    return numbered_code[1]


def code_object(code: CodeType) -> CodeObject:
    """Return a code object as plain data."""
    return CodeObject(**identity(code))


def wrapped_code(function: Any) -> CodeObject | None:
    """Return the code of a function inside its methods and wrappers, or of a module's ``forward``, if there is any."""
    while function is not None:
        inner = getattr(function, "_torchdynamo_orig_callable", None) or getattr(function, "__func__", None)
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None) or getattr(getattr(function, "forward", None), "__code__", None)
    return code_object(code) if code is not None else None


def exception_name(error: BaseException) -> str:
    """Return the name of an exception's class, or the call that the exception's message reports as skipped."""
    skipped_call = _SKIPPED_INLINING.match(str(error))
    return f"Call to {skipped_call['call']}" if skipped_call is not None else type(error).__name__


def gb_type(error: BaseException) -> str | None:
    """Return the name that the registry of graph breaks gives an exception; ``None`` if it gives none."""
    return getattr(error, "gb_type", None) or None


def frames_outward(frame: FrameType | None, max_count: float = math.inf) -> Iterator[FrameType]:
    """Yield a frame and its callers, up to a maximum number."""
    while frame is not None and max_count > 0:
        yield frame
        frame, max_count = frame.f_back, max_count - 1


def program_stack() -> list[StackFrame]:
    """Return the Python stack at the call that made Dynamo compile, outermost frame first."""
    is_in_dynamo = True
    stack: list[StackFrame] = []
    for frame in frames_outward(sys._getframe(1)):
        code = frame.f_code
        filename = code.co_filename
        if is_in_dynamo:
            # Dynamo enters Python through CatchErrorsWrapper; the frames outside it are the program's.
            if filename.endswith("convert_frame.py") and code.co_qualname == "CatchErrorsWrapper.__call__":
                is_in_dynamo = False
        else:
            stack.append(StackFrame(filename, frame.f_lineno, code.co_name, code.co_firstlineno))
    stack.reverse()
    return stack


def stack_frames(stack: Iterable[Any] | None) -> list[StackFrame]:
    """Return the frames of a ``traceback.StackSummary``, which lacks the first line of each function."""
    return [
        StackFrame(
            summary.filename,
            summary.lineno,
            summary.name,
            None,
            getattr(summary, "colno", None),
            getattr(summary, "end_colno", None),
            getattr(summary, "end_lineno", None),
        )
        for summary in stack or ()
    ]


def stack_of_operation(message: str) -> list[StackFrame]:
    """Return the stack of the operation on which a backend failed, outermost first; empty if the message has none.

    ``torch.fx.Interpreter`` appends this stack to the message of an exception that an operation of a graph raises.
    """
    _, _, traceback = message.partition("\nOriginal traceback:\n")
    return [StackFrame(match["file"], int(match["line"]), match["function"]) for match in _FRAME.finditer(traceback)]


def tracing_stack() -> Any:
    """Return the stack of the code that is being traced."""
    return importlib.import_module("torch._guards").TracingContext.extract_stack()


def add_positions(stack: list[StackFrame], tracer: Any) -> list[StackFrame]:
    """Fill in the columns of the program's innermost frame from the tracer's instruction, if its line agrees."""
    index = len(strip_inserted_frames(stack, package_paths())) - 1
    if not stack or tracer is None:
        return stack
    positions = getattr(getattr(tracer, "current_instruction", None), "positions", None)
    code = getattr(tracer, "f_code", None)
    leaf = stack[index]
    if positions is None or code is None or (code.co_filename, positions.lineno) != (leaf.filename, leaf.line):
        return stack
    columns = (positions.col_offset, positions.end_col_offset)
    if leaf.column is not None and (leaf.column, leaf.end_column) != columns:
        return stack
    stack_frame = StackFrame(leaf.filename, leaf.line, leaf.function, leaf.first_line, *columns, positions.end_lineno)
    return [*stack[:index], stack_frame, *stack[index + 1 :]]


def line_at(code: CodeType, offset: int | None) -> int | None:
    """Return the line of the instruction at an offset; ``None`` if there is none.

    Dynamo counts offsets after replacing some instructions.
    """
    if offset is None:
        return None
    instructions_of = getattr(
        importlib.import_module("torch._dynamo.bytecode_transformation"), "cleaned_instructions", None
    )
    for instruction in instructions_of(code) if instructions_of is not None else ():
        if instruction.offset == offset and instruction.positions is not None:
            line: int | None = instruction.positions.lineno
            return line
    return next((line for start, end, line in code.co_lines() if start <= offset < end), None)


def site_of(frame: FrameType | None) -> StackFrame | None:
    """Return the location of the innermost frame outside Dynamo, module calls and this package, if there is any."""
    packages = package_paths()
    for outer in frames_outward(frame):
        path = packages.module_path(outer.f_code.co_filename)
        if path is None or not path.startswith(_MACHINERY_PATHS):
            return stack_frame_of(outer)
    return None


def stack_frame_of(frame: FrameType) -> StackFrame:
    """Return the current location of a frame, with columns."""
    code = frame.f_code
    positions = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    return StackFrame(
        code.co_filename, positions[0] or frame.f_lineno, code.co_name, code.co_firstlineno,
        positions[2], positions[3], positions[1],
    )  # fmt: skip


@functools.cache
def _registry() -> dict[str, tuple[str, dict[str, Any]]]:
    path = Path(importlib.import_module("torch._dynamo").__file__ or "").with_name("graph_break_registry.json")
    try:
        registry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    # The newest revision of an entry comes first, and a later key replaces an earlier one.
    return {entry["Gb_type"]: (gb_id, entry) for gb_id, entries in registry.items() for entry in reversed(entries)}


def registry_entry(gb_type: str) -> RegistryEntry:
    """Return the registry's entry for a reason (without hints that have placeholders), or an entry with only a name."""
    gb_id, entry = _registry().get(gb_type, (None, {}))
    return RegistryEntry(
        gb_type=gb_type,
        gb_id=gb_id,
        explanation=entry.get("Explanation"),
        hints=[hint for hint in entry.get("Hints", []) if "{" not in hint],
    )
